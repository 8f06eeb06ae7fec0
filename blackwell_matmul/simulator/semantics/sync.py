"""Barriers of threads, and what code generation builds on them: shuffles, semaphores; reductions are in reduce.py."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.machine.cta import Rendezvous, Warp
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.semantics.description import (
    Access,
    Again,
    Effect,
    Space,
    Wait,
    describe,
)
from blackwell_matmul.simulator.lowering.context import Site


def meet(site: Site, purpose: str) -> Callable[[Warp, Any], Generator[Blocked, None, dict[int, Any]]]:
    """A generator that waits until every warp of the thread group is here; it returns what they brought."""
    needed, location = frozenset(site.group.warps), site.location
    key = (site.group.begin, site.group.count)

    def run(warp: Warp, brought: Any) -> Any:
        if len(needed) == 1:
            return {warp.index: brought}
        meeting = warp.cta.meet(key, needed, warp.index, brought)
        if not meeting.over:
            yield Blocked(meeting.complete, lambda: _missing(meeting, purpose), location, meeting=meeting)
        return meeting.brought

    return run


def _missing(meeting: Rendezvous, purpose: str) -> str:
    absent = sorted(meeting.needed - meeting.brought.keys())
    return f"warp(s) {', '.join(map(str, absent))} at {purpose}"


@describe("SyncThreadsInst", name="sync", ptx="bar{.cta}, bar.warp.sync", waits=(Wait("threads"),), again=Again.NOTHING)
def sync_threads(inst: Any, site: Site) -> Any:
    """bar.sync over the warps of the thread group; a barrier inside one warp never blocks the warp's agent."""
    needed, location = frozenset(site.group.warps), site.location
    key = (site.group.begin, site.group.count)
    if len(needed) == 1:
        return None if site.group.count < WARP else _sync_warp
    site.kind = "blocking"

    def run(warp: Warp) -> Blocked | None:
        if warp.cta.detailed:
            warp.event("wait", "the others at sync()", location)
        meeting = warp.cta.meet(key, needed, warp.index)
        if meeting.over:
            warp.event("resume", "sync: all warps are here", location)
            return None
        return Blocked(meeting.complete, lambda: _missing(meeting, "sync()"), location, meeting=meeting)

    return run


def _sync_warp(warp: Warp) -> None:
    """bar.warp.sync: the lanes of one warp wait for each other, and learn what each other did."""
    if warp.cta.order is not None:
        warp.cta.order.meet((warp,))


@describe("SyncReduceThreadsInst", ptx="barrier.red", waits=(Wait("threads"),))
def sync_reduce(inst: Any, site: Site) -> Any:
    """bar.red.and/or of one predicate."""
    site.kind = "steps"
    site.scalar(inst.reduce_value)
    gather, every = meet(site, "sync_and/sync_or"), inst.reduce_op == inst.AND

    def run(warp: Warp, value: Any) -> Any:
        brought = yield from gather(warp, bool(value))
        return all(brought.values()) if every else any(brought.values())

    return run


COLLECTIVE: dict[str, Any] = {
    "effects": (Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.REGISTER, Access.WRITE)),
    "waits": (Wait("threads"),),
    "resources": ("ALU", "LSU"),
    "approximation": "accesses to the scratch memory that code generation adds are not looked at",
}


@describe("ShuffleDownInst", "ShuffleUpInst", name="shuffle", ptx="bar{.cta}", **COLLECTIVE)
def shuffle(inst: Any, site: Site) -> Any:
    """tilus shuffles between warps: warp w takes the registers of warp w + delta (down) or w - delta (up)."""
    site.kind = "steps"
    site.use(inst.inputs[0])
    gather = meet(site, "shuffle")
    step = inst.delta if type(inst).__name__ == "ShuffleDownInst" else -inst.delta

    def run(warp: Warp, x: np.ndarray) -> Any:
        brought = yield from gather(warp, x.copy())
        lane, other = warp.index % inst.width, warp.index + step
        inside = 0 <= lane + step < inst.width and inst.mask >> warp.index & 1
        return brought[other].copy() if inside and other in brought else x.copy()

    return run


@describe("ExitInst", ptx="exit", again=Again.NOTHING)
def leave(inst: Any, site: Site) -> Callable[[Warp], None]:
    return lambda warp: None


@describe("NopInst", "AnnotateLayoutInst", ptx="", again=Again.NOTHING)
def nothing(inst: Any, site: Site) -> Any:
    return None


# semaphores in global memory


def _cell(warp: Warp, address: int, location: Any) -> np.ndarray:
    segment = warp.cta.grid.memory.segment_at(address)
    if segment is None:
        raise warp.cta.stop(
            "out-of-bounds", f"semaphore address {address:#x} lies in no tensor of this launch", location
        )
    start = address - segment.address
    return segment.cells[start : start + 4].view(np.int32)


@describe("LockSemaphoreInst", name="lock_semaphore", ptx="ld.acquire.gpu", waits=(Wait("semaphore"), Wait("threads")))
def lock_semaphore(inst: Any, site: Site) -> Any:
    """Spins until the semaphore holds the value."""
    site.kind = "steps"
    site.scalar(inst.semaphore)
    site.scalar(inst.value)
    location, gather = site.location, meet(site, "lock_semaphore")

    def run(warp: Warp, address: int, value: int) -> Any:
        cell = _cell(warp, address, location)
        if cell[0] != value:
            why = lambda: f"the semaphore at {address:#x} to become {value}; it is {cell[0]}"  # noqa: E731
            yield Blocked(lambda: bool(cell[0] == value), why, location)
        if warp.cta.order is not None:
            warp.cta.order.acquire(address, warp)
        yield from gather(warp, None)

    return run


@describe("ReleaseSemaphoreInst", name="release_semaphore", ptx="st.release.gpu")
def release_semaphore(inst: Any, site: Site) -> Any:
    site.scalar(inst.semaphore)
    site.scalar(inst.value)
    first, location = site.group.warps.start, site.location

    def run(warp: Warp, address: int, value: int) -> None:
        if warp.index == first:
            if warp.cta.order is not None:
                warp.cta.order.release(address, warp)
            _cell(warp, address, location)[0] = value

    return run
