"""Matrices in the registers of a warp or warpgroup: mma.sync, ldmatrix, stmatrix, wgmma.

Lane t holds elements of row t / 4, from column t % 4 on (PTX ISA, "Matrix Fragments for mma" and "wgmma").
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, last_type, wide
from blackwell_matmul.emulator.instructions.groups import PRODUCTS, join, number_of
from blackwell_matmul.emulator.instructions.matrices.block_sums import ScaledOperand, block_sum
from blackwell_matmul.emulator.instructions.matrices.shapes import SCALE_BLOCKS, SCALE_IDS
from blackwell_matmul.emulator.instructions.moves import gather, scatter, shared_addresses
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, Array, mask_of
from blackwell_matmul.emulator.machine import LaneState, Row, SomeWarps, WarpState, collective
from blackwell_matmul.emulator.operands import (
    PACKED_BITS,
    SCALE_TYPES,
    descriptor,
    differing,
    in_bytes,
    matrix,
    padded,
    product,
    saturated,
)
from blackwell_matmul.emulator.parser import Not, Number, Statement, Vector
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Malformed, Parts, Unknown

THREAD = np.arange(LANES) % 4
"""Index of each lane among the four lanes that share its row."""

_ELEMENT_BITS = {"tf32": 32, "f16": 16, "bf16": 16, "packed e2m1": 4, "s4": 4, "u4": 4, "b1": 1} | dict.fromkeys(
    ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "s8", "u8"), 8
)
ELEMENTS = {"f64": 1} | {format: 32 // bits for format, bits in _ELEMENT_BITS.items()}
"""Number of elements in a register, by format. A register has 64 bits for f64, and 32 bits for other formats."""


def words(warp: LaneState, slots: list[int]) -> Array:
    """Return the raw words of registers, registers x lanes."""
    return np.stack([warp.registers[slot] for slot in slots])


def _fragments(raw: Array, format: str, of_a: bool) -> Array:
    """Return an operand, warps x rows x K, from the registers of each warp. raw: registers x lanes.

    Register i of lane t holds row t / 4 + 8 · (i % 2) of A, and K from byte (i / 2) · 16.
    """
    values = in_bytes(np.ascontiguousarray(raw).view(np.uint8).reshape(*raw.shape, -1), format)
    count, per = len(raw), ELEMENTS[format]
    if of_a:
        parts = values.reshape(count // 2, 2, -1, 8, 4, per).transpose(2, 1, 3, 0, 4, 5)
        return parts.reshape(parts.shape[0], 16, -1)
    parts = values.reshape(count, -1, 8, 4, per).transpose(1, 2, 0, 3, 4)
    return parts.reshape(parts.shape[0], 8, -1)


def accumulators(raw: Array, type: str) -> Array:
    """Return accumulators as numbers: warps x 16 x N, or warps x 8 x 8 for two registers.

    Register i of lane t holds row t / 4 + 8 · (i / 2 % 2). Its column is i / 4 · 8 + 2 · (t % 4) + i % 2. An f16
    register holds two neighbours of a row.
    """
    if type == "f16":
        pairs = np.ascontiguousarray(raw).view(np.float16).reshape(*raw.shape, 2)
        raw = pairs.astype(np.float32).transpose(0, 2, 1).reshape(2 * len(raw), -1)
    else:
        raw = raw.view(TYPES[type])
    rows = min(len(raw) // 2, 2)
    parts = raw.reshape(len(raw) // (2 * rows), rows, 2, -1, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    return parts.reshape(parts.shape[0], 8 * rows, -1)


def registers_of(value: Array, type: str) -> Array:
    """Return the registers that hold these accumulators: the inverse of `accumulators`."""
    warps, rows, columns = value.shape
    parts = value.astype(TYPES[type], copy=False).reshape(warps, rows // 8, 8, columns // 8, 4, 2)
    raw = parts.transpose(3, 1, 5, 0, 2, 4).reshape(-1, warps * LANES)
    if type == "f16":
        half = raw.reshape(len(raw) // 2, 2, -1).transpose(0, 2, 1)
        return np.ascontiguousarray(half).view(np.uint32).reshape(len(raw) // 2, -1)
    return np.ascontiguousarray(raw).view(np.uint64 if type == "f64" else np.uint32)


def kept(warp: LaneState, slots: list[int], form: Any, make: Callable[[Array], Array]) -> Array:
    """Return the array that `make` computes from registers x lanes; cached until a register is written. form: cache key
    that distinguishes arrays from the same registers."""
    held = [warp.registers[slot] for slot in slots]
    found = warp.kept.get((slots[0], form))
    if found is None or len(found[0]) != len(held) or any(a is not b for a, b in zip(held, found[0])):
        found = warp.kept[slots[0], form] = held, make(np.stack(held))
    return np.asarray(found[1])


@instruction("mma.sync", "mma.sp")
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `mma.sync.aligned.mMn8kK.row.col.d.a.b.c d, a, b, c` ("mma"). A of 8 rows is laid out like B.

    In `mma.sp`, A has half of its elements; the operands end with `metadata, selector`.
    """
    types, rows = _types(each)
    d, a, b, c = (
        [build.source(part, "b64" if "f64" in types else "b32") for part in build.vector(operand)]
        for operand in each.operands[:4].exactly(4)
    )
    spread = _spreading(build, each, types) if _is_sparse(each) else None
    _verify_counts(each, rows, types, [len(part) for part in (d, a, b, c)])
    scale = _scaling(build, each, types) if "block_scale" in each.modifiers else None
    multiplied = differing if "xor" in each.modifiers else product
    added = saturated if "satfinite" in each.modifiers else np.add

    def product_of(warp: WarpState, left: Array, right: Array, old: Array) -> Array:
        """Return the result of a warp, of sparse or scaled operands."""
        left = spread(warp, left) if spread is not None else left
        found = added(multiplied(left, right), old) if scale is None else block_sum(*scale(warp, left, right), old)
        return found[None]

    @collective
    def act(warp: Any, mask: int) -> None:
        left = kept(warp, a, (types[1], rows), lambda raw: _fragments(raw, types[1], rows == 16))
        right = kept(warp, b, types[2], lambda raw: _fragments(raw, types[2], False))
        old = kept(warp, c, ("d", types[3]), lambda raw: accumulators(raw, types[3]))
        if spread is None and scale is None:
            result = added(multiplied(left, right), old)
        else:
            result = product_of(warp, left[0], right[0], old[0])
        found = [*registers_of(result, types[0])]
        for slot, word in zip(d, found):
            warp.set(slot, word, mask)
        if types[0] == types[3] != "f16":
            warp.kept[d[0], ("d", types[0])] = found, result

    return wide(act) if spread is None and scale is None else act


def _is_sparse(each: Statement) -> bool:
    """Return True for mma.sp, and for mma.sync with .sp among its modifiers, as CUTLASS writes."""
    return bool({"sp", "sp::ordered_metadata"} & {*each.modifiers})


def _types(each: Statement) -> tuple[tuple[str, ...], int]:
    """Return the types of D, A, B and C, and the rows of A; 4-bit types are packed for kind::mxf4…."""
    types = tuple(word for word in each.modifiers if word in ELEMENTS or word in ("f32", "s32"))
    if any(word.startswith("kind::mxf4") for word in each.modifiers):
        types = tuple(f"packed {type}" if type == "e2m1" else type for type in types)
    shape = re.search(r"\.m(8|16)n8k\d+\.", each.opcode)
    if shape is None or len(types) != 4 or not {types[1], types[2]} <= ELEMENTS.keys() or "row.col" not in each.opcode:
        raise Unknown(f"{each.opcode} is not emulated")
    return types, int(shape[1])


def _verify_counts(each: Statement, rows: int, types: tuple[str, ...], counts: list[int]) -> None:
    """Check the number of registers of D, A, B and C. m8n8k4 of f16, which computes four products, is not emulated."""
    k = next(int(word.split("k")[1]) for word in each.modifiers if re.fullmatch(r"m\d+n8k\d+", word))
    if (rows, k) == (8, 4) and types[1] == "f16":
        raise Unknown(f"{each.opcode} is not emulated")
    of_a = rows * k // (1 + _is_sparse(each))
    elements = 1 + (types[0] == "f16"), ELEMENTS[types[1]], ELEMENTS[types[2]], 1 + (types[3] == "f16")
    wanted = [size // LANES // each for size, each in zip((8 * rows, of_a, 8 * k, 8 * rows), elements)]
    if counts != wanted:
        raise Malformed(f"{each.opcode} takes {wanted} registers of D, A, B and C, and {counts} are given")


def _spreading(build: Builder, each: Statement, types: tuple[str, ...]) -> Callable[[WarpState, Array], Array]:
    """Return a function that moves a sparse A's elements to their positions in a row, with zeros between ("Sparse
    matrix storage").

    Four bits of metadata give the positions of two elements of four along K; of one tf32 element of two; or of two
    pairs of 4-bit integers of four. The selector names the lanes of each four that hold metadata: one, two or all. A
    word has 16 bits for a row of the upper eight rows, and 16 bits for the row eight below. For types of at most 8
    bits, a word is for one row, and the next lane's word for the row eight below.
    """
    if types[1] not in _ELEMENT_BITS or "block_scale" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    run, by_words = 2 if types[1] in ("s4", "u4") else 1, _ELEMENT_BITS[types[1]] <= 8
    read, selector = build.reader(each.operands[4], "b32"), number_of(each.operands[5])

    def spread(warp: WarpState, values: Array) -> Array:
        lanes = values.shape[1] // (4 if types[1] == "tf32" else 8 * run)
        if not 0 <= selector < 4 // lanes:
            raise Undefined(f"selects metadata of lanes {selector}; there are 0 to {4 // lanes - 1} in each four lanes")
        words = read(warp).reshape(8, 4)[:, selector * lanes : (selector + 1) * lanes]
        parts = np.ascontiguousarray(words).view(np.uint32 if by_words else np.uint16).reshape(8, -1, 2)
        rows = parts.transpose(2, 0, 1).reshape(16, -1, 1)
        bits = (rows >> np.arange(0, 8 * rows.itemsize, 4, dtype=rows.dtype) & rows.dtype.type(15)).reshape(16, -1)
        places = _places_in_row(bits, types[1] == "tf32", "ordered_metadata" in each.opcode)
        places = (places[:, :, None] * run + np.arange(run)).reshape(16, -1)
        result = np.zeros((16, 2 * values.shape[1]), values.dtype)
        result[np.arange(16)[:, None], places] = values
        return result

    return spread


def _places_in_row(bits: Array, of_tf32: bool, ordered: bool) -> Array:
    """Return the position in K of each element of sparse A; raise Undefined for metadata that is no valid position."""
    start = np.arange(bits.shape[1])
    if of_tf32:
        wrong, found = (bits != 0b1110) & (bits != 0b0100), 2 * start + (bits == 0b1110)
    else:
        first, second = bits & 3, bits >> 2
        wrong = first >= second if ordered else first == second
        found = np.stack([4 * start + first, 4 * start + second], axis=-1).reshape(len(bits), -1)
    if wrong.any():
        raise Undefined(f"the metadata of A has {int(bits[wrong][0]):#06b}, which names no places")
    return found


def scale_block(each: Statement) -> int:
    """Return the number of elements along K that share a scale; raise Unknown for a qualifier that the kind lacks."""
    kind = next((word[6:] for word in each.modifiers if word.startswith("kind::")), "no kind")
    sizes = [word for word in each.modifiers if word.startswith(("scale_vec::", "block16", "block32"))]
    return SCALE_BLOCKS[kind]["".join(sizes)]


def _scaling(
    build: Builder, each: Statement, types: tuple[str, ...]
) -> Callable[[WarpState, Array, Array], tuple[ScaledOperand, ScaledOperand]]:
    """Return a function that returns A and B with the scales of A's rows and of B's columns ("Block Scaling for
    mma.sync").

    The operands are `…, scales of A, {byte, thread}, scales of B, {byte, thread}`. Scales are in one register from
    `byte` on. Of the four lanes that share a row, lane 2 · thread has the scales of A's first eight rows. The next lane
    has those of the other rows. For B, lane `thread` has the scales.
    """
    block, kind = scale_block(each), SCALE_TYPES[last_type(each)]
    if last_type(each) == "ue4m3" and block != 16:
        raise Unknown(f"{each.opcode}, with scales of ue4m3 for blocks of {block} and not 16, is not emulated")
    data = [build.reader(Parts(build.vector(each.operands[place])).exactly(1)[0], "b32") for place in (4, 6)]
    ids = [[build.reader(part, "b16") for part in build.vector(each.operands[place])] for place in (5, 7)]

    def picked(warp: WarpState, which: int, count: int) -> tuple[int, int]:
        byte, thread = (int(read(warp)[0]) for read in ids[which])
        if byte not in SCALE_IDS[count] or thread > (1, 3)[which]:
            raise Undefined(
                f"takes {count} scales of {'AB'[which]} from byte {byte} of thread {thread}; bytes are "
                f"{SCALE_IDS[count]} and threads 0 to {(1, 3)[which]}"
            )
        return byte, thread

    def factors(warp: WarpState, which: int, thread: int, bytes: slice) -> Array:
        word = np.ascontiguousarray(data[which](warp)[thread == THREAD])
        return word.view(np.uint8).reshape(8, 4)[:, bytes].copy().view(kind).astype(np.float64)

    def scale(warp: WarpState, left: Array, right: Array) -> tuple[ScaledOperand, ScaledOperand]:
        count = left.shape[1] // block
        (of_a, pair), (of_b, thread) = picked(warp, 0, count), picked(warp, 1, count)
        rows = np.concatenate([factors(warp, 0, 2 * pair + half, slice(of_a, of_a + count)) for half in range(2)])
        columns = factors(warp, 1, thread, slice(of_b, of_b + count))
        type = last_type(each)
        return ScaledOperand(left, rows, types[1], type), ScaledOperand(right, columns, types[2], type)

    return scale


# --- ldmatrix and stmatrix: 8 x 8 matrices of 16 bits, a lane gives the address of a row


def _of_rows(warp: LaneState, mask: int, addresses: Array, count: int) -> tuple[Array, int]:
    """Return the row addresses, which the first lanes of each warp supply, and the mask of these lanes."""
    if isinstance(warp, Row):
        warp.verify_all(mask)
    return addresses.reshape(-1, LANES)[:, :count].reshape(-1), warp.all // ALL * ((1 << count) - 1)


def _verify_registers(each: Statement, operand: Any, count: int) -> None:
    given = len(operand.parts) if isinstance(operand, Vector) else 1
    if given != count:
        raise Malformed(f"{each.opcode} takes {count} registers, and {given} are given")


def _count(each: Statement) -> int:
    return int(each.modifiers.first_of(("x1", "x2", "x4"))[1:])


@instruction("ldmatrix")
def load_matrix(build: Builder, each: Statement) -> Act:
    """Load matrices: `ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 d, [row]`. Each lane has the address of a row of
    16 bytes.

    Matrices of 16 rows and 16 columns have 8-bit elements and two registers.
    """
    shape, count, transposed = each.modifiers[2], _count(each), "trans" in each.modifiers
    _verify_registers(each, each.operands[0], count * (1 + (shape == "m16n16")))
    bits, height = PACKED_BITS.get(last_type(each)), 16 if shape == "m16n16" else 8
    element = np.uint16 if shape == "m8n8" else np.uint8
    targets, address = build.targets(each.operands[0]), shared_addresses(build, each.operands[1])

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        places, some = _of_rows(warp, mask, address(warp), height * count)
        raw = gather(warp, places, "shared", 16, mask=some)
        if bits:
            raw = padded(raw.view(np.uint8), bits).astype(np.uint8)
        rows = raw.view(element).reshape(warp.count // LANES, count, height, -1)
        rows = rows.mT if transposed else rows
        parts = np.ascontiguousarray(rows).reshape(-1).view(np.uint32).reshape(len(rows), -1, LANES)
        for slot, part in zip(targets, parts.transpose(1, 0, 2), strict=True):
            warp.set(slot, part.reshape(-1), mask)

    return act


@instruction("movmatrix")
def transpose_matrix(build: Builder, each: Statement) -> Act:
    """Transpose a matrix in registers: `movmatrix.sync.aligned.m8n8.trans.b16 d, a`."""
    target, source = build.target(each.operands[0]), build.source(each.operands[1], "b32")

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        rows = np.ascontiguousarray(warp.registers[source]).view(np.uint16).reshape(-1, 8, 8)
        warp.set(target, np.ascontiguousarray(rows.mT).reshape(-1).view(np.uint32), mask)

    return act


@instruction("stmatrix")
def store_matrix(build: Builder, each: Statement) -> Act:
    """Store matrices, the inverse of ldmatrix: `stmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 [row], d`.

    `stmatrix.sync.aligned.m16n8.xN.trans.shared.b8` stores 8-bit elements, each column as a row of 16 bytes.
    """
    shape, count, transposed = each.modifiers[2], _count(each), "trans" in each.modifiers
    of_bytes = shape == "m16n8"
    address = shared_addresses(build, each.operands[0])
    slots = [build.source(part, "b32") for part in build.vector(each.operands[1])]
    _verify_registers(each, each.operands[1], count)

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        rows = words(warp, slots)
        if of_bytes:  # axes: matrix, warp, group, thread, upper or lower rows, column
            rows = rows.view(np.uint8).reshape(count, -1, 8, 4, 2, 2).transpose(1, 0, 3, 5, 4, 2)
        else:
            rows = rows.view(np.uint16).reshape(count, -1, 8, 8).transpose(1, 0, 2, 3)
            rows = rows.mT if transposed else rows
        raw = np.ascontiguousarray(rows).reshape(-1).view("V16")
        places, some = _of_rows(warp, mask, address(warp), 8 * count)
        scatter(warp, places, raw, "shared", 16, some)

    return act


# --- wgmma: four warps, of which each has 16 of the 64 rows


@instruction("wgmma.mma_async", order=Order("weak", "cta", "async"))
def warpgroup_multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `wgmma.mma_async.sync.aligned.m64nNkK.d.a.b d, a, b, scale-d{, imm-a, imm-b{, trans-a}, trans-b}`."""
    shape = re.search(r"\.m64n(\d+)k(\d+)\.", each.opcode)
    if shape is None or "sp" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    n, k, types = int(shape[1]), int(shape[2]), each.modifiers[-3:]
    d = [build.source(part, "b32") for part in build.vector(each.operands[0])]
    a_in_registers = isinstance(each.operands[1], Vector)
    a = [build.source(part, "b32" if a_in_registers else "b64") for part in build.vector(each.operands[1])]
    b, rest = build.source(each.operands[2], "b64"), each.operands[3:]
    keeps = _keeps(build, rest[0])
    signs = [number_of(operand) for operand in rest[1:3]] or [1, 1]
    flips = [number_of(operand) for operand in rest[3:]]
    if not {*signs} <= {1, -1} or not {*flips} <= {0, 1}:
        raise Unknown(f"signs are 1 or -1 and transposes 0 or 1, not {signs} and {flips}")
    flips = [0] * (2 - len(flips)) + flips

    def run(lanes: LaneState, every: Sequence[Products]) -> None:
        """Multiply in all warps that have the lanes. Each warp has its own product; the warps of a warpgroup share B.

        Sums along K have the order of numpy's product of 16 rows, for any number of warps.
        """
        fragments = _fragments(words(lanes, a), types[1], True) if a_in_registers else None
        results, at = [], 0
        for (cta, *bits), some in itertools.groupby(every, lambda each: (each.warp.cta, *each.operands)):
            ranks = [each.warp.index % 4 for each in some]
            right = matrix(cta.shared, descriptor(bits[-1], False), n, k, types[2], not flips[1])
            if fragments is not None:
                left, at = fragments[at : at + len(ranks)], at + len(ranks)
            else:
                whole = matrix(cta.shared, descriptor(bits[0], False), 64, k, types[1], not flips[0])
                follow = ranks[-1] - ranks[0] + 1 == len(ranks)
                left = whole.reshape(4, 16, k)[slice(ranks[0], ranks[-1] + 1) if follow else ranks]
            results.append(product(left, right))
        result = np.concatenate(results)
        result = result * result.dtype.type(signs[0] * signs[1]) if signs[0] * signs[1] < 0 else result
        if every[0].added:
            result += kept(lanes, d, ("d", types[0]), lambda raw: accumulators(raw, types[0]))
        found = [*registers_of(result, types[0])]
        for slot, word in zip(d, found):
            lanes.registers[slot] = word
        if types[0] != "f16":
            lanes.kept[d[0], ("d", types[0])] = found, result

    @wide
    @collective
    def act(warp: LaneState, mask: int) -> None:
        sources = [b] if a_in_registers else [a[0], b]
        heads = [warp.registers[slot][::LANES].tolist() for slot in sources]
        added = keeps(warp) & mask
        for each, part in warp.parts(mask):
            place = each.start // LANES if isinstance(warp, Row) else 0
            operands = [head[place] for head in heads]
            products = Products(each, operands, bool(added >> LANES * place & ALL), run)
            each.pipe = warp.grid.issue("product", products, each, part, each.pipe)
            join(each, PRODUCTS, each.pipe)

    return act


@dataclass(slots=True)
class Products:
    """A warp's part of a wgmma. added: True if D is added. run: executes the parts of several warps together."""

    warp: WarpState
    operands: list[int]
    added: bool
    run: Callable[[LaneState, Sequence[Products]], None]

    def __call__(self) -> None:
        self.run(self.warp, [self])

    @property
    def alike(self) -> Any:
        """Return a key that is equal for parts that can be executed together."""
        return id(self.run), self.added, id(self.warp.row)

    @staticmethod
    def together(every: Sequence[Products]) -> None:
        """Execute parts with equal keys, of several warps of a row."""
        row, warps = every[0].warp.row, [each.warp for each in every]
        every[0].run(row.lanes if warps == row.warps else SomeWarps(row, warps), every)


def _keeps(build: Builder, operand: Any) -> Any:
    """Return a reader of scale-d, a predicate or an immediate: True if the product is added to D."""
    if isinstance(operand, (Number, Not)) or build.is_predicate(operand):
        return build.predicate(operand)
    read = build.reader(operand, "b32")
    return lambda warp: mask_of(read(warp) != 0)
