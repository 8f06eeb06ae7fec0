"""Barriers of threads, shuffles and semaphores that code generation builds on them, counters of all CTAs, and transfers
of registers; reductions are in reduce.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import (
    FREE,
    UNKNOWN,
    Access,
    Again,
    Effect,
    Signal,
    Space,
    Time,
    Unit,
    Wait,
    describe,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.registers import WARP


@describe(
    "SyncThreadsInst",
    name="sync",
    ptx="bar{.cta}, bar.warp.sync",
    waits=(Wait("threads"),),
    again=Again.NOTHING,
    time=Time(Unit.WARPS, "sync_cycles"),
    mark="waits for other warps",
)
def sync_threads(inst: Any, context: LoweringContext) -> Any:
    """Lower bar.sync over the warps of the thread group; a barrier inside one warp never blocks the warp's agent."""
    if len(context.group.warps) == 1:
        return None if context.group.count == 1 else lambda warp: sync_warp(warp, context)
    context.kind = "blocking"

    def run(warp: Warp) -> Blocked | None:
        warp.cta.engine.tell.waits(warp, context.instruction, "the others at sync()")
        meeting = context.meet(warp)
        return None if meeting.over else context.absent(meeting, "sync()")

    return run


def sync_warp(warp: Warp, context: LoweringContext) -> None:
    """Perform bar.warp.sync: lanes of a warp, all or some, wait for each other, which orders their accesses."""
    warp.cta.engine.tell.met((warp,), warp, context.instruction)


@describe("SyncReduceThreadsInst", ptx="barrier.red", waits=(Wait("threads"),), time=Time(Unit.WARPS, "sync_cycles"))
def sync_reduce(inst: Any, context: LoweringContext) -> Any:
    """Lower bar.red.and/or of one predicate."""
    context.result = inst.var
    context.kind = "steps"
    context.scalar(inst.reduce_value)
    gather, every = context.gather("sync_and/sync_or"), inst.reduce_op == inst.AND

    def run(warp: Warp, value: Any) -> Any:
        brought = yield from gather(warp, bool(value))
        return all(brought.values()) if every else any(brought.values())

    return run


COLLECTIVE: dict[str, Any] = {
    "effects": (Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.REGISTER, Access.WRITE)),
    "waits": (Wait("threads"),),
    "approximation": "accesses to the scratch memory that code generation adds are not looked at",
}


@describe(
    "ShuffleDownInst",
    "ShuffleUpInst",
    name="shuffle",
    ptx="bar{.cta}",
    time=Time(Unit.WARPS, "sync_cycles"),
    **COLLECTIVE,
)
def shuffle(inst: Any, context: LoweringContext) -> Any:
    """Lower tilus's shuffle between warps: warp w takes the registers of warp w + delta (down) or w - delta (up)."""
    context.kind = "steps"
    context.use(inst.inputs[0])
    gather = context.gather("shuffle")
    step = inst.delta if type(inst).__name__ == "ShuffleDownInst" else -inst.delta

    def run(warp: Warp, x: np.ndarray) -> Any:
        brought = yield from gather(warp, x.copy())
        lane, other = warp.index % inst.width, warp.index + step
        inside = 0 <= lane + step < inst.width and inst.mask >> warp.index & 1
        return brought[other].copy() if inside and other in brought else x.copy()

    return run


@describe("ExitInst", ptx="exit", again=Again.NOTHING, time=FREE)
def leave(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    context.kind = "exit"
    return lambda warp: None


@describe("NopInst", "AnnotateLayoutInst", again=Again.NOTHING, time=FREE)
def nothing(inst: Any, context: LoweringContext) -> Any:
    return None


# semaphores and counters in global memory


def _cell(warp: Warp, address: int, location: Any, name: str = "semaphore") -> np.ndarray:
    cell = warp.cta.grid.memory.word_at(address)
    if cell is None:
        raise warp.cta.stop("out-of-bounds", f"{name} address {address:#x} lies in no tensor of this launch", location)
    return cell


@describe(
    "LockSemaphoreInst",
    name="lock_semaphore",
    ptx="ld.acquire.gpu",
    waits=(Wait("acquire"), Wait("threads")),
    time=Time(Unit.WARPS, "sync_cycles"),
)
def lock_semaphore(inst: Any, context: LoweringContext) -> Any:
    """Lower a wait until the semaphore holds the value."""
    context.kind = "steps"
    context.scalar(inst.semaphore, inst.value)
    location, gather = context.location, context.gather("lock_semaphore")

    def run(warp: Warp, address: int, value: int) -> Any:
        cell = _cell(warp, address, location)
        warp.cta.engine.tell.comes_to_semaphore(warp, context.instruction, address, int(cell[0]))
        if cell[0] != value:
            name = warp.cta.grid.memory.name_at(address)
            why = lambda: f"the semaphore {name} to become {value}; it is {cell[0]}"  # noqa: E731
            yield Blocked(lambda: bool(cell[0] == value), why, location, semaphore=address)
        warp.cta.engine.tell.acquired(warp, context.instruction, address, value)
        yield from gather(warp, None)

    return run


@describe(
    "ReleaseSemaphoreInst",
    name="release_semaphore",
    ptx="st.release.gpu",
    effects=(Effect("semaphore", Space.GLOBAL, Access.WRITE),),
    signals=(Signal("release"),),
    time=FREE,
)
def release_semaphore(inst: Any, context: LoweringContext) -> Any:
    context.scalar(inst.semaphore, inst.value)
    first, location = context.group.warps.start, context.location

    def run(warp: Warp, address: int, value: int) -> None:
        if warp.index == first:
            cell = _cell(warp, address, location)
            warp.cta.engine.tell.comes_to_semaphore(warp, context.instruction, address, int(cell[0]))
            context.release(warp, address, value)
            cell[0] = value

    return run


@describe(
    "AtomicIncInst",
    name="atomic.inc",
    ptx="atom",
    effects=(Effect("counter", Space.GLOBAL, Access.READ), Effect("counter", Space.GLOBAL, Access.WRITE)),
    approximation="other accesses to the counter are not looked at",
    time=UNKNOWN,
)
def atomic_inc(inst: Any, context: LoweringContext) -> Any:
    """Lower atom.inc of one thread, whose result all lanes get. Other warps run before it, so that CTAs take turns."""
    context.kind = "steps"
    context.scalar(inst.counter, inst.last)
    location = context.location

    def run(warp: Warp, address: int, last: int) -> Any:
        yield Blocked(lambda: True, lambda: "its turn to count", location)
        cell = _cell(warp, address, location, "counter").view(np.uint32)
        old = int(cell[0])
        cell[0] = 0 if old >= last else old + 1
        return np.full((WARP, 1), old, np.uint32).view(np.int32)

    return run


# registers of a warpgroup


@describe("SetMaxRegistersInst", name="setmaxnreg", ptx="setmaxnreg", again=Again.NOTHING, time=FREE)
def set_max_registers(inst: Any, context: LoweringContext) -> Any:
    """Lower setmaxnreg: dec returns registers to the CTA's pool, and inc waits until the pool has enough.

    Report a count that is more after dec, or less after inc, than the threads have. Compiled kernels start with all
    registers that an SM has for their threads.
    """
    context.kind = "steps"
    location, name = context.location, f"setmaxnreg.{inst.action}({inst.count})"
    at_start = context.program.registers_per_thread

    def run(warp: Warp) -> Iterator[Blocked]:
        cta, had = warp.cta, warp.registers or at_start
        if inst.count != had and (inst.count > had) != (inst.action == "inc"):
            other = "inc" if inst.action == "dec" else "dec"
            cta.report("register-count", f"{name} in threads that have {had} registers; use {other}", location)

        def missing() -> int:
            """Return the registers that the CTA's pool lacks."""
            taken = sum((each.registers or at_start) - at_start for each in cta.warps)
            return WARP * (taken + inst.count - had)

        if missing() > 0:
            yield Blocked(lambda: missing() <= 0, lambda: f"{missing()} registers for {name}", location)
        warp.registers = inst.count

    return run
