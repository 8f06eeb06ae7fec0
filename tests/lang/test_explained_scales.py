"""Sentences of `explain` about copies of scales: what they keep the tensor core from, if that is worth one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from overlapping_sums_script import OverlappingSums
from scaled_operands import arguments, operands

from blackwell_matmul import predict
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.timing.explain.explain_launch import scales
from blackwell_matmul.simulator.timing.explain.what_if import COPY_OF_SCALES, ISSUES, THREADS, group_of
from blackwell_matmul.simulator.timing.model.path import EXECUTES, TRIP, Cause

LINES = [Location("kernel.py", line) for line in (114, 115, 116)]


def run_that_gains(gain: float, freed: list[Any]) -> Any:
    """A run with two copies and a product, whose copies take this fraction of its time."""
    names = (COPY_OF_SCALES, COPY_OF_SCALES, "tcgen05.mma")
    each = [(None, SimpleNamespace(name=name, location=line)) for name, line in zip(names, LINES, strict=True)]

    def answer(conditions: Any, change: Any) -> float:
        freed.append(change.free)
        return gain

    return SimpleNamespace(lowered=SimpleNamespace(calls=dict(enumerate(each))), conditions=None, gain=answer)


@pytest.mark.parametrize("gain", [0.04, 0.08])
def test_copies_of_scales_are_told_where_they_cost(gain: float) -> None:
    freed: list[Any] = []
    found = list(scales(run_that_gains(gain, freed)))
    assert freed == [frozenset((line, COPY_OF_SCALES) for line in LINES[:2])]
    assert len(found) == (gain > 0.05)
    for share, sentence in found:
        assert share == gain and sentence.startswith("tcgen05.cp of scales (kernel.py:114, kernel.py:115) keeps")
        assert sentence.endswith("without any, 8% fewer cycles.")


def test_a_copy_is_no_work_of_threads() -> None:
    assert group_of(Cause(TRIP, COPY_OF_SCALES, LINES[0])) != THREADS
    assert group_of(Cause(EXECUTES, COPY_OF_SCALES, LINES[0])) == ISSUES
    m, n, k = 256, 1024, 4096
    called = arguments(m, n, k, *operands("mxfp4", m, n, k)[:2], torch.empty(m, n))
    told = predict(OverlappingSums(stages=6), *called).explanation
    assert told and not any("tcgen05.cp" in each and "if this took no time" in each for each in told)
