"""`build` keeps both views, records what code generation decides, and turns refusals into one sentence."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import threading
from pathlib import Path
from typing import Any

import frontend_scripts as scripts
import pytest
from frontend_samples import CALLS, built

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend import Program, bind, bind_all, build, build_first
from blackwell_matmul.frontend.build import _key
from blackwell_matmul.frontend.messages.lacking import lacking
from blackwell_matmul.frontend.recording import instructions


def refusal(script: Any, *args: Any, target: str = "sm_100a") -> CompileError:
    with pytest.raises(CompileError) as error:
        build_first(bind_all(script, args, target=target), target)
    assert "\n" not in str(error.value)
    return error.value


def line_with(text: str) -> int:
    """The line of the first occurrence of `text` in the scripts."""
    lines = Path(scripts.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_both_views_are_there(program: Program) -> None:
    assert program.tile.metadata.analysis is not None
    assert any(function.kind == "cuda_kernel" for function in program.lowered.functions.values())
    kinds = {type(inst).__name__ for inst in instructions(program.tile)}
    assert not kinds & {"LoadGlobalGenericInst", "StoreGlobalGenericInst", "CopyAsyncGenericInst"}


def test_shared_tensors_have_the_addresses_of_code_generation() -> None:
    program = built("TmaMatmul")
    found = {program.name_of(tensor): (each.address, each.nbytes) for tensor, each in program.shared.items()}
    assert found == {"s_a": (0, 2 * 128 * 32 * 2), "s_b": (16384, 2 * 64 * 32 * 2)}
    assert program.barrier_address == 24576
    assert list(program.barriers.values()) == [24576, 24576 + 16]
    assert program.workspace is not None and program.workspace.address == 24576 + 128
    assert program.dynamic_shared_bytes == program.workspace.address + program.workspace.nbytes


def test_every_shared_tensor_of_the_tile_view_has_an_address(program: Program) -> None:
    tensors = [inst.output for inst in instructions(program.tile) if type(inst).__name__ == "AllocateSharedInst"]
    assert all(tensor in program.shared for tensor in tensors)
    assert all(each.address + each.nbytes <= program.dynamic_shared_bytes for each in program.shared.values())


def test_freed_shared_memory_is_used_again() -> None:
    program = built("CpAsync")
    address = {program.name_of(tensor): each.address for tensor, each in program.shared.items()}
    assert address == {"self.s_a": 0, "s_b": 2048, "s_c": 0}
    assert program.barrier_address is None


def test_constants_and_parameters() -> None:
    program = built("TmaMatmul")
    assert [name for name, _ in program.params] == ["m", "a_ptr", "b_ptr", "c_ptr"]
    assert program.consts == {"n": 256, "k": 128}
    assert (program.name, program.target) == ("TmaMatmul", "sm_100a")


def test_the_same_program_is_built_once_and_another_one_again() -> None:
    def of(target: str = "sm_100a", **schedule: object) -> Program:
        return build(bind(scripts.CpAsync, CALLS["CpAsync"], schedule=schedule, target=target), target)

    assert of() is of()
    different = [of(), of(stages=3), of(target="sm_80"), of(debug=True), of(copies=True)]
    assert all(a is not b for a, b in itertools.combinations(different, 2))


class Unhashable:
    def __hash__(self) -> int:
        raise RuntimeError("not to be hashed")


def in_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def key_with(value: object) -> object:
    bound = bind(scripts.CpAsync, CALLS["CpAsync"], target="sm_100a")
    assert _key(bound, "sm_100a") is not None
    return _key(dataclasses.replace(bound, init_kwargs={"value": value}), "sm_100a")


class Odd:
    __module__ = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("not to be asked")


@pytest.mark.parametrize("value", [iter([1]), threading.Lock(), sys.stdin], ids=["iterator", "lock", "file"])
def test_a_program_whose_schedule_has_no_name_is_not_kept(value: object) -> None:
    assert key_with(value) is None


def test_what_raises_when_it_is_looked_at_is_not_kept() -> None:
    assert key_with(Odd()) is None
    assert key_with(Odd) is None


@pytest.mark.parametrize("value", [Unhashable(), {1: 0, "a": 0}, in_itself()], ids=["hash", "sorted", "endless"])
def test_what_cannot_be_hashed_or_sorted_or_has_no_end_has_a_name(value: object) -> None:
    assert key_with(value) == key_with(value) != key_with(None)
    assert key_with(value) is not None


def test_the_first_candidate_that_compiles_is_taken() -> None:
    bound, _ = build_first(bind_all(scripts.OddFails, (1,), target="sm_100a"), "sm_100a")
    assert bound.init_kwargs == {"block": 4}


def test_if_no_candidate_compiles_the_first_refusal_is_raised() -> None:
    candidates = [b for b in bind_all(scripts.OddFails, (1,), target="sm_100a") if b.init_kwargs["block"] % 2]
    with pytest.raises(CompileError, match="block must be even"):
        build_first(candidates, "sm_100a")


@pytest.mark.parametrize(
    ("script", "reason", "line"),
    [
        (
            scripts.TooMuchShared,
            "it takes 262144 bytes of shared memory, and a CTA can have 232448",
            "def __call__(self, n: int32):",
        ),
        (scripts.NoLayout, "no rule can infer a layout for r_lonely (float32 64)", "r_lonely = "),
        (scripts.WrongShapes, "shape [64] does not match the register tensor shape [32]", "store_shared(s_x, r_x)"),
        (scripts.WrongAssume, "such as m % 16 == 0, and here is (3 < n)", "self.assume(n > 3)"),
        (scripts.UndefinedName, "the name `nothing` is not defined", 'self.printf("%d\\n", nothing)'),
        (scripts.RaisesInInit, "block must be even", "assert block % 2 == 0"),
    ],
)
def test_a_refusal_is_one_sentence_with_the_reason_and_the_line(script: type, reason: str, line: str) -> None:
    error = refusal(script, 1)
    assert str(error).startswith(f"{script.__name__} does not compile for sm_100a: ")
    assert reason in str(error)
    found = re.search(r"\(.*frontend_scripts\.py:(\d+)\)\.$", str(error))
    assert found is not None
    if "__call__" not in line:
        assert int(found[1]) == line_with(line)
    assert error.__cause__ is not None


def test_tensor_memory_that_is_not_given_back_is_named() -> None:
    error = str(refusal(scripts.TensorMemory(leak=True), 1))
    assert "t_acc (float32 128x32)" in error
    assert f":{line_with('t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 32])')})" in error


def test_of_a_target_that_has_tcgen05_it_is_tilus_that_has_no_code():
    assert lacking("Tcgen05AllocInst", "sm_110a") == "tilus has no code for Tcgen05AllocInst on this target"
    assert lacking("Tcgen05AllocInst", "sm_80").startswith("sm_80 has no tcgen05 instructions; B200")


def test_an_instruction_that_the_target_lacks_is_named_with_its_line() -> None:
    error = str(refusal(scripts.TmaMatmul, *CALLS["TmaMatmul"], target="sm_80"))
    assert (
        "TmaMatmul does not compile for sm_80: sm_80 has no tcgen05 instructions; B200, GB200 and B300 have them"
        in error
    )


def test_names_and_scopes_do_not_leak_from_a_refused_script() -> None:
    from tilus.lang.transpiler import builder

    refusal(scripts.UndefinedName, 1)
    assert builder._scope_stack == []
