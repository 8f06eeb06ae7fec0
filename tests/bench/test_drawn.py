"""bench/gpu/drawn.py on a CPU: what it draws is right in the simulator, and what is wrong is told."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

GPU = Path(__file__).resolve().parents[2] / "bench" / "gpu"
sys.path.insert(0, str(GPU))

import drawn  # noqa: E402

from blackwell_matmul.jobs.worker import TaskOutcome  # noqa: E402

NUMBERS = (0, 3, 4, 5, 6, 12, 15, 16)
"""A case of each kind, small in all sizes."""


def judged(number: int) -> Any:
    return drawn.judge(lambda what: None, number, "cpu")


@pytest.mark.process
@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_drawn_is_right(number: int) -> None:
    assert judged(number)["outcome"] == "right"


def test_all_kinds_are_among_them() -> None:
    kinds = {drawn.drawn(number, "cpu").kind.split()[0] for number in NUMBERS}
    assert kinds == {"matmul", "bmm", "linear", "gradients", "scaled_mm", "grouped"}


def test_a_case_is_the_same_whenever_it_is_drawn() -> None:
    assert drawn.drawn(12, "cpu").what == drawn.drawn(12, "cpu").what != drawn.drawn(13, "cpu").what


def test_a_result_of_twice_the_error_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn.drawn(1, "cpu")
    monkeypatch.setattr(drawn, "drawn", lambda number, device: dataclasses.replace(case, ours=off(case)))
    row = judged(1)
    assert row["outcome"] == "wrong" and row["error_over_torchs"] > 2


def off(case: Any) -> Any:
    """Its results, with an error of a few steps of the largest."""
    return lambda: tuple(each + each.abs().max() / 100 for each in case.ours())


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        (TaskOutcome(failed="it said nothing for 60 s", step="matmul 8x8x8", timed_out=True), "hangs"),
        (TaskOutcome(failed="it died", step="matmul 8x8x8"), "error"),
    ],
)
def test_what_hangs_or_dies_has_a_row(ended: TaskOutcome, outcome: str) -> None:
    row = drawn.row_of(7, ended)
    assert (row["case"], row["outcome"], row["what"]) == (7, outcome, "matmul 8x8x8") and json.dumps(row)


def test_a_summary_has_each_kinds_largest_error_and_the_rows_that_are_not_right() -> None:
    rows = [
        {"case": n, "kind": "bmm", "outcome": o, "error_over_torchs": e}
        for n, o, e in ((0, "right", 1), (1, "wrong", 3))
    ]
    rows.append(drawn.row_of(2, TaskOutcome(failed="it died", step="bmm")))
    found = drawn.summary(rows)
    assert found["outcomes"] == {"right": 1, "wrong": 1, "error": 1}
    assert found["kinds"] == {"bmm": {"cases": 2, "most_error_over_torchs": 3}}
    assert found["others"] == rows[1:]
