"""Reductions, barriers and semaphores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from clean import clean, only
from orders import ORDERS, line_of, run_in
from scripts_control import Flagged, InTurn, InTurnOfItsOwn, Uneven, Unknown
from scripts_registers import Reduce, ReduceAll
from tilus import bfloat16, boolean, float32, int32

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator import Run, Severity, simulate
from blackwell_matmul.simulator.check import check

TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "int32": torch.int32}


def reduced(op: str, x: torch.Tensor, dim: int, keepdim: bool, dtype, warps: int) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] = 1
    y = torch.zeros(shape if keepdim else [s for i, s in enumerate(shape) if i != dim], dtype=x.dtype)
    clean(Reduce(op, dim, keepdim, dtype, warps), x, y)
    return y


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_reduce_integers(op: str, dim: int, keepdim: bool, warps: int) -> None:
    x = torch.from_numpy(np.random.default_rng(1).integers(-99, 99, (32, 64))).to(torch.int32)
    y = reduced(op, x, dim, keepdim, int32, warps)
    want = x.sum(dim, keepdim) if op == "sum" else getattr(x, f"a{op}")(dim, keepdim)
    assert torch.equal(y, want.to(torch.int32))


@pytest.mark.parametrize("dtype", [float32, bfloat16])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_reduce_floats(op: str, dtype) -> None:
    """Sums of small integers are exact in any order."""
    x = torch.from_numpy(np.random.default_rng(2).integers(-2, 3, (32, 64))).to(TORCH[dtype.name])
    y = reduced(op, x, 1, False, dtype, 4)
    assert torch.equal(y, x.sum(1) if op == "sum" else getattr(x, f"a{op}")(1))


def test_reduce_passes_nan_over_and_starts_from_infinity() -> None:
    """fmaxf ignores NaN."""
    x = torch.zeros(32, 64)
    x[0, 5] = float("nan")
    x[1] = float("-inf")
    y = reduced("max", x, 1, False, float32, 4)
    assert y[0] == 0
    assert y[1] == float("-inf")


@pytest.mark.parametrize("op", ["any", "all"])
def test_reduce_booleans(op: str) -> None:
    x = torch.from_numpy(np.random.default_rng(3).random((32, 64)) < (0.02 if op == "any" else 0.98))
    y = reduced(op, x, 1, False, boolean, 2)
    assert torch.equal(y, getattr(x, op)(1))
    assert 0 < int(y.sum()) < 32


def test_reduce_to_one_element() -> None:
    x = torch.from_numpy(np.random.default_rng(4).integers(-99, 99, (16, 16))).to(torch.int32)
    y = torch.zeros(1, dtype=torch.int32)
    clean(ReduceAll(), x, y)
    assert y.item() == x.sum().item()


@pytest.mark.parametrize("seed", range(3))
def test_semaphores_order_ctas(seed: int) -> None:
    lock, y = torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    clean(InTurn(), 5, lock, y, seed=seed)
    want = torch.zeros(64, dtype=torch.int32)
    for block in range(5):
        want = want * 3 + torch.arange(64, dtype=torch.int32) + block
    assert torch.equal(y, want)
    assert lock.item() == 0


def test_a_semaphore_of_the_caller_that_the_next_launch_would_wait_for() -> None:
    """As the second launch with the same tensor shows."""
    lock, y = torch.zeros(3, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    lock[0], script = 2, InTurn(clears=False)
    report = check(InTurn, 4, lock[1:], y, schedule={"clears": False}, orders=3)
    (told,) = report.findings
    assert report.ok and told.seeds == (0, 1, 2) and told.tensor == "lock_ptr"
    assert told.severity is Severity.UNGUARANTEED and told.code == "semaphore-left-dirty"
    assert "the kernel found 0 in lock_ptr[0] and leaves 4" in told.message
    assert f"the next launch waits for 0 at {told.other}; end with a release_semaphore of 0" in told.message
    assert told.other is not None and told.other.line == line_of(InTurn, "# lock")
    assert told.location is not None and told.location.line == line_of(InTurn, "self.release_semaphore")
    found = only(simulate(script, 4, lock[1:], y), "deadlock")
    assert found.location == told.other and "to become 0; it is 4" in found.message


def flagged(flags: torch.Tensor, **options: Any) -> Run:
    x, t, y = (torch.full((32,), each, dtype=torch.int32) for each in (7, 0, 0))
    run = simulate(Flagged(**options), x, t, flags, y, workers=1)
    assert torch.equal(x, y)
    return run


def test_a_flag_of_the_caller_that_is_still_up_at_the_next_launch() -> None:
    flags = torch.zeros(2, 3, dtype=torch.int32)
    told = only(flagged(flags), "semaphore-left-dirty")
    assert "found 0 in flags_ptr[4] and leaves 1" in told.message and flags[1, 1] == 1
    assert "the next launch passes before anybody releases it at" in told.message
    assert told.other is not None and told.other.line == line_of(Flagged, "# wait")
    assert told.location is not None and told.location.line == line_of(Flagged, "# raise")


@pytest.mark.parametrize("options", [{"clears": "last"}, {"clears": "store"}, {"back": True}], ids=str)
def test_a_semaphore_with_which_the_next_launch_goes_as_this_one(options: dict[str, Any]) -> None:
    """It is back at its start; or its value is one that a CTA waits for only behind its own release."""
    flags = torch.zeros(2, 3, dtype=torch.int32)
    for _ in range(2):
        found = {each.code for each in flagged(flags, **options).findings}
        assert found <= ({"waits-for-later-cta"} if "back" in options else set())


def test_a_wait_for_a_cta_that_may_start_only_after_the_waiting_one_has_ended() -> None:
    run = flagged(torch.zeros(2, 3, dtype=torch.int32), back=True)
    told = only(run, "waits-for-later-cta")
    assert run.ok and told.severity is Severity.UNGUARANTEED and told.cta == (0, 0, 0)
    assert "waits for a value of flags_ptr[4] that CTA (1, 0, 0) stores at" in told.message
    assert told.location is not None and told.location.line == line_of(Flagged, "self.lock_semaphore(flag, 2)")
    assert told.other is not None and told.other.line == line_of(Flagged, "self.release_semaphore(flag, 2)")


def test_a_semaphore_that_nobody_releases() -> None:
    lock, y = torch.zeros(1, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    finding = only(simulate(InTurn(release=False), 2, lock, y), "deadlock")
    assert "to become 1; it is 0" in finding.message


def test_a_barrier_that_a_warp_never_reaches() -> None:
    run = simulate(Uneven(), torch.zeros(1, dtype=torch.int32))
    assert not run.ok
    assert run.findings[0].code == "deadlock"
    assert "warp(s) 1 at sync()" in run.findings[0].message
    assert run.findings[0].location is not None


def test_an_instruction_without_a_meaning_stops_with_its_line() -> None:
    with pytest.raises(
        UnsupportedError, match=r"no meaning for the function cuda_cvta_generic_to_shared .*.*scripts_control\.py:\d+"
    ):
        simulate(Unknown(), torch.zeros(1, dtype=torch.int32))


def test_a_semaphore_in_a_workspace_that_nobody_has_cleaned() -> None:
    for order in ORDERS:
        y = np.zeros(64, np.int32)
        finding = only(run_in(order, InTurnOfItsOwn(clean=False), 4, y), "uninitialised-read")
        assert finding.location is not None and finding.location.line == line_of(InTurnOfItsOwn, "# lock")
        assert "lock_semaphore reads turn[1:2, 1:2], which nothing is sure to have written" in finding.message
        assert "requires_clean=True) makes zeros of turn" in finding.advice


def test_a_store_that_the_wait_knows_of_makes_a_semaphore_defined() -> None:
    y = np.zeros(64, np.int32)
    clean(InTurnOfItsOwn(clean=False, first=True), 1, y)
    assert (y == 1).all()


def test_a_clean_workspace_is_clean_at_the_end() -> None:
    y = np.zeros(64, np.int32)
    clean(InTurnOfItsOwn(), 4, y)
    assert (y == 4).all()
    finding = only(simulate(InTurnOfItsOwn(clears=False), 4, y, workers=1), "workspace-left-dirty")
    assert finding.severity is Severity.UNGUARANTEED and "the kernel leaves 4 in turn[1, 1]" in finding.message
