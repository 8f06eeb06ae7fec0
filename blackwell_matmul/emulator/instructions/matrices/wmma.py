"""wmma; PTX leaves the layout of its matrices in registers open (PTX ISA, "wmma instructions").

Here the registers hold a matrix from the first lane on, repeated to fill them. A, C and D are stored by rows, B by
columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type
from blackwell_matmul.emulator.instructions.fragments import ELEMENTS, words
from blackwell_matmul.emulator.instructions.moves import addresses_of, gather, scatter, space_of
from blackwell_matmul.emulator.lanes import LANES, TYPES, WORDS, Array
from blackwell_matmul.emulator.machine import WarpState, collective
from blackwell_matmul.emulator.operands import differing, elements, product, saturated
from blackwell_matmul.emulator.parser import Statement
from blackwell_matmul.emulator.unknown import Unknown

_BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "f64": 8}
"""Bytes of a lane's load, by type; 4 for other types, which hold eight s4 or u4, 32 b1, or one element."""


def _extents(each: Statement) -> tuple[int, int, int]:
    shape = re.search(r"\.m(\d+)n(\d+)k(\d+)\.", each.opcode)
    if shape is None:
        raise Unknown(f"{each.opcode} is not emulated")
    return int(shape[1]), int(shape[2]), int(shape[3])


def _addresses(build: Builder, each: Statement, role: str, at: int) -> tuple[Callable[[WarpState], Array], int]:
    """Return a function that returns each word's address, in the order of registers, and the bytes of a word."""
    type, (m, n, k) = last_type(each), _extents(each)
    nbytes, per = _BYTES.get(type, 4), ELEMENTS[type] if type in ("s4", "u4", "b1") else 1
    lines, length = {"a": (m, k // per), "b": (n, k // per)}.get(role, (m, n))
    contiguous = ("col" if role == "b" else "row") in each.modifiers
    base = addresses_of(build, each.operands[at], space_of(each))
    stride = build.scalar(each.operands[2]) if len(each.operands) > 2 else None
    line, word = np.arange(lines)[:, None], np.arange(length)

    def addresses(warp: WarpState) -> Array:
        step = stride(warp, 0) // per if stride else length if contiguous else lines
        offsets = line * step + word if contiguous else word * step + line
        return base(warp)[0] + (offsets.reshape(-1) * nbytes).astype(np.uint64)

    return addresses, nbytes


@instruction("wmma.load")
def load(build: Builder, each: Statement) -> Act:
    """Load: `wmma.load.{a|b|c}.sync.aligned.{row|col}.mMnNkK{.space}.type r, [p]{, stride}`."""
    targets, space = build.targets(each.operands[0]), space_of(each)
    addresses, nbytes = _addresses(build, each, each.modifiers[1], 1)
    register = WORDS[max(nbytes, 4)]

    @collective
    def act(warp: WarpState, mask: int) -> None:
        values = gather(warp, addresses(warp), space, nbytes, mask=mask)
        room = len(targets) * LANES * np.dtype(register).itemsize // nbytes
        for slot, part in zip(targets, np.resize(values, room).view(register).reshape(len(targets), LANES)):
            warp.set(slot, part, mask)

    return act


@instruction("wmma.store")
def store(build: Builder, each: Statement) -> Act:
    """Store: `wmma.store.d.sync.aligned.{row|col}.mMnNkK{.space}.type [p], r{, stride}`."""
    slots, space = [build.source(part, "b32") for part in build.vector(each.operands[1])], space_of(each)
    addresses, nbytes = _addresses(build, each, "d", 0)

    @collective
    def act(warp: WarpState, mask: int) -> None:
        places = addresses(warp)
        scatter(warp, places, words(warp, slots).reshape(-1).view(WORDS[nbytes])[: len(places)], space, nbytes, mask)

    return act


@instruction("wmma.mma")
def multiply(build: Builder, each: Statement) -> Act:
    """Multiply: `wmma.mma.sync.aligned.{row|col}.{row|col}.mMnNkK.d{.a.b}.c{.satfinite} d, a, b, c`; a, b: else f16."""
    types = [word for word in each.modifiers if word in ELEMENTS or word in ("f32", "s32")]
    types = [types[0], "f16", "f16", types[1]] if len(types) == 2 else types
    m, n, k = _extents(each)
    slots = [[build.source(part, "b32") for part in build.vector(operand)] for operand in each.operands.exactly(4)]
    sizes = zip(types, slots, (m * n, m * k, n * k, m * n))
    if len(types) != 4 or any(LANES * ELEMENTS.get(type, 1) * len(held) < size for type, held, size in sizes):
        raise Unknown(f"{each.opcode} with {len(slots[1])} registers of A and {len(slots[2])} of B is not emulated")
    multiplied = differing if "xor" in each.modifiers else product
    added = saturated if "satfinite" in each.modifiers else np.add

    @collective
    def act(warp: WarpState, mask: int) -> None:
        left, right = (
            elements(words(warp, slots[place]).reshape(-1).view(np.uint8), types[place])[: extent * k].reshape(-1, k)
            for place, extent in ((1, m), (2, n))
        )
        c = words(warp, slots[3]).reshape(-1).view(TYPES[types[3]]).reshape(m, n)
        result = added(multiplied(left, right), c.astype(left.dtype)).astype(TYPES[types[0]])
        raw = result.reshape(-1).view(words(warp, slots[0][:1]).dtype).reshape(len(slots[0]), LANES)
        for slot, part in zip(slots[0], raw):
            warp.set(slot, part, mask)

    return act
