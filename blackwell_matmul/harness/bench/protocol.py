"""Protocol of timing: a warm-up until the times settle, then rounds in which each contender has a turn.

A GPU under load lowers its clock within seconds, and the power of a kernel changes the clock of the next kernel. Times
that are measured kernel by kernel are therefore not comparable. Each round runs a group of calls of each contender, in
shuffled order. The result is the median over the rounds. A group takes tens of ms, after untimed calls during which the
clock adapts.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Group = Callable[[], float]
"""Function that runs a group of calls, and returns the µs of one call."""

WARMUP_WINDOW_ROUNDS = 3
"""Number of rounds in each of the two compared windows of the warm-up."""


@dataclass(frozen=True)
class Settings:
    """Settings of timing.

    rounds: number of timed rounds. group_us: approximate µs of a group. settled_percent: the warm-up ends when the
    medians of two windows differ by less. warmup_s: the warm-up's longest time in seconds.
    """

    rounds: int = 15
    group_us: float = 50_000.0
    warmup_s: float = 4.0
    settled_percent: float = 1.0


@dataclass(frozen=True)
class Timing:
    """Times of a contender's call in µs: median, quartiles and minimum over the rounds."""

    median_us: float
    q1_us: float
    q3_us: float
    least_us: float
    rounds: int

    @property
    def spread_percent(self) -> float:
        """Return the interquartile range in percent of the median."""
        return 100 * (self.q3_us - self.q1_us) / self.median_us


@dataclass(frozen=True)
class Warmup:
    """Seconds and rounds of the warm-up. settled: True if the times had settled."""

    seconds: float
    rounds: int
    settled: bool


def measure(
    groups: Mapping[str, Group], settings: Settings, clock_s: Callable[[], float], step: Callable[[str], None]
) -> tuple[dict[str, Timing], Warmup]:
    """Return the timing of each group, by name, and the warm-up. step: called with a group's name before its turn."""
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
    while not settled and (clock_s() - start < settings.warmup_s or len(totals) < 2 * WARMUP_WINDOW_ROUNDS):
        totals.append(sum(_round(groups, -1 - len(totals), step).values()))
        settled = _settled(totals, settings.settled_percent)
    return Warmup(clock_s() - start, len(totals), settled)


def _settled(totals: Sequence[float], percent: float) -> bool:
    if len(totals) < 2 * WARMUP_WINDOW_ROUNDS:
        return False
    before, now = (
        statistics.median(totals[-2 * WARMUP_WINDOW_ROUNDS : -WARMUP_WINDOW_ROUNDS]),
        statistics.median(totals[-WARMUP_WINDOW_ROUNDS:]),
    )
    return abs(now - before) <= percent / 100 * before


def _round(groups: Mapping[str, Group], number: int, step: Callable[[str], None]) -> dict[str, float]:
    """Run each group once, and return the times by name. number: seed of the order, which differs in each round."""
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
