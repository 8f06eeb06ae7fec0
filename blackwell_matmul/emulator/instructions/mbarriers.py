"""mbarriers: arrivals, transaction bytes and phases (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, wide
from blackwell_matmul.emulator.instructions.moves import shared_addresses
from blackwell_matmul.emulator.lanes import ALL, LANES, Array, first, indices
from blackwell_matmul.emulator.machine import COUNT_LIMIT, PhaseBarrier, Row, Waiting, Waits, WarpState
from blackwell_matmul.emulator.parser import Address, Nothing, Statement
from blackwell_matmul.emulator.spaces import OFFSET, Undefined


@instruction("mbarrier.init")
def init(build: Builder, each: Statement) -> Act:
    address, count = shared_addresses(build, each.operands[0]), build.reader(each.operands[1], "b32")

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            place, arrivals = int(address(warp)[lane]), int(count(warp)[lane])
            if not 1 <= arrivals <= COUNT_LIMIT:
                raise Undefined(f"an mbarrier counts 1 to {COUNT_LIMIT:,} arrivals and not {arrivals:,}")
            if place % 8:
                raise Undefined(f"an mbarrier lies at {place:,}, which is no multiple of 8")
            owner = warp.cta.cluster.owner(place)
            owner.shared.bytes(owner.shared.base + (place & OFFSET), 8, "puts an mbarrier into")
            before = owner.barriers.get(place & OFFSET)
            made = owner.barriers[place & OFFSET] = PhaseBarrier(arrivals, arrivals)
            if owner.cluster.grid.listener is not None:
                owner.cluster.grid.listener.initialised(made, owner, place & OFFSET, warp, lane, before)
            owner.invalidated.pop(place & OFFSET, None)
            owner.cluster.grid.effects += 1

    return act


@instruction("mbarrier.inval")
def invalidate(build: Builder, each: Statement) -> Act:
    address = shared_addresses(build, each.operands[0])

    def act(warp: WarpState, mask: int) -> None:
        place = int(address(warp)[first(mask)])
        found = warp.cta.barrier(place)
        if warp.cta.cluster.grid.listener is not None:
            warp.cta.cluster.grid.listener.invalidated(found, warp, first(mask))
        owner = warp.cta.cluster.owner(place)
        del owner.barriers[place & OFFSET]
        owner.invalidated[place & OFFSET] = f"PTX line {each.line}"

    return act


@instruction(
    "mbarrier.arrive", "mbarrier.arrive_drop", "mbarrier.expect_tx", "mbarrier.complete_tx", order=Order("release")
)
def arrive(build: Builder, each: Statement) -> Act:
    """Arrive: `mbarrier.arrive{.expect_tx}{.noComplete} state|_, [a]{, count or bytes}`; the state is the phase."""
    has_state = not isinstance(each.operands[0], Address)
    state, operands = each.operands[0] if has_state else Nothing(), each.operands[has_state:]
    target, address = build.target(state), shared_addresses(build, operands[0])
    number = build.reader(operands[1], "b32") if len(operands) > 1 else None
    kind = each.opcode.split(".")[1]
    expects, remote = "expect_tx" in each.modifiers, "shared::cluster" in each.modifiers

    def one(barrier: PhaseBarrier, value: int) -> None:
        if expects:
            barrier.expect(value)
        elif kind == "complete_tx":
            barrier.complete(value)
        if kind == "arrive":
            barrier.arrive(1 if expects else value)
        elif kind == "arrive_drop":
            barrier.drop(1 if expects else value)

    def act(warp: WarpState, mask: int) -> None:
        places, phases = address(warp), np.zeros(LANES, np.uint64)
        listener = warp.cta.cluster.grid.listener
        for lane in indices(mask):
            barrier = warp.cta.barrier(int(places[lane]))
            if not remote and warp.cta.cluster.owner(int(places[lane])) is not warp.cta:
                raise Undefined("an mbarrier of another CTA, for which .shared::cluster is missing")
            phases[lane] = barrier.phase
            if listener is not None:
                listener.arrived(barrier, warp, 1 << lane, None if kind in ("arrive", "arrive_drop") else 0)
            one(barrier, 1 if number is None else int(number(warp)[lane]))
        warp.cta.cluster.grid.effects += 1
        warp.set(target, phases, mask)

    return act


@instruction("mbarrier.try_wait", "mbarrier.test_wait", order=Order("acquire"))
def wait(build: Builder, each: Statement) -> Act:
    """Test if a phase is complete: `try_wait{.parity} p, [a], phase`. try_wait waits a while, test_wait does not."""
    target, address = build.target(each.operands[0]), shared_addresses(build, each.operands[1])
    by_parity = "parity" in each.modifiers
    phase = build.reader(each.operands[2], "b32" if by_parity else "b64")
    waits_at = each.opcode.startswith("mbarrier.try_wait")

    def passed(warp: WarpState, mask: int) -> int:
        places, phases = address(warp), phase(warp)
        if mask & (mask - 1) and places.min() == places.max() and phases.min() == phases.max():
            return mask if _passed(warp, int(places[0]), int(phases[0]), by_parity) else 0
        return sum(
            1 << lane for lane in indices(mask) if _passed(warp, int(places[lane]), int(phases[lane]), by_parity)
        )

    @wide
    def act(warp: WarpState, mask: int) -> Any:
        if isinstance(warp, Row):
            waits = _waits(warp, address(warp), phase(warp), mask, by_parity)
            late = sum(part << each.start for each, part, _ in waits)
            if late and (not waits_at or any(each.timed_out for each in warp.warps)):
                raise Undefined("lanes of a row go on without success")
            warp.set_predicate(target, mask & ~late, mask & ~late)
            return waits or None
        done = passed(warp, mask)
        if done != mask and waits_at and not warp.timed_out:
            lane = first(mask & ~done)
            one = _waiting(warp, int(address(warp)[lane]), int(phase(warp)[lane]), by_parity)
            return one._replace(ready=lambda: passed(warp, mask) == mask)
        if done and warp.cta.cluster.grid.listener is not None:
            _hear(warp, done, address(warp), phase(warp), by_parity)
        warp.set_predicate(target, done, mask)
        return None

    return act


def _waits(row: Row, places: Array, phases: Array, mask: int, by_parity: bool) -> Waits:
    """Return the warps of a row whose phase is not complete, with their waits. Raise Undefined if lanes of a warp wait
    for different phases."""
    places, phases = places.reshape(-1, LANES), phases.reshape(-1, LANES)
    row.verify_whole(mask)
    if (places != places[:, :1]).any() or (phases != phases[:, :1]).any():
        raise Undefined("lanes of a warp wait for several mbarriers")
    asked = zip(row.warps, places[:, 0].tolist(), phases[:, 0].tolist())
    found: dict[Any, Waiting | None] = {}
    waits = []
    for warp, place, phase in asked if mask == row.all else [each for each in asked if mask >> each[0].start & 1]:
        key = warp.cta, place, phase
        if key not in found:
            passed = _passed(warp, place, phase, by_parity)
            found[key] = None if passed else _waiting(warp, place, phase, by_parity)
        wait = found[key]
        if wait is not None:
            waits.append((warp, ALL, wait))
    return waits


def _waiting(warp: WarpState, place: int, phase: int, by_parity: bool) -> Waiting:
    def told() -> str:
        what = f"mbarrier at {place & OFFSET:,}, {'parity' if by_parity else 'phase'} {phase}"
        return f"{what}: {warp.cta.barrier(place)}"

    return Waiting(partial(_passed, warp, place, phase, by_parity), True, told, may_fail=True)


def _hear(warp: WarpState, mask: int, places: Array, phases: Array, by_parity: bool) -> None:
    """Report to the listener the lanes that have observed the completion of a phase."""
    seen: dict[tuple[int, int], int] = {}
    for lane in indices(mask):
        seen[int(places[lane]), int(phases[lane])] = seen.get((int(places[lane]), int(phases[lane])), 0) | 1 << lane
    for (place, phase), some in seen.items():
        barrier = warp.cta.barrier(place)
        number = barrier.phase - 1 if by_parity else phase
        warp.cta.cluster.grid.listener.passed(barrier, warp, some, number)


def _passed(warp: WarpState, place: int, phase: int, by_parity: bool) -> bool:
    barrier = warp.cta.barrier(place)
    if by_parity and phase not in (0, 1):
        raise Undefined(f"waits for parity {phase} of an mbarrier, which can be 0 or 1")
    return barrier.has_passed(phase) if by_parity else barrier.phase > phase
