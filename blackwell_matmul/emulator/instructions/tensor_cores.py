"""Fifth-generation tensor cores: tensor memory and tcgen05 (PTX ISA, "TensorCore 5th Generation Family").

Products and copies into tensor memory take effect late, in a CTA's issue order. A commit takes effect after the
operations of its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction
from blackwell_matmul.emulator.instructions.fragments import words
from blackwell_matmul.emulator.instructions.groups import TENSOR_STORES, join, number_of, wait_all
from blackwell_matmul.emulator.instructions.moves import shared_addresses
from blackwell_matmul.emulator.lanes import LANES, Array, first, indices
from blackwell_matmul.emulator.machine import CtaState, Waiting, WarpState, collective
from blackwell_matmul.emulator.operands import SCALE_TYPES, chunks, descriptor, elements, matrix, product
from blackwell_matmul.emulator.parser import Address, Number, Statement, Vector
from blackwell_matmul.emulator.spaces import Undefined, in_ctas
from blackwell_matmul.emulator.unknown import Unknown


def group_of(each: Statement) -> int:
    return 2 if "cta_group::2" in each.modifiers else 1


# --- allocation


@instruction("tcgen05.alloc")
def allocate(build: Builder, each: Statement) -> Act:
    """Allocate 32 to 512 free columns, a power of two: `tcgen05.alloc [shared], columns`; shared gets the address."""
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
        warp.cta.cluster.owner(int(place[0])).shared.store(place, np.array([start], np.uint32), 4)
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
        del held[column]

    return act


@instruction("tcgen05.relinquish_alloc_permit")
def relinquish(build: Builder, each: Statement) -> Act:
    def act(warp: WarpState, mask: int) -> None:
        warp.cta.tensor.permit = False

    return act


# --- between tensor memory and registers


def _places(each: Statement) -> tuple[Array, Array]:
    """Return lane and column behind the address, of each register (first axis) in each thread, by the shape."""
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
"""Registers of one repetition, by shape."""


def _window(warp: WarpState, address: int, lane: Array, column: Array, what: str) -> tuple[Array, Array]:
    """Return absolute lanes and columns; a warp reaches its warpgroup rank's 32 lanes ("Access restrictions")."""
    base, start = address >> 16, address & 0xFFFF
    low, last = 32 * (warp.index % 4), base + int(lane.max())
    if base < low or last >= low + 32:
        raise Undefined(f"{what} lanes {base} to {last}, but warp {warp.index} reaches lanes {low} to {low + 31}")
    warp.cta.tensor.check(start + int(column.min()), int(column.max() - column.min()) + 1, what)
    return base + lane, start + column


@instruction("tcgen05.ld")
def load(build: Builder, each: Statement) -> Act:
    """Load at once, so wait::ld never waits: `tcgen05.ld.sync.aligned.shape.xN{.pack::16b}.b32 r, [taddr]`."""
    if "red" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    packs = "pack::16b" in each.modifiers
    lane, column = _places(_doubled(each) if packs else each)
    targets, address = build.targets(each.operands[0]), _tensor_address(build, each.operands[1])

    @collective
    def act(warp: WarpState, mask: int) -> None:
        rows, columns = _window(warp, address(warp, 0), lane, column, "reads")
        values = warp.cta.tensor.read(rows, columns)
        if packs:
            values = values[0::2] & np.uint32(0xFFFF) | values[1::2] << np.uint32(16)
        for slot, value in zip(targets, values, strict=True):
            warp.set(slot, value, mask)

    return act


def _doubled(each: Statement) -> Statement:
    """Double the columns of a load with pack::16b, which packs two neighbours into a register."""
    words = [
        f"x{2 * int(word[1:])}" if word[0] == "x" and word[1:].isdigit() else word for word in each.opcode.split(".")
    ]
    return replace(each, opcode=".".join(words))


@instruction("tcgen05.st")
def store(build: Builder, each: Statement) -> Act:
    """Store late, by wait::st at the latest: `tcgen05.st.sync.aligned.shape.xN{.unpack::16b}.b32 [taddr], r`."""
    unpacks = "unpack::16b" in each.modifiers
    lane, column = _places(_doubled(each) if unpacks else each)
    address = _tensor_address(build, each.operands[0])
    slots = [build.source(part, "b32") for part in build.vector(each.operands[-1])]

    @collective
    def act(warp: WarpState, mask: int) -> None:
        rows, columns = _window(warp, address(warp, 0), lane, column, "writes")
        values = words(warp, slots)
        if unpacks:
            values = np.stack([values & np.uint32(0xFFFF), values >> np.uint32(16)], axis=1).reshape(-1, LANES)
        operation = warp.cta.cluster.grid.issue("other", lambda: warp.cta.tensor.write(rows, columns, values))
        join(warp, TENSOR_STORES, operation)

    return act


def _tensor_address(build: Builder, operand: Any) -> Callable[[WarpState, int], int]:
    read = build.address(operand)
    return lambda warp, lane: int(read(warp)[lane]) & 0xFFFFFFFF


@instruction("tcgen05.wait::ld")
def wait_loads(build: Builder, each: Statement) -> Act:
    return lambda warp, mask: None


@instruction("tcgen05.wait::st")
def wait_stores(build: Builder, each: Statement) -> Act:
    return lambda warp, mask: wait_all(warp, TENSOR_STORES)


# --- products


@dataclass(frozen=True)
class Shape:
    """Instruction descriptor (PTX ISA, "Instruction Descriptor"): types, majors, M and N in 32 bits.

    m: over both CTAs of a pair. scales: bytes of a word that hold A's and B's scale of the first block of K.
    """

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    a_k_major: bool
    b_k_major: bool
    negate: bool
    block: int
    scale: str
    scales: tuple[int, int]


_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
_KINDS: dict[str, tuple[int, dict[int, str]]] = {
    "f16": (16, {0: "f16", 1: "bf16"}),
    "tf32": (8, {2: "tf32"}),
    "i8": (32, {0: "u8", 1: "s8"}),
    "f8f6f4": (32, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "mxf8f6f4": (32, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "mxf4": (64, {1: "packed e2m1"}),
    "mxf4nvf4": (64, {1: "packed e2m1"}),
}
"""K of one instruction, and the formats of A and B by number, for each kind."""


def shape_of(bits: int, kind: str, block: int) -> Shape:
    """Return a product's instruction descriptor; Undefined if it is illegal."""
    k, formats = _KINDS[kind]
    scaled = kind.startswith("mx")
    if bits >> 2 & 1:
        raise Undefined("a product of sparse operands is not emulated")
    a, b = bits >> 7 & 7, bits >> 10 & (3 if kind.startswith("mxf4") else 7)
    if a not in formats or b not in formats:
        raise Undefined(f"the instruction descriptor {bits:#010x} has formats {a} and {b}; kind::{kind} has {formats}")
    m = (bits >> 27 & 3) << 7 if scaled else (bits >> 24 & 31) << 4
    d = "f32" if scaled else _ACCUMULATORS.get(bits >> 4 & 3, "")
    if not d:
        raise Undefined(f"the instruction descriptor {bits:#010x} has accumulator format 3, which does not exist")
    return Shape(
        m=m, n=(bits >> 17 & 63) << 3, k=k, d=d, a=formats[a], b=formats[b], a_k_major=not bits >> 15 & 1,
        b_k_major=not bits >> 16 & 1, negate=bool((bits >> 13 ^ bits >> 14) & 1), block=block,
        scale="ue8m0" if bits >> 23 & 1 else "ue4m3", scales=(bits >> 29 & 3, bits >> 4 & 3),
    )  # fmt: skip


_BLOCKS = {"block16": 16, "block32": 32, "scale_vec::1X": 32, "scale_vec::2X": 32, "scale_vec::4X": 16}


@instruction("tcgen05.mma")
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `tcgen05.mma.cta_group::g.kind [d], a, b, idesc{, lanes}, enable{, scale}`.

    a: a descriptor or `[tensor memory]`. With block_scale: `[d], a, b, idesc, [scales of a], [scales of b], enable`.
    """
    modifiers = each.modifiers
    kind = next((word[6:] for word in modifiers if word.startswith("kind::")), "")
    if any(word in modifiers for word in ("sp", "ws")) or kind not in _KINDS:
        raise Unknown(f"{each.opcode} is not emulated")
    group, scaled = group_of(each), "block_scale" in modifiers
    block = next((_BLOCKS[word] for word in modifiers if word in _BLOCKS), 32) if scaled else 0
    d, rest = _tensor_address(build, each.operands[0]), each.operands[1:]
    a_in_tensor = isinstance(rest[0], Address)
    a = _tensor_address(build, rest[0]) if a_in_tensor else build.scalar(rest[0], "b64")
    b, idesc = build.scalar(rest[1], "b64"), build.scalar(rest[2])
    scale_addresses = [_tensor_address(build, rest[3 + place]) for place in range(2 * scaled)]
    rest = rest[3 + len(scale_addresses) :]
    masked = [build.scalar(part) for part in rest[0].parts] if isinstance(rest[0], Vector) else []
    rest = rest[1:] if masked else rest
    enable = build.predicate(rest[0])
    down = int(rest[1].value) if len(rest) > 1 and isinstance(rest[1], Number) else 0

    def act(warp: WarpState, mask: int) -> None:
        for lane in indices(mask):
            shape = shape_of(idesc(warp, lane), kind, block)
            left, right = a(warp, lane), b(warp, lane)
            target, scales = d(warp, lane), [read(warp, lane) for read in scale_addresses]
            skipped = sum(read(warp, lane) << 32 * index for index, read in enumerate(masked))
            keeps = bool(enable(warp) >> lane & 1)
            found = TensorProduct(
                _pair(warp.cta, group), shape, target, left, right, a_in_tensor, scales, keeps, down, skipped
            )
            _issue(warp, lane, found.run)

    return act


def _pair(cta: CtaState, group: int) -> list[CtaState]:
    """Return the CTAs whose tensor memory is written: the pair, whose ranks differ in the lowest bit, even first."""
    if group == 1:
        return [cta]
    ranks = (cta.rank & ~1, cta.rank | 1)
    if ranks[1] >= len(cta.cluster.ctas):
        raise Undefined(f"a pair of CTAs in a cluster of {len(cta.cluster.ctas)}")
    return [cta.cluster.ctas[rank] for rank in ranks]


def _issue(warp: WarpState, lane: int, act: Callable[[], None]) -> None:
    """Queue an operation behind all that this CTA gave to the tensor core."""
    cta = warp.cta
    cta.pipe = warp.given[lane] = cta.cluster.grid.issue("product", act, cta.pipe)


@dataclass(frozen=True)
class TensorProduct:
    """A product with its operands read. Each CTA of a pair has half of A's rows and half of B's columns, and gets its
    rows of the result. keeps: D is added to, times 2 ** -down. skipped: mask of lanes that are not written.
    """

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
        shape, count = self.shape, len(self.ctas)
        _verify(shape, count)
        found, columns = descriptor(self.b, True), shape.n // count
        parts = [matrix(cta.shared, found, columns, shape.k, shape.b, shape.b_k_major) for cta in self.ctas]
        right = np.concatenate(parts)
        for cta in self.ctas:
            left = self._left(cta)
            result = _scaled(cta, left, right, self.scales, shape) if self.scales else product(left, right)
            self._add(cta, -result if shape.negate else result)

    def _left(self, cta: CtaState) -> Array:
        shape, rows = self.shape, self.shape.m // len(self.ctas)
        if self.a_in_tensor:
            return _tensor_operand(cta, self.a, rows, shape)
        return matrix(cta.shared, descriptor(self.a, True), rows, shape.k, shape.a, shape.a_k_major)

    def _add(self, cta: CtaState, result: Array) -> None:
        type, (lane, column) = self.shape.d, _layout(self.shape, len(self.ctas))
        lane, column = lane + (self.target >> 16), column + (self.target & 0xFFFF)
        cta.tensor.check(int(column.min()), int(column.max() - column.min()) + 1, "a product writes")
        if self.keeps:
            old = _from_words(cta.tensor.read(lane, column, "a product adds to"), type)
            result = result + (old * old.dtype.type(2.0**-self.down) if self.down else old)
        raw = _to_words(result, type)
        if self.skipped:
            kept = np.array([not self.skipped >> int(each) & 1 for each in lane[:, 0]])
            lane, column, raw = lane[kept], column[kept], raw[kept]
        cta.tensor.write(lane, column, raw)


def _verify(shape: Shape, group: int) -> None:
    """Check PTX ISA, "Matrix Shape": M of 64 or 128 for one CTA, 128 or 256 for two; N by 8 for M = 64, else by 16."""
    step = 8 if shape.m == 64 else 16
    if shape.m not in (64 * group, 128 * group) or shape.n % step or not step <= shape.n <= 256:
        raise Undefined(
            f"a product of {shape.m}x{shape.n} for {group} CTAs; M is {64 * group} or {128 * group} and N a multiple "
            f"of {step} up to 256"
        )


def _rows(rows: int) -> Array:
    """Return the lane of each row; 64 rows use the lower 16 of each 32 lanes."""
    row = np.arange(rows)
    return row // 16 * 32 + row % 16 if rows == 64 else row


def _layout(shape: Shape, group: int) -> tuple[Array, Array]:
    """Return lane and column of each element of a CTA's rows ("Data path layouts")."""
    rows = shape.m // group
    row, column = np.arange(rows)[:, None], np.arange(shape.n)[None, :]
    if group == 2 and rows == 64:  # the upper half of N lies in lanes 64 to 127
        return row + 64 * (column >= shape.n // 2), column % (shape.n // 2) + 0 * row
    return _rows(rows)[:, None] + 0 * column, column + 0 * row


def _from_words(raw: Array, type: str) -> Array:
    if type == "f16":
        return raw.astype(np.uint16).view(np.float16).astype(np.float32)
    return raw.view(np.int32 if type == "s32" else np.float32)


def _to_words(value: Array, type: str) -> Array:
    if type == "f16":
        return value.astype(np.float16).view(np.uint16).astype(np.uint32)
    return np.ascontiguousarray(value.astype(np.int32 if type == "s32" else np.float32)).view(np.uint32)


def _tensor_operand(cta: CtaState, address: int, rows: int, shape: Shape) -> Array:
    """Return A from tensor memory: a row in each lane, its K packed into 8 columns of 32 bits."""
    start = address & 0xFFFF
    cta.tensor.check(start, A_COLUMNS, "a product reads")
    lane = _rows(rows)[:, None] + (address >> 16)
    raw = cta.tensor.read(lane, np.arange(start, start + A_COLUMNS)[None, :], "a product reads")
    return elements(np.ascontiguousarray(raw).view(np.uint8), shape.a)


A_COLUMNS = 8


def _scaled(cta: CtaState, left: Array, right: Array, scales: list[int], shape: Shape) -> Array:
    """Return the product of blocks along K, scaled for A's row and B's column ("Block Scaling")."""
    blocks = shape.k // shape.block
    factors = [
        _scales(cta, address, len(values), blocks, shape.scale, id)
        for address, values, id in zip(scales, (left, right), shape.scales)
    ]
    wide = [
        (values.reshape(len(values), blocks, shape.block) * factor[:, :, None]).reshape(values.shape)
        for values, factor in zip((left, right), factors)
    ]
    return (wide[0].astype(np.float64) @ wide[1].T.astype(np.float64)).astype(np.float32)


def _scales(cta: CtaState, address: int, rows: int, blocks: int, type: str, id: int) -> Array:
    """Return scales, rows x blocks. Row r lies in lane r % 32 and column r / 32, blocks in bytes from `id` on."""
    row = np.arange(rows)
    start = address & 0xFFFF
    raw = cta.tensor.read(row % 32 + (address >> 16), start + row // 32, "a product reads scales from")
    if id + blocks > 4:
        raise Undefined(f"a product reads {blocks} scales from byte {id} on of words of 4 bytes")
    bits = np.ascontiguousarray(raw).view(np.uint8).reshape(rows, 4)[:, id : id + blocks]
    return bits.copy().view(SCALE_TYPES[type]).astype(np.float32)


# --- copies from shared to tensor memory


@instruction("tcgen05.cp")
def copy(build: Builder, each: Statement) -> Act:
    """Copy to tensor memory: `tcgen05.cp.cta_group::g.shape{.multicast} [taddr], descriptor` ("tcgen05.cp")."""
    words_ = each.modifiers
    shape = next((word for word in words_ if word in _COPIES), None)
    if shape is None or any(word.startswith(("b8x16", "b6x16", "b4x16")) for word in words_):
        raise Unknown(f"{each.opcode} is not emulated")
    rows, nbytes = _COPIES[shape]
    lanes = _copied_lanes(shape, words_)
    address, source = _tensor_address(build, each.operands[0]), build.scalar(each.operands[1], "b64")
    group = group_of(each)

    def act(warp: WarpState, mask: int) -> None:
        target, found = address(warp, first(mask)), descriptor(source(warp, first(mask)), True)
        for cta in _pair(warp.cta, group):
            _issue(warp, first(mask), partial(_copied, cta, target, found, rows, nbytes, lanes))

    return act


_COPIES = {"128x256b": (128, 32), "4x256b": (4, 32), "128x128b": (128, 16), "64x128b": (64, 16), "32x128b": (32, 16)}


def _copied_lanes(shape: str, modifiers: tuple[str, ...]) -> list[Array]:
    """Return the lanes that each copy of the rows goes to."""
    if shape == "32x128b":  # .warpx4
        return [np.arange(32) + 32 * warp for warp in range(4)]
    if shape == "64x128b":
        pairs = ((0, 2), (1, 3)) if "warpx2::02_13" in modifiers else ((0, 1), (2, 3))
        return [np.concatenate([np.arange(32) + 32 * pair[index] for pair in pairs]) for index in range(2)]
    return [np.arange(_COPIES[shape][0])]


def _copied(cta: CtaState, target: int, found: Any, rows: int, nbytes: int, lanes: list[Array]) -> None:
    index = chunks(found, rows, nbytes // 16, True)
    marks = cta.shared.written[: cta.shared.nbytes // 16 * 16].reshape(-1, 16)[index]  # type: ignore[index]
    if not marks.all():
        raise Undefined(f"copies {marks.size - int(marks.sum())} bytes of shared memory that nothing has written")
    raw = cta.shared.data[: cta.shared.nbytes // 16 * 16].view("V16")[index]
    values = raw.view(np.uint32).reshape(rows, nbytes // 4)
    start = target & 0xFFFF
    cta.tensor.check(start, nbytes // 4, "copies to")
    for each in lanes:
        cta.tensor.write(each[:, None] + (target >> 16), np.arange(start, start + nbytes // 4)[None, :], values)


# --- commits


@instruction("tcgen05.commit")
def commit(build: Builder, each: Statement) -> Act:
    """Arrive when the executing thread's tensor core operations are complete ("tcgen05.commit").

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
    """Queue an arrival behind the operations of this thread alone."""
    cta, given = warp.cta, warp.given.get(lane)
    warp.given[lane] = cta.cluster.grid.issue("other", arrive, given)
    if given is cta.pipe and given is not None:
        cta.pipe = warp.given[lane]


def _arrive(cta: CtaState, places: list[int]) -> None:
    for place in places:
        cta.barrier(place).arrive()
