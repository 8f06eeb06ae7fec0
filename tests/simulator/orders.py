"""Running one script in several orders, and what must hold in each of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from blackwell_matmul.simulator import Finding, Run, simulate

ORDERS = (("adversarial", 0), ("eager", 0), ("random", 0), ("random", 1), ("random", 2), ("adversarial", 3))


def run_in(order: tuple[str, int], script: Any, *args: Any, target: str = "sm_100a") -> Run:
    policy, seed = order
    return simulate(script, *args, policy=policy, seed=seed, workers=1, target=target)


def silent(script: Any, inputs: Sequence[Any], output: np.ndarray, expected: np.ndarray) -> None:
    """In every order: no finding, and the expected output, bit for bit."""
    for order in ORDERS:
        output.fill(99)
        run = run_in(order, script, *inputs)
        assert run.ok and not run.findings, (order, [str(f) for f in run.findings])
        np.testing.assert_array_equal(output, expected, err_msg=str(order))


def faulty(script: Any, *args: Any) -> Run:
    """The same faults at the same lines in every order; the run of the first order, the adversarial one."""
    first, *others = (run_in(order, script, *args) for order in ORDERS)
    assert not first.ok
    for order, run in zip(ORDERS[1:], others):
        assert faults(run) == faults(first), (order, [str(f) for f in run.findings])
    return run_in(ORDERS[0], script, *args)


def faults(run: Run) -> set[tuple[Any, ...]]:
    return {(f.code, f.severity, f.location, f.other) for f in run.findings}


def never_ok(script: Any, *args: Any) -> set[str]:
    """A fault that shows in every order, though not as the same one; the codes that were seen."""
    codes = set()
    for order in ORDERS:
        run = run_in(order, script, *args)
        assert not run.ok, order
        codes |= {f.code for f in run.findings}
    return codes


def codes(run: Run) -> set[str]:
    return {f.code for f in run.findings}


def finding(run: Run, code: str, nth: int = 0) -> Finding:
    """The nth finding of this code."""
    found = [f for f in run.findings if f.code == code]
    assert len(found) > nth, [str(f) for f in run.findings]
    return found[nth]


def lines(found: Finding) -> tuple[int | None, int | None]:
    """The two source lines of a finding."""
    return found.location and found.location.line, found.other and found.other.line


_source_of = functools.cache(inspect.getsourcelines)


def line_of(script: type, text: str, nth: int = 0) -> int:
    """The number of the nth line of a script class that contains `text`."""
    source, first = _source_of(script)
    return [first + i for i, line in enumerate(source) if text in line][nth]
