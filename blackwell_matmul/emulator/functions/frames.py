"""Stack frames of device functions: registers, variables and the return address of each running call.

Each lane has its own stack of frames, so that lanes can diverge and converge inside functions. A frame's variables and
parameters are in the warp's local memory, one part per lane. PTX ISA, "Function Declarations and Definitions", "call",
"ret".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.emulator.lanes import LANES, WORDS, Array, indices, lanes
from blackwell_matmul.emulator.machine import WarpState

_LANE_NUMBERS = np.arange(LANES, dtype=np.uint64)


class FrameSlot(NamedTuple):
    """Place of an argument or a result of a call. nbytes: its size; 0 for a constant, which fits any size.

    read: returns the bytes of each lane in a mask, lanes x nbytes. write: takes the mask and these bytes.
    """

    nbytes: int
    read: Callable[[WarpState, int], Array]
    write: Callable[[WarpState, int, Array], None]


@dataclass(slots=True, eq=False)
class Callee:
    """A device function. start: index of its first instruction. own: slots of its registers. frame_bytes: of a thread's
    variables and parameters. addresses: slots that hold its variables' addresses, with bytes of the address and offset
    in the frame."""

    name: str
    start: int
    own: range
    frame_bytes: int
    formals: list[FrameSlot] = field(default_factory=list)
    results: list[FrameSlot] = field(default_factory=list)
    addresses: list[tuple[int, int, int]] = field(default_factory=list)

    def slots(self) -> Iterator[int]:
        """Yield the slots whose contents belong to one call: registers and addresses of variables."""
        yield from self.own
        yield from (slot for slot, _, _ in self.addresses)


@dataclass(slots=True, eq=False)
class StackFrame:
    """A running call. back: index of the instruction to return to. before: each lane's frame before the call. lanes:
    lanes that have not returned. saved: contents of the function's slots before the call, None if no lane was in the
    function. start: offset of the frame's variables in local memory. targets: places of the results in the caller.
    stack: top of the stack before the call."""

    callee: Callee
    back: int
    before: tuple[StackFrame | None, ...]
    saved: list[Any] | None
    start: int
    lanes: int
    targets: Sequence[FrameSlot]
    stack: Array | None


@dataclass(slots=True)
class StackPool:
    """Frames of one function in one warp. running: number of running calls. free: offsets in local memory of ended
    frames."""

    running: int = 0
    free: list[int] = field(default_factory=list)


def enter(warp: WarpState, mask: int, callee: Callee, back: int, targets: Sequence[FrameSlot]) -> None:
    """Begin a call in a mask's lanes. back: index of the instruction to return to. targets: places of the results."""
    pool = warp.pools.setdefault(callee, StackPool())
    saved = [warp.registers[slot] for slot in callee.slots()] if pool.running else None
    start = pool.free.pop() if pool.free else warp.more_local(callee.frame_bytes)
    for slot, nbytes, offset in callee.addresses:
        addresses = _LANE_NUMBERS * np.uint64(callee.frame_bytes) + np.uint64(start + offset)
        warp.set(slot, addresses.astype(WORDS[nbytes]), mask)
    before = tuple(frame if mask >> lane & 1 else None for lane, frame in enumerate(warp.frames))
    frame = StackFrame(callee, back, before, saved, start, mask, targets, warp.stack)
    for lane in indices(mask):
        warp.frames[lane] = frame
    pool.running += 1


def leave(warp: WarpState, mask: int) -> dict[int, int]:
    """End the current calls of a mask's lanes. Return the lanes of each return address, an instruction's index."""
    ended: dict[StackFrame, int] = {}
    for lane in indices(mask):
        ended[warp.frames[lane]] = ended.get(warp.frames[lane], 0) | 1 << lane
    places: dict[int, int] = {}
    for frame, some in ended.items():
        _end(warp, frame, some)
        places[frame.back] = places.get(frame.back, 0) | some
    return places


def _end(warp: WarpState, frame: StackFrame, mask: int) -> None:
    callee = frame.callee
    values = [each.read(warp, mask) for each in callee.results]
    if frame.saved is not None:
        for slot, value in zip(callee.slots(), frame.saved):
            (warp.set_predicate if isinstance(value, int) else warp.set)(slot, value, mask)
    for lane in indices(mask):
        warp.frames[lane] = frame.before[lane]
    if warp.stack is not frame.stack:  # frees the function's alloca memory
        before = warp.stack_start if frame.stack is None else frame.stack
        warp.stack = np.where(lanes(mask), before, warp.stack)
    frame.lanes &= ~mask
    if not frame.lanes:
        pool = warp.pools[callee]
        pool.running -= 1
        pool.free.append(frame.start)
    for target, value in zip(frame.targets, values):
        target.write(warp, mask, value)
