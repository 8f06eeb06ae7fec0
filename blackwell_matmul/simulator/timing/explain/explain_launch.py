"""Explanations of a whole launch: the size of its instructions, and waits for tensor memory."""

from __future__ import annotations

from collections.abc import Iterator

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.timing.explain.what_if import COPY_OF_SCALES, MULTIPLY, SHARE, PredictedRun
from blackwell_matmul.simulator.timing.model.occupancy import spilled_sums
from blackwell_matmul.simulator.timing.model.one_sm import Change
from blackwell_matmul.simulator.timing.model.work import Multiply, WarpgroupMultiply, allocated_columns, work_of

RELINQUISH = "tcgen05.relinquish_alloc_permit"

Gain = tuple[float, str]
"""A gain: the saved fraction of the cycles, and a sentence."""


def line_of(location: Location | None) -> str:
    return "a line of tilus" if location is None else location.short


def spills(run: PredictedRun) -> Iterator[str]:
    """Yield accumulators that exceed a thread's registers."""
    program = run.lowered.program
    for inst, instruction in run.lowered.calls.values():
        sums = spilled_sums(program, inst) if instruction.name in MULTIPLY else 0
        if sums:
            yield (
                f"the sums of {instruction.name} ({line_of(instruction.location)}) take {sums} registers of a thread,"
                f" which has {program.registers_per_thread} for everything, and are spilled to local memory: what that"
                " takes is an estimate; fewer rows or columns for each warp keep them in registers."
            )
            return


def whole(run: PredictedRun) -> Iterator[Gain]:
    yield from rate(run)
    yield from scales(run)
    yield from permit(run)


def rate(run: PredictedRun) -> Iterator[Gain]:
    """Yield the gain of larger instructions, if instructions take longer than their products. Nothing if each SM has
    one tile: larger tiles would leave SMs idle."""
    if run.launch.turns == run.launch.spread.most.tiles == 1:
        return
    for inst, instruction in run.lowered.calls.values():
        if instruction.name not in MULTIPLY:
            continue
        work = work_of(inst, instruction, run.conditions.figures)
        best = _best_interval(inst, work)
        if best is not None and run.used * (1 - best[0] / best[1]) > SHARE:
            rows, columns = (int(each) for each in inst.inputs[2].shape[-2:])
            gain = run.used * (1 - best[0] / best[1])
            told = f"each {instruction.name} of {rows} x {columns} ({line_of(instruction.location)}) takes"
            slow = f"{best[1] / best[0]:.1f} times as long as at the full rate, which larger tiles have"
            yield gain, f"{told} {slow}: {gain:.0%} fewer cycles."
            return


def _best_interval(inst: object, work: object) -> tuple[float, float] | None:
    """Return the cycles from one instruction to the next: at the full rate, and as they are."""
    if isinstance(work, Multiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[-2]) * int(shape[-1]) / 256, work.interval
    if isinstance(work, WarpgroupMultiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[0]) / 64 * int(shape[1]) / 2, work.interval
    return None


def scales(run: PredictedRun) -> Iterator[Gain]:
    """Yield copies of scales to tensor memory, during which the tensor core does not multiply."""
    copies = [each for _, each in run.lowered.calls.values() if each.name == COPY_OF_SCALES]
    if not copies:
        return
    free = frozenset((each.location, each.name) for each in copies)
    gain = run.gain(run.conditions, Change(free=free))
    if gain > SHARE:
        lines = ", ".join(dict.fromkeys(line_of(each.location) for each in copies))
        told = f"{COPY_OF_SCALES} ({lines}) keeps the tensor core from its products, at a rate that is assumed"
        yield gain, f"{told}; a larger tile needs fewer scales for each: without any, {gain:.0%} fewer cycles."


def permit(run: PredictedRun) -> Iterator[Gain]:
    """Yield the loss of CTAs that wait for tensor memory or for the permit to allocate it (PTX ISA,
    "tcgen05.alloc")."""
    if not run.took.waited or not run.took.working == 1 < run.launch.resident:
        return
    text = f"an SM has room for {run.launch.resident} CTAs and one works at a time: it"
    others = f"{run.took.waited} others waited for"
    kept = all(instruction.name != RELINQUISH for _, instruction in run.lowered.calls.values())
    gain = run.gain(run.conditions, Change(passed_on=True)) if kept else 0
    if gain > SHARE:
        right = f"{text} keeps the right to allocate tensor memory, and {others} it"
        yield gain, f"{right}; {RELINQUISH} after the allocation lets them work side by side: {gain:.0%} fewer cycles."
        return
    taken, have = _columns(run), run.launch.gpu.tensor_memory_columns
    gain = run.gain(run.conditions, Change(passed_on=True, columns=run.launch.resident * taken))
    if gain > SHARE:
        each = 1 << (have // run.launch.resident).bit_length() - 1
        passed_on = f", and {RELINQUISH} after that," if kept else ""
        taken_columns = f"{text} takes {taken} of {have} columns of tensor memory, and {others} them"
        room = f"with {each} each, if its sums have room in them{passed_on} they work side by side"
        yield gain, f"{taken_columns}; {room}: up to {gain:.0%} fewer cycles."


def _columns(run: PredictedRun) -> int:
    """Return the tensor-memory columns that a CTA allocates; each allocation is a power of two."""
    allocations = (inst for inst, each in run.lowered.calls.values() if each.name == "tcgen05.alloc")
    return sum(allocated_columns(inst.output) for inst in allocations)
