"""Planted faults of block-scaled kernels: each is found, and its first sentence says what to mend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from overlapping_sums_script import OverlappingSums
from scaled_operands import ROUNDING, arguments, emulated, error, operands
from stored_pair_script import StoredPair

from blackwell_matmul import compile, simulate
from blackwell_matmul.simulator.findings import Finding

SHAPES: dict[Any, tuple[str, int, int, int]] = {
    OverlappingSums: ("mxfp4", 256, 384, 512),
    StoredPair: ("mxfp8", 256, 128, 512),
}


def found(script: Any, fault: str, policy: str = "adversarial") -> tuple[Finding, ...]:
    name, *shape = SHAPES[script]
    return simulate(script(fault), *arguments(*shape, *operands(name, *shape)), policy=policy).findings


def line(script: Any, text: str) -> int:
    """Return the first line of the script's file with this text."""
    (file,) = [Path(__file__).with_name(f"{name}.py") for name in [script.__module__]]
    return next(i for i, each in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if text in each)


@pytest.mark.parametrize("script", SHAPES)
def test_without_a_fault_both_witnesses_agree(script: Any) -> None:
    name, *shape = SHAPES[script]
    a, b, c = operands(name, *shape)
    called = arguments(*shape, a, b, c)
    emulated(compile(script(), *called), called)
    assert error(a, b, c) < ROUNDING
    simulated = torch.full_like(c, float("nan"))
    run = simulate(script(), *called[:-1], simulated)
    assert {finding.code for finding in run.findings} == {"order-not-promised"} and torch.equal(simulated, c)


PLANTED = [
    (
        OverlappingSums, "no barrier of the shared columns", "overwritten-in-flight",
        "tcgen05.mma by the elected lane of warp 5", "the missing wait: mbarrier.wait on shared_columns before",
    ),
    (
        OverlappingSums, "drained in order", "overwritten-in-flight",
        "writes t_all[0:128, 112:240], which tcgen05.ld", "the missing wait: mbarrier.wait on sums.empty_barriers[0]",
    ),
    (
        OverlappingSums, "freed before the copy", "overwritten-in-flight",
        "tracks none of them: it comes before tcgen05.", "and has to come after it",
    ),
    (
        OverlappingSums, "copied after the product", "read-before-complete",
        "tcgen05.mma by the elected lane of warp 5", "comes after the product, and has to come before it",
    ),
    (
        OverlappingSums, "copied by one CTA", "mixed-cta-groups",
        "tcgen05.cp of scales has cta_group 1", "PTX wants one value for all of a kernel",
    ),
    (
        StoredPair, "own scales alone", "data-race",
        "s_scale_b[0:1, 0:1, 0:1, 0:2, 0:256] of CTA (1, 0, 0), which store_shared", "the missing order: an mbarrier",
    ),
    (
        StoredPair, "told at the scope of a CTA", "relaxed-wait",
        "s_scale_b[0:1, 0:1, 0:1, 0:2, 0:256] of CTA (1, 0, 0), which store_shared",
        'has scope cta; with scope="cluster" it would order the two',
    ),
]  # fmt: skip


@pytest.mark.parametrize("policy", ["adversarial", "eager"])
@pytest.mark.parametrize(("script", "fault", "code", "what", "mend"), PLANTED)
def test_a_planted_fault_is_told_first(
    script: Any, fault: str, code: str, what: str, mend: str, policy: str
) -> None:  # fmt: skip
    first = found(script, fault, policy)[0]
    assert (first.code, first.severity.value) == (code, "error")
    assert what in first.message and mend in first.message


@pytest.mark.parametrize(
    ("script", "fault", "at_fault"),
    [
        (OverlappingSums, "freed before the copy", "self.tcgen05.commit(ring.empty()"),
        (OverlappingSums, "copied after the product", "t_scale_a, cta_group=2)"),
        (StoredPair, "told at the scope of a CTA", "self.mbarrier.arrive_and_expect_tx_remote("),
    ],
)  # fmt: skip
def test_the_line_at_fault_is_named(script: Any, fault: str, at_fault: str) -> None:
    first = found(script, fault)[0]
    assert first.at_fault is not None and first.at_fault.line == line(script, at_fault)
