"""Matrices in the registers of a warp or warpgroup: mma.sync, ldmatrix, stmatrix, wgmma.

PTX ISA, "Matrix Fragments for mma" and "wgmma": lane t holds row t / 4 and the elements from t % 4 on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction, last_type
from blackwell_matmul.emulator.instructions.groups import PRODUCTS, join, number_of
from blackwell_matmul.emulator.instructions.matrices.block_sums import ScaledOperand, block_sum
from blackwell_matmul.emulator.instructions.matrices.shapes import SCALE_BLOCKS, SCALE_IDS
from blackwell_matmul.emulator.instructions.moves import gather, scatter, shared_addresses
from blackwell_matmul.emulator.lanes import LANES, TYPES, Array
from blackwell_matmul.emulator.machine import WarpState, collective
from blackwell_matmul.emulator.operands import (
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
from blackwell_matmul.emulator.unknown import Parts, Unknown

_LANE = np.arange(LANES)
GROUP, THREAD = _LANE // 4, _LANE % 4
"""Row of eight, and place in that row, of each lane."""

_ELEMENT_BITS = {"tf32": 32, "f16": 16, "bf16": 16, "packed e2m1": 4, "s4": 4, "u4": 4, "b1": 1} | dict.fromkeys(
    ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "s8", "u8"), 8
)
ELEMENTS = {"f64": 1} | {format: 32 // bits for format, bits in _ELEMENT_BITS.items()}
"""Elements of each format in a register, of 64 bits for f64 and of 32 bits for others."""


def words(warp: WarpState, slots: list[int]) -> Array:
    """Return registers x lanes, raw."""
    return np.stack([warp.registers[slot] for slot in slots])


@functools.cache
def _places(count: int, per: int, of_a: bool) -> tuple[Array, Array]:
    """Return row and K of each element: registers x lanes x elements of a register."""
    register, part = np.arange(count)[:, None, None], np.arange(per)
    lane, group = THREAD[None, :, None] * per + part, GROUP[None, :, None]
    if of_a:
        return group + 8 * (register % 2) + 0 * lane, register // 2 * 4 * per + lane
    return group + 0 * lane + 0 * register, register * 4 * per + lane


def _fragment(raw: Array, format: str, of_a: bool) -> Array:
    per = ELEMENTS[format]
    values = in_bytes(np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), LANES, -1), format)
    rows, columns = _places(len(raw), per, of_a)
    result = np.empty((16 if of_a else 8, int(columns.max()) + 1), values.dtype)
    result[rows, columns] = values
    return result


def fragment_a(raw: Array, format: str) -> Array:
    """Return A, 16 x K: register i holds row t / 4 + 8 · (i % 2), and K from (i / 2) · 16 bytes on."""
    return _fragment(raw, format, of_a=True)


def fragment_b(raw: Array, format: str) -> Array:
    """Return B, 8 x K (N first): register i holds column t / 4 of N, and K from i · 16 bytes on."""
    return _fragment(raw, format, of_a=False)


@functools.cache
def accumulator_places(columns: int) -> tuple[Array, Array]:
    """Return row and column of each register (first axis) in each lane, of a 16 x columns 32-bit accumulator."""
    register = np.arange(columns // 2)[:, None]
    return GROUP + 8 * (register // 2 % 2), register // 4 * 8 + 2 * THREAD + register % 2


def accumulator(raw: Array, type: str) -> Array:
    """Return 16 x N numbers, or 8 x 8 of two registers; an f16 register holds two neighbours of a row."""
    if type == "f16":
        pairs = np.ascontiguousarray(raw).view(np.float16).reshape(len(raw), LANES, 2)
        raw = _unpaired(pairs.astype(np.float32))
    else:
        raw = raw.view(TYPES[type])
    rows, columns = accumulator_places(2 * len(raw))
    result = np.empty((8, 8) if len(raw) == 2 else (16, 2 * len(raw)), raw.dtype)
    result[rows, columns] = raw
    return result


def _unpaired(pairs: Array) -> Array:
    return pairs.transpose(0, 2, 1).reshape(2 * len(pairs), LANES)


def registers_of(value: Array, type: str) -> Array:
    """Return the registers of an accumulator: the inverse of `accumulator`."""
    rows, columns = accumulator_places(value.size // 16)
    raw = value[rows, columns].astype(TYPES[type], copy=False)
    if type == "f16":
        half = raw.reshape(len(raw) // 2, 2, LANES).transpose(0, 2, 1)
        return np.ascontiguousarray(half).view(np.uint32).reshape(len(raw) // 2, LANES)
    return np.ascontiguousarray(raw).view(np.uint64 if type == "f64" else np.uint32)


@instruction("mma.sync", "mma.sp")
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `mma.sync.aligned.mMn8kK.row.col.d.a.b.c d, a, b, c` ("mma"); of 8 rows, A lies as B does.

    `mma.sp` has half of A's elements, and `…, metadata, selector`.
    """
    types, rows = _types(each)
    d, a, b, c = (
        [build.source(part, "b64" if "f64" in types else "b32") for part in build.vector(operand)]
        for operand in each.operands[:4].exactly(4)
    )
    spread = _spreading(build, each, types) if "sp" in each.opcode.split(".")[1] else None
    _verify_counts(each, rows // 2 if spread else rows, types, len(a), len(b))
    scale = _scaling(build, each, types) if "block_scale" in each.modifiers else None
    multiplied = differing if "xor" in each.modifiers else product
    added = saturated if "satfinite" in each.modifiers else np.add

    @collective
    def act(warp: WarpState, mask: int) -> None:
        left, right = _fragment(words(warp, a), types[1], rows == 16), fragment_b(words(warp, b), types[2])
        if spread is not None:
            left = spread(warp, left)
        old = accumulator(words(warp, c), types[3])
        result = added(multiplied(left, right), old) if scale is None else block_sum(*scale(warp, left, right), old)
        for slot, word in zip(d, registers_of(result, types[0])):
            warp.set(slot, word, mask)

    return act


def _types(each: Statement) -> tuple[tuple[str, ...], int]:
    """Return the types of D, A, B and C, and the rows of A; 4-bit types are packed if the kind says so."""
    types = tuple(word for word in each.modifiers if word in ELEMENTS or word in ("f32", "s32"))
    if any(word.startswith("kind::mxf4") for word in each.modifiers):
        types = tuple(f"packed {type}" if type == "e2m1" else type for type in types)
    shape = re.search(r"\.m(8|16)n8k\d+\.", each.opcode)
    if shape is None or len(types) != 4 or not {types[1], types[2]} <= ELEMENTS.keys() or "row.col" not in each.opcode:
        raise Unknown(f"{each.opcode} is not emulated")
    return types, int(shape[1])


def _verify_counts(each: Statement, rows: int, types: tuple[str, ...], of_a: int, of_b: int) -> None:
    """Refuse operands whose registers are not those of the shape, such as m8n8k4 of f16, which is four products."""
    k = next(int(word.split("k")[1]) for word in each.modifiers if re.fullmatch(r"m\d+n8k\d+", word))
    sizes = LANES * of_a * ELEMENTS[types[1]], LANES * of_b * ELEMENTS[types[2]]
    if sizes != (rows * k, 8 * k):
        raise Unknown(f"{each.opcode} of {of_a} registers of A and {of_b} of B is not emulated")


def _spreading(build: Builder, each: Statement, types: tuple[str, ...]) -> Callable[[WarpState, Array], Array]:
    """Return a function that puts A's elements to their places in a row, between zeros ("Sparse matrix storage").

    Four bits tell the places of two elements in four of K, or of one tf32 in two. Of each four lanes, one or two tell
    them, 16 bits for a row of the upper eight and 16 bits for one of the lower eight.
    """
    if types[1] not in ("f16", "bf16", "tf32") or "block_scale" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    read, selector = build.reader(each.operands[4], "b32"), number_of(each.operands[5])

    def spread(warp: WarpState, values: Array) -> Array:
        lanes = values.shape[1] // (4 if types[1] == "tf32" else 8)
        if not 0 <= selector < 4 // lanes:
            raise Undefined(f"selects metadata of lanes {selector}; there are 0 to {4 // lanes - 1} in each four lanes")
        words = read(warp).reshape(8, 4)[:, selector * lanes : (selector + 1) * lanes]
        halves = np.ascontiguousarray(words).view(np.uint16).reshape(8, lanes, 2).transpose(2, 0, 1).reshape(16, lanes)
        bits = (halves[:, :, None] >> np.arange(0, 16, 4) & 15).reshape(16, -1)
        places = _places_in_row(bits, types[1] == "tf32", "ordered_metadata" in each.opcode)
        result = np.zeros((16, 2 * values.shape[1]), values.dtype)
        result[np.arange(16)[:, None], places] = values
        return result

    return spread


def _places_in_row(bits: Array, of_tf32: bool, ordered: bool) -> Array:
    """Return where in its row of K each element of A lies; Undefined for metadata that tells no places."""
    start = np.arange(bits.shape[1])
    if of_tf32:
        wrong, found = (bits != 0b1110) & (bits != 0b0100), 2 * start + (bits == 0b1110)
    else:
        first, second = bits & 3, bits >> 2
        wrong = first >= second if ordered else first == second
        found = np.stack([4 * start + first, 4 * start + second], axis=-1).reshape(len(bits), -1)
    if wrong.any():
        raise Undefined(f"the metadata of A has {int(bits[wrong][0]):#06b}, which tells no places")
    return found


def scale_block(each: Statement) -> int:
    """Return the elements of K that share a scale; Unknown for a qualifier that the kind does not have."""
    kind = next((word[6:] for word in each.modifiers if word.startswith("kind::")), "no kind")
    sizes = [word for word in each.modifiers if word.startswith(("scale_vec::", "block16", "block32"))]
    return SCALE_BLOCKS[kind]["".join(sizes)]


def _scaling(
    build: Builder, each: Statement, types: tuple[str, ...]
) -> Callable[[WarpState, Array, Array], tuple[ScaledOperand, ScaledOperand]]:
    """Return A and B with the block scales of A's rows and B's columns ("Block Scaling for mma.sync").

    The operands are `…, scales of A, {byte, thread}, scales of B, {byte, thread}`. Scales lie in one register from
    `byte` on. Four lanes share a row. For A, lane 2 · thread of the four has the first eight rows and the next lane the
    others. For B, lane `thread` has them.
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


def _count(each: Statement) -> int:
    return int(each.modifiers.first_of(("x1", "x2", "x4"))[1:])


_LOADED = {
    ("m8n8", "b16"): 0, ("m16n16", "b8"): 0,
    ("m8n16", "b4x16_p64"): 4, ("m8n16", "b6x16_p32"): 6, ("m16n16", "b4x16_p64"): 4, ("m16n16", "b6x16_p32"): 6,
}  # fmt: skip
"""Bits of elements that ldmatrix brings to the low bits of a byte of their own, by shape and type; 0 for none."""


@instruction("ldmatrix")
def load_matrix(build: Builder, each: Statement) -> Act:
    """Load matrices: `ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 d, [row]`, each lane has a row of 16 bytes.

    Matrices of 16 rows and 16 columns have elements of 8 bits and two registers.
    """
    shape, count, transposed = each.modifiers[2], _count(each), "trans" in each.modifiers
    if (shape, last_type(each)) not in _LOADED or (shape != "m8n8" and transposed != (shape == "m16n16")):
        raise Unknown(f"{each.opcode} is not emulated")
    bits, height = _LOADED[shape, last_type(each)], 16 if shape == "m16n16" else 8
    element = np.uint16 if shape == "m8n8" else np.uint8
    targets, address = build.targets(each.operands[0]), shared_addresses(build, each.operands[1])

    @collective
    def act(warp: WarpState, mask: int) -> None:
        raw = gather(warp, address(warp)[: height * count], "shared", 16, mask=mask)
        if bits:
            raw = padded(raw.view(np.uint8), bits).astype(np.uint8)
        rows = raw.view(element).reshape(count, height, -1)
        rows = rows.transpose(0, 2, 1) if transposed else rows
        parts = np.ascontiguousarray(rows).reshape(-1).view(np.uint32).reshape(-1, LANES)
        for slot, part in zip(targets, parts, strict=True):
            warp.set(slot, part, mask)

    return act


@instruction("movmatrix")
def transpose_matrix(build: Builder, each: Statement) -> Act:
    """Transpose a matrix in registers: `movmatrix.sync.aligned.m8n8.trans.b16 d, a`."""
    target, source = build.target(each.operands[0]), build.source(each.operands[1], "b32")

    @collective
    def act(warp: WarpState, mask: int) -> None:
        rows = np.ascontiguousarray(warp.registers[source]).view(np.uint16).reshape(8, 8)
        warp.set(target, np.ascontiguousarray(rows.T).reshape(-1).view(np.uint32), mask)

    return act


@instruction("stmatrix")
def store_matrix(build: Builder, each: Statement) -> Act:
    """Store matrices, the inverse of ldmatrix: `stmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 [row], d`.

    `stmatrix.sync.aligned.m16n8.xN.trans.shared.b8` stores accumulators of 8 bits, each column as a row of 16 bytes.
    """
    shape, count, transposed = each.modifiers[2], _count(each), "trans" in each.modifiers
    of_bytes = shape == "m16n8" and last_type(each) == "b8" and transposed
    if not of_bytes and (shape, last_type(each)) != ("m8n8", "b16"):
        raise Unknown(f"{each.opcode} is not emulated")
    address = shared_addresses(build, each.operands[0])
    slots = [build.source(part, "b32") for part in build.vector(each.operands[1])]

    @collective
    def act(warp: WarpState, mask: int) -> None:
        rows = words(warp, slots)
        if of_bytes:  # matrix, group, thread, upper or lower rows, column
            rows = rows.view(np.uint8).reshape(count, 8, 4, 2, 2).transpose(0, 2, 4, 3, 1)
        else:
            rows = rows.view(np.uint16).reshape(count, 8, 8)
            rows = rows.transpose(0, 2, 1) if transposed else rows
        raw = np.ascontiguousarray(rows).reshape(-1).view("V16")
        scatter(warp, address(warp)[: 8 * count], raw, "shared", 16, mask)

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

    def run(warp: WarpState, operands: list[int], added: int) -> None:
        memory, row = warp.cta.shared, warp.index % 4 * 16
        if a_in_registers:
            left = fragment_a(words(warp, a), types[1])
        else:
            left = matrix(memory, descriptor(operands[0], False), 64, k, types[1], not flips[0])[row : row + 16]
        right = matrix(memory, descriptor(operands[-1], False), n, k, types[2], not flips[1])
        result = product(left, right)
        result = result * result.dtype.type(signs[0] * signs[1]) if signs[0] * signs[1] < 0 else result
        if added:
            result = result + accumulator(words(warp, d), types[0])
        for slot, word in zip(d, registers_of(result, types[0])):
            warp.registers[slot] = word

    @collective
    def act(warp: WarpState, mask: int) -> None:
        sources = [b] if a_in_registers else [a[0], b]
        operands = [int(warp.registers[slot][0]) for slot in sources]
        added = keeps(warp)
        grid = warp.cta.cluster.grid
        warp.pipe = grid.issue("product", lambda: run(warp, operands, added), warp, mask, warp.pipe)
        join(warp, PRODUCTS, warp.pipe)

    return act


def _keeps(build: Builder, operand: Any) -> Any:
    """Return a reader of scale-d, a predicate or an immediate: true if D is added to."""
    if isinstance(operand, (Number, Not)) or build.is_predicate(operand):
        return build.predicate(operand)
    read = build.scalar(operand)
    return lambda warp: read(warp, 0)
