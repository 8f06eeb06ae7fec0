"""A view beyond 2**31 elements is refused, simulated and at the launch, unless TMA alone accesses it."""

from __future__ import annotations

import compiler_scripts
import pytest
import torch
from compiler_samples import script_bundle

from blackwell_matmul import simulate
from blackwell_matmul.base.errors import InputError, UnsupportedError

WIDE = "y has an element beyond 2\\*\\*31 - 1, and tilus counts elements in 32 bits; use TMA, or views of parts of it"
MOST = 2**31 - 1


def test_the_launch_refuses_it() -> None:
    plan = script_bundle("Rows", 4, 4, "array").plan
    plan.evaluate([MOST, 1, 1 << 20])
    plan.evaluate([2, 1 << 30, 1 << 20])
    with pytest.raises(InputError, match=rf"{WIDE} \(m = 3, n = 1073741824\)\.$"):
        plan.evaluate([3, 1 << 30, 1 << 20])


def test_the_simulator_refuses_it() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    assert simulate(compiler_scripts.Rows, 1, 32, y, target="sm_90a").ok
    with pytest.raises(UnsupportedError, match=WIDE):
        simulate(compiler_scripts.Rows, 3, 1 << 30, y, target="sm_90a")


def test_tma_has_coordinates() -> None:
    checks = script_bundle("TmaCopy", 100, 128, "array", "array").plan.checks
    assert not any("beyond" in check.message for check in checks)
