"""Branches, barriers of threads, exchange between lanes, fences (PTX ISA, "Control Flow", "Parallel Synchronization").

The emulator has one memory, in which every access is visible at once. Only a listener finds missing fences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import EXIT, Act, Builder, Order, instruction, last_type, wide
from blackwell_matmul.emulator.functions.frames import leave
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, WORDS, first, lanes, mask_of, words_of
from blackwell_matmul.emulator.machine import (
    LaneState,
    NamedBarrier,
    Row,
    Waiting,
    Waits,
    WarpState,
    together,
)
from blackwell_matmul.emulator.parser import SIZES_BYTES, Nothing, Number, Operand, Statement, Symbol
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Known, Malformed, Unknown


@instruction("bra")
def branch(build: Builder, each: Statement) -> Act:
    place = build.label(each.operands[0])
    return wide(lambda warp, mask: place)


@instruction("brx.idx")
def branch_by_index(build: Builder, each: Statement) -> Act:
    """Jump to the label at an index of a table; lanes may have different indices ("brx.idx")."""
    index, table = build.reader(each.operands[0], "u32"), each.operands[1]
    if not isinstance(table, Symbol) or table.name not in build.tables:
        raise Unknown(f"{table} is no table of labels")
    places = [build.label(Symbol(label)) for label in build.tables[table.name]]

    def act(warp: WarpState, mask: int) -> dict[int, int]:
        chosen = index(warp)
        if int(chosen[lanes(mask)].max()) >= len(places):
            raise Undefined(f"chooses {sorted({*chosen[lanes(mask)].tolist()})} of {len(places)} places")
        return {places[one]: mask_of(chosen == one) & mask for one in dict.fromkeys(chosen[lanes(mask)].tolist())}

    return act


@instruction("ret", "exit")
def end(build: Builder, each: Statement) -> Act:
    """End a thread; in a device function, `ret` ends the call ("ret", "exit")."""
    if each.opcode.startswith("ret") and build.function is not None:
        return leave
    return wide(lambda warp, mask: EXIT)


@instruction("trap", "brkpt")
def trap(build: Builder, each: Statement) -> Act:
    def act(warp: WarpState, mask: int) -> None:
        raise Undefined("the kernel stops itself")

    return act


@instruction(
    "fence", "membar", "griddepcontrol", "tcgen05.fence", "wgmma.fence",
)  # fmt: skip
def fence(build: Builder, each: Statement) -> Act:
    """Report a fence to the listener. The memory needs no fences, nor griddepcontrol, as only one grid runs."""

    @wide
    def act(warp: LaneState, mask: int) -> None:
        if warp.grid.listener is not None:
            warp.grid.listener.fenced(warp, mask)

    return act


@instruction("setmaxnreg", "nanosleep", "pmevent")
def nothing(build: Builder, each: Statement) -> Act:
    """Do nothing; the instruction is a hint."""
    return wide(lambda warp, mask: None)


# --- barriers of a CTA


BARRIERS = 16
"""Number of barriers of a CTA (PTX ISA, "bar")."""


@instruction("bar", "barrier", order=Order("acq_rel", "cluster"))
def barrier(build: Builder, each: Statement) -> Act:
    """Wait: `bar.sync a{, b}`, `.arrive a, b`, `.red.op d, a{, b}, c`, `bar.warp.sync mask`, by whole warps ("bar")."""
    words = each.modifiers
    if "warp" in words:
        return _warp_barrier(build, each)
    if "cluster" in words:
        return _cluster_barrier(build, each)
    reduces = "red" in words
    names = each.operands[1:-1] if reduces else each.operands
    given = [each.value if isinstance(each, Number) else None for each in (*names, Nothing(), Nothing())]
    _verify_barrier(given[0], given[1])
    number = build.shared_scalar(names[0])
    count = build.shared_scalar(names[1]) if len(names) > 1 else None
    votes, arrives_only = _vote(build, each) if reduces else None, "arrive" in words

    @wide
    def act(warp: WarpState, mask: int) -> Any:
        lane = first(mask)
        wait = None if arrives_only else together(warp, mask)
        if wait is not None:
            return wait
        expected = count(warp, lane) if count else None
        _verify_barrier(number(warp, lane), expected)
        if isinstance(warp, Row):
            return _arrived_together(warp, mask, number(warp, lane), expected, arrives_only, reduces)
        named = warp.cta.named.setdefault(number(warp, lane), NamedBarrier())
        if votes is not None:
            votes(warp, mask, named)
        if warp.cta.cluster.grid.listener is not None:
            warp.cta.cluster.grid.listener.joined(named, warp, mask, not arrives_only)
        return _arrived([warp], named, expected, arrives_only, number(warp, lane))

    return act


def _arrived_together(
    row: Row, mask: int, number: int, expected: int | None, arrives_only: bool, reduces: bool
) -> Waits | None:
    """Count arrivals of a row's warps at their CTAs' barriers; return the waits of warps that must wait."""
    row.verify_whole(mask)
    found = [(some[0].cta.named.setdefault(number, NamedBarrier()), some) for some in row.by_cta(mask)]
    if reduces or (expected and any(named.arrived + LANES * len(some) > expected for named, some in found)):
        raise Undefined("warps of a row arrive at a barrier for several rounds")
    waits: Waits = []
    for named, some in found:
        wait = _arrived(some, named, expected, arrives_only, number)
        waits += [(warp, ALL, wait) for warp in some if wait is not None]
    return waits or None


def _verify_barrier(number: Any, threads: Any) -> None:
    """Raise Malformed if a barrier's number or thread count is beyond PTX's limits ("bar"). None: not known yet."""
    if number is not None and not 0 <= number < BARRIERS:
        raise Malformed(f"barrier {number}; a CTA has barriers 0 to {BARRIERS - 1}")
    if threads is not None and (threads <= 0 or threads % LANES):
        raise Malformed(f"a barrier of {threads} threads; their number is a multiple of {LANES}")


def _arrived(
    warps: list[WarpState], named: NamedBarrier, expected: int | None, arrives_only: bool, number: int
) -> Waiting | None:
    """Count the arrival of warps of one CTA, all lanes of each, even exited lanes. Return the wait, or None.

    expected: number of threads; None for the threads of all live warps.
    """
    cta = warps[0].cta
    rounds = named.rounds
    named.arrived += LANES * len(warps)

    def wanted() -> int:
        return expected if expected is not None else LANES * sum(bool(each.alive) for each in cta.warps)

    def is_over() -> bool:
        if named.rounds == rounds and named.arrived >= wanted():
            named.end()
            if cta.cluster.grid.listener is not None:
                cta.cluster.grid.listener.ended(named)
        return named.rounds > rounds

    cta.cluster.grid.arrivals += 1
    if is_over() or arrives_only:
        return None
    return Waiting(is_over, False, lambda: f"barrier {number}: {named.arrived} of {wanted()} threads are there")


def _vote(build: Builder, each: Statement) -> Callable[[WarpState, int, NamedBarrier], None]:
    """Return a function that adds votes of `bar.red`. When the round ends, the target gets the number of true votes
    (.popc), all (.and) or any (.or)."""
    target, asked = build.target(each.operands[0]), build.predicate(each.operands[-1])
    mode = each.modifiers.first_of(("popc", "and", "or"))

    def votes(warp: WarpState, mask: int, named: NamedBarrier) -> None:
        def tell(yes: int, threads: int) -> None:
            if mode == "popc":
                warp.set(target, np.full(LANES, yes, np.uint32), mask)
            else:
                warp.set_predicate(target, ALL if yes >= (threads if mode == "and" else 1) else 0, mask)

        named.vote(asked(warp) & mask, mask, tell)

    return votes


def _warp_barrier(build: Builder, each: Statement) -> Act:
    def act(warp: WarpState, mask: int, wanted: int) -> Waiting | None:
        before, round = warp.meetings.get(wanted, (0, 0))
        warp.meetings[wanted] = (before | mask, round)
        listener = warp.cta.cluster.grid.listener
        if listener is not None:
            listener.joined((warp, wanted), warp, mask, True)

        def is_over() -> bool:
            arrived, now = warp.meetings[wanted]
            if now == round and not wanted & warp.alive & ~arrived:
                warp.meetings[wanted] = (0, now + 1)
                if listener is not None:
                    listener.ended((warp, wanted))
            return warp.meetings[wanted][1] > round

        return None if is_over() else Waiting(is_over, False, lambda: "for the other lanes of its warp")

    return _by_members(build, each.operands[0], act)


def _cluster_barrier(build: Builder, each: Statement) -> Act:
    """Arrive at or wait for barrier.cluster. All threads of the cluster take part, except exited threads."""
    if "arrive" in each.modifiers:

        def arrive(warp: WarpState, mask: int) -> None:
            cluster = warp.cta.cluster
            cluster.arrived[warp] = cluster.arrived.get(warp, 0) | mask
            cluster.awaits[warp] = (cluster.awaits.get(warp, (0, 0))[0] | mask, cluster.rounds)
            cluster.grid.arrivals += 1
            if cluster.grid.listener is not None:
                cluster.grid.listener.joined((cluster, cluster.rounds), warp, mask, False)

        return arrive

    def wait(warp: WarpState, mask: int) -> Any:
        cluster = warp.cta.cluster
        arrived, mine = cluster.awaits.get(warp, (0, 0))
        if mask & ~arrived:
            raise Undefined("waits for a barrier of the cluster at which it has not arrived")
        cluster.awaits[warp] = (arrived & ~mask, mine)
        if cluster.grid.listener is not None:
            cluster.grid.listener.joined((cluster, mine), warp, mask, True)

        def is_over() -> bool:
            if cluster.rounds == mine and not cluster.missing():
                cluster.rounds, cluster.arrived = cluster.rounds + 1, {}
                if cluster.grid.listener is not None:
                    cluster.grid.listener.ended((cluster, mine))
            return cluster.rounds > mine

        if is_over():
            return None
        return Waiting(is_over, False, lambda: f"{cluster.missing()} threads of the cluster are missing")

    return wait


# --- between lanes


def _by_members(build: Builder, operand: Operand, act: Callable[[Any, int, int], Waiting | None]) -> Act:
    """Return an instruction that executes `act` once for all lanes with the same membermask. Parts of a warp may have
    different membermasks.

    act: takes the warp, the lanes and their membermask; returns a wait for other lanes, or None.
    """
    read, place = build.reader(operand, "b32"), build.place

    def executed(warp: WarpState, mask: int) -> Any:
        names = read(warp)
        wanted = int(names[first(mask)])
        if isinstance(operand, Number) or (names == wanted).all():
            return act(warp, mask, wanted)
        if isinstance(warp, Row):
            raise Undefined("lanes of a row name other members")
        parts = {name: mask_of(names == name) & mask for name in dict.fromkeys(names[lanes(mask)].tolist())}
        waits = {part: wait for name, part in parts.items() if (wait := act(warp, part, name)) is not None}
        late = sum(waits)
        if late != mask:
            return {place: late, place + 1: mask & ~late} if late else None
        one, *_ = every = [*waits.values()]
        return one._replace(ready=lambda: (any if one.again else all)(each.ready() for each in every))

    return executed


def _when_together(build: Builder, operand: Operand, act: Callable[[Any, int, int], None]) -> Act:
    """Return an instruction that executes `act` as `_by_members` does, once the membermask's lanes have arrived."""

    def executed(warp: WarpState, mask: int, wanted: int) -> Waiting | None:
        wait = together(warp, mask, wanted)
        if wait is None:
            act(warp, mask, wanted)
        return wait

    return _by_members(build, operand, executed)


@instruction("elect.sync")
def elect(build: Builder, each: Statement) -> Act:
    """Elect one lane: `elect.sync d|p, membermask` ("elect.sync"). PTX leaves the choice open; here the lowest lane."""
    lane_to, chosen_to = (build.target(part) for part in build.pair(each.operands[0]))

    def act(warp: WarpState, mask: int, wanted: int) -> None:
        lane = first(ALL & wanted if isinstance(warp, Row) else mask & wanted)
        warp.set(lane_to, np.full(warp.count, lane, np.uint32), mask)
        warp.set_predicate(chosen_to, warp.all // ALL << lane, mask)

    return wide(_when_together(build, each.operands[1], act))


@instruction("shfl.sync")
def shuffle(build: Builder, each: Statement) -> Act:
    """Shuffle: `shfl.sync.mode.b32 d|p, a, b, c, membermask`; c holds the segment mask and the clamp ("shfl.sync")."""
    mode = each.modifiers.first_of(("up", "down", "bfly", "idx"))
    to, inside_to = build.pair(each.operands[0])
    targets = build.target(to), build.target(inside_to)
    a, b, c = (build.reader(operand, "b32") for operand in each.operands[1:4].exactly(3))

    def act(warp: WarpState, mask: int, wanted: int) -> None:
        lane = np.arange(warp.count)
        own = lane % LANES
        amount, clamp = b(warp).astype(np.int64) & 31, c(warp).astype(np.int64)
        segment, bound = clamp >> 8 & 31, clamp & 31
        lowest, highest = own & segment, own & segment | bound & ~segment
        other = {
            "up": own - amount, "down": own + amount, "bfly": own ^ amount,
            "idx": lowest | amount & ~segment,
        }[mode]  # fmt: skip
        inside = other >= highest if mode == "up" else other <= highest
        other = np.where(inside, other, own)
        warp.set(targets[0], a(warp)[lane - own + other], mask)
        if not isinstance(inside_to, Nothing):
            warp.set_predicate(targets[1], mask_of(inside), mask)

    return wide(_when_together(build, each.operands[4], act))


@instruction("vote.sync")
def vote(build: Builder, each: Statement) -> Act:
    """Vote: all, any and uni return a predicate, ballot returns a mask ("vote.sync")."""
    mode, target = each.modifiers.first_of(("all", "any", "uni", "ballot")), build.target(each.operands[0])
    asked = build.predicate(each.operands[1])

    def act(warp: WarpState, mask: int, wanted: int) -> None:
        wanted *= warp.all // ALL
        wanted &= warp.alive
        yes, those = (words_of(each & wanted, warp.count) for each in (asked(warp), wanted))
        if mode == "ballot":
            warp.set(target, np.repeat(yes, LANES), mask)
            return
        holds = {"all": yes == those, "any": yes != 0, "uni": (yes == 0) | (yes == those)}[mode]
        warp.set_predicate(target, mask_of(np.repeat(holds, LANES)), mask)

    return wide(_when_together(build, each.operands[2], act))


@instruction("match")
def match(build: Builder, each: Statement) -> Act:
    """Match: match.any returns the lanes with an equal value, match.all all lanes if all are equal ("match.sync")."""
    mode, type = each.modifiers.first_of(("any", "all")), last_type(each)
    to, alike_to = build.pair(each.operands[0])
    targets, read = (build.target(to), build.target(alike_to)), build.reader(each.operands[1], type)

    def act(warp: WarpState, mask: int, wanted: int) -> None:
        values = read(warp)
        same = [mask_of(values == value) & mask for value in values]
        if mode == "all":
            alike = same[first(mask)] == mask
            same = [mask if alike else 0] * LANES
            warp.set_predicate(targets[1], ALL if alike else 0, mask)
        warp.set(targets[0], np.array(same, np.uint32), mask)

    return _when_together(build, each.operands[2], act)


_REDUCE: Known[str, Callable[..., Any]] = Known({
    "add": np.add.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce,
    "and": np.bitwise_and.reduce, "or": np.bitwise_or.reduce, "xor": np.bitwise_xor.reduce,
})  # fmt: skip


@instruction("redux.sync")
def reduce(build: Builder, each: Statement) -> Act:
    """Reduce over the lanes: sum, minimum, maximum, and, or, xor. Every lane gets the result ("redux.sync")."""
    type = last_type(each)
    target, read = build.target(each.operands[0]), build.reader(each.operands[1], type)
    function, word = _REDUCE[each.modifiers[1]], WORDS[SIZES_BYTES[type]]
    magnitude = "abs" in each.modifiers

    def act(warp: WarpState, mask: int, wanted: int) -> None:
        values = read(warp)[lanes(wanted & mask)]
        values = np.abs(values) if magnitude else values
        if type == "f32" and "NaN" not in each.modifiers:
            values = values[~np.isnan(values)] if not np.isnan(values).all() else values
        result = np.full(LANES, function(values), TYPES[type]).view(word)
        warp.set(target, result, mask)

    return _when_together(build, each.operands[2], act)


@instruction("activemask")
def active(build: Builder, each: Statement) -> Act:
    target = build.target(each.operands[0])
    return wide(lambda warp, mask: warp.set(target, np.repeat(words_of(mask, warp.count), LANES), mask))
