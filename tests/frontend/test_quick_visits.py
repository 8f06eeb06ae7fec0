"""Visits of tilus's passes that are made quicker give what tilus gives."""

from __future__ import annotations

from tilus.ir import tools
from tilus.ir.inst import Instruction
from tilus.ir.stmt import DeclareStmt, ForStmt, InstStmt, LetStmt, SeqStmt, Stmt
from tilus.ir.tensor import Tensor

from blackwell_matmul.frontend import Program
from blackwell_matmul.frontend.faster.quick_visits import quick_visits

TYPES = ([Instruction], [Stmt], [DeclareStmt, LetStmt, ForStmt], (InstStmt, SeqStmt), [Instruction, Tensor])


def test_a_list_of_statements_is_tilus_s(program: Program) -> None:
    for node in (program.tile, program.final, program.tile.body):
        theirs = [tools.collect(node, types) for types in TYPES]
        with quick_visits():
            ours = [tools.collect(node, types) for types in TYPES]
        assert [list(map(id, each)) for each in ours] == [list(map(id, each)) for each in theirs]
        assert len(theirs[0]) > 1


def test_nothing_to_replace_leaves_a_function_as_it_is(program: Program) -> None:
    theirs = tools.rewrite(program.tile, {})
    with quick_visits():
        assert tools.rewrite(program.tile, {}) is program.tile
    assert str(theirs) == str(program.tile)
