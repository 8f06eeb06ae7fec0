"""Protocol of timing: warm up until times settle, then rounds with a turn for each contender.

A GPU under load lowers its clock within seconds, and each kernel's power sets the next one's clock. So times of one
kernel after another are not comparable. Each round runs a group of calls of each contender in shuffled order; the
result is the median over the rounds. Groups take tens of ms, after untimed calls, so that the clock adapts.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Group = Callable[[], float]
"""Runs a group of calls and returns the µs of one."""

WARMUP_WINDOW_ROUNDS = 3
"""Rounds in each of the two warm-up windows that are compared."""


@dataclass(frozen=True)
class Settings:
    """Settings of timing. rounds: timed rounds. group_us: approximate µs of a group. Warm-up ends when the medians of
    two windows differ by less than settled_percent, or after warmup_s.
    """

    rounds: int = 15
    group_us: float = 50_000.0
    warmup_s: float = 4.0
    settled_percent: float = 1.0


@dataclass(frozen=True)
class Timing:
    """µs per call of one contender: median of the rounds, quartiles, and minimum."""

    median_us: float
    q1_us: float
    q3_us: float
    least_us: float
    rounds: int

    @property
    def spread_percent(self) -> float:
        """Return the distance of the quartiles in percent of the median."""
        return 100 * (self.q3_us - self.q1_us) / self.median_us


@dataclass(frozen=True)
class Warmup:
    """Warm-up time, and true if the times had settled."""

    seconds: float
    rounds: int
    settled: bool


def measure(
    groups: Mapping[str, Group], settings: Settings, clock_s: Callable[[], float], step: Callable[[str], None]
) -> tuple[dict[str, Timing], Warmup]:
    """Time the groups by name, interleaved. step: called with each group's name before it runs."""
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
    """Run each group once, shuffled by the round's number, so that neighbours vary."""
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
