"""Block-scaled products of pairs of CTAs: both witnesses agree, and what a pair does wrong is found."""

from __future__ import annotations

import pytest
import torch
from scaled_operands import ROUNDING, arguments, emulated, error, operands
from scaled_pair_script import ScaledPair

from blackwell_matmul import compile, simulate
from blackwell_matmul.simulator.findings import Severity

BLOCK_K = {"mxfp8": 128, "mxfp4": 256, "nvfp4": 256}


@pytest.mark.slow
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("name", BLOCK_K)
def test_each_cta_has_the_scales_of_its_rows_and_of_all_columns(name: str, one: bool) -> None:
    """one: one allocation for the accumulator and all scales."""
    m, n, k = 384, 512, 2 * BLOCK_K[name] + 64
    a, b, c = operands(name, m, n, k)
    called, script = arguments(m, n, k, a, b, c), ScaledPair(dtype=name, block_n=256, block_k=BLOCK_K[name], one=one)
    emulated(compile(script, *called), called)
    assert error(a, b, c) < ROUNDING
    simulated = torch.full_like(c, float("nan"))
    run = simulate(script, *called[:-1], simulated)
    assert run.ok and torch.equal(simulated, c)
    assert {(found.code, found.severity) for found in run.findings} == {("order-not-promised", Severity.UNGUARANTEED)}
    assert all("copy_scales" in found.location.code for found in run.findings if found.location is not None)


@pytest.mark.parametrize(
    ("fault", "code", "tensor"),
    [
        ("half of the scales", "uninitialised-read", "s_scale_b"),
        ("inside the accumulator", "scales-in-accumulator", "scale_a lies in columns 224 to 239, and d in 0 to 255"),
    ],
)
def test_a_fault_is_found(fault: str, code: str, tensor: str) -> None:
    m, n, k = 256, 256, 256
    called = arguments(m, n, k, *operands("nvfp4", m, n, k))
    run = simulate(ScaledPair(dtype="nvfp4", block_n=256, block_k=256, fault=fault, one=True), *called)
    assert any(found.code == code and tensor in str(found) for found in run.findings)
