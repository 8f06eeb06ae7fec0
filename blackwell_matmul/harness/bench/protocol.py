"""When to measure and how often: warm up until times settle, then rounds in which everybody has a turn.

A GPU under load lowers its clock within seconds and each kernel's power sets the next one's clock, so that times
taken one kernel after the other say little. Here each round runs a group of calls of each contender, in an order of
its own, and what counts is the median over the rounds. On an H200 at its power limit a kernel that always came after
one of little power looked 17 % faster than it is: hence the shuffled order, groups of tens of milliseconds, and calls
ahead of each group that are not timed.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Group = Callable[[], float]
"""Runs a group of calls and returns the µs of one."""

WINDOW = 3
"""Rounds of warm-up that are compared with as many before them."""


@dataclass(frozen=True)
class Settings:
    """rounds: that count. group_us: how long a group of calls takes, about. The warm-up ends when the medians of two
    windows differ by less than settled_percent, and at the latest after warmup_s, once there are two windows."""

    rounds: int = 15
    group_us: float = 50_000.0
    warmup_s: float = 4.0
    settled_percent: float = 1.0


@dataclass(frozen=True)
class Timing:
    """One contender's µs per call: the median of the rounds, their quartiles, and the least."""

    median_us: float
    q1_us: float
    q3_us: float
    least_us: float
    rounds: int

    @property
    def spread_percent(self) -> float:
        """Between the quartiles, of the median."""
        return 100 * (self.q3_us - self.q1_us) / self.median_us


@dataclass(frozen=True)
class Warmup:
    """How long it took, and whether the times had settled by then."""

    seconds: float
    rounds: int
    settled: bool


def measure(
    groups: Mapping[str, Group], settings: Settings, clock_s: Callable[[], float], step: Callable[[str], None]
) -> tuple[dict[str, Timing], Warmup]:
    """The groups by name, interleaved. step: is told the name of each group before it runs."""
    warmup = _warm_up(groups, settings, clock_s, step)
    taken: dict[str, list[float]] = {name: [] for name in groups}
    for number in range(settings.rounds):
        for name, time_us in _round(groups, number, step).items():
            taken[name].append(time_us)
    return {name: timing(times) for name, times in taken.items()}, warmup


def _warm_up(
    groups: Mapping[str, Group], settings: Settings, clock_s: Callable[[], float], step: Callable[[str], None]
) -> Warmup:
    if settings.warmup_s <= 0:
        return Warmup(0.0, 0, settled=False)
    start, settled = clock_s(), False
    totals: list[float] = []
    while not settled and (clock_s() - start < settings.warmup_s or len(totals) < 2 * WINDOW):
        totals.append(sum(_round(groups, -1 - len(totals), step).values()))
        settled = _settled(totals, settings.settled_percent)
    return Warmup(clock_s() - start, len(totals), settled)


def _settled(totals: Sequence[float], percent: float) -> bool:
    if len(totals) < 2 * WINDOW:
        return False
    before, now = statistics.median(totals[-2 * WINDOW : -WINDOW]), statistics.median(totals[-WINDOW:])
    return abs(now - before) <= percent / 100 * before


def _round(groups: Mapping[str, Group], number: int, step: Callable[[str], None]) -> dict[str, float]:
    """Each group once, shuffled by the round's number: nobody always follows the same neighbour."""
    order = sorted(groups)
    random.Random(number).shuffle(order)
    times = {}
    for name in order:
        step(name)
        times[name] = groups[name]()
    return times


def timing(times_us: Sequence[float]) -> Timing:
    q1, median, q3 = statistics.quantiles(times_us, n=4, method="inclusive") if len(times_us) > 1 else [*times_us] * 3
    return Timing(median, q1, q3, min(times_us), len(times_us))
