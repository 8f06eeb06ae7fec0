"""Matrices in the registers of a warp or warpgroup: mma.sync, ldmatrix, stmatrix, wgmma.

PTX ISA, "Matrix Fragments for mma" and "wgmma": lane t holds row t / 4 and the elements from t % 4 on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type
from blackwell_matmul.emulator.instructions.groups import PRODUCTS, join, number_of
from blackwell_matmul.emulator.instructions.moves import gather, scatter, shared_addresses
from blackwell_matmul.emulator.lanes import LANES, Array
from blackwell_matmul.emulator.machine import WarpState, collective
from blackwell_matmul.emulator.operands import SCALE_TYPES, descriptor, elements, matrix, product
from blackwell_matmul.emulator.parser import Not, Number, Statement, Vector
from blackwell_matmul.emulator.unknown import Unknown

_LANE = np.arange(LANES)
GROUP, THREAD = _LANE // 4, _LANE % 4
"""Row of eight, and place in that row, of each lane."""

ELEMENTS = {"f16": 2, "bf16": 2, "tf32": 1, "e4m3": 4, "e5m2": 4, "s8": 4, "u8": 4, "packed e2m1": 8}
"""Elements of each format in a register of 32 bits."""


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
    values = elements(np.ascontiguousarray(raw).view(np.uint8).reshape(len(raw), LANES, 4), format)
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
    """Return 16 x N float32 or int32 from registers; an f16 register holds two neighbours of a row."""
    if type == "f16":
        pairs = np.ascontiguousarray(raw).view(np.float16).reshape(len(raw), LANES, 2)
        raw = _unpaired(pairs.astype(np.float32))
    else:
        raw = raw.view(np.int32 if type == "s32" else np.float32)
    rows, columns = accumulator_places(2 * len(raw))
    result = np.empty((16, 2 * len(raw)), raw.dtype)
    result[rows, columns] = raw
    return result


def _unpaired(pairs: Array) -> Array:
    return pairs.transpose(0, 2, 1).reshape(2 * len(pairs), LANES)


def registers_of(value: Array, type: str) -> Array:
    """Return the registers of an accumulator: the inverse of `accumulator`."""
    rows, columns = accumulator_places(value.shape[1])
    raw = value[rows, columns]
    if type == "f16":
        half = raw.astype(np.float16).reshape(len(raw) // 2, 2, LANES).transpose(0, 2, 1)
        return np.ascontiguousarray(half).view(np.uint32).reshape(len(raw) // 2, LANES)
    return np.ascontiguousarray(raw).view(np.uint32)


@instruction("mma.sync.aligned.m8n8k16")
def multiply_small(build: Builder, each: Statement) -> Act:
    """Multiply 8-bit values: `mma.sync.aligned.m8n8k16.row.col.s32.a.b.s32 d, a, b, c`; A's rows lie as B's columns."""
    types = each.modifiers[-4:]
    if not {types[1], types[2]} <= {"s8", "u8"}:
        raise Unknown(f"{each.opcode} is not emulated")
    d, a, b, c = ([build.source(part, "b32") for part in build.vector(operand)] for operand in each.operands.exactly(4))

    @collective
    def act(warp: WarpState, mask: int) -> None:
        result = product(fragment_b(words(warp, a), types[1]), fragment_b(words(warp, b), types[2]))
        for index, (slot, old) in enumerate(zip(d, words(warp, c))):
            warp.set(slot, (result[GROUP, 2 * THREAD + index] + old.view(np.int32)).view(np.uint32), mask)

    return act


@instruction("mma.sync")
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply 8 and 16 bits, tf32 and scaled blocks: `mma.sync.aligned.m16n8kK.row.col.d.a.b.c d, a, b, c` ("mma")."""
    scaled = "block_scale" in each.modifiers
    types = _types(each, scaled)
    d, a, b, c = (
        [build.source(part, "b32") for part in build.vector(operand)] for operand in each.operands[:4].exactly(4)
    )
    scale = _scaling(build, each) if scaled else None

    @collective
    def act(warp: WarpState, mask: int) -> None:
        left, right = fragment_a(words(warp, a), types[1]), fragment_b(words(warp, b), types[2])
        if scale is not None:
            left, right = scale(warp, left, right)
        result = product(left, right) + accumulator(words(warp, c), types[3])
        for slot, word in zip(d, registers_of(result, types[0])):
            warp.set(slot, word, mask)

    return act


def _types(each: Statement, scaled: bool) -> tuple[str, ...]:
    """Return the types of D, A, B and C; 4-bit types are packed if the kind says so."""
    types = each.modifiers[-5:-1] if scaled else each.modifiers[-4:]
    if any(word.startswith("kind::mxf4") for word in each.modifiers):
        types = tuple(f"packed {type}" if type == "e2m1" else type for type in types)
    if not re.search(r"\.m16n8k\d+\.", each.opcode) or not {types[1], types[2]} <= ELEMENTS.keys():
        raise Unknown(f"{each.opcode} is not emulated")
    return types


_SCALES_OF_A_ROW = {f"scale_vec::{count}X": count for count in (1, 2, 4)}


def _scaling(build: Builder, each: Statement) -> Callable[[WarpState, Array, Array], tuple[Array, Array]]:
    """Return the block scales of A's rows and B's columns ("Block Scaling for mma.sync").

    The operands are `…, scales of A, {byte, thread}, scales of B, {byte, thread}`. Scales lie in one register from
    `byte` on. Four lanes share a row. For A, lane 2 · thread of the four has the first eight rows and the next lane the
    others. For B, lane `thread` has them.
    """
    count = _SCALES_OF_A_ROW[each.modifiers.first_of(_SCALES_OF_A_ROW)]
    kind = SCALE_TYPES[last_type(each)]
    data = [build.reader(each.operands[place], "b32") for place in (4, 6)]
    ids = [[number_of(part) for part in build.vector(each.operands[place])] for place in (5, 7)]

    def factors(warp: WarpState, which: int, thread: int) -> Array:
        word = np.ascontiguousarray(data[which](warp)[thread == THREAD])
        byte = ids[which][0]
        return word.view(np.uint8).reshape(8, 4)[:, byte : byte + count].copy().view(kind).astype(np.float32)

    def scale(warp: WarpState, left: Array, right: Array) -> tuple[Array, Array]:
        of_a = np.concatenate([factors(warp, 0, 2 * ids[0][1] + half) for half in range(2)])
        of_b = factors(warp, 1, ids[1][1])
        block = left.shape[1] // count
        return left * of_a.repeat(block, axis=1), right * of_b.repeat(block, axis=1)

    return scale


# --- ldmatrix and stmatrix: 8 x 8 matrices of 16 bits, a lane gives the address of a row


def _matrices(each: Statement) -> int:
    if last_type(each) != "b16" or "m8n8" not in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    return int(each.modifiers.first_of(("x1", "x2", "x4"))[1:])


@instruction("ldmatrix")
def load_matrix(build: Builder, each: Statement) -> Act:
    """Load matrices: `ldmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 d, [row]`, matrix i's rows from lanes 8·i on."""
    count, transposed = _matrices(each), "trans" in each.modifiers
    targets, address = build.targets(each.operands[0]), shared_addresses(build, each.operands[1])

    @collective
    def act(warp: WarpState, mask: int) -> None:
        raw = gather(warp, address(warp)[: 8 * count], "shared", 16)
        rows = raw.view(np.uint16).reshape(count, 8, 8)
        rows = rows.transpose(0, 2, 1) if transposed else rows
        parts = np.ascontiguousarray(rows).view(np.uint32).reshape(count, LANES)
        for slot, part in zip(targets, parts):
            warp.set(slot, part, mask)

    return act


@instruction("stmatrix")
def store_matrix(build: Builder, each: Statement) -> Act:
    """Store matrices, the inverse of ldmatrix: `stmatrix.sync.aligned.m8n8.xN{.trans}.shared.b16 [row], d`."""
    count, transposed = _matrices(each), "trans" in each.modifiers
    address = shared_addresses(build, each.operands[0])
    slots = [build.source(part, "b32") for part in build.vector(each.operands[1])]

    @collective
    def act(warp: WarpState, mask: int) -> None:
        rows = words(warp, slots).view(np.uint16).reshape(count, 8, 8)
        rows = rows.transpose(0, 2, 1) if transposed else rows
        raw = np.ascontiguousarray(rows).reshape(-1).view("V16")
        scatter(warp, address(warp)[: 8 * count], raw, "shared", 16)

    return act


# --- wgmma: four warps, of which each has 16 of the 64 rows


@instruction("wgmma.mma_async")
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
        warp.pipe = grid.issue("product", lambda: run(warp, operands, added), warp.pipe)
        join(warp, PRODUCTS, warp.pipe)

    return act


def _keeps(build: Builder, operand: Any) -> Any:
    """Return a reader of scale-d, a predicate or an immediate: true if D is added to."""
    if isinstance(operand, (Number, Not)) or build.is_predicate(operand):
        return build.predicate(operand)
    read = build.scalar(operand)
    return lambda warp: read(warp, 0)
