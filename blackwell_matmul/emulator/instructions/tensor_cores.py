"""Fifth-generation tensor cores: tensor memory and tcgen05 (PTX ISA, "TensorCore 5th Generation Family").

Products, and copies into tensor memory, take effect late, in the order in which a CTA issued them. A commit takes
effect after the operations of its thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, wide
from blackwell_matmul.emulator.instructions.fragments import ELEMENTS, scale_block, words
from blackwell_matmul.emulator.instructions.groups import TENSOR_STORES, join, number_of, wait_all
from blackwell_matmul.emulator.instructions.matrices.block_sums import ScaledOperand, block_sums
from blackwell_matmul.emulator.instructions.matrices.shapes import (
    LONG_K,
    MMA_KINDS,
    SCALE_BLOCKS,
    Shape,
    layout,
    row_lanes,
    shape_of,
    verify,
)
from blackwell_matmul.emulator.instructions.moves import shared_addresses
from blackwell_matmul.emulator.lanes import ALL, LANES, Array, first, indices, lanes
from blackwell_matmul.emulator.machine import CtaState, LaneState, Row, Waiting, WarpState, collective
from blackwell_matmul.emulator.operands import (
    CHUNK,
    PACKED_BITS,
    SCALE_TYPES,
    chunks,
    descriptor,
    in_bytes,
    matrix,
    padded,
    product,
    read_chunks,
    saturated,
)
from blackwell_matmul.emulator.parser import Address, Number, Statement, Vector
from blackwell_matmul.emulator.spaces import Undefined, in_ctas
from blackwell_matmul.emulator.unknown import Malformed, Unknown


def group_of(each: Statement) -> int:
    return 2 if "cta_group::2" in each.modifiers else 1


# --- allocation


@instruction("tcgen05.alloc")
def allocate(build: Builder, each: Statement) -> Act:
    """Allocate 32 to 512 columns, a power of two: `tcgen05.alloc [shared], columns`; shared gets the address."""
    address, count = shared_addresses(build, each.operands[0]), build.scalar(each.operands[1])

    @collective
    def act(warp: WarpState, mask: int) -> Any:
        columns, memory = count(warp, first(mask)), warp.cta.tensor
        if columns not in (32, 64, 128, 256, 512):
            raise Undefined(f"allocates {columns} columns of tensor memory, which is none of 32, 64, 128, 256, 512")
        if not memory.permit:
            raise Undefined("allocates tensor memory after the CTA gave up its permit to allocate")
        start = memory.allocate(columns)
        if start is None:
            what = f"for {columns} free columns of tensor memory"
            return Waiting(lambda: memory.free(columns) is not None, True, lambda: what)
        place = address(warp)[first(mask) : first(mask) + 1]
        owner = warp.cta.cluster.owner(int(place[0]))
        if memory.listener is not None:
            memory.listener.allocated(memory, start, columns, warp, False)
            memory.listener.written(owner.shared, place, 4, warp, 1 << first(mask))
        owner.shared.store(place, np.array([start], np.uint32), 4)
        return None

    return act


@instruction("tcgen05.dealloc")
def deallocate(build: Builder, each: Statement) -> Act:
    start, count = build.scalar(each.operands[0]), build.scalar(each.operands[1])

    @collective
    def act(warp: WarpState, mask: int) -> None:
        column, columns, held = start(warp, first(mask)), count(warp, first(mask)), warp.cta.tensor.allocated
        if held.get(column) != columns:
            raise Undefined(
                f"gives back {columns} columns of tensor memory from {column} on; allocated are {held or 'none'}"
            )
        if warp.cta.tensor.listener is not None:
            warp.cta.tensor.listener.allocated(warp.cta.tensor, column, columns, warp, True)
        del held[column]

    return act


@instruction("tcgen05.relinquish_alloc_permit")
def relinquish(build: Builder, each: Statement) -> Act:
    def act(warp: WarpState, mask: int) -> None:
        warp.cta.tensor.permit = False

    return act


# --- between tensor memory and registers


def _places(each: Statement) -> tuple[Array, Array]:
    """Return lane and column of each register (first axis) in each thread, relative to the address, by the shape."""
    shape = each.modifiers.first_of(_SHAPES)
    repeats = next((int(word[1:]) for word in each.modifiers if word[0] == "x" and word[1:].isdigit()), 1)
    thread, half = np.arange(LANES), 0
    if shape == "16x32bx2":
        half = number_of(each.operands[1 if isinstance(each.operands[0], Address) else -1])
    register = np.arange(repeats * _SHAPES[shape])[:, None]
    if shape == "32x32b":
        return thread + 0 * register, register + 0 * thread
    if shape == "16x256b":
        return thread // 4 + 8 * (register // 2 % 2), register // 4 * 8 + 2 * (thread % 4) + register % 2
    if shape == "16x128b":
        return thread // 4 + 8 * (register % 2), register // 2 * 4 + thread % 4
    if shape == "16x64b":
        return thread // 4 + 8 * (thread % 2) + 0 * register, 2 * register + thread % 4 // 2
    return thread % 16 + 0 * register, register + thread // 16 * half


_SHAPES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Number of registers in one repetition, by shape."""


class Window:
    """Part of tensor memory that a warp loads or stores, by a shape. what: "reads" or "writes".

    lane, column: of each register (first axis) in each thread, relative to the address. is_plain: True if each thread
    has a lane, and each register a column.
    """

    def __init__(self, each: Statement, what: str) -> None:
        self.what, (self.lane, self.column) = what, _places(each)
        self.is_plain = "32x32b" in each.modifiers
        self.registers, self.last_lane = len(self.lane), int(self.lane.max())
        self.first, self.columns = int(self.column.min()), int(np.ptp(self.column)) + 1

    def _start(self, warp: WarpState, address: int) -> tuple[int, int]:
        """Return the first lane and column. A warp accesses its own 32 lanes ("Access restrictions"), whatever 32 lanes
        the address names. Kernels whose addresses name other lanes run like this on a B200."""
        base, start = (address >> 16) % LANES, address & 0xFFFF
        if base + self.last_lane >= LANES:
            raise Undefined(f"{self.what} lanes {base} to {base + self.last_lane} of the 32 that a warp reaches")
        warp.cta.tensor.check(start + self.first, self.columns, self.what)
        return 32 * (warp.index % 4) + base, start

    def place(self, warp: WarpState, address: int) -> tuple[Any, Any]:
        """Return lanes and columns, registers x threads; without a listener, as slices, threads x registers."""
        lane, column = self._start(warp, address)
        if self.is_plain and warp.cta.tensor.listener is None:
            return slice(lane, lane + LANES), slice(column, column + self.columns)
        return lane + self.lane, column + self.column


@instruction("tcgen05.ld")
def load(build: Builder, each: Statement) -> Act:
    """Load from tensor memory at once: `tcgen05.ld.sync.aligned.shape.xN{.pack::16b}.b32 r, [taddr]`. So wait::ld never
    waits."""
    if "red" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    packs = "pack::16b" in each.modifiers
    window = Window(_doubled(each) if packs else each, "reads")
    targets, address = build.targets(each.operands[0]), _tensor_address(build, each.operands[1])
    _verify_count(each, len(targets), window.registers // (1 + packs))

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        if isinstance(warp, Row):
            warp.verify_all(mask)
        values = np.empty((window.registers, warp.count), np.uint32)
        for place, one in enumerate(warp.warps):
            rows, columns = window.place(one, address(one, 0))
            if one.cta.tensor.listener is not None:
                one.cta.tensor.listener.touched(one.cta.tensor, rows, columns, False, one)
            found = one.cta.tensor.read(rows, columns)
            values[:, LANES * place : LANES * (place + 1)] = found.T if isinstance(rows, slice) else found
        if packs:
            values = values[0::2] & np.uint32(0xFFFF) | values[1::2] << np.uint32(16)
        for slot, value in zip(targets, values, strict=True):
            warp.set(slot, value, mask)

    return act


def _verify_count(each: Statement, count: int, wanted: int) -> None:
    if count != wanted:
        raise Malformed(f"{each.opcode} takes {wanted} registers, and {count} are given")


def _doubled(each: Statement) -> Statement:
    """Return a load or store with twice the columns. pack::16b and unpack::16b keep two neighbours in a register."""
    words = [
        f"x{2 * int(word[1:])}" if word[0] == "x" and word[1:].isdigit() else word for word in each.opcode.split(".")
    ]
    return replace(each, opcode=".".join(words))


@instruction("tcgen05.st")
def store(build: Builder, each: Statement) -> Act:
    """Store late, by wait::st at the latest: `tcgen05.st.sync.aligned.shape.xN{.unpack::16b}.b32 [taddr], r`."""
    unpacks = "unpack::16b" in each.modifiers
    window = Window(_doubled(each) if unpacks else each, "writes")
    address = _tensor_address(build, each.operands[0])
    slots = [build.source(part, "b32") for part in build.vector(each.operands[-1])]
    _verify_count(each, len(slots), window.registers // (1 + unpacks))

    def issue(warp: WarpState, values: Array) -> None:
        rows, columns = window.place(warp, address(warp, 0))
        values = values.T if isinstance(rows, slice) else values
        operation = warp.grid.issue("other", partial(warp.cta.tensor.write, rows, columns, values), warp, ALL)
        join(warp, TENSOR_STORES, operation)

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        values = words(warp, slots)
        if unpacks:
            values = np.stack([values & np.uint32(0xFFFF), values >> np.uint32(16)], axis=1).reshape(-1, warp.count)
        if isinstance(warp, Row):
            warp.verify_all(mask)
        for place, each in enumerate(warp.warps):
            issue(each, values[:, LANES * place : LANES * (place + 1)])

    return act


def _tensor_address(build: Builder, operand: Any) -> Callable[[WarpState, int], int]:
    read = _tensor_addresses(build, operand)
    return lambda warp, lane: int(read(warp)[lane])


def _tensor_addresses(build: Builder, operand: Any) -> Callable[[LaneState], Array]:
    read = build.address(operand)
    return lambda warp: read(warp) & np.uint64(0xFFFFFFFF)


@instruction("tcgen05.wait::ld")
def wait_loads(build: Builder, each: Statement) -> Act:
    @wide
    def act(warp: LaneState, mask: int) -> None:
        if warp.grid.listener is not None:
            warp.grid.listener.waited("tcgen05.ld", None, warp, mask)

    return act


@instruction("tcgen05.wait::st")
def wait_stores(build: Builder, each: Statement) -> Act:
    return lambda warp, mask: wait_all(warp, TENSOR_STORES)


# --- products


@instruction("tcgen05.mma", order=Order("weak", "cta", "async"))
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `tcgen05.mma{.ws}.cta_group::g.kind [d], a, b, idesc{, lanes}, enable{, scale}`.

    a: a descriptor, or `[tensor memory]`. With block_scale: `[d], a, b, idesc, [scales of a], [scales of b], enable`.
    """
    modifiers = each.modifiers
    kind = next((word[6:] for word in modifiers if word.startswith("kind::")), "")
    scaled, stationary = "block_scale" in modifiers, "ws" in modifiers
    group = group_of(each)
    if "sp" in modifiers or kind not in MMA_KINDS or scaled != (kind in SCALE_BLOCKS):
        raise Unknown(f"{each.opcode} is not emulated")
    if stationary and (scaled or group == 2):
        raise Unknown(f"{each.opcode}, with .ws and {'scales' if scaled else 'two CTAs'}, is not emulated")
    block = scale_block(each) if scaled else 0
    d, rest = _tensor_addresses(build, each.operands[0]), each.operands[1:]
    a_in_tensor = isinstance(rest[0], Address)
    a = _tensor_addresses(build, rest[0]) if a_in_tensor else build.reader(rest[0], "b64")
    b, idesc = build.reader(rest[1], "b64"), build.reader(rest[2], "b32")
    of_scales = [_tensor_addresses(build, rest[3 + place]) for place in range(2 * scaled)]
    rest = rest[3 + len(of_scales) :]
    masked = [build.reader(part, "b32") for part in rest[0].parts] if isinstance(rest[0], Vector) else []
    rest = rest[1:] if masked else rest
    enable = build.predicate(rest[0])
    if stationary and len(rest) > 1:
        raise Unknown(f"{each.opcode} with a mask of zero columns is not emulated")
    down = int(rest[1].value) if len(rest) > 1 and isinstance(rest[1], Number) else 0
    readers = (lambda warp: lanes(enable(warp), warp.count), idesc, d, a, b, *of_scales, *masked)

    def product_of(cta: CtaState, keeps: bool, bits: int, target: int, left: int, right: int, *more: int) -> Any:
        shape = shape_of(bits, kind, block, group, stationary)
        if (shape.k == LONG_K or (left | right) >> 52 & 1) and build.gpu != "sm_103a":
            raise Undefined(f"K of {LONG_K} and descriptors with bit 52 are sm_103a's; this PTX is for {build.gpu}")
        scales, masks = [*more[: len(of_scales)]], more[len(of_scales) :]
        skipped = sum(word << 32 * index for index, word in enumerate(masks))
        return TensorProduct(_pair(cta, group), shape, target, left, right, a_in_tensor, scales, keeps, down, skipped)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        found = [(one, lane, product_of(one.cta, *numbers)) for one, lane, numbers in warp.each_lane(mask, readers)]
        for one, lane, made in found:
            _issue(one, lane, made.run)

    return act


def _pair(cta: CtaState, group: int) -> list[CtaState]:
    """Return the CTAs whose tensor memory is written: one CTA, or a pair, the even rank first. A pair's ranks differ in
    the lowest bit."""
    if group == 1:
        return [cta]
    ranks = (cta.rank & ~1, cta.rank | 1)
    if ranks[1] >= len(cta.cluster.ctas):
        raise Undefined(f"a pair of CTAs in a cluster of {len(cta.cluster.ctas)}")
    return [cta.cluster.ctas[rank] for rank in ranks]


def _issue(warp: WarpState, lane: int, act: Callable[[], None]) -> None:
    """Issue an operation that executes after all earlier tensor core operations of this CTA."""
    cta = warp.cta
    cta.pipe = warp.given[lane] = cta.cluster.grid.issue("product", act, warp, 1 << lane, cta.pipe)


@dataclass(slots=True)
class TensorProduct:
    """A product, with its operands read. Each CTA of a pair has half of A's rows and half of B's columns, and gets its
    rows of D. keeps: True if the product is added to D times 2 ** -down. skipped: mask of lanes that are not
    written."""

    ctas: list[CtaState]
    shape: Shape
    target: int
    a: int
    b: int
    a_in_tensor: bool
    scales: list[int]
    keeps: bool
    down: int
    skipped: int

    def run(self) -> None:
        shape = self.shape
        verify(shape)
        found, columns = descriptor(self.b, True), shape.n // shape.group
        parts = [matrix(cta.shared, found, columns, shape.k, shape.b, shape.b_k_major) for cta in self.ctas]
        right = np.concatenate(parts) if len(parts) > 1 else parts[0]
        right = -right if self.scales and shape.negate else right
        for cta in self.ctas:
            parts_of_a = self._parts_of_a(cta)
            if self.scales:
                self._write(cta, partial(block_sums, *_scaled(cta, parts_of_a, right, self.scales, shape)))
                continue
            if len(parts_of_a) == 1:
                result = product(parts_of_a[0], right)
            else:
                results = [product(left, part) for left, part in zip(parts_of_a, np.split(right, len(parts_of_a)))]
                result = np.concatenate(results, axis=1)
            self._write(cta, partial(_added, -result if shape.negate else result, shape.saturates))

    def _parts_of_a(self, cta: CtaState) -> list[Array]:
        """Return A as a list: A for each part of N if A is in tensor memory, else A once."""
        shape = self.shape
        if not self.a_in_tensor:
            return [matrix(cta.shared, descriptor(self.a, True), shape.rows, shape.k, shape.a, shape.a_k_major)]
        return [_tensor_operand(cta, self.a, shape, shape.rows * part) for part in range(shape.stacked)]

    def _write(self, cta: CtaState, of_old: Callable[[Array | None], Array]) -> None:
        """Write D. of_old: returns D from the old D, or from None if the old D does not count."""
        type, (lane, column, ranges) = self.shape.d, _placed(self.shape, self.target)
        first, last = int(column[0, 0]), int(column[0, -1])
        cta.tensor.check(first, last - first + 1, "a product writes", int(lane[-1, -1]))
        place: tuple[Any, Any] = (lane, column) if ranges is None or cta.tensor.listener or self.skipped else ranges
        old = None
        if self.keeps:
            old = _from_words(cta.tensor.read(*place, "a product adds to"), type)
            old = old * old.dtype.type(2.0**-self.down) if self.down else old
        raw = _to_words(of_old(old), type)
        if self.skipped:
            kept = np.array([not self.skipped >> int(each) & 1 for each in lane[:, 0]])
            place, raw = (lane[kept], column[kept]), raw[kept]
        cta.tensor.write(*place, raw)


@functools.lru_cache(maxsize=1024)
def _placed(shape: Shape, target: int) -> tuple[Array, Array, tuple[slice, slice] | None]:
    """Return lanes and columns of D at an address of tensor memory; also as slices if D is a rectangle, else None."""
    lane, column = (each + start for each, start in zip(layout(shape), (target >> 16, target & 0xFFFF)))
    first, last = (int(lane[0, 0]), int(column[0, 0])), (int(lane[-1, -1]), int(column[-1, -1]))
    if (last[0] - first[0] + 1, last[1] - first[1] + 1) != column.shape:
        return lane, column, None
    return lane, column, (slice(first[0], last[0] + 1), slice(first[1], last[1] + 1))


def _added(result: Array, saturates: bool, old: Array | None) -> Array:
    if old is None:
        return result
    return saturated(result, old) if saturates else np.add(result, old, out=result)


def _from_words(raw: Array, type: str) -> Array:
    if type == "f16":
        return raw.astype(np.uint16).view(np.float16).astype(np.float32)
    return raw.view(np.int32 if type == "s32" else np.float32)


def _to_words(value: Array, type: str) -> Array:
    if type == "f16":
        return value.astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.ascontiguousarray(value.astype(np.int32 if type == "s32" else np.float32, copy=False)).view(np.uint32)


def _tensor_operand(cta: CtaState, address: int, shape: Shape, first: int) -> Array:
    """Return A from tensor memory. first: lane of its first row. A row is in one lane, its K in columns of 32 bits.
    Elements of at most 8 bits have a byte each ("Packing formats of elements in Tensor and Shared memory")."""
    if shape.a == "e2m1":
        raise Undefined("a product of e2m1 in tensor memory is not emulated: it is not known here which bits it has")
    start, count = address & 0xFFFF, shape.k // ELEMENTS[shape.a]
    lane = row_lanes(shape)[:, None] + first + (address >> 16)
    cta.tensor.check(start, count, "a product reads", int(lane.max()))
    raw = cta.tensor.read(lane, np.arange(start, start + count)[None, :], "a product reads")
    return in_bytes(np.ascontiguousarray(raw).view(np.uint8), shape.a)


def _scaled(
    cta: CtaState, parts_of_a: list[Array], right: Array, scales: list[int], shape: Shape
) -> tuple[list[ScaledOperand], ScaledOperand]:
    """Return the parts of A, and B, with their scales ("Block Scaling")."""
    of_a, of_b = (
        _scales(cta, _scale_column(address, id, name), rows, shape, id, name)
        for name, address, rows, id in zip("AB", scales, (shape.rows, shape.n), shape.scales)
    )
    lefts = [ScaledOperand(left, of_a, shape.a, shape.scale) for left in parts_of_a]
    return lefts, ScaledOperand(right, of_b, shape.b, shape.scale)


def _scale_column(address: int, id: int, name: str) -> int:
    """Return the column of scales. Bits 30 and 31 of the address may repeat the scale factor ID, as in CUTLASS."""
    if address >> 30 not in (0, id):
        raise Undefined(
            f"the address of {name}'s scales {address:#010x} says byte {address >> 30} in bits 30 and 31, and the "
            f"instruction descriptor says byte {id}"
        )
    if address >> 16 & 0x3FFF:
        raise Undefined(f"the address of {name}'s scales {address:#010x} is of lane {address >> 16 & 0x3FFF}, not 0")
    return address & 0xFFFF


QUARTERS = np.arange(4)[:, None, None] * 32
"""First lane of each quarter of tensor memory, with the shape copies x rows x words."""


def _scales(cta: CtaState, start: int, rows: int, shape: Shape, id: int, name: str) -> Array:
    """Return the scales of A or B, rows x blocks.

    Row r is in lane r % 32 of each quarter, and in column r / 32. Parts of N that are in lanes of their own have the
    scales in the quarters of these lanes. Each block's scale is a byte, from byte `id` of a word. Blocks beyond a word
    continue after the columns of all rows.
    """
    count, what = shape.k // shape.block, f"a product reads scales of {name} from"
    parts = shape.stacked if name == "B" else 1
    part, row = (each[:, None] for each in np.divmod(np.arange(rows), rows // parts))
    columns = start + row // 32 + 4 * -(-rows // 128) * np.arange((id + count + 3) // 4)
    cta.tensor.check(start, int(columns.max()) - start + 1, what)
    raw = cta.tensor.read(row % 32 + 128 // parts * part + QUARTERS[: 4 // parts], columns, what)
    found = np.ascontiguousarray(raw).view(np.uint8)[:, :, id : id + count]
    if (found != found[0]).any():
        bad = int((found != found[0]).any(axis=(0, 2)).argmax())
        raise Undefined(
            f"{what} lane {bad % 32}, column {int(columns[bad, 0])}, which differ between the four quarters of 32 lanes"
            f"{' or the two of a half' if parts > 1 else ''}; each has the same (tcgen05.cp with .warpx4 or .warpx2)"
        )
    return np.ascontiguousarray(found[0]).view(SCALE_TYPES[shape.scale]).astype(np.float64)


# --- copies from shared to tensor memory


@instruction("tcgen05.cp", order=Order("weak", "cta", "async"))
def copy(build: Builder, each: Statement) -> Act:
    """Copy to tensor memory: `tcgen05.cp.cta_group::g.shape{.multicast}{.b8x16.b4x16_p64} [taddr], descriptor`.

    Each packed element of 4 or 6 bits gets a byte, in its low bits, as by ldmatrix ("Optional Decompression").
    """
    words_ = each.modifiers
    shape = words_.first_of(_COPIES)
    rows, nbytes = _COPIES[shape]
    bits = next((PACKED_BITS[word] for word in words_ if word in PACKED_BITS), 8)
    lanes = _copied_lanes(shape, words_)
    address, source = _tensor_address(build, each.operands[0]), build.scalar(each.operands[1], "b64")
    group = group_of(each)

    def act(warp: WarpState, mask: int) -> None:
        target, found = address(warp, first(mask)), descriptor(source(warp, first(mask)), True)
        for cta in _pair(warp.cta, group):
            _issue(warp, first(mask), partial(_copied, cta, target, found, rows, nbytes, lanes, bits))

    return act


_COPIES = {"128x256b": (128, 32), "4x256b": (4, 32), "128x128b": (128, 16), "64x128b": (64, 16), "32x128b": (32, 16)}


_MULTICASTS = {"64x128b": [["warpx2::02_13"], ["warpx2::01_23"]], "32x128b": [["warpx4"]]}


def _copied_lanes(shape: str, modifiers: tuple[str, ...]) -> list[Array]:
    """Return the destination lanes of each copy; .warpx2 and .warpx4 copy the rows several times."""
    asked = [word for word in modifiers if word.startswith("warpx")]
    if asked not in _MULTICASTS.get(shape, [[]]):
        raise Unknown(f"tcgen05.cp of {shape} {' '.join(asked) or 'without .warpx'} is not emulated")
    if shape == "32x128b":
        return [np.arange(32) + 32 * warp for warp in range(4)]
    if shape == "64x128b":
        pairs = ((0, 2), (1, 3)) if "warpx2::02_13" in modifiers else ((0, 1), (2, 3))
        return [np.concatenate([np.arange(32) + 32 * pair[index] for pair in pairs]) for index in range(2)]
    return [np.arange(_COPIES[shape][0])]


def _copied(cta: CtaState, target: int, found: Any, rows: int, nbytes: int, lanes: list[Array], bits: int) -> None:
    raw = read_chunks(cta.shared, chunks(found, rows, nbytes // CHUNK, True), "tcgen05.cp", 2 * bits).view(np.uint8)
    raw = raw if bits == 8 else padded(raw, bits).astype(np.uint8)
    values = raw.view(np.uint32).reshape(rows, nbytes // 4)
    start = target & 0xFFFF
    cta.tensor.check(start, nbytes // 4, "copies to", int(lanes[-1].max()) + (target >> 16))
    for each in lanes:
        cta.tensor.write(each[:, None] + (target >> 16), np.arange(start, start + nbytes // 4)[None, :], values)


# --- commits


@instruction("tcgen05.commit", order=Order("release", "cluster"))
def commit(build: Builder, each: Statement) -> Act:
    """Arrive at mbarriers when the executing thread's tensor core operations are complete ("tcgen05.commit").

    `tcgen05.commit.cta_group::g.mbarrier::arrive::one{.multicast::cluster}.b64 [mbarrier]{, ctas}`
    """
    address = shared_addresses(build, each.operands[0])
    multicast = build.scalar(each.operands[1], "b16") if "multicast::cluster" in each.modifiers else None

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            place = int(address(warp)[lane])
            places = [place] if multicast is None else in_ctas(place, multicast(warp, lane))
            arrive = partial(_arrive, warp.cta, places)
            _track(warp, lane, arrive)

    return act


def _track(warp: WarpState, lane: int, arrive: Callable[[], None]) -> None:
    """Issue an arrival that executes after the operations of this thread."""
    cta, given = warp.cta, warp.given.get(lane)
    warp.given[lane] = cta.cluster.grid.issue("other", arrive, warp, 1 << lane, given)
    if given is cta.pipe and given is not None:
        cta.pipe = warp.given[lane]


def _arrive(cta: CtaState, places: list[int]) -> None:
    for place in places:
        if cta.cluster.grid.listener is not None:
            cta.cluster.grid.listener.arrived(cta.barrier(place))
        cta.barrier(place).arrive()
