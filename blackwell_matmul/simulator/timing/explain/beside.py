"""The same launch with another schedule: what it takes, and what of it differs. It is run whole, with the clock and the
memory's load that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.simulator.timing.model.path import Cause


class Others(NamedTuple):
    """Schedules that might do better. pins: of some for each change; one is tried after the other until it does. every:
    there are no others that are worth a try."""

    pins: Callable[[], Iterable[Iterable[Mapping[str, object]]]]
    every: bool


@dataclass(frozen=True)
class Beside:
    """cycles and ns: of the launch. working: for which part of the time the SMs have work, of all of them; multiplying:
    for which part their tensor cores do. loaded_gb: into all SMs; memory_gb: from memory. resident: CTAs that an SM
    holds. path: as of `SmTime`."""

    schedule: Mapping[str, object]
    cycles: float
    ns: float
    working: float
    multiplying: float
    loaded_gb: float
    memory_gb: float
    resident: int
    path: Mapping[Cause, float]

    def saves(self, other: Beside) -> float:
        """Of the time of the other one."""
        return 1 - self.ns / other.ns

    def changed(self, other: Beside) -> dict[str, object]:
        """The knobs with another value than there."""
        return {name: value for name, value in self.schedule.items() if other.schedule.get(name) != value}
