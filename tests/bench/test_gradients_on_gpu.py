"""bench/gpu/gradients_on_gpu.py on a CPU: its kinds are right in the simulator, and a wrong one is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import gradients_on_gpu as bench

KINDS = {kind.name: number for number, kind in enumerate(bench.KINDS)}


def judged(name: str) -> bench.Row:
    return bench.judge(lambda what: None, KINDS[name], "cpu")


def test_each_kind_has_a_name_of_its_own() -> None:
    assert len(KINDS) == len(bench.KINDS) and {kind.operation for kind in bench.KINDS} == set(bench.OPERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("matmul bf16 kmT nkT", ["result", "x", "w"]),
        ("matmul bf16 cbmk cbkn", ["result", "x", "w"]),
        ("bmm fp16 bmk bkn frozen x", ["result", "w"]),
        ("linear fp16 mk nk n frozen w", ["result", "x", "bias"]),
        ("linear bf16 mk nk n frozen xw", ["result", "bias"]),
        ("linear bf16 mk nk - mn", ["result", "x", "w", "residual"]),
        ("linear bf16 bmk nk n sum", ["result", "x", "w", "bias"]),
        ("baddbmm bf16 bmk bkn n alpha=0.5", ["result", "x", "w", "bias"]),
        ("linear bf16 mk nk frozen w batch_invariant=True", ["result", "x"]),
        ("linear bf16 mk nk n odd", ["result", "x", "w", "bias"]),
    ],
)
def test_kinds_are_right(name: str, results: list[str]) -> None:
    row = judged(name)
    assert row["kind"] == name and row["outcome"] == "right" and not row["wrong"]
    assert [*row["first"]] == [*row["later"]] == results


@pytest.mark.slow
def test_what_is_wrong_in_a_later_call_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient, here by a weight that is another's."""
    seen = list[torch.Tensor]()

    def first_weight(x: torch.Tensor, w: torch.Tensor, **options: bool) -> torch.Tensor:
        seen.append(w.detach())
        return bench.ours.linear(x, w - w.detach() + seen[0], **options)

    monkeypatch.setitem(bench.OPERATIONS, "linear", (first_weight, bench.torchs_linear))
    row = judged("linear bf16 mk nk")
    assert row["outcome"] == "wrong" and row["wrong"] == ["result", "x"]
    assert max(row["first"].values()) <= 2 < row["later"]["x"] and json.dumps(row)


def test_a_verdict_counts_kinds_that_are_wrong_or_missing() -> None:
    rows = [{"outcome": each} for each in ("right", "wrong", "error")]
    assert bench.verdict(rows[:1], 1) == "right"
    assert bench.verdict(rows, 4) == "3 of 4 kinds are wrong or missing"
