"""Where a program waits for the grids before it: at the end of what needs no memory; those of all rungs are in
tests/compiler/test_early_start.py."""

from __future__ import annotations

from typing import Any

import pytest
from frontend_samples import built
from tilus.hidet.ir.dtypes import int32
from tilus.hidet.ir.expr import Var
from tilus.hidet.ir.primitives.cuda.cluster import this_cluster
from tilus.ir.stmt import DeclareStmt, EvaluateStmt, ForStmt, InstStmt, LetStmt, ReturnStmt, SeqStmt, ThreadGroupStmt

from blackwell_matmul.frontend import Program, bind_all, build_first
from blackwell_matmul.frontend.launch_order import (
    GridDependencyInst,
    RelaxedClusterSyncInst,
    is_lone,
    may_start_early,
    waiting,
)
from blackwell_matmul.frontend.recording import walk
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem


def program(name: str, **pins: int) -> Program:
    m, n, k, target = 1000, 1024, 1024, rung(name).target
    arguments = arguments_of(Problem(m, n, k, "fp16"), None)
    return build_first(bind_all(rung(name), arguments, schedule=pins, target=target), target)[1]


@pytest.mark.parametrize(
    ("name", "pins", "lone"),
    [
        ("h5", {}, True),
        ("h6", {"cluster_m": 1}, True),
        ("h6", {"cluster_m": 2}, False),
        ("hopper", {"cluster_m": 1}, False),
    ],
)
def test_a_program_says_whether_a_cta_is_alone(name: str, pins: dict[str, int], lone: bool) -> None:
    assert program(name, **pins).lone_cta is lone


@pytest.mark.parametrize(
    ("target", "name", "early"),
    [
        ("sm_80", "CpAsync", False),
        ("sm_90a", "CpAsync", True),
        ("sm_100a", "TensorMemory", False),
        ("sm_120a", "CpAsync", True),
    ],
)
def test_which_kernels_may_start_early(target: str, name: str, early: bool) -> None:
    assert may_start_early(target, built(name).tile) is early


@pytest.mark.parametrize(("extents", "lone"), [((), True), ((1, 1, 1), True), ((2, 1, 1), False), ((1, 2, 1), False)])
def test_which_kernels_are_alone(extents: tuple[int, ...], lone: bool) -> None:
    assert is_lone(extents) is lone


# --- the walk

SYNC, NUMBER = EvaluateStmt(this_cluster.sync(), None), DeclareStmt(Var("number", int32), int32(1))
GROUP, LOOP = ThreadGroupStmt.create(0, 32, NUMBER), ForStmt(Var("i", int32), int32(4), NUMBER, None)


def names(stmt: Any) -> list[str]:
    leaves = (node for node in walk(stmt) if not isinstance(node, (SeqStmt, LetStmt, InstStmt)))
    return [type(leaf).__name__ for leaf in leaves]


def walked(*stmts: Any) -> list[str]:
    return names(waiting(SeqStmt.create(stmts), lambda old, new: None))


RELAXED, WAIT = RelaxedClusterSyncInst.__name__, GridDependencyInst.__name__


@pytest.mark.parametrize("last", [ReturnStmt(), GROUP, LOOP], ids=lambda stmt: type(stmt).__name__)
def test_the_prologue_ends_at_what_is_not_known_to_be_harmless(last: Any) -> None:
    assert walked(SYNC, SeqStmt.create([NUMBER, last, SYNC])) == [
        RELAXED, "DeclareStmt", WAIT, *names(last), "EvaluateStmt"
    ]  # fmt: skip


def test_a_kernel_that_touches_nothing_waits_all_the_same() -> None:
    """The grid after it waits for it alone: it must not end before those in front of it."""
    assert walked(NUMBER) == ["DeclareStmt", WAIT]


def test_the_prologue_goes_on_below_a_let() -> None:
    let = LetStmt.create([Var("x", int32)], [int32(1)], SeqStmt.create([NUMBER, GROUP]))
    assert walked(let) == ["DeclareStmt", WAIT, *names(GROUP)]


def test_each_new_statement_is_told() -> None:
    told: list[tuple[Any, Any]] = []
    body = SeqStmt.create([SYNC, GROUP])
    waiting(body, lambda old, new: told.append((old, new)))
    assert [old for old, _ in told] == [SYNC, GROUP, GROUP, body]
