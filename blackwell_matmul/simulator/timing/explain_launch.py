"""What is said of a launch as a whole: the size of its instructions, how its CTAs fill the SMs, and who waits for
tensor memory."""

from __future__ import annotations

import os
from collections.abc import Iterator

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.timing.explain_rounds import rounds
from blackwell_matmul.simulator.timing.occupancy import limits, shared_bytes_of
from blackwell_matmul.simulator.timing.one_sm import Change
from blackwell_matmul.simulator.timing.thread_watches import StayWatch
from blackwell_matmul.simulator.timing.what_if import BUSY, MULTIPLY, SHARE, PredictedRun, Supposed
from blackwell_matmul.simulator.timing.work import Multiply, WarpgroupMultiply, work_of

RELINQUISH = "tcgen05.relinquish_alloc_permit"

Gain = tuple[float, str]
"""Of the cycles, what would be saved, and the sentence."""


def line_of(location: Location | None) -> str:
    return "a line of tilus" if location is None else f"{os.path.basename(location.file)}:{location.line}"


def whole(run: PredictedRun) -> Iterator[Gain]:
    yield from rate(run)
    yield from turns(run)
    yield from rounds(run)
    yield from room(run)
    yield from permit(run)


def rate(run: PredictedRun) -> Iterator[Gain]:
    """Instructions that take longer than their products."""
    for inst, instruction in run.lowered.calls.values():
        if instruction.name not in MULTIPLY:
            continue
        work = work_of(inst, instruction, run.conditions.figures)
        best = _best_interval(inst, work)
        if best is not None and run.used * (1 - best[0] / best[1]) > SHARE:
            rows, columns = (int(each) for each in inst.inputs[2].shape[-2:])
            gain = run.used * (1 - best[0] / best[1])
            yield (
                gain,
                (
                    f"each {instruction.name} of {rows} x {columns} ({line_of(instruction.location)}) takes"
                    f" {best[1] / best[0]:.1f} times as long as at the full rate, which larger tiles have:"
                    f" {gain:.0%} fewer cycles."
                ),
            )
            return


def _best_interval(inst: object, work: object) -> tuple[float, float] | None:
    """At the full rate, and as it is, from one instruction to the next."""
    if isinstance(work, Multiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[-2]) * int(shape[-1]) / 256, work.interval
    if isinstance(work, WarpgroupMultiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[0]) / 64 * int(shape[1]) / 2, work.interval
    return None


def turns(run: PredictedRun) -> Iterator[Gain]:
    """SMs without work in the last turn, or in the only one; what is loaded still takes as long, of all SMs."""
    side = run.places
    lost, last = 1 - run.clusters / (side * run.turns), run.clusters - side * (run.turns - 1)
    if lost <= 2 * SHARE:
        return
    if run.turns > 1:
        told = f"{run.clusters} {run.who} take {run.turns} turns of {side}, the last of which has {last}"
        yield lost, f"{told}: {_even(run)} would take up to {lost:.0%} fewer cycles."
        return
    loads = run.took.busy_cycles["L2"] / run.took.cycles / run.distinct  # if neighbours share nothing then
    gain = min(lost, 1 - loads)
    if gain > SHARE:
        more = f"smaller tiles, or a part of k for each, fill more SMs: up to {gain:.0%} fewer cycles"
        yield gain, f"{run.clusters} {run.who} run where {side} could: {more}."
    elif run.spread.most.tiles > 1:  # fewer, larger tiles do not ask the L2 for more
        told = f"{run.clusters} {run.who} of {run.spread.most.tiles} tiles run where {side} could"
        yield (
            lost,
            f"{told}: tiles that come out even, larger ones for instance, would take up to {lost:.0%} fewer cycles.",
        )


def _even(run: PredictedRun) -> str:
    """Where each goes on to further tiles, there need be no more of them than run at once."""
    watch = StayWatch()
    run.watch(watch)
    if watch.stays and not run.lowered.cancels:
        return f"each goes on to further tiles, so that a grid of no more {run.who} than run at once"
    return "tiles that come out even"


def room(run: PredictedRun) -> Iterator[Gain]:
    """One more CTA on the SM."""
    if run.turns <= run.resident or run.used >= BUSY or 0 < run.took.working < run.resident:
        return
    gain = run.gain(Supposed(run.conditions, Change(slots=1)))
    if gain > SHARE:
        what = min(limits(run.lowered.program, run.gpu).items(), key=lambda each: each[1])[0]
        held = f"an SM holds {run.resident} CTA{'s' * (run.resident > 1)} at once, by its {what}"
        yield gain, f"{held}; with one more, {gain:.0%} fewer cycles{_narrower(run, what)}."


def _narrower(run: PredictedRun, what: str) -> str:
    if what != "shared memory":
        return ""
    has, may = run.lowered.program.dynamic_shared_bytes, shared_bytes_of(run.resident + 1, run.gpu)
    return f", if each takes {may / 1024:.0f} KiB of it and not {has / 1024:.0f}"


def permit(run: PredictedRun) -> Iterator[Gain]:
    """PTX ISA, "tcgen05.relinquish_alloc_permit"."""
    names = {instruction.name for _, instruction in run.lowered.calls.values()}
    if run.took.waited and run.took.working == 1 < run.resident and RELINQUISH not in names:
        gain = run.gain(Supposed(run.conditions, Change(passed_on=True)))
        yield (
            gain,
            (
                f"an SM has room for {run.resident} CTAs and one works at a time: it keeps the right to allocate tensor"
                f" memory, and {run.took.waited} others waited for it; {RELINQUISH} after the allocation lets them work"
                f" side by side: {gain:.0%} fewer cycles."
            ),
        )
