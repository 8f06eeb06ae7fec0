"""Warm-up, rounds and medians, with a clock that is told what time it is."""

from __future__ import annotations

from collections import Counter

import pytest

from blackwell_matmul.harness.bench.protocol import WARMUP_WINDOW_ROUNDS, Settings, measure, timing


class Bench:
    """Groups whose times are given; each takes a second of the clock."""

    def __init__(self, **times_us) -> None:
        self.now, self.ran, self.steps = 0.0, [], []
        self.groups = {name: self._group(name, times) for name, times in times_us.items()}

    def _group(self, name, times):
        def run() -> float:
            self.now += 1.0
            self.ran.append(name)
            return times(len([each for each in self.ran if each == name]) - 1)

        return run

    def measure(self, **settings):
        return measure(self.groups, Settings(**settings), lambda: self.now, self.steps.append)


def test_everybody_has_a_turn_in_each_round_and_the_order_changes():
    bench = Bench(a=lambda i: 1.0, b=lambda i: 2.0, c=lambda i: 4.0)
    timings, warmup = bench.measure(rounds=20, warmup_s=0)
    rounds = [tuple(bench.ran[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds) and len(set(rounds)) == 6
    assert bench.steps == bench.ran
    assert {name: each.median_us for name, each in timings.items()} == {"a": 1.0, "b": 2.0, "c": 4.0}
    assert (warmup.rounds, warmup.settled) == (0, False)


def test_the_order_is_the_same_in_every_run():
    first, second = (Bench(a=lambda i: 1.0, b=lambda i: 2.0) for _ in range(2))
    for bench in (first, second):
        bench.measure(rounds=10, warmup_s=0)
    assert first.ran == second.ran


def test_the_warm_up_ends_when_times_settle_and_counts_for_nothing():
    bench = Bench(a=lambda i: 100.0 - min(i, 20))
    timings, warmup = bench.measure(rounds=4, warmup_s=1000, settled_percent=1.0)
    assert warmup.settled and 20 < warmup.rounds < 20 + 2 * WARMUP_WINDOW_ROUNDS
    assert timings["a"].median_us == 80.0 and timings["a"].rounds == 4


def test_a_short_warm_up_lasts_until_it_can_be_judged():
    _, warmup = Bench(a=lambda i: 100.0).measure(rounds=1, warmup_s=0.5)
    assert (warmup.rounds, warmup.settled) == (2 * WARMUP_WINDOW_ROUNDS, True)


def test_a_warm_up_that_does_not_settle_ends_in_time_and_says_so():
    bench = Bench(a=lambda i: float(1 + i))
    _, warmup = bench.measure(rounds=1, warmup_s=30)
    assert not warmup.settled and warmup.seconds == 30


def test_a_median_with_its_quartiles():
    found = timing([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (found.least_us, found.q1_us, found.median_us, found.q3_us, found.rounds) == (1.0, 2.0, 3.0, 4.0, 5)
    assert found.spread_percent == pytest.approx(66.67, abs=0.01)


def test_one_round_has_no_spread():
    assert timing([3.0]).spread_percent == 0


def test_nobody_always_follows_the_same_neighbour():
    bench = Bench(**{name: lambda i: 1.0 for name in "abcd"})
    bench.measure(rounds=200, warmup_s=0)
    pairs = Counter(zip(bench.ran, bench.ran[1:]))
    after_a = [count for (first, _), count in pairs.items() if first == "a"]
    assert max(after_a) < 100
