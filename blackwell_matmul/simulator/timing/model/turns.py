"""Detection of CTAs that wait for each other by semaphores, or count together. A simulation of one SM cannot time
them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.lowering.scan import ACQUIRES, Unrepeatable
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.replay.alike import scanned


class Acquires(Exception):
    """Raised when a CTA acquires a semaphore."""


class _Log(list[Any]):
    """A log that only detects acquires."""

    def append(self, entry: Any) -> None:
        if entry == ACQUIRES:
            raise Acquires


def across_sms(lowered: Lowered, loop: Location | None = None) -> UnsupportedError:
    """Return the error for a launch whose CTAs wait for each other; time cannot be predicted for it. loop: location of
    the loop that does not end; None: semaphores are locked."""
    ties = [each for _, each in lowered.calls.values() if each.description.ties_ctas and each.description.waits]
    locks = dict.fromkeys(f"{each.name} ({each.location})" for each in ties)
    what = " or ".join(locks) if loop is None else f"a loop ({loop}) has no end or"
    return UnsupportedError(
        f"{lowered.program.name} has no predicted time: {what} waits for CTAs of other SMs, and one SM is"
        " timed by itself; check takes such a launch, and predict one in which no CTA waits for another."
    )


def require_no_turns(lowered: Lowered, grid: Grid, clusters: Sequence[list[Position]]) -> None:
    """Raise UnsupportedError if a CTA waits for a semaphore that another CTA of the launch has to store to, or if CTAs
    share a counter."""
    for _, each in lowered.calls.values():
        if each.description.updates:
            counter = f"{each.name} ({each.location})"
            raise UnsupportedError(
                f"{lowered.program.name} has no predicted time: CTAs of all SMs count by {counter} and one SM is timed"
                " by itself; check takes such a launch, and predict one without a shared counter."
            )
    if len(clusters) * len(clusters[0]) == 1:
        return
    if any("acquire" in each.description.awaited for _, each in lowered.calls.values()) and (
        lowered.scan is None or any(_takes_turns(lowered, grid, cluster) for cluster in clusters)
    ):
        raise across_sms(lowered)


def _takes_turns(lowered: Lowered, grid: Grid, cluster: list[Position]) -> bool:
    assert lowered.scan is not None
    places: list[list[int]] = [[] for _ in lowered.sources]
    try:
        for warp in scanned(grid, cluster, range(lowered.num_warps), Grants()):
            with suppress(Unrepeatable):
                lowered.scan(warp, _Log(), places)
    except Acquires:
        return True
    return False
