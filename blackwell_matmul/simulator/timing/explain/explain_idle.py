"""Explanations of idle SMs: waves or rounds that do not fill them, and no room for another CTA."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from blackwell_matmul.base.validation import counted
from blackwell_matmul.simulator.timing.explain.thread_watches import StayWatch
from blackwell_matmul.simulator.timing.explain.what_if import BUSY, MULTIPLY, SHARE, PredictedRun
from blackwell_matmul.simulator.timing.model.occupancy import limits, registers_full, shared_bytes_of
from blackwell_matmul.simulator.timing.model.one_sm import Change


class Lack(NamedTuple):
    """An idle resource. gain: saved fraction of cycles. told: a clause about it. remedy: the end of the sentence if no
    schedule helps."""

    gain: float
    told: str
    remedy: str


def work(run: PredictedRun) -> Iterator[Lack]:
    yield from _turns(run)
    yield from _rounds(run)


def _turns(run: PredictedRun) -> Iterator[Lack]:
    """Yield waves that do not fill the SMs. The loads of all SMs still take as long."""
    launch, count, side = run.launch, len(run.launch.clusters), run.launch.places
    lost, last = 1 - count / (side * launch.turns), count - side * (launch.turns - 1)
    if lost <= 2 * SHARE:
        return
    if 1 < launch.turns <= launch.resident and not run.took.working:  # CTAs with tensor memory may wait for it
        yield from _uneven(run, last, lost)
        return
    if launch.turns > 1:
        text = f"{count} {run.who} take {launch.turns} turns of {side}, the last of which has {last}"
        yield Lack(lost, text, f": {_even(run)} would take up to {lost:.0%} fewer cycles.")
        return
    loads = run.took.busy_cycles["L2"] / run.took.cycles / run.distinct  # if neighbours then share nothing
    gain, tiles = min(lost, 1 - loads, 1 - run.begins), launch.spread.most.tiles
    text = f"{count} {run.who}{f' of {tiles} tiles' if tiles > 1 else ''} run where {side} could"
    if gain > SHARE:
        fill = "smaller tiles, or a part of k for each, fill" if run.multiplies else "smaller tiles fill"
        yield Lack(gain, text, f": {fill} more SMs: up to {gain:.0%} fewer cycles.")
    elif tiles > 1:  # fewer, larger tiles load no more from the L2
        even = ": tiles that come out even, larger ones for instance, would take up to"
        yield Lack(lost, text, f"{even} {lost:.0%} fewer cycles.")


def _uneven(run: PredictedRun, more: int, lost: float) -> Iterator[Lack]:
    """Yield the loss by unequal numbers of CTAs on the SMs, if all CTAs run at the same time."""
    launch, count = run.launch, len(run.launch.clusters)
    gain = lost if run.multiplies else min(lost, 1 - run.load.memory)
    if run.gain(run.conditions, Change(place=launch.spread.least_at)) <= SHARE:
        return
    shared = f"{more} of which have {launch.turns} and the others {launch.turns - 1}"
    where = f"on {launch.side} SMs" if run.who == "CTAs" else f"in {launch.side} places"
    text = f"{count} {run.who} run at once {where}, {shared}"
    if gain > SHARE:
        yield Lack(gain, text, f"; if all had as many, up to {gain:.0%} fewer cycles.")


def _even(run: PredictedRun) -> str:
    """Return advice for even waves; a grid of persistent CTAs need not exceed the CTAs that run at the same time."""
    watch = StayWatch()
    run.watch(watch)
    if watch.stays and not run.lowered.cancels:
        return f"each goes on to further tiles, so that a grid of no more {run.who} than run at once"
    return "tiles that come out even"


def _rounds(run: PredictedRun) -> Iterator[Lack]:
    """Yield a sentence on a persistent kernel's uneven rounds, in which only some CTAs work."""
    launch = run.launch
    most, least = launch.spread.most.tiles, launch.spread.of_places[launch.spread.least_at].tiles
    tiles = sum(share.tiles for share in launch.spread.of_places)
    if launch.turns > launch.resident or most <= launch.turns or most == least:
        return
    mean = tiles / len(launch.spread.of_places)
    gain = run.gain(run.conditions, Change(place=launch.spread.least_at)) * (most - mean) / (most - least)
    if gain > SHARE:
        text = f"{tiles:,} tiles for {len(launch.clusters)} {run.who} that stay: some have {most} rounds of them"
        text = f"{text}, one after the other, and the mean is {mean:.2f}"
        yield Lack(gain, text, f"; if they came out even, {gain:.0%} fewer cycles.")


def room(run: PredictedRun) -> Iterator[Lack]:
    """Yield the gain of one more CTA on each SM, if shared memory or registers prevent it."""
    launch = run.launch
    full = launch.turns > launch.resident and not 0 < run.took.working < launch.resident
    if not full or run.used >= BUSY or not _fits(run):
        return
    gain = run.gain(run.conditions, Change(slots=1))
    if gain > SHARE:
        most = limits(run.lowered.program, launch.gpu)
        what = [name for name, ctas in most.items() if ctas == min(most.values())]
        held = f"an SM holds {counted(launch.resident, 'CTA')} at once, by its {' and its '.join(what)}"
        yield Lack(gain, held, f"; with one more, {gain:.0%} fewer cycles{_narrower(run, what)}.")


def _fits(run: PredictedRun) -> bool:
    """Return True if another CTA fits next to the accumulators; another schedule of a rung may have smaller ones."""
    sums = [inst for inst, each in run.lowered.calls.values() if each.name in MULTIPLY]
    return run.of_all_schedules or not registers_full(run.lowered.program, run.launch.resident + 1, sums)


def _narrower(run: PredictedRun, what: list[str]) -> str:
    if what != ["shared memory"]:
        return ""
    has, may = run.lowered.program.dynamic_shared_bytes, shared_bytes_of(run.launch.resident + 1, run.launch.gpu)
    return f", if each takes {may / 1024:.0f} KiB of it and not {has / 1024:.0f}"
