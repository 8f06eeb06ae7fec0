"""What bench/gpu/grouped_schedules.py times: every schedule computes what torch's own operation does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tilus")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import grouped_schedules
import torch
from grouped_schedules import Groups


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["calls", "calls_of_sums"])
def test_every_schedule_computes_the_same(kind):
    case = Groups("small", (40, 0, 150, 10), 64, 64)
    contenders = dict(getattr(grouped_schedules, kind)(case, "cpu"))
    expected = contenders.pop("torch")()
    assert len(contenders) >= 2
    for name, call in contenders.items():
        assert grouped_schedules.difference(call(), expected) <= 0.02, name


def test_what_fails_or_differs_is_left_out(monkeypatch):
    ones = torch.ones(2, 2)
    calls = {"torch": lambda: ones, "same": lambda: ones, "other": lambda: 2 * ones, "none": lambda: 1 // 0}
    monkeypatch.setattr(grouped_schedules, "measured", lambda left: {name: 10.0 + len(name) for name in left})
    found = grouped_schedules.row("product", Groups("", (2,), 2, 2), calls)
    assert found["us"] == {"torch": 15.0, "same": 14.0} and found["torch / this"]["same"] == 1.0714
    assert found["left_out"] == {
        "other": "differs by 1", "none": "ZeroDivisionError: integer division or modulo by zero"
    }  # fmt: skip


def test_cases_grow_with_their_scale():
    even, ragged, *_ = grouped_schedules.cases(64)
    assert sum(even.rows) == 4096 and even.n == even.k == 4096
    assert 0 in ragged.rows and any(rows % 64 for rows in ragged.rows) and sum(ragged.rows) < 4300
