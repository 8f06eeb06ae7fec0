"""The critical path: the chain of causes from the launch to the last store.

A step begins when another ends: a warp continues when an operation completes on its mbarrier, and an operation is
served when its predecessor leaves the server. Each step has a reference to its predecessor. The steps from the last
one back to the launch cover all of the time, without work that overlapped with them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.operation import AsyncOperation


class Cause(NamedTuple):
    """Kind of a step: EXECUTES, TRIP (remaining latency), WAKES (a warp), LAUNCH (a CTA), or a busy part of the SM."""

    kind: str
    name: str = ""
    location: Location | None = None


EXECUTES, TRIP = "executes", "trip"
WAKES, LAUNCH, DRAIN = Cause("wakes"), Cause("launch"), Cause("TMA stores")


class PathStep(NamedTuple):
    """A step of the path. before: the step that had to end before this one could begin."""

    cause: Cause
    end: float
    before: PathStep | None


def cause_of(kind: str, what: Instruction | AsyncOperation) -> Cause:
    return Cause(kind, what.name, what.location)


def along(last: PathStep | None) -> dict[Cause, float]:
    """Return the cycles of each cause on the path that ends here."""
    found: dict[Cause, float] = defaultdict(float)
    while last is not None:
        found[last.cause] += last.end - (last.before.end if last.before else 0.0)
        last = last.before
    return found
