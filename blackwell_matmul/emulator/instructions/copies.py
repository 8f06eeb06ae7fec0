"""Asynchronous copies: cp.async, bulk and tensor copies, tensor maps in memory (PTX ISA, "Asynchronous copy").

A copy reads its source and writes its target when it completes, not when it is issued.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator import tensor_map
from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, last_type, wide
from blackwell_matmul.emulator.instructions.groups import BULK, COPIES, groups, join, number_of
from blackwell_matmul.emulator.instructions.moves import addresses_of, gather, shared_addresses, where
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, WORDS, Array, first, indices, lanes
from blackwell_matmul.emulator.machine import CtaState, LaneState, Row, WarpState
from blackwell_matmul.emulator.parser import Address, Operand, Statement
from blackwell_matmul.emulator.spaces import OFFSET, RANK, Memory, Undefined, in_ctas
from blackwell_matmul.emulator.unknown import Malformed, Parts, Unknown

_LANE = np.arange(LANES)

# --- cp.async


@instruction("cp.async.ca", "cp.async.cg")
def copy(build: Builder, each: Statement) -> Act:
    """Copy: `cp.async.cg.shared.global [to], [from], bytes{, source bytes}`; missing source bytes are zero."""
    operands = each.operands[:-1] if any("cache_hint" in word for word in each.modifiers) else each.operands
    to, source = shared_addresses(build, operands[0]), build.address(operands[1])
    nbytes = number_of(operands[2])
    sizes_of = (16,) if "cg" in each.modifiers else (4, 8, 16)
    if nbytes not in sizes_of:
        raise Malformed(f"{each.opcode} copies {' or '.join(map(str, sizes_of))} bytes and not {nbytes}")
    size = build.reader(operands[3], "b32") if len(operands) > 3 else None
    is_ignored = len(operands) > 3 and build.is_predicate(operands[3])
    ignored = build.predicate(operands[3]) if is_ignored else None

    @wide
    def act(warp: LaneState, mask: int) -> None:
        targets, places = to(warp), source(warp)
        sizes = np.full(warp.count, nbytes) if size is None or is_ignored else size(warp).astype(np.int64)
        if ignored is not None:
            sizes = np.where(lanes(ignored(warp), warp.count), 0, nbytes)
        if int(sizes[lanes(mask, warp.count)].max()) > nbytes:
            raise Undefined(f"reads {int(sizes[lanes(mask, warp.count)].max())} bytes for a copy of {nbytes}")
        of_row = isinstance(warp, Row)
        for each, part in warp.parts(mask):
            copies = Copies(each, part, each.start if of_row else 0, targets, places, sizes, nbytes)
            join(each, COPIES, warp.grid.issue("copy", copies, each, part), part, copies)

    return act


@dataclass(slots=True)
class Copies:
    """Copies of one cp.async by lanes of a warp. mask: lanes whose copies are pending. start: index of the warp's first
    lane in the arrays.

    targets, places, sizes: target and source addresses and source bytes, over all lanes that executed the instruction.
    """

    warp: WarpState
    mask: int
    start: int
    targets: Array
    places: Array
    sizes: Array
    nbytes: int

    def __call__(self, part: int = ALL) -> None:
        """Do the pending copies of these lanes."""
        now, self.mask = self.mask & part, self.mask & ~part
        if now:
            some = [self.start + lane for lane in indices(now)]
            _copied(self.warp, self.targets[some], self.places[some], self.sizes[some], self.nbytes, [*indices(now)])

    @property
    def alike(self) -> Any:
        """Return a key that is equal for copies that can be done together."""
        return self.nbytes, id(self.warp.cta.bank)

    @staticmethod
    def together(every: Sequence[Copies]) -> None:
        """Do copies with equal keys at once. Raise Undefined, before any copy, if a copy must be done alone."""
        nbytes, bank, memory = every[0].nbytes, every[0].warp.cta.bank, every[0].warp.grid.memory
        parts = []
        for _, group in itertools.groupby(every, lambda each: id(each.targets)):  # copies of one instruction
            some = [*group]
            mask = np.concatenate([lanes(each.mask) for each in some])
            which = (np.array([each.start for each in some])[:, None] + _LANE).reshape(-1)[mask]
            ctas = [each.warp.cta for each in some]
            starts = np.array([(cta.rank << RANK, cta.place) for cta in ctas], np.uint64)
            first = some[0]
            parts.append(
                (first.targets[which], first.places[which], first.sizes[which], *starts.repeat(LANES, axis=0)[mask].T)
            )
        targets, places, sizes, rank, place = (np.concatenate(column) for column in zip(*parts))
        bank.verify(targets - rank)
        reads = sizes == nbytes
        if not (reads | (sizes == 0)).all():
            raise Undefined("copies are of several sizes")
        values = np.zeros(len(targets), WORDS[nbytes])
        wanted = np.flatnonzero(reads)
        for origin, which in memory.split(places[wanted], "reads") if wanted.size else ():
            values[wanted[which]] = origin.load(places[wanted[which]], nbytes)
        bank.memory.store(targets - rank + place, values, nbytes)


def _copied(warp: WarpState, targets: Array, places: Array, sizes: Array, nbytes: int, which: list[int]) -> None:
    memory = warp.cta.shared
    if memory.listener is not None:
        memory.listener.written(memory, targets, nbytes, mask=sum(1 << lane for lane in which))
    reads = sizes == nbytes
    if (reads | (sizes == 0)).all():
        values = np.zeros(len(targets), WORDS[nbytes])
        if reads.any():
            values[reads] = gather(warp, places[reads], "global", nbytes, mask=None)
        memory.store(targets, values, nbytes)
        return
    for target, place, size in zip(targets.tolist(), places.tolist(), sizes.tolist()):
        into = memory.bytes(target, nbytes, "writes")
        into[:] = 0
        if size:
            source, at, _ = where(warp, np.array([place], np.uint64), "global", "reads")[0]
            source.hear(int(at[0]), size, False)
            into[:size] = source.bytes(int(at[0]), size)
        memory.mark(target, nbytes)


@instruction("cp.async.mbarrier.arrive")
def arrive_behind_copies(build: Builder, each: Statement) -> Act:
    """Arrive at an mbarrier once per lane after the lane's copies. .noinc: the expected count includes the arrivals."""
    address, counted = shared_addresses(build, each.operands[0]), "noinc" in each.modifiers

    def act(warp: WarpState, mask: int) -> None:
        barrier = warp.cta.barrier(int(address(warp)[first(mask)]))
        if not counted:
            barrier.pending += mask.bit_count()
        before = [
            (each.lanes, issued) for each in groups(warp, COPIES, mask) for group in each.groups for issued in group
        ]

        grid = warp.cta.cluster.grid

        def arrive() -> None:
            for which, issued in before:
                issued.end(warp, which)
            if grid.listener is not None:
                grid.listener.arrived(barrier)
            barrier.arrive(mask.bit_count())

        grid.issue("copy", arrive, warp, mask)

    return act


# --- cp.async.bulk, without a tensor map


def _spaces(each: Statement) -> Parts[str]:
    """Return the state spaces in the opcode, the target's first, without ::cta or ::cluster."""
    return Parts(word.split("::")[0] for word in each.modifiers if word.split("::")[0] in ("shared", "global"))


@instruction("cp.async.bulk", order=Order("weak", "cta", "async"))
@instruction("cp.reduce.async.bulk", order=Order("relaxed", "gpu", "async"))
def bulk(build: Builder, each: Statement) -> Act:
    """Copy contiguous bytes, a multiple of 16: `cp.async.bulk.to.from [to], [from], bytes{, [mbarrier]}`."""
    words, operands = each.modifiers, each.operands
    spaces = _spaces(each).exactly(2)
    to, source = (addresses_of(build, operands[place], spaces[place]) for place in range(2))
    size = build.scalar(operands[2])
    has_barrier = "mbarrier::complete_tx::bytes" in words
    barrier = shared_addresses(build, operands[3]) if has_barrier else None
    multicast = build.scalar(operands[4], "b16") if "multicast::cluster" in words else None
    reduce = _reduction(each) if each.opcode.startswith("cp.reduce") else None

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            target, place, nbytes = int(to(warp)[lane]), int(source(warp)[lane]), size(warp, lane)
            if (target | place | nbytes) % 16:
                raise Undefined(f"copies {nbytes} bytes from {place:#x} to {target:#x}, which are no multiples of 16")
            targets = in_ctas(target, multicast(warp, lane)) if multicast else [target]
            signal = int(barrier(warp)[lane]) if barrier else None
            operation = _issue_bulk(warp, lane, targets, place, nbytes, signal, spaces, reduce)
            if signal is None:
                join(warp, BULK, operation, 1 << lane)

    return act


def _issue_bulk(
    warp: WarpState, lane: int, targets: list[int], place: int, nbytes: int, signal: int | None,
    spaces: Parts[str], reduce: Callable[[Array, Array], None] | None,
) -> Any:  # fmt: skip
    grid, cta = warp.cta.cluster.grid, warp.cta

    def run() -> None:
        origin = _memory(cta, place, spaces[1])
        source = origin.taken(place, nbytes)
        origin.hear(place, nbytes, False)
        for target in targets:
            write(_memory(cta, target, spaces[0]), target, source, reduce)
            if signal is not None:
                at = signal if len(targets) == 1 else signal & OFFSET | target & ~OFFSET
                bring(cta, at, nbytes)

    return grid.issue("copy", run, warp, 1 << lane)


def write(memory: Memory, place: int, value: Array, reduce: Callable[[Array, Array], None] | None = None) -> None:
    """Write bytes to memory, or reduce them into memory."""
    into = memory.bytes(place, value.size, "writes")
    memory.hear(place, value.size, True)
    if reduce is None:
        into[:] = value
    else:
        reduce(into, value)
    memory.mark(place, value.size)


def bring(cta: CtaState, address: int, nbytes: int) -> None:
    """Subtract transferred bytes from an mbarrier's expected bytes (complete_tx)."""
    barrier, listener = cta.barrier(address), cta.cluster.grid.listener
    if listener is not None:
        listener.arrived(barrier, nbytes=nbytes)
    barrier.complete(nbytes)


def _memory(cta: CtaState, address: int, space: str) -> Memory:
    return cta.cluster.owner(address).shared if space == "shared" else cta.cluster.grid.memory.at(address)


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _reduction(each: Statement, type: str | None = None) -> Callable[[Array, Array], None]:
    """Return a function that reduces bytes into memory. type: of the elements; None for the opcode's."""
    function = _REDUCTIONS[each.modifiers.first_of(_REDUCTIONS)]
    kind = TYPES[type or last_type(each)]

    def reduce(into: Array, source: Array) -> None:
        into[:] = function(into.view(kind), np.ascontiguousarray(source).view(kind)).astype(kind).view(np.uint8)

    return reduce


@instruction("st.async")
@instruction("red.async", order=Order("relaxed", "cluster"))
def store_async(build: Builder, each: Statement) -> Act:
    """Store, or reduce, a lane's value into shared memory of the cluster. The bytes count at the mbarrier of that CTA.

    `st.async.shared::cluster.mbarrier::complete_tx::bytes{.v4}.b32 [to], value, [mbarrier]` ("st.async", "red.async").
    """
    reduce = _reduction(each) if each.opcode.startswith("red") else None
    to, barrier = shared_addresses(build, each.operands[0]), shared_addresses(build, each.operands[2])
    reads = [build.reader(part, last_type(each)) for part in build.vector(each.operands[1])]

    def act(warp: WarpState, mask: int) -> None:
        values = np.stack([read(warp) for read in reads], axis=1).view(np.uint8)
        for lane in indices(mask):
            places = int(to(warp)[lane]), int(barrier(warp)[lane])
            run = partial(_arrived, warp.cta, *places, values[lane].copy(), reduce)
            warp.cta.cluster.grid.issue("copy", run, warp, 1 << lane)

    return act


def _arrived(
    cta: CtaState, target: int, signal: int, value: Array, reduce: Callable[[Array, Array], None] | None
) -> None:
    write(cta.cluster.owner(target).shared, target, value, reduce)
    bring(cta, signal, value.size)


# --- tensor copies


@instruction("cp.async.bulk.tensor", order=Order("weak", "cta", "async"))
@instruction("cp.reduce.async.bulk.tensor", order=Order("relaxed", "gpu", "async"))
def tensor_copy(build: Builder, each: Statement) -> Act:
    """Copy a box to shared memory, `[to], [map, {x, y}], [mbarrier]{, mask}`, or to global, `[map, {x, y}], [from]`."""
    if any(word.startswith("im2col") for word in each.modifiers):
        raise Unknown(f"{each.opcode} is not emulated")
    spaces = _spaces(each)
    return _tensor_load(build, each) if spaces[0] == "shared" else _tensor_store(build, each)


def _described(
    build: Builder, each: Statement, operand: Operand
) -> tuple[Callable[[WarpState], Array], list[Callable[[WarpState], Array]]]:
    """Return readers of the map's address and of the coordinates."""
    if not isinstance(operand, Address):
        raise Unknown(f"{operand} is no tensor map with coordinates")
    read = build.address(Address(operand.base, operand.offset))
    dims = next((int(word[0]) for word in each.modifiers if word[1:] == "d"), 0)
    wanted = 5 if "gather4" in each.opcode or "scatter4" in each.opcode else dims
    if len(operand.coordinates) != wanted:
        raise Malformed(f"{each.opcode} takes {wanted} coordinates, and {len(operand.coordinates)} are given")
    return read, [build.reader(each, "s32") for each in operand.coordinates]


def _map_at(warp: WarpState, lane: int, address: int) -> tensor_map.Map:
    if address % 64:
        raise Undefined(f"a tensor map lies at {address:#x}, which is no multiple of 64")
    memory, places, _ = where(warp, np.array([address], np.uint64), "", "reads a tensor map from")[0]
    if memory.listener is not None:
        memory.listener.described(memory, places, warp, 1 << lane)
    return tensor_map.decode(memory.bytes(int(places[0]), tensor_map.USED_MAP_BYTES).tobytes())


def _tensor_load(build: Builder, each: Statement) -> Act:
    words, operands = each.modifiers, each.operands
    map_address, coordinates = _described(build, each, operands[1])
    readers = [map_address, *(shared_addresses(build, operands[place]) for place in (0, 2)), *coordinates]
    if "multicast::cluster" in words:
        readers.insert(3, build.reader(operands[3], "b16"))
    multicast, pairs, gathers = len(readers) - len(coordinates) > 3, "cta_group::2" in words, "tile::gather4" in words

    def load_of(warp: WarpState, lane: int, address: int, target: int, signal: int, *rest: int) -> Callable[[], None]:
        found, place = _map_at(warp, lane, address), rest[multicast:]
        if target % 128:
            raise Undefined(f"copies a box to {target & OFFSET:,} of shared memory, which is no multiple of 128")
        targets = in_ctas(target, rest[0]) if multicast else [target]
        boxes = _rows(found, place) if gathers else [_box(found, place)]
        return partial(_load, warp.cta, found, boxes, targets, _signals(targets, signal, pairs, multicast))

    @wide
    def act(warp: LaneState, mask: int) -> None:
        found = [(one, lane, load_of(one, lane, *numbers)) for one, lane, numbers in warp.each_lane(mask, readers)]
        for one, lane, load in found:
            warp.grid.issue("copy", load, one, 1 << lane)

    return act


def _box(found: tensor_map.Map, place: tuple[int, ...]) -> tensor_map.Box:
    if len(place) != found.rank:
        raise Undefined(f"{len(place)} coordinates for a tensor map of rank {found.rank}")
    return tensor_map.box_of(found, place)


def _rows(found: tensor_map.Map, place: tuple[int, ...]) -> list[tensor_map.Box]:
    """Return the four rows of tile::gather4 or tile::scatter4, each at its own coordinate, of a rank-2 tensor."""
    return [tensor_map.box_of(found, (place[0], row)) for row in place[1:]]


def _signals(targets: list[int], signal: int, pairs: bool, is_multicast: bool) -> list[int]:
    """Return the address of the mbarrier that counts each target's bytes. With multicast, the mbarrier has the same
    offset in the target's CTA. cta_group::2 selects, of the target's CTA pair, the CTA with the parity of the address's
    rank."""
    if not is_multicast:
        return [signal]
    parity = signal >> RANK & 1
    ranks = [target >> RANK for target in targets]
    return [signal & OFFSET | ((rank & ~1 | parity) if pairs else rank) << RANK for rank in ranks]


def _load(
    cta: CtaState, found: tensor_map.Map, boxes: list[tensor_map.Box], targets: list[int], signals: list[int]
) -> None:
    for target, signal in zip(targets, signals):
        start = target
        for box in boxes:
            _fill(cta, found, box, start)
            start += box.nbytes
        bring(cta, signal, sum(box.counted_bytes for box in boxes))


def _fill(cta: CtaState, found: tensor_map.Map, box: tensor_map.Box, target: int) -> None:
    """Write a box to shared memory, each piece at its swizzled address."""
    memory = cta.cluster.owner(target).shared
    memory.bytes(target, box.nbytes, "copies a box to")
    memory.hear(target, box.nbytes, True)
    words = _fetched(cta, found, box)
    memory.put_words(tensor_map.slots(target - memory.base, box.nbytes, box.slot_bytes, found.swizzle_bytes), words)


def _fetched(cta: CtaState, found: tensor_map.Map, box: tensor_map.Box) -> Array:
    """Return the bytes of a box's pieces from global memory; outside of the tensor zero, or the map's NaN."""
    pieces = None
    if box.inside.size:
        memory = _tensor(cta, box, "copies a box from")
        if memory.listener is not None:
            memory.listener.read(memory, box.inside, box.piece_bytes)
        pieces = memory.taken_words(box.inside - memory.base, box.piece_bytes)
        pieces = _to_nearest_tf32(pieces) if found.type == "tf32" else pieces
        if box.inside is box.places and box.slot_bytes == box.piece_bytes:
            return pieces
    words = np.zeros((box.places.size, box.slot_bytes), np.uint8)
    if found.fills_nan:
        words[:] = np.resize(np.frombuffer(_nan(found.type), np.uint8), box.slot_bytes)
    if pieces is not None:
        words[box.places >= 0, : box.piece_bytes] = pieces
    return words


def _tensor(cta: CtaState, box: tensor_map.Box, what: str) -> Memory:
    """Return the memory that holds the box's tensor; raise Undefined unless it holds the whole box."""
    first, end = box.ends
    memory = cta.cluster.grid.memory.at(int(box.inside[0]), what)
    memory.bytes(first, end - first, what)
    return memory


def _to_nearest_tf32(pieces: Array) -> Array:
    """Return floats rounded as an H200 does for maps of type TFLOAT32: as cvt.rn.tf32.f32, with a single NaN."""
    bits = pieces.view(np.uint32)
    even = bits >> np.uint32(13) & np.uint32(1)
    nearest = (bits + np.uint32(0x0FFF) + even) & np.uint32(0xFFFFE000)
    special = np.where(bits & np.uint32(0x007FFFFF), np.uint32(0x7FFFE000), bits)
    return np.where(bits & np.uint32(0x7F800000) == 0x7F800000, special, nearest).view(np.uint8)


def _nan(type: str) -> bytes:
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}.get(type, np.float32)
    return np.array([np.nan], kind).tobytes()


def _tensor_store(build: Builder, each: Statement) -> Act:
    map_address, coordinates = _described(build, each, each.operands[0])
    source = shared_addresses(build, each.operands[1])
    combines, scatters = each.opcode.startswith("cp.reduce"), "tile::scatter4" in each.modifiers

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            found = _map_at(warp, lane, int(map_address(warp)[lane]))
            place = tuple(int(each(warp)[lane]) for each in coordinates)
            if min(place) < 0:
                raise Undefined(f"stores a box at {place}, and a GPU stops where a coordinate of a store is negative")
            start = int(source(warp)[lane])
            reduce = _reduction(each, found.type) if combines else None
            for box in _rows(found, place) if scatters else [_box(found, place)]:
                run = _storing(warp.cta, found, box, start, reduce)
                join(warp, BULK, warp.cta.cluster.grid.issue("copy", run, warp, 1 << lane), 1 << lane)
                start += box.nbytes

    return act


def _storing(
    cta: CtaState, found: tensor_map.Map, box: tensor_map.Box, start: int, reduce: Callable[[Array, Array], None] | None
) -> Callable[[], None]:
    def run() -> None:
        shared = cta.cluster.owner(start).shared
        shared.bytes(start, box.nbytes, "copies a box from")
        if not box.inside.size:
            return
        slots = tensor_map.slots(start - shared.base, box.nbytes, box.slot_bytes, found.swizzle_bytes)
        offsets, nbytes = box.of_inside(slots), box.piece_bytes
        missing = shared.unwritten(offsets, nbytes)
        if missing:
            shared.lack(f"copies a box from shared memory, of which nothing has written {missing:,} bytes")
        memory = _tensor(cta, box, "copies a box to")
        if memory.listener is not None and shared.listener is not None:
            shared.listener.read(shared, offsets + shared.base, nbytes)
            memory.listener.written(memory, box.inside, nbytes)
        values, into = shared.taken_words(offsets, nbytes), box.inside - memory.base
        if reduce is not None:
            old = np.ascontiguousarray(memory.taken_words(into, nbytes)).reshape(-1)
            reduce(old, values.reshape(-1))
            values = old.reshape(-1, nbytes)
        memory.put_words(into, values)

    return run


# --- tensor maps in memory


_MAP_FIELDS = {
    "global_address": "address", "rank": "rank", "box_dim": "box", "global_dim": "dims", "global_stride": "strides",
    "element_stride": "steps", "elemtype": "type", "interleave_layout": "interleave", "swizzle_mode": "swizzle",
    "fill_mode": "fill", "swizzle_atomicity": "atom",
}  # fmt: skip
"""Name here of each field that tensormap.replace names."""


@instruction("tensormap.replace")
def replace(build: Builder, each: Statement) -> Act:
    """Replace a field of a tensor map: `tensormap.replace.tile.field.space.b1024.type [map], {index,} value`."""
    field, space = _MAP_FIELDS[each.modifiers.first_of(_MAP_FIELDS)], _spaces(each)[0]
    address = addresses_of(build, each.operands[0], space)
    index = number_of(each.operands[1]) if len(each.operands) > 2 else 0
    value = build.scalar(each.operands[-1], last_type(each))

    def act(warp: WarpState, mask: int) -> None:
        lane = first(mask)
        memory, places, _ = where(warp, address(warp)[lane : lane + 1], space, "changes a tensor map in")[0]
        raw = memory.bytes(int(places[0]), tensor_map.ENCODED_MAP_BYTES)
        if memory.listener is not None:
            memory.listener.written(memory, places, tensor_map.ENCODED_MAP_BYTES, warp, 1 << lane)
        memory.mark(int(places[0]), tensor_map.ENCODED_MAP_BYTES)
        changed = tensor_map.replaced(raw.tobytes(), field, value(warp, lane), index)
        raw[:] = np.frombuffer(changed, np.uint8)
        warp.cta.cluster.grid.effects += 1

    return act


@instruction("tensormap.cp_fenceproxy")
def copy_map(build: Builder, each: Statement) -> Act:
    """Copy a tensor map from shared to global memory, with a fence ("tensormap.cp_fenceproxy")."""
    to, source = build.address(each.operands[0]), shared_addresses(build, each.operands[1])
    nbytes = number_of(each.operands[2])

    def act(warp: WarpState, mask: int) -> None:
        lane = first(mask)
        target, places, _ = where(warp, to(warp)[lane : lane + 1], "", "writes a tensor map to")[0]
        place = source(warp)[lane : lane + 1]
        shared, listener = warp.cta.cluster.owner(int(place[0])).shared, warp.cta.cluster.grid.listener
        if listener is not None:
            listener.read(shared, place, nbytes, warp, mask)
            listener.written(target, places, nbytes, warp, mask)
            listener.fenced(warp, mask)
        target.bytes(int(places[0]), nbytes, "writes")[:] = shared.bytes(int(place[0]), nbytes)

    return act


@instruction("fence.proxy.tensormap::generic")
def fence_maps(build: Builder, each: Statement) -> Act:
    """Report a fence to the listener: `fence.proxy.tensormap::generic.release.scope`, or `.acquire.scope [map],
    128`."""
    address = build.address(each.operands[0]) if each.operands else None

    def act(warp: WarpState, mask: int) -> None:
        listener = warp.cta.cluster.grid.listener
        if listener is None:
            return
        listener.fenced(warp, mask)
        if address is None:
            return
        for lane in indices(mask):
            memory, places, _ = where(warp, address(warp)[lane : lane + 1], "", "fences a tensor map in")[0]
            listener.described(memory, places, warp, 1 << lane)

    return act
