"""Loads, stores, atomics and addresses (PTX ISA, "Data Movement": ld, st, cvta, mapa, isspacep; "atom", "red")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, last_type, wide
from blackwell_matmul.emulator.instructions.groups import number_of
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, WORDS, Array, indices, lanes, mask_of
from blackwell_matmul.emulator.machine import CtaState, LaneState, Row, WarpState
from blackwell_matmul.emulator.parser import SIZES_BYTES, Address, Operand, Register, Statement, Symbol
from blackwell_matmul.emulator.spaces import (
    ABSENT_RANK,
    LOCAL,
    OFFSET,
    PARAM,
    RANK,
    SHARED,
    WINDOW_BITS,
    Memory,
    Undefined,
)
from blackwell_matmul.emulator.unknown import Known, Malformed, Unknown

STACK_BYTES = 16384
"""Bytes of a thread's stack for alloca."""

ADDRESS_SPACES = Known({"shared": SHARED, "local": LOCAL, "param": PARAM, "global": 0, "const": 0})


def space_of(each: Statement) -> str:
    """Return the opcode's state space, without ::cta or ::cluster; "" for generic addresses."""
    return next((word.split("::")[0] for word in each.modifiers if word.split("::")[0] in ADDRESS_SPACES), "")


def where(warp: LaneState, addresses: Array, space: str, what: str, mask: int = ALL) -> list[tuple[Memory, Array, Any]]:
    """Return the memories that contain some lanes' addresses, each with its addresses and its lanes.

    mask: of the lanes, used for a row only. Raises Undefined if the warps of a row need different memories.
    """
    window = ADDRESS_SPACES[space] >> WINDOW_BITS if space else int(addresses[0]) >> WINDOW_BITS
    if not space and int((addresses >> np.uint64(WINDOW_BITS)).max()) != window:
        return _mixed(_one(warp), addresses, what)
    if window == SHARED >> WINDOW_BITS:
        addresses = addresses & np.uint64((1 << WINDOW_BITS) - 1)
        if isinstance(warp, Row):
            return [(*warp.shared(addresses, mask), slice(None))]
        return _shared(_one(warp), addresses, what)
    if window == PARAM >> WINDOW_BITS and int(addresses[0]) >> WINDOW_BITS != LOCAL >> WINDOW_BITS:
        return [(warp.grid.parameters, addresses | np.uint64(PARAM), slice(None))]
    if window in (LOCAL >> WINDOW_BITS, PARAM >> WINDOW_BITS):  # parameters of a call are in local memory, too
        return [(_one(warp).local, addresses | np.uint64(LOCAL), slice(None))]
    return [(memory, addresses[which], which) for memory, which in warp.grid.memory.split(addresses, what)]


def _one(warp: LaneState) -> WarpState:
    if not isinstance(warp, WarpState):
        raise Undefined("warps of a row have memory of their own")
    return warp


def _mixed(warp: WarpState, addresses: Array, what: str) -> list[tuple[Memory, Array, Any]]:
    found: list[tuple[Memory, Array, Any]] = []
    windows = addresses >> np.uint64(WINDOW_BITS)
    for window in np.unique(windows):
        which = np.flatnonzero(windows == window)
        parts = where(warp, addresses[which], "", what)
        found += [(memory, part, which[inner]) for memory, part, inner in parts]
    return found


def _shared(warp: WarpState, addresses: Array, what: str) -> list[tuple[Memory, Array, Any]]:
    ranks = addresses >> np.uint64(RANK)
    low, high = int(ranks.min()), int(ranks.max())
    if low == high:
        return [(_owner(warp.cta, int(addresses[0])).shared, addresses, slice(None))]
    which = [(rank, np.flatnonzero(ranks == rank)) for rank in np.unique(ranks)]
    return [(_owner(warp.cta, int(rank) << RANK).shared, addresses[lanes], lanes) for rank, lanes in which]


def _owner(cta: CtaState, address: int) -> CtaState:
    return cta if address >> RANK == cta.rank else cta.cluster.owner(address)


def gather(
    warp: LaneState, addresses: Array, space: str, nbytes: int, what: str = "reads", mask: int | None = 0
) -> Array:
    """Return a word from each address, in any memory. mask: lanes that access, for the listener; 0 reports nothing,
    None reports the completing operation."""
    parts = where(warp, addresses, space, what, mask or ALL)
    if len(parts) == 1:
        memory, places, _ = parts[0]
        if memory.listener is not None and mask != 0:
            memory.listener.read(memory, places, nbytes, None if mask is None else warp, mask or 0)
        return memory.load(places, nbytes, what)
    values = np.empty(len(addresses), WORDS[nbytes])
    for memory, places, which in parts:
        if memory.listener is not None and mask != 0:
            memory.listener.read(memory, places, nbytes, None if mask is None else warp, _some(mask or 0, which))
        values[which] = memory.load(places, nbytes, what)
    return values


def scatter(warp: LaneState, addresses: Array, values: Array, space: str, nbytes: int, mask: int | None = 0) -> None:
    for memory, places, which in where(warp, addresses, space, "writes", mask or ALL):
        if memory.listener is not None and mask != 0:
            some = mask if isinstance(which, slice) or mask is None else _some(mask, which)
            memory.listener.written(memory, places, nbytes, None if mask is None else warp, some or 0, values[which])
        memory.store(places, values[which], nbytes)
    warp.grid.effects += 1


def _some(mask: int, which: Array) -> int:
    """Return the mask of selected lanes. which: indices among the set bits of `mask`."""
    members = indices(mask)
    return sum(1 << members[place] for place in which.tolist() if place < len(members))


@instruction("ld", "ldu")
def load(build: Builder, each: Statement) -> Act:
    """Load: `ld{.space}{.v2|.v4|.v8}.type`. A narrow value is zero- or sign-extended to its register."""
    space, type = space_of(each), last_type(each)
    operands = build.vector(each.operands[0])
    targets, size, count = [build.target(each) for each in operands], SIZES_BYTES[type], len(operands)
    widens = [widener(build, operand, type) for operand in operands]
    address = addresses_of(build, each.operands[1], space)
    nbytes = count * size
    word, starts = min(nbytes, 16), [np.uint64(start) for start in range(0, nbytes, 16)]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        places = address(warp)
        which = None if mask == warp.all else lanes(mask, warp.count)
        places = places if which is None else places[which]
        if nbytes <= 16:
            parts = gather(warp, places, space, word, mask=mask)
        else:
            _aligned(warp, places, space, nbytes, "reads", mask)
            parts = np.stack([gather(warp, places + start, space, word, mask=mask) for start in starts], axis=1)
        parts = parts.view(WORDS[size]).reshape(-1, count)
        for index, (target, widen) in enumerate(zip(targets, widens)):
            value = parts[:, index]
            value = np.ascontiguousarray(value) if widen is None else widen(value)
            warp.set(target, value if which is None else _spread(value, which), mask)

    return act


def _aligned(warp: LaneState, addresses: Array, space: str, nbytes: int, what: str, mask: int) -> None:
    """Check that an access of several words is aligned to its size in total."""
    for memory, places, _ in where(warp, addresses, space, what, mask):
        memory.places(places, nbytes, what)


def _spread(value: Array, which: Array) -> Array:
    every = np.zeros(len(which), value.dtype)
    every[which] = value
    return every


def widener(build: Builder, register: Operand, type: str) -> Callable[[Array], Array] | None:
    """Return a function that extends words of a type to a wider register; None if the sizes are equal."""
    if not isinstance(register, Register) or SIZES_BYTES[build.types[register.slot]] == SIZES_BYTES[type]:
        return None
    size = SIZES_BYTES[build.types[register.slot]]
    if type[0] == "s":
        return lambda value: value.view(TYPES[type]).astype(np.dtype(f"i{size}")).view(WORDS[size])
    return lambda value: value.astype(WORDS[size])


def addresses_of(build: Builder, operand: Operand, space: str) -> Callable[[LaneState], Array]:
    """Return a function that returns an operand's addresses; shared addresses in the cluster's window."""
    read = build.address(operand)
    _verify_space(build, operand, space)
    if space == "shared":
        window = np.uint64((1 << WINDOW_BITS) - 1)
        return lambda warp: read(warp) & window
    return read


def _verify_space(build: Builder, operand: Operand, space: str, stores: bool = False) -> None:
    """Raise Malformed if a named variable is not in the state space of the opcode."""
    if not isinstance(operand, Address) or not isinstance(operand.base, Symbol):
        return
    own = build.spaces.get(operand.base.name, space)
    if space and own != space and (own, space, stores) != ("parameter", "param", False):
        where_it_is = "is a parameter of the kernel" if own == "parameter" else f"lies in .{own} space"
        does = "is written" if stores else "is addressed"
        raise Malformed(f"{operand.base.name.partition('@')[0]} {where_it_is}, and .{space} {does}")


def shared_addresses(build: Builder, operand: Operand) -> Callable[[LaneState], Array]:
    """Return a function that returns an operand's addresses in the cluster's shared window; the operand may be
    generic."""
    return addresses_of(build, operand, "shared")


@instruction("st")
def store(build: Builder, each: Statement) -> Act:
    """Store: `st{.space}{.v2|.v4|.v8}.type [a], b`."""
    space, type = space_of(each), last_type(each)
    operands, size = build.vector(each.operands[1]), SIZES_BYTES[type]
    reads, count = [build.reader(operand, f"b{8 * size}") for operand in operands], len(operands)
    address = addresses_of(build, each.operands[0], space)
    _verify_space(build, each.operands[0], space, stores=True)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        places = address(warp)
        values = reads[0](warp)[:, None] if count == 1 else np.stack([read(warp) for read in reads], axis=1)
        if mask != warp.all:
            which = lanes(mask, warp.count)
            places, values = places[which], values[which]
        if count * size > 16:
            _aligned(warp, places, space, count * size, "writes", mask)
        for start in range(0, count * size, 16):
            nbytes = min(16, count * size - start)
            part = np.ascontiguousarray(values[:, start // size : (start + nbytes) // size])
            part = part.view(WORDS[nbytes]).reshape(-1)
            scatter(warp, places + np.uint64(start) if start else places, part, space, nbytes, mask)

    return act


@instruction("st.bulk")
def clear(build: Builder, each: Statement) -> Act:
    """Set bytes of shared memory to zero: `st.bulk{.weak}{.shared::cta} [a], nbytes, 0` ("st.bulk")."""
    address, size = shared_addresses(build, each.operands[0]), build.scalar(each.operands[1], "b64")
    if number_of(each.operands[2]):
        raise Unknown(f"{each.opcode} with a value other than 0 is not emulated")

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            place, nbytes = int(address(warp)[lane]), size(warp, lane)
            if nbytes % 8 or place % 8:
                raise Undefined(f"clears {nbytes:,} bytes at {place & OFFSET:,}; both are multiples of 8")
            shared = _owner(warp.cta, place).shared
            into = shared.bytes(place, nbytes, "clears")
            if shared.listener is not None:
                shared.listener.written(shared, np.array([place]), nbytes, warp, 1 << lane)
            into[:] = 0
            shared.mark(place, nbytes)
        warp.cta.cluster.grid.effects += 1

    return act


# --- addresses


@instruction("cvta")
def convert_address(build: Builder, each: Statement) -> Act:
    """Convert between an address of a state space and a generic address. For global memory they are equal."""
    space, to_window = space_of(each), "to" in each.modifiers
    target = build.target(each.operands[0])
    source = each.operands[1]
    read = build.address(source)
    nbytes = SIZES_BYTES[last_type(each)]
    base, window = np.uint64(ADDRESS_SPACES[space]), np.uint64((1 << WINDOW_BITS) - 1)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        value = read(warp)
        if space in ("shared", "local", "param"):
            value = value & window if to_window else value | base
        warp.set(target, value if nbytes == 8 else value.astype(np.uint32), mask)

    return act


@instruction("isspacep")
def is_space(build: Builder, each: Statement) -> Act:
    space, target, read = space_of(each), build.target(each.operands[0]), build.address(each.operands[1])
    base = ADDRESS_SPACES[space] >> WINDOW_BITS

    @wide
    def act(warp: LaneState, mask: int) -> None:
        window = read(warp) >> np.uint64(WINDOW_BITS)
        inside = window >= 4 if not base else window == base
        warp.set_predicate(target, mask_of(inside), mask)

    return act


@instruction("mapa")
def map_address(build: Builder, each: Statement) -> Act:
    """Map a shared address to the CTA with rank b: `mapa d, a, b` ("mapa").

    Compilers hoist mapa out of predicates. So a rank that does not exist is allowed here; only an access there is an
    error.
    """
    target, nbytes = build.target(each.operands[0]), SIZES_BYTES[last_type(each)]
    generic = space_of(each) == ""
    read, rank = build.address(each.operands[1]), build.reader(each.operands[2], "u32")

    @wide
    def act(warp: LaneState, mask: int) -> None:
        ranks = np.minimum(rank(warp), ABSENT_RANK).astype(np.uint64)
        value = read(warp) & np.uint64(OFFSET) | ranks << np.uint64(RANK)
        value = value | np.uint64(SHARED) if generic else value
        warp.set(target, value if nbytes == 8 else value.astype(np.uint32), mask)

    return act


@instruction("getctarank")
def get_cta_rank(build: Builder, each: Statement) -> Act:
    target, read = build.target(each.operands[0]), build.address(each.operands[1])
    return wide(
        lambda warp, mask: warp.set(target, (read(warp) >> np.uint64(RANK) & np.uint64(0xFFFF)).astype(np.uint32), mask)
    )


# --- the stack


def _stack(warp: WarpState) -> Array:
    """Return the top of each lane's stack: its next address in local memory."""
    if warp.stack is None:
        warp.stack_end = warp.more_local(STACK_BYTES) + np.arange(1, LANES + 1) * STACK_BYTES
        warp.stack = warp.stack_start = warp.stack_end - STACK_BYTES
    return np.asarray(warp.stack)


@instruction("alloca")
def allocate(build: Builder, each: Statement) -> Act:
    """Allocate local memory of each lane: `alloca.type d, nbytes{, alignment}` ("alloca")."""
    type = last_type(each)
    target, size = build.target(each.operands[0]), build.reader(each.operands[1], type)
    alignment = number_of(each.operands[2]) if len(each.operands) > 2 else 8
    if alignment < 1 or alignment & alignment - 1 or alignment > STACK_BYTES:
        raise Unknown(f"{each.opcode} with an alignment of {alignment} is not emulated")

    def act(warp: WarpState, mask: int) -> None:
        top = _stack(warp)
        starts = -(-top // alignment) * alignment
        ends = starts + np.minimum(size(warp), 2 * STACK_BYTES).astype(np.int64)
        over = (ends > warp.stack_end) & lanes(mask)
        if over.any():
            asked = int(size(warp)[over.argmax()])
            raise Undefined(f"allocates {asked:,} bytes of the stack; a thread's has {STACK_BYTES:,} in all")
        warp.stack = np.where(lanes(mask), ends, top)
        warp.set(target, starts.astype(WORDS[SIZES_BYTES[type]]), mask)

    return act


@instruction("stacksave")
def save_stack(build: Builder, each: Statement) -> Act:
    """Return the top of the stack ("stacksave")."""
    target, word = build.target(each.operands[0]), WORDS[SIZES_BYTES[last_type(each)]]
    return lambda warp, mask: warp.set(target, _stack(warp).astype(word), mask)


@instruction("stackrestore")
def restore_stack(build: Builder, each: Statement) -> Act:
    """Set the top of the stack to a value from stacksave ("stackrestore")."""
    read = build.reader(each.operands[0], last_type(each))

    def act(warp: WarpState, mask: int) -> None:
        warp.stack = np.where(lanes(mask), read(warp).astype(np.int64), _stack(warp))

    return act


# --- atomics


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda old, new: old + new, "and": lambda old, new: old & new, "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new, "exch": lambda old, new: new,
    "min": lambda old, new: np.where(new < old, new, old), "max": lambda old, new: np.where(new > old, new, old),
    "cas": lambda old, new, other: np.where(old == new, other, old),
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
}  # fmt: skip
"""Functions that return the new contents of memory from the old contents and the operands, as arrays."""


@instruction("atom", "red", order=Order("relaxed", "gpu"))
def atomic(build: Builder, each: Statement) -> Act:
    """Update memory, one lane after the other. atom returns the old value ("atom", "red")."""
    gives = each.opcode.startswith("atom")
    function, space = _OPERATIONS[each.modifiers.first_of(_OPERATIONS)], space_of(each)
    kind, size, count = _atomic_type(each)
    targets = build.targets(each.operands[0]) if gives else []
    address = addresses_of(build, each.operands[gives], space)
    values = [
        [build.reader(part, f"b{8 * size}") for part in build.vector(each_)] for each_ in each.operands[1 + gives :]
    ]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        results = [np.zeros(warp.count, WORDS[size]) for _ in range(count)]
        which = np.flatnonzero(lanes(mask, warp.count))
        places, news = address(warp)[which], [[part(warp)[which] for part in column] for column in values]
        if warp.grid.listener is not None:
            _hear_update(_one(warp), places, space, size * count, mask)
        if isinstance(warp, Row):  # no lane may update if one lane's access is illegal
            gather(warp, places + np.uint64((count - 1) * size), space, size, mask=mask)
        for turn in _turns(places):
            some = mask_of(np.isin(np.arange(warp.count), which[turn])) if isinstance(warp, Row) else 0
            for part in range(count):
                at = places[turn] + np.uint64(part * size)
                words = gather(warp, at, space, size, mask=some)
                old, *new = (_elements(each, kind) for each in (words, *[column[part][turn] for column in news]))
                results[part][which[turn]] = words
                value = np.ascontiguousarray(function(old, *new).astype(kind))
                effects, written = warp.grid.effects, value.view(WORDS[size]).reshape(-1)
                scatter(warp, at, written, space, size, some)
                if np.array_equal(written, words):  # a compare-and-swap that fails
                    warp.grid.effects = effects
        for target, result in zip(targets, results):
            warp.set(target, result, mask)

    return act


def _turns(places: Array) -> Iterator[Array]:
    """Yield sets of lanes whose addresses differ. Lanes with equal addresses are in different sets, in lane order."""
    left = np.arange(len(places))
    while left.size:
        _, first = np.unique(places[left], return_index=True)
        first.sort()
        yield left[first]
        left = np.delete(left, first)


def _elements(words: Array, kind: Any) -> Array:
    return np.ascontiguousarray(words).view(kind).reshape(len(words), -1)


def _hear_update(warp: WarpState, addresses: Array, space: str, nbytes: int, mask: int) -> None:
    for memory, places, which in where(warp, addresses, space, "updates"):
        if memory.listener is not None:
            memory.listener.written(
                memory, places, nbytes, warp, mask if isinstance(which, slice) else _some(mask, which)
            )


def _atomic_type(each: Statement) -> tuple[Any, int, int]:
    """Return the element's numpy type, the bytes of a word, and the number of words of a vector."""
    type = each.modifiers.first_of(SIZES_BYTES)  # ptxas also accepts the type before the operation
    count = each.vector_elements or 1
    packed = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16}
    return (packed[type], 4, count) if type in packed else (TYPES[type], SIZES_BYTES[type], count)


# --- hints, which have no effect on values


@instruction("prefetch", "prefetchu", "applypriority", "discard", "createpolicy", "cp.async.bulk.prefetch")
def hint(build: Builder, each: Statement) -> Act:
    """Ignore prefetch, createpolicy and similar hints; createpolicy returns 0."""
    if each.opcode.startswith("createpolicy"):
        target = build.target(each.operands[0])
        return wide(lambda warp, mask: warp.set(target, np.zeros(warp.count, np.uint64), mask))
    return wide(lambda warp, mask: None)
