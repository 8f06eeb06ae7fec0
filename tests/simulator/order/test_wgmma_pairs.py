"""wgmma: its groups, its registers and its operands; each rule kept, and broken by one edge."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from orders import ORDERS, finding, line_of, lines, run_in
from pairs import Pair
from wgmma_scripts import Apart, K, M, N, TwoGroups, TwoShapes, Unused
from wgmma_scripts import Twice as Script

from blackwell_matmul.simulator import Severity

READ, WRITTEN, EXIT = "read-before-complete", "overwritten-in-flight", "in-flight-at-exit"
FENCE, PROXY, HINT = "missing-wgmma-fence", "missing-proxy-fence", Severity.UNGUARANTEED
HOPPER: dict[str, Any] = {"target": "sm_90a"}
BETWEEN: dict[str, Any] = {"flags": {"between": True}, **HOPPER}


def small(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, (rows, K)).astype(np.float16)


def twice() -> Any:
    a, b, d = small(M, 0), small(N, 1), np.zeros((M, N), np.float32)
    return (a, b, d), d, 2 * (a.astype(np.float32) @ b.astype(np.float32).T)


def square() -> Any:
    x, y = small(M, 0), np.zeros((M, M), np.float32)
    return (x, y), y, x.astype(np.float32) @ x.astype(np.float32).T


def two_shapes() -> Any:
    a, d = small(M, 0), np.zeros((M, M), np.float32)
    wide = a.astype(np.float32)
    return (a, a.astype(ml_dtypes.float8_e4m3fn), d), d, 2 * (wide @ wide.T)


def unused() -> Any:
    a = small(M, 0)
    return (a,), a, a.copy()


INPUTS = {Script: twice, TwoShapes: two_shapes, TwoGroups: square, Apart: square, Unused: unused}

PAIRS = [
    Pair(Script, "no proxy fence", PROXY, "fence", "first", "store", **HOPPER),
    Pair(Script, "no fence", FENCE, "fence", "first", says="before any wgmma.fence", **HOPPER),
    Pair(Script, "cleared after the fence", FENCE, "fence", "first", "clear", says="assign has written", **HOPPER),
    Pair(Script, "no fence between", FENCE, "fence", "second", "write", **BETWEEN),
    Pair(Script, "only read between", FENCE, "fence", "second", "look", HINT, says="has read", **BETWEEN),
    Pair(Script, "no wait between", READ, "wait", "read", "first", says="wgmma.wait_group(0) before", **BETWEEN),
    Pair(Script, "no wait between", WRITTEN, "wait", "write", "first", **BETWEEN),
    Pair(Script, "no commit", READ, "commit", "use", "second", says="commit_group and wgmma.wait_group(0)", **HOPPER),
    Pair(Script, "no commit", EXIT, "", "second", says="wgmma.commit_group", **HOPPER),
    Pair(Script, "no wait", READ, "wait", "use", "second", says="wgmma.wait_group(0)", **HOPPER),
    Pair(Script, "no wait", EXIT, "", "first", **HOPPER),
    Pair(Script, "one group less", READ, "wait", "use", "second", **HOPPER),
    Pair(Script, "overwritten before the wait", WRITTEN, "wait", "overwrite", "second", **HOPPER),
    Pair(Script, "stored over", WRITTEN, "wait", "over", "second", says="wgmma.wait_group(0) before", **HOPPER),
    Pair(Script, "stored over", WRITTEN, "wait", "over", "first", says="wgmma.wait_group(1) before", **HOPPER),
    Pair(Script, "copied over", WRITTEN, "wait", "copy", "second", **HOPPER),
    Pair(TwoShapes, "no fence", FENCE, "fence", "second", "first", says="mma_async of another shape has", **HOPPER),
    Pair(TwoShapes, "no wait", WRITTEN, "wait", "second", "first", says="wgmma.wait_group(0)", **HOPPER),
    Pair(TwoGroups, "told early", WRITTEN, "wait", "write", "mma", says="wait_group(0) before the arrival", **HOPPER),
    Pair(TwoGroups, "the other warpgroup waits", WRITTEN, "wait", "write", "mma", every=False, **HOPPER),
    Pair(Unused, "no wait", EXIT, "", "mma", **HOPPER),
    Pair(Unused, "no commit", EXIT, "", "mma", says="wgmma.commit_group", **HOPPER),
    Pair(Apart, "another operand", "warpgroup-divergence", "", "mma", "mma", says="must execute it together", **HOPPER),
    Pair(Apart, "stays away", "deadlock", "", "wait", says="for warp(s) 3 at wgmma.mma_async", **HOPPER),
]


@pytest.mark.parametrize("flags", [{}, {"between": True}], ids=str)
def test_two_on_one_accumulator(flags: dict[str, Any]) -> None:
    """PTX ISA, "wgmma.fence": mma of one shape are ordered by themselves."""
    Pair(Script, "", "", flags=flags, **HOPPER).keeps(twice)


@pytest.mark.parametrize("script", [TwoShapes, TwoGroups, Apart, Unused], ids=lambda script: script.__name__)
def test_the_rule_is_kept(script: Any) -> None:
    Pair(script, "", "", **HOPPER).keeps(INPUTS[script])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_one_edge_is_missing(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])


@pytest.mark.parametrize("fault", ["no wait", "no commit", "one group less"])
def test_a_wait_that_is_missing_gives_wrong_values(fault: str) -> None:
    args, d, expected = twice()
    run_in(ORDERS[0], Script(fault), *args, **HOPPER)
    assert not np.array_equal(d, expected)


def test_registers_that_are_overwritten_too_early() -> None:
    """The mma adds to what the register holds when it completes, or what is written is lost."""
    args, d, expected = twice()
    run_in(ORDERS[0], Script("overwritten before the wait", between=True), *args, **HOPPER)
    assert not np.array_equal(d, expected)
    run = run_in(ORDERS[1], Script("overwritten before the wait", between=True), *args, **HOPPER)
    found = finding(run, WRITTEN)
    assert lines(found) == (line_of(Script, "# overwrite"), line_of(Script, "# second"))
    assert found.tensor == "acc" and found.agents[0] == found.agents[1]
