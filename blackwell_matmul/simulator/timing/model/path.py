"""Why it takes so long: the chain of causes from the launch to the last store.

Whatever begins, begins as something else ends: a warp goes on as an operation tells its mbarrier, an operation is
served as the one before it leaves its server. Each step knows the one that it had to wait for, so that the steps from
the last one back to the launch cover all of the time, and nothing that overlapped with them is among them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.operation import AsyncOperation


class Cause(NamedTuple):
    """What a step of the path is: a warp that executes an instruction (EXECUTES), a part of the SM that is busy, by its
    name, what an operation takes besides, till its waiter sees it (TRIP), a warp that is woken (WAKES), a CTA that
    starts (LAUNCH)."""

    kind: str
    name: str = ""
    location: Location | None = None


EXECUTES, TRIP = "executes", "trip"
WAKES, LAUNCH, DRAIN = Cause("wakes"), Cause("launch"), Cause("TMA stores")


class PathStep(NamedTuple):
    """before: what had to end before this could begin."""

    cause: Cause
    end: float
    before: PathStep | None


def cause_of(kind: str, what: Instruction | AsyncOperation) -> Cause:
    return Cause(kind, what.name, what.location)


def along(last: PathStep | None) -> dict[Cause, float]:
    """For how many cycles each cause is on the path that ends here."""
    found: dict[Cause, float] = defaultdict(float)
    while last is not None:
        found[last.cause] += last.end - (last.before.end if last.before else 0.0)
        last = last.before
    return found
