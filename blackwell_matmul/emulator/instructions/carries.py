"""Arithmetic with a carry from one word to the next (PTX ISA, "Extended-Precision Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type
from blackwell_matmul.emulator.lanes import WORDS, indices
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import SIZES_BYTES, Statement


@instruction("addc", "subc", "madc")
def with_carry(build: Builder, each: Statement) -> Act:
    """Add, subtract or multiply-add with carry: `addc{.cc}`, `madc.lo{.cc}` and similar. .cc writes the carry.

    `a - b` is computed as a plus the complement of b plus a carry of 1. The written carry is 1 if there is no borrow.
    NVIDIA's division of 128-bit integers reads the carry of `subc.cc` by `addc`.
    """
    type = last_type(each)
    bits, name = 8 * SIZES_BYTES[type], each.opcode.split(".")[0]
    takes, gives = name.endswith("c"), "cc" in each.modifiers
    total = _total(name.rstrip("c"), "hi" in each.modifiers, bits)
    reads = [build.reader(operand, type) for operand in each.operands[1:]]
    target, fresh = build.target(each.operands[0]), name.startswith("sub")

    def act(warp: WarpState, mask: int) -> None:
        columns = [read(warp).tolist() for read in reads]
        result, carry = np.zeros(len(columns[0]), WORDS[SIZES_BYTES[type]]), warp.carry
        for lane in indices(mask):
            value = total([column[lane] for column in columns], carry >> lane & 1 if takes else fresh)
            result[lane] = value & (1 << bits) - 1
            if gives:
                carry = carry & ~(1 << lane) | (value >> bits & 1) << lane
        warp.carry = carry
        warp.set(target, result, mask)

    return act


def _total(name: str, high: bool, bits: int) -> Callable[[list[int], int], int]:
    """Return a function that adds unsigned words and a carry. The sum's bit above the word is the new carry."""
    mask = (1 << bits) - 1
    if name in ("add", "sub"):
        return lambda values, carry: (values[0] & mask) + ((~values[1] if name == "sub" else values[1]) & mask) + carry
    shift = bits if high else 0
    return lambda values, carry: (values[0] * values[1] >> shift & mask) + (values[2] & mask) + carry
