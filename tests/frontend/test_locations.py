"""Each instruction of the tile view has the line of the code that made it, through inlining and passes."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest
import torch
from frontend_samples import built

from blackwell_matmul.frontend import Program, bind, build
from blackwell_matmul.frontend.recording import instructions, operands, walk
from blackwell_matmul.kernels import rung

WRITTEN_AS = {
    "AddInst": "+ self.abs(",
    "AllocBarrierInst": "mbarrier.alloc(",
    "AllocateRegisterInst": "register_tensor( + *",
    "AllocateSharedInst": "shared_tensor(",
    "ArriveExpectTxBarrierInst": "mbarrier.arrive_and_expect_tx(",
    "AssignInst": "=",
    "AssignStmt": "=",
    "BreakStmt": "break",
    "CastInst": ".to(",
    "CopyAsyncCommitGroupInst": "copy_async_commit_group(",
    "CopyAsyncInst": "copy_async(",
    "CopyAsyncTensorGlobalToSharedInst": "tma.global_to_shared(",
    "CopyAsyncWaitGroupInst": "copy_async_wait_group(",
    "DeclareStmt": "=",
    "DotInst": "self.dot(",
    "ElementwiseUnaryInst": "self.exp( self.abs(",
    "ForStmt": "for ",
    "FormatPrintInst": "printf(",
    "FreeSharedInst": "free_shared(",
    "GlobalViewInst": "global_view(",
    "IfStmt": "if ",
    "LetStmt": "= for",
    "LoadGlobalInst": "load_global(",
    "LoadSharedInst": "load_shared(",
    "MulInst": "*",
    "PermuteSharedInst": ".transpose(",
    "PrintTensorInst": "print_tensor(",
    "ReduceInst": "self.sum(",
    "SliceRegisterInst": "[self.stage] .tolist(",
    "SliceSharedInst": "s_a[ s_b[",
    "StoreGlobalInst": "store_global(",
    "StoreSharedInst": "store_shared(",
    "SubInst": "-=",
    "SyncThreadsInst": "self.sync(",
    "Tcgen05AllocInst": "tcgen05.alloc(",
    "Tcgen05CommitInst": "tcgen05.commit(",
    "Tcgen05DeallocInst": "tcgen05.dealloc(",
    "Tcgen05LoadInst": "tcgen05.load( print_tensor(",
    "Tcgen05MmaSSInst": "tcgen05.mma(",
    "Tcgen05StoreInst": "tcgen05.store(",
    "Tcgen05WaitInst": "tcgen05.wait_ print_tensor(",
    "TensorItemValueStmt": "mbarrier.arrive tma.global mbarrier.wait tcgen05.commit .tolist(",
    "ThreadGroupStmt": "with self.single_",
    "WaitBarrierInst": "mbarrier.wait(",
    "WhileStmt": "while ",
}
"""For each kind of node, what its line may contain: one of the words."""


def source(program: Program, node: object) -> str:
    location = program.location_of(node)
    assert location is not None, f"{type(node).__name__} has no line"
    assert Path(location.file).name == "frontend_scripts.py"
    return linecache.getline(location.file, location.line)


def test_every_node_has_the_line_that_wrote_it(program: Program) -> None:
    for node in walk(program.tile.body):
        kind = type(node).__name__
        if kind not in ("SeqStmt", "InstStmt", "GridDependencyInst"):  # the last is nobody's line
            line = source(program, node)
            assert any(word in line for word in WRITTEN_AS[kind].split()), (kind, line)


def test_an_instruction_is_on_the_line_of_its_own_name_in_a_call_over_several_lines() -> None:
    program = built("Arithmetic")
    (load,) = (inst for inst in instructions(program.tile) if type(inst).__name__ == "LoadGlobalInst")
    assert source(program, load).strip() == "x = self.load_global("


def test_inlined_methods_keep_their_own_lines() -> None:
    program = built("Inlined")
    lines = {type(inst).__name__: source(program, inst).strip() for inst in instructions(program.tile)}
    assert lines["LoadGlobalInst"].startswith("values = self.load_global(")
    assert lines["MulInst"] == "scaled = value * self.factor"
    assert lines["StoreGlobalInst"].startswith("self.store_global(g_out, values")


def test_elif_and_else_have_the_line_of_their_branch() -> None:
    program = built("Arithmetic")
    branches = [node for node in walk(program.tile.body) if type(node).__name__ == "IfStmt"]
    assert [source(program, branch).strip() for branch in branches] == ["if step > 3:", "elif step == 2:"]


def test_what_a_pass_inserts_has_the_line_that_it_was_inserted_for() -> None:
    program = built("TensorMemory")
    (load,) = (inst for inst in instructions(program.tile) if type(inst).__name__ == "Tcgen05LoadInst")
    assert "print_tensor" in source(program, load)


@pytest.mark.parametrize("name", ["Arithmetic", "Inlined", "CpAsync"])
def test_the_wait_for_the_grids_before_has_the_line_of_what_it_stands_before(name: str) -> None:
    program = built(name)
    nodes = [node for node in walk(program.tile.body) if type(node).__name__ not in ("SeqStmt", "InstStmt")]
    (at,) = (index for index, node in enumerate(nodes) if type(node).__name__ == "GridDependencyInst")
    assert source(program, nodes[at]) == source(program, nodes[at + 1])


def test_every_generated_instruction_comes_from_one_of_the_tile_view(program: Program) -> None:
    tile = instructions(program.tile)
    for inst in instructions(program.final):
        assert any(program.origins[inst] is each for each in tile)


def test_a_lowered_load_comes_from_the_load_that_was_written() -> None:
    program = built("Inlined")
    lowered = {type(inst).__name__: type(origin).__name__ for inst, origin in program.origins.items()}
    assert lowered["LoadGlobalGenericInst"] == "LoadGlobalInst"
    assert lowered["StoreGlobalGenericInst"] == "StoreGlobalInst"


def test_assumptions_survive_with_their_line() -> None:
    program = built("Arithmetic")
    ((condition, location),) = program.assumes
    assert str(condition) == "(((n % 4) == 0) && ((limit % 2) == 0))"
    assert "self.assume(" in linecache.getline(location.file, location.line)
    assert built("Inlined").assumes == ()


def test_every_operand_has_a_layout_in_the_tile_view(program: Program) -> None:
    for inst in instructions(program.tile):
        assert all(getattr(tensor, "optional_layout", True) is not None for tensor in operands(inst))


def test_a_shared_class_is_where_the_kernel_calls_it() -> None:
    """A wait of `Ring`, which lies in a file of its own, has the kernel's line; so have its barriers."""
    m, n, k = 128, 64, 64
    tensors = (torch.empty(rows, columns, dtype=torch.float16) for rows, columns in ((m, k), (n, k), (m, n)))
    program = build(bind(rung("v4"), (m, n, k, *tensors), schedule={}, target="sm_100a"), "sm_100a")
    places = [program.location_of(inst) for inst in instructions(program.tile)]
    assert {Path(place.file).name for place in places} == {"v4.py"}
    lines = {linecache.getline(place.file, place.line).strip() for place in places}
    assert {"ring.wait_empty()", "ring.wait_full()", "ring = Ring(self.stages)"} <= lines
