"""Registry of instructions, and the builder that turns each instruction of a kernel into a Python function, once.

Every operand is a slot in a warp's list of registers. Constants and special registers have slots after the declared
registers, so that instructions read all operands alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from blackwell_matmul.emulator.forms import NEWEST, verify
from blackwell_matmul.emulator.functions.frames import Callee
from blackwell_matmul.emulator.lanes import LANES, TYPES, WORDS, Array, filled, mask_of
from blackwell_matmul.emulator.machine import LaneState, WarpState
from blackwell_matmul.emulator.parser import (
    SIZES_BYTES,
    Address,
    Not,
    Nothing,
    Number,
    Operand,
    Pair,
    Register,
    Statement,
    Symbol,
    Vector,
    number_bits,
)
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Malformed, Unknown

Act = Callable[[WarpState, int], Any]
"""Function that executes an instruction in the lanes of a mask. Returns None, the index of the next instruction, a
Waiting, a Clock or EXIT."""
Make = Callable[["Builder", Statement], Act]
EXIT = object()

_TYPE_BITS = re.compile(r"^(?!v\d).*\d")
_INSTRUCTIONS: dict[str, Make] = {}
M = TypeVar("M", bound=Make)
A = TypeVar("A", bound=Callable[..., Any])


class Order(NamedTuple):
    """Memory order of an instruction's accesses and signals (PTX ISA, "Memory Consistency Model").

    semantics: "weak", "relaxed", "acquire", "release", "acq_rel". scope: "cta", "cluster", "gpu", "sys". proxy:
    "generic", "async".
    """

    semantics: str = "weak"
    scope: str = "cta"
    proxy: str = "generic"


_ORDERS: dict[str, Order] = {}
_SEMANTICS = {
    "weak": "weak", "relaxed": "relaxed", "volatile": "relaxed", "mmio": "relaxed", "acquire": "acquire",
    "release": "release", "acq_rel": "acq_rel", "sc": "acq_rel",
}  # fmt: skip
_SCOPES = {"cta": "cta", "cluster": "cluster", "gpu": "gpu", "gl": "gpu", "sys": "sys"}


def order_of(each: Statement) -> Order:
    """Return the memory order in an opcode's modifiers; the instruction's default for parts that are not named."""
    found = _ORDERS.get(_prefix(each.opcode) or "", Order())
    words = each.modifiers
    semantics = next((_SEMANTICS[word] for word in words if word in _SEMANTICS), found.semantics)
    scope = "sys" if {"volatile", "mmio"} & {*words} else found.scope
    return Order(semantics, next((_SCOPES[word] for word in words if word in _SCOPES), scope), found.proxy)


def instruction(*opcodes: str, order: Order | None = None) -> Callable[[M], M]:
    """Register a function that builds these opcodes. The longest registered prefix of an opcode decides.

    order: memory order of opcodes that name none; None means weak.
    """

    def register(make: M) -> M:
        for opcode in opcodes:
            assert opcode not in _INSTRUCTIONS, opcode
            _INSTRUCTIONS[opcode] = make
            if order is not None:
                _ORDERS[opcode] = order
        return make

    return register


def known() -> list[str]:
    """Return the emulated opcodes, sorted."""
    return sorted(_INSTRUCTIONS)


def wide(act: A) -> A:
    """Mark an instruction's function as able to execute all lanes of a `Row` of warps in one call."""
    act.wide = True  # type: ignore[attr-defined]
    return act


class Clock(NamedTuple):
    """Result of an instruction that reads a clock. told: called with the number of executed instructions."""

    told: Callable[[int], None]


class Executable(NamedTuple):
    """An instruction, ready to run. guard: slot of its predicate, -1 for none. negated: True for @!p. wide: True if all
    lanes of a row execute it in one call."""

    act: Act
    guard: int
    negated: bool
    source: Statement
    wide: bool = False


_UNWRITTEN: dict[int, Any] = {size: filled(int.from_bytes(b"\x5a\xa5" * 8, "little"), size) for size in WORDS}
_UNWRITTEN[0] = 0x5A5AA5A5
"""Content of an unwritten register, by bytes; key 0 is a predicate's. Reading an unwritten register is no error,
because compilers read such registers and drop the result. A result that depends on an unwritten register shows in the
output."""


class Builder:
    """Builds the functions of one kernel's instructions.

    slots: initial registers of a warp, constants after the declared registers. specials: slots whose contents depend on
    the warp, by name and bytes. labels: index of the instruction after each label. tables: labels of each brx.idx
    table. names: variables and special registers. callees: device functions by name; a function without a body by its
    name only. by_address: the same by address. frames: function and frame offset of each variable of a device function.
    sizes: bytes of each variable in `.param` space. spaces: state space of each variable, "parameter" for the kernel's.
    place, function: index of the instruction that is built, and its device function. gpu, version: target and version
    of the PTX.
    """

    gpu = ""
    version = NEWEST

    def __init__(
        self, registers: list[str], labels: dict[str, int], tables: dict[str, list[str]], names: set[str]
    ) -> None:
        self.types, self.labels, self.tables, self.names = registers, labels, tables, names
        self.slots: list[Any] = [_UNWRITTEN[SIZES_BYTES[type] if type != "pred" else 0] for type in registers]
        self.specials: dict[tuple[str, int], int] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._nowhere: int | None = None
        self.callees: dict[str, Callee | str] = {}
        self.by_address: dict[int, Callee | str] = {}
        self.frames: dict[str, tuple[Callee, int]] = {}
        self.sizes: dict[str, int] = {}
        self.spaces: dict[str, str] = {}
        self.place = 0
        self.function: Callee | None = None

    def build(self, each: Statement) -> Executable:
        prefix = _prefix(each.opcode)
        if prefix is None:
            raise Unknown(f"{each.opcode} is not emulated")
        verify(each, self.gpu, self.version)
        return self.guarded(_INSTRUCTIONS[prefix](self, each), each)

    def guarded(self, act: Act, each: Statement) -> Executable:
        guard, negated = (-1, False) if each.guard is None else (each.guard[0].slot, each.guard[1])
        return Executable(act, guard, negated, each, getattr(act, "wide", False))

    # --- slots

    def constant(self, bits: int, nbytes: int) -> int:
        bits &= (1 << 8 * nbytes) - 1
        if (bits, nbytes) not in self._constants:
            self._constants[bits, nbytes] = self._new(filled(bits, nbytes))
        return self._constants[bits, nbytes]

    def special(self, name: str, nbytes: int) -> int:
        variable, _, offset = name.partition("+")
        if variable in self.frames:
            return self._in_frame(variable, int(offset or 0), nbytes)
        if not {variable, name.partition(".")[0]} & self.names:
            kind = Unknown if name.startswith("%") else Malformed
            raise kind(f"{variable.partition('@')[0]} is neither a variable nor a special register that is emulated")
        if (name, nbytes) not in self.specials:
            self.specials[name, nbytes] = self._new(None)
        return self.specials[name, nbytes]

    def _in_frame(self, variable: str, offset: int, nbytes: int) -> int:
        """Return the slot that holds the address of a device function's variable; each call writes this slot."""
        callee, place = self.frames[variable]
        key = nbytes, place + offset
        found = next((slot for slot, *rest in callee.addresses if tuple(rest) == key), None)
        if found is None:
            found = self._new(np.zeros(LANES, WORDS[nbytes]))
            callee.addresses.append((found, *key))
        return found

    def callee(self, name: str) -> Callee | str:
        if name not in self.callees:
            raise Malformed(f"{name} is no function of this PTX")
        return self.callees[name]

    def label(self, operand: Operand) -> int:
        """Return the index of the instruction after a label; raise Malformed if there is no such label."""
        if not isinstance(operand, Symbol) or operand.name not in self.labels:
            raise Malformed(f"{operand.name if isinstance(operand, Symbol) else operand} is no label")
        return self.labels[operand.name]

    def _new(self, content: Any) -> int:
        self.slots.append(content)
        return len(self.slots) - 1

    def scratch(self) -> int:
        """Return the slot for unused results, which no instruction reads."""
        if self._nowhere is None:
            self._nowhere = self._new(0)
        return self._nowhere

    # --- operands

    def source(self, operand: Operand, type: str) -> int:
        """Return the slot of an operand. The slot holds raw words of the operand type's size."""
        if isinstance(operand, Register):
            if operand.type == "pred" and type != "pred":
                raise Malformed(f"an operand is a predicate where .{type} is expected")
            return operand.slot
        if isinstance(operand, Number):
            return self.constant(number_bits(operand, type), SIZES_BYTES[type])
        if isinstance(operand, Symbol):
            return self.special(operand.name, SIZES_BYTES[type])
        if isinstance(operand, Address) and isinstance(operand.base, Symbol):  # `mov.u64 %rd, name+8`
            return self.special(f"{operand.base.name}+{operand.offset}", SIZES_BYTES[type])
        raise Unknown(f"an operand {operand} of type {type} is not understood")

    def target(self, operand: Operand) -> int:
        if isinstance(operand, Register):
            return operand.slot
        if isinstance(operand, Nothing):
            return self.scratch()
        raise Unknown(f"a result cannot go to {operand}")

    def reader(self, operand: Operand, type: str) -> Callable[[LaneState], Array]:
        """Return a function that reads an operand as an array of the numpy type; of a wider register, the low bits."""
        slot, wanted, size = self.source(operand, type), TYPES[type], SIZES_BYTES[type]
        if isinstance(operand, Register) and SIZES_BYTES[self.types[operand.slot]] != size:
            word, own = WORDS[size], SIZES_BYTES[self.types[operand.slot]]
            if 16 in (own, size):
                raise Malformed(f"an operand has {own} bytes where .{type} is expected")
            return lambda warp: warp.registers[slot].astype(word).view(wanted)
        if wanted is WORDS[size]:
            return lambda warp: warp.registers[slot]
        return lambda warp: warp.registers[slot].view(wanted)

    def scalar(self, operand: Operand, type: str = "b32") -> Callable[[WarpState, int], int]:
        """Return a function that reads an operand in one lane, as an integer."""
        read = self.reader(operand, type)
        return lambda warp, lane: int(read(warp)[lane])

    def shared_scalar(self, operand: Operand) -> Callable[[LaneState, int], int]:
        """Return a function that reads 32 bits of an operand in one lane. For a row, the function raises Undefined
        unless all lanes have the same value."""
        read = self.reader(operand, "b32")

        def value(warp: LaneState, lane: int) -> int:
            values = read(warp)
            if warp.count > LANES and (values != values[0]).any():
                raise Undefined("an operand differs between the lanes of a row")
            return int(values[lane])

        return value

    def is_predicate(self, operand: Operand) -> bool:
        return isinstance(operand, Register) and self.types[operand.slot] == "pred"

    def predicate(self, operand: Operand) -> Callable[[LaneState], int]:
        """Return a function that reads a predicate as a mask."""
        if isinstance(operand, Not):
            inner = self.predicate(operand.operand)
            return lambda warp: ~inner(warp)
        if isinstance(operand, Number):
            value = -1 if operand.value else 0
            return lambda warp: value
        if isinstance(operand, Symbol):  # %is_explicit_cluster
            slot = self.special(operand.name, 1)
            return lambda warp: mask_of(warp.registers[slot] != 0)
        if self.is_predicate(operand):
            slot = operand.slot  # type: ignore[union-attr]
            return lambda warp: warp.registers[slot]
        raise Malformed(f"an operand {_plainly(operand)} is no predicate")

    def address(self, operand: Operand) -> Callable[[LaneState], Array]:
        """Return a function that returns the address `[base + offset]` of each lane, as 64 bits."""
        if isinstance(operand, Register):
            operand = Address(operand)
        if not isinstance(operand, Address):
            raise Unknown(f"{operand} is no address")
        base, offset = operand.base, np.uint64(operand.offset & (1 << 64) - 1)
        if isinstance(base, (Symbol, Number)):
            slot = self.source(base, "b64")
            return lambda warp: warp.registers[slot] + offset
        slot = self.source(base, "b64")
        if SIZES_BYTES[self.types[slot]] == 16:
            raise Malformed("a register of 16 bytes is no address")
        if SIZES_BYTES[self.types[slot]] == 8:
            return lambda warp: warp.registers[slot] + offset
        short = np.uint32(operand.offset & 0xFFFFFFFF)
        return lambda warp: (warp.registers[slot] + short).astype(np.uint64)

    def vector(self, operand: Operand) -> tuple[Operand, ...]:
        return operand.parts if isinstance(operand, Vector) else (operand,)

    def targets(self, operand: Operand) -> list[int]:
        return [self.target(each) for each in self.vector(operand)]

    def pair(self, operand: Operand) -> tuple[Operand, Operand]:
        """Return the two results of `d|p`; `Nothing` for a missing predicate."""
        return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Nothing())

    def fit(self, register: Operand, nbytes: int) -> Callable[[Array], Array] | None:
        """Return a function that zero-extends words of this size to the register's size; None for equal sizes."""
        if isinstance(register, Register) and SIZES_BYTES[self.types[register.slot]] != nbytes:
            wide = WORDS[SIZES_BYTES[self.types[register.slot]]]
            return lambda value: value.astype(wide)
        return None


def _prefix(opcode: str) -> str | None:
    """Return the longest registered prefix of an opcode, cut at a dot or a double colon; None if there is none."""
    ends = [len(opcode), *(found.start() for found in reversed(list(re.finditer(r"\.|::", opcode))))]
    return next((opcode[:end] for end in ends if opcode[:end] in _INSTRUCTIONS), None)


def _plainly(operand: Operand) -> str:
    return f"of type .{operand.type}" if isinstance(operand, Register) else str(operand)


def last_type(each: Statement) -> str:
    """Return the last type in an opcode, such as "s32" of add.s32 and of add.s32.sat. A type has a number of bits."""
    return next(
        (word for word in reversed(each.modifiers) if word == "pred" or _TYPE_BITS.search(word)), each.modifiers[-1]
    )
