"""Calls of device functions, by name or by address (PTX ISA, "call", "Function Declarations and Definitions")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction
from blackwell_matmul.emulator.functions.frames import Callee, FrameSlot, enter
from blackwell_matmul.emulator.functions.toolkit import TOOLKIT
from blackwell_matmul.emulator.instructions.moves import where
from blackwell_matmul.emulator.lanes import LANES, WORDS, Array, lanes, mask_of
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import (
    SIZES_BYTES,
    Formal,
    Nothing,
    Number,
    Operand,
    Register,
    Statement,
    Symbol,
    Variable,
    Vector,
)
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Malformed, Unknown


@instruction("call")
def call(build: Builder, each: Statement) -> Act:
    """Call: `call{.uni} (results), function, (arguments)`; a call by address also names a prototype ("call")."""
    parts = list(each.operands)
    wanted = _listed(build, parts)
    if not parts:
        raise Malformed("a call names no function")
    target, given = parts.pop(0), _listed(build, parts)
    back = build.place + 1
    if isinstance(target, Symbol):
        callee = build.callee(target.name)
        if isinstance(callee, str):
            _verify_toolkit(callee)
        else:
            _verify_lists(callee, given, wanted)
        return partial(_call, callee, given, wanted, back)
    if not isinstance(target, Register):
        raise Malformed(f"{target} is no function")
    address = build.reader(target, "b64")

    def act(warp: WarpState, mask: int) -> Any:
        places: dict[int, int] = {}
        chosen = address(warp)
        for one in dict.fromkeys(chosen[lanes(mask)].tolist()):
            if one not in build.by_address:
                raise Undefined(f"calls {one:#x}, which is the address of no function")
            some = mask_of(chosen == one) & mask
            to = _call(build.by_address[one], given, wanted, back, warp, some)
            places[back if to is None else to] = places.get(back if to is None else to, 0) | some
        return places

    return act


def _listed(build: Builder, parts: list[Operand]) -> list[FrameSlot]:
    """Return the places of the elements of a list in parentheses, removed from the front of `parts`."""
    if parts and isinstance(parts[0], Vector):
        return [_place(build, part) for part in build.vector(parts.pop(0))]
    return []


def _call(
    callee: Callee | str, given: list[FrameSlot], wanted: list[FrameSlot], back: int, warp: WarpState, mask: int
) -> int | None:
    """Begin a call of a device function and return the index of its first instruction. Execute a function of the CUDA
    toolkit and return None."""
    if isinstance(callee, str):
        _call_toolkit(callee, given, wanted, warp, mask)
        return None
    _verify_lists(callee, given, wanted)
    values = [place.read(warp, mask) for place in given]
    enter(warp, mask, callee, back, wanted)
    for formal, value in zip(callee.formals, values):
        formal.write(warp, mask, value[:, : formal.nbytes])
    return callee.start


def _verify_lists(callee: Callee, given: list[FrameSlot], wanted: list[FrameSlot]) -> None:
    _verify(callee, "arguments", given, callee.formals)
    _verify(callee, "results", wanted, callee.results)


def _verify(callee: Callee, what: str, here: Sequence[FrameSlot], there: Sequence[FrameSlot]) -> None:
    sizes = [[each.nbytes or other.nbytes for each, other in zip(here, there)], [each.nbytes for each in there]]
    if len(here) != len(there) or sizes[0] != sizes[1]:
        text = ", ".join(str(each.nbytes) for each in here)
        raise Malformed(f"{callee.name} has {what} of {sizes[1]} bytes and not of [{text}]")


def _verify_toolkit(name: str) -> None:
    if name not in TOOLKIT:
        raise Unknown(f"{name} has no body in this PTX, and it is no function of the toolkit that is emulated")


def _call_toolkit(name: str, given: list[FrameSlot], wanted: list[FrameSlot], warp: WarpState, mask: int) -> None:
    _verify_toolkit(name)
    function, sizes = TOOLKIT[name]
    if [place.nbytes or size for place, size in zip(given, sizes)] != [*sizes] or len(given) != len(sizes):
        raise Undefined(f"{name} has arguments of {[*sizes]} bytes and not of {[place.nbytes for place in given]}")
    rows = [place.read(warp, mask)[:, :size].copy() for place, size in zip(given, sizes)]
    columns = [each.view(WORDS[size])[:, 0].tolist() for each, size in zip(rows, sizes)]
    found = [function(warp, lane, *row) for lane, row in zip(np.flatnonzero(lanes(mask)).tolist(), zip(*columns))]
    for place in wanted:
        values = np.array(found, np.uint64).view(np.uint8).reshape(-1, 8)
        place.write(warp, mask, values[:, : place.nbytes])


# --- arguments and results


def _place(build: Builder, operand: Operand) -> FrameSlot:
    """Return the place of an argument or a result: a register, a variable in `.param` space, or a constant."""
    if isinstance(operand, Register):
        return _in_register(build, operand)
    if isinstance(operand, Symbol):
        return _in_memory(build, operand.name)
    if isinstance(operand, Number) and not isinstance(operand.value, float):
        value = np.frombuffer((int(operand.value) & (1 << 64) - 1).to_bytes(8, "little"), np.uint8)
        return FrameSlot(0, lambda warp, mask: np.tile(value, (mask.bit_count(), 1)), _nowhere)
    if isinstance(operand, Nothing):
        return FrameSlot(0, lambda warp, mask: np.zeros((mask.bit_count(), 16), np.uint8), _nowhere)
    raise Malformed(f"{operand} cannot be passed")


def _nowhere(warp: WarpState, mask: int, values: Array) -> None:
    """Drop a result."""


def _in_register(build: Builder, register: Register) -> FrameSlot:
    slot, nbytes = build.source(register, f"b{8 * SIZES_BYTES[register.type]}"), SIZES_BYTES[register.type]

    def read(warp: WarpState, mask: int) -> Array:
        words = np.ascontiguousarray(warp.registers[slot][lanes(mask)])
        return words.view(np.uint8).reshape(-1, nbytes)

    def write(warp: WarpState, mask: int, values: Array) -> None:
        words = np.zeros((LANES, nbytes), np.uint8)
        words[lanes(mask)] = values
        warp.set(slot, words.view(WORDS[nbytes])[:, 0].copy(), mask)

    return FrameSlot(nbytes, read, write)


def _in_memory(build: Builder, name: str) -> FrameSlot:
    if name not in build.sizes:
        raise Malformed(f"{name.partition('@')[0]} is no variable in .param space")
    slot, nbytes = build.special(name, 8), build.sizes[name]

    def bytes_of(warp: WarpState, mask: int) -> tuple[Array, Array]:
        addresses = warp.registers[slot][lanes(mask)]
        ((memory, places, _),) = where(warp, addresses, "param", "passes")
        return memory.data, (places - np.uint64(memory.base)).astype(np.int64)[:, None] + np.arange(nbytes)

    def read(warp: WarpState, mask: int) -> Array:
        data, places = bytes_of(warp, mask)
        return data[places]

    def write(warp: WarpState, mask: int, values: Array) -> None:
        data, places = bytes_of(warp, mask)
        data[places] = values

    return FrameSlot(nbytes, read, write)


def formal_place(build: Builder, formal: Formal) -> FrameSlot:
    """Return the place of a device function's parameter or result."""
    return _in_memory(build, formal.name) if isinstance(formal, Variable) else _in_register(build, formal)
