"""The cases that bench/gpu/products.py times: ours and torch's are the same, in the simulator and small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tilus")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import products

CASES = {case.name: case for case in products.cases(64, "cpu")}


@pytest.mark.parametrize("name", CASES)
def test_both_compute_the_same(name: str) -> None:
    assert products.difference(CASES[name]) <= 0.02


def test_every_operation_is_there() -> None:
    said = " ".join(CASES)
    for operation in ("matmul TT", "linear bias gelu", "bmm", "scaled_mm rowwise", "grouped", "SwiGLU with backward"):
        assert operation in said
