"""Kernels of another compiler, emulated: what they compute is right, in several orders (`foreign/README.md`)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "foreign"))

from run import outcome  # noqa: E402

RECORDS = sorted((HERE / "foreign").glob("*.json"))


ORDERS = ("late", "newest", "random")


@pytest.mark.parametrize("number", range(len(RECORDS)), ids=[path.stem for path in RECORDS])
def test_a_foreign_kernel_is_right(number: int) -> None:
    """Each kernel in one order, and each order with six kernels; bench/foreign/run.py runs any."""
    path, order = RECORDS[number], ORDERS[number % len(ORDERS)]
    record = json.loads(path.read_text())
    for data in ("exact", "random"):
        right, _ratio, message = outcome(path, record, data, order=order, seed=1)
        assert right, message


def test_the_sample_is_there() -> None:
    assert len(RECORDS) == 19
