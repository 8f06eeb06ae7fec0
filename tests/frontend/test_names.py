"""Each tensor and barrier is called what the script calls it."""

from __future__ import annotations

from typing import Any

from frontend_samples import built

from blackwell_matmul.frontend import Program
from blackwell_matmul.frontend.recording import instructions, operands


def outputs(program: Program, kind: str) -> list[str | None]:
    return [program.name_of(inst.output) for inst in instructions(program.tile) if type(inst).__name__ == kind]


def attributes(program: Program, kind: str, name: str) -> list[str | None]:
    found: list[Any] = [inst for inst in instructions(program.tile) if type(inst).__name__ == kind]
    return [program.name_of(getattr(inst, name)) for inst in found]


def test_every_tensor_has_a_name(program: Program) -> None:
    for inst in instructions(program.tile):
        assert all(program.name_of(tensor) for tensor in operands(inst)), type(inst).__name__


def test_tensors_have_the_name_that_was_bound_first() -> None:
    program = built("TmaMatmul")
    assert outputs(program, "GlobalViewInst") == ["g_a", "g_b", "g_c"]
    assert outputs(program, "AllocateSharedInst") == ["s_a", "s_b"]
    assert outputs(program, "Tcgen05AllocInst") == ["t_acc"]
    assert outputs(program, "Tcgen05LoadInst") == ["r_acc"]


def test_barriers_are_called_by_the_object_that_holds_them() -> None:
    program = built("TmaMatmul")
    assert outputs(program, "AllocBarrierInst")[1] == "ring.full"
    assert set(attributes(program, "CopyAsyncTensorGlobalToSharedInst", "mbarrier")) == {"ring.full[ring.stage]"}
    assert set(attributes(program, "ArriveExpectTxBarrierInst", "barrier")) == {"ring.full[ring.stage]"}


def test_barriers_unpacked_from_a_list_have_their_own_names() -> None:
    program = built("TmaMatmul")
    assert attributes(program, "Tcgen05CommitInst", "mbarrier") == ["done"]
    assert attributes(program, "WaitBarrierInst", "barrier") == ["ring.full[ring.stage]", "done"]
    assert attributes(program, "WaitBarrierInst", "phase") == ["ring.phase", "done_phase"]


def test_slices_are_called_by_their_source() -> None:
    names = set(outputs(built("TmaMatmul"), "SliceSharedInst"))
    assert names == {"s_a[0]", "s_b[0]", "s_a[ring.stage]", "s_b[ring.stage]"}


def test_attributes_of_the_script_are_called_self() -> None:
    assert outputs(built("CpAsync"), "AllocateSharedInst") == ["self.s_a", "s_b", "s_c"]


def test_a_value_without_a_name_is_called_by_its_source() -> None:
    assert outputs(built("TmaMatmul"), "CastInst") == ["r_acc.to(float16)"]
    assert outputs(built("TmaMatmul"), "PermuteSharedInst") == ["s_b[ring.stage].transpose()"]
    assert outputs(built("Inlined"), "AllocateRegisterInst") == ["value * doubler.factor"]


def test_parameters_have_their_names(program: Program) -> None:
    for name, var in program.params:
        assert program.name_of(var) == name == var.hint
