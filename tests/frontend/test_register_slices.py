"""Slices of register tensors that tilus 0.2.0 reads wrongly are refused; the others are not."""

from __future__ import annotations

import re
from typing import Any

import frontend_scripts as scripts
import numpy as np
import pytest
from tilus.ir.layout.ops import local, replicated, spatial

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults import register_slices
from blackwell_matmul.simulator import simulate


def test_a_slice_of_the_leading_dimension_is_right() -> None:
    x, y = np.arange(256, dtype=np.float32).reshape(2, 32, 4), np.full((32, 4), np.nan, np.float32)
    assert simulate(scripts.Sliced, x, y, schedule={"row": True}).ok
    assert (y == x[1]).all()


def test_a_slice_of_a_later_dimension_is_refused_with_its_line() -> None:
    x, y = np.zeros((2, 32, 4), np.float32), np.zeros((2, 32), np.float32)
    with pytest.raises(
        CompileError, match=r"reads this slice of whole from other registers .*frontend_scripts\.py:\d+"
    ):
        simulate(scripts.Sliced, x, y, schedule={"row": False})


def test_what_the_generated_code_reads_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself: both elements of a thread's slice come from register 1; the second is register 5."""
    monkeypatch.setattr(register_slices, "fault", lambda inst, name: None)
    x, y = np.zeros((2, 32, 4), np.float32), np.zeros((2, 32), np.float32)
    bundle = compile(scripts.Sliced, x, y, schedule={"row": False}, target="sm_90a", cache=False)
    assert re.search(r"slice_regs\[\w+\] = regs\[1\];", bundle.source)


ROWS, COLUMNS = local(16, 1).spatial(1, 32), replicated(1, 1, num_workers=2) * spatial(16, 1).local(1, 32)
"""All rows of a column in a thread; all columns of a row."""

TILE = np.arange(512, dtype=np.int32).reshape(16, 32)


def in_registers(run: Any, layout: Any, part: str, y: Any = None, **options: Any) -> Any:
    return run(scripts.Registers(layout, part), TILE.copy(), np.zeros_like(TILE) if y is None else y, **options)


@pytest.mark.parametrize("run", [simulate, compile])
@pytest.mark.parametrize(
    ("layout", "part", "reason"),
    [
        (ROWS, "column", "in some of the threads.* has all of dimension 1"),
        (COLUMNS, "row", "in some of the threads.* has all of dimension 0"),
        (spatial(4, 8).local(4, 4), "row", "in some of the threads.* has all of dimension 0"),
        (ROWS, "element", "in some of the threads.* has all of dimension 1"),
        (COLUMNS, "element", "in some of the threads.* has all of dimension 0"),
        (COLUMNS, "wrong threads", "writes to this slice of x in other threads than have it"),
    ],
)
def test_what_would_have_to_move_between_threads_is_refused(run: Any, layout: Any, part: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as refusal:
        in_registers(run, layout, part, target="sm_90a")
    assert re.search(r"frontend_scripts\.py:\d+\)\.$", str(refusal.value))


@pytest.mark.parametrize(("layout", "part", "expected"), [(ROWS, "row", TILE[3]), (COLUMNS, "column", TILE[:, 5])])
def test_what_each_thread_has_is_right(layout: Any, part: str, expected: np.ndarray) -> None:
    y = np.zeros_like(expected)
    assert in_registers(simulate, layout, part, y).ok
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("part", "code"),
    [("row", r"slice_regs\[(\w+)\] = regs\[\1\];"), ("element", r"\n  regs\[2\] = regs_1\[0\];")],
)
def test_every_thread_takes_a_register(part: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: each thread has a row, and no condition says which of them has row 3."""
    monkeypatch.setattr(register_slices, "fault", lambda inst, name: None)
    layout = replicated(1, 1, num_workers=2) * spatial(16, 1).local(1, 32)  # one that no cache knows
    source = in_registers(compile, layout, part, target="sm_90a", cache=False).source
    assert re.search(code, source) and "if (" not in source


@pytest.mark.parametrize("layout", [ROWS, COLUMNS, spatial(4, 8).local(4, 4), spatial(2, 2).local(2, 1).spatial(4, 2)])
def test_places_of_registers_are_tilus_s(layout: Any) -> None:
    for thread in range(layout.spatial_size):
        for register in range(layout.local_size):
            theirs = [int(each) for each in layout.get_global(local_index=register, spatial_index=thread)]
            assert register_slices.indices_of(layout, register, thread) == theirs
