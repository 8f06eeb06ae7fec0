"""What bench/gpu/products.py times, ours and torch's, is the same, in the simulator and small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tilus")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import product_cases
import products

pytestmark = pytest.mark.slow

CASES = {case.name: case for case in product_cases.cases(64, "cpu")}
OF_MODELS = [
    case for case in product_cases.llm("cpu", small=32) if case.name.startswith(("128x128x128", "4 of", "2 of"))
]


ODD = [case for case in product_cases.odd("cpu", small=32) if case.name.startswith(("1x", "16x129x"))]


@pytest.mark.parametrize("name", CASES)
def test_both_compute_the_same(name: str) -> None:
    assert products.difference(CASES[name]) <= 0.02


def test_every_operation_is_there() -> None:
    said = " ".join(CASES)
    for operation in ("matmul TT", "linear bias gelu", "bmm", "scaled_mm rowwise", "grouped", "SwiGLU with backward"):
        assert operation in said


@pytest.mark.parametrize("case", OF_MODELS, ids=lambda case: f"{case.kind} {case.name}")
def test_both_compute_the_same_of_models(case: product_cases.Case) -> None:
    assert products.difference(case) <= 0.02


@pytest.mark.parametrize("case", ODD, ids=lambda case: f"{case.kind} {case.name}")
def test_both_compute_the_same_of_odd_columns(case: product_cases.Case) -> None:
    assert products.difference(case) <= 0.02


def test_each_kind_has_its_own_mean() -> None:
    rows = [{"kind": "bmm", "ratio": 0.5}, {"kind": "bmm", "ratio": 2.0}, {"kind": "bias", "error": "InputError: ..."}]
    assert products.means(rows) == {"bmm": 1.0}
    assert products.table_of(rows, products.means(rows)).row_count == 4
