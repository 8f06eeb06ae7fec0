"""Explanations of threads' work, above all of an epilogue: overlap with MMAs, and lanes that delay each other."""

from __future__ import annotations

from collections.abc import Iterator

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.simulator.timing.explain.explain_launch import Gain, line_of
from blackwell_matmul.simulator.timing.explain.thread_watches import BesideWatch
from blackwell_matmul.simulator.timing.explain.what_if import SHARE, PathPart, PredictedRun
from blackwell_matmul.simulator.timing.model.one_sm import Change
from blackwell_matmul.simulator.timing.model.path import EXECUTES
from blackwell_matmul.simulator.timing.model.sm import SECTOR_BYTES
from blackwell_matmul.simulator.timing.model.work import UseBanks, work_of


def told_of_threads(run: PredictedRun, part: PathPart, name: str, gain: float) -> Gain:
    """Return the gain and the sentence of the threads' part. gain: if it took no time; overlapped, it still does."""
    if not run.multiplies:
        return gain, f"{name}: if more of it ran at a time, or beside the rest, up to {gain:.0%} fewer cycles."
    watch = beside(run, part)
    meanwhile = min(gain, 1 - gain)
    if not watch.beside:
        return gain, f"{name}: {_by_others(gain, meanwhile)}."
    place = watch.only_place
    if watch.loads_wait(part):
        another = "another warp" + (f", and with a second place beside {place}" if place else "")
        return meanwhile, (
            f"{name}: the warp that loads does this, and loads wait for it meanwhile; in {another}:"
            f" {meanwhile:.0%} fewer cycles."
        )
    if place:
        meanwhile *= 1 - 1 / watch.times(place)  # no MMA is left during the last one
        return meanwhile, (
            f"{name}: other warps do this, but the tensor core waits for {place}, the one place that they give back;"
            f" with a second one it multiplies meanwhile: {meanwhile:.0%} fewer cycles."
        )
    return gain, (
        f"{name}: other warps do this while the tensor core multiplies, and take longer; fewer, larger pieces take"
        f" less, and if it took no time: {gain:.0%} fewer cycles."
    )


def beside(run: PredictedRun, part: PathPart) -> BesideWatch:
    """Run with a listener that records the warps that execute these lines, and the warps that wait for them. Return
    the listener."""
    watch = BesideWatch({(cause.name, cause.location) for cause in part.causes})
    run.watch(watch)
    return watch


def _by_others(gain: float, meanwhile: float) -> str:
    if meanwhile == gain:
        return f"if this took no time, or other warps did it while the tensor core multiplies: {gain:.0%} fewer cycles"
    return (
        f"if this took no time, {gain:.0%} fewer cycles; if other warps did it while the tensor core multiplies,"
        f" {meanwhile:.0%}"
    )


def stores(run: PredictedRun) -> Iterator[Gain]:
    """Yield stores that are waited for to their end although only their source is reused."""
    waited = {each: cycles for each, cycles in run.took.path.items() if "store" in each.name and each.kind != EXECUTES}
    if sum(waited.values()) <= SHARE * run.took.cycles:
        return
    gain = run.gain(run.conditions, Change(until_read=True))
    if gain > SHARE:
        longest = max(waited, key=lambda each: waited[each])
        text = f"{longest.name} ({line_of(longest.location)}): a warp waits until it is in memory"
        yield gain, f"{text}; if it waited until its source is read, {gain:.0%} fewer cycles."


def in_the_way(run: PredictedRun) -> Iterator[Gain]:
    """Yield bank conflicts, uncoalesced accesses and TMA rows that begin within L2 lines."""
    gain = _saved(run, "shared memory", Change(apart=True))
    crowded = [*_crowded(run)] if gain > SHARE else []
    if crowded:
        line, work = max(crowded, key=lambda each: each[1].turns)
        text = f"{line}: its lanes meet in the banks of shared memory, and take {work.turns:,.0f} turns where"
        yield gain, f"{text} {work.least:,.0f} would do; with rows swizzled, or padded: {gain:.0%} fewer cycles."
    gain = _saved(run, "loads and stores", Change(side_by_side=True))
    if gain > SHARE:
        lines = {cause: cycles for cause, cycles in run.took.path.items() if cause.kind == "loads and stores"}
        most = max(lines, key=lambda each: lines[each])
        text = f"{most.name} ({line_of(most.location)}): its lanes lie apart, and each moves {SECTOR_BYTES} bytes for"
        yield gain, f"{text} a part of them; side by side, through shared memory say: {gain:.0%} fewer cycles."
    gain = _saved(run, "TMA loads", Change(whole=True)) if run.conditions.figures.rows_by_16_cycles else 0.0
    if gain > SHARE:
        text = f"rows that TMA loads begin within lines of {ROW_BYTES} bytes, and come out of the L2 more slowly"
        yield gain, f"{text}; if rows were a multiple of {ROW_BYTES} bytes apart: {gain:.0%} fewer cycles."


def _saved(run: PredictedRun, part: str, change: Change) -> float:
    """Return the gain of a change to this part of an SM; 0 if the part does not matter."""
    took = run.took
    if took.busy_cycles.get(part, 0.0) <= SHARE * took.cycles or all(each.kind != part for each in took.path):
        return 0.0
    return 1 - run.launch.at(run.conditions, change).cycles / took.cycles


def _crowded(run: PredictedRun) -> Iterator[tuple[str, UseBanks]]:
    for inst, instruction in run.lowered.calls.values():
        work = work_of(inst, instruction, run.conditions.figures)
        if isinstance(work, UseBanks) and work.turns > work.least:
            yield f"{instruction.name} ({line_of(instruction.location)})", work
