"""Predictions of the same launch with other schedules, each simulated whole at its own clock and memory load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.simulator.timing.model.path import Cause


class Others(NamedTuple):
    """Schedules to try. pins: for each change, schedules to try until one is faster. every: True if no other schedules
    are worth a try."""

    pins: Callable[[], Iterable[Iterable[Mapping[str, object]]]]
    every: bool


@dataclass(frozen=True)
class Beside:
    """A predicted launch with one schedule. cycles, ns: of the launch. working: fraction of all SMs' time with work;
    multiplying: of all tensor cores' time. loaded_gb: into all SMs; memory_gb: from memory. resident: CTAs that an
    SM holds. path: as of `SmTime`."""

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
        """Return the fraction of the other prediction's time that this one saves."""
        return 1 - self.ns / other.ns

    def changed(self, other: Beside) -> dict[str, object]:
        """Return the knobs whose values differ from the other prediction's."""
        return {name: value for name, value in self.schedule.items() if other.schedule.get(name) != value}
