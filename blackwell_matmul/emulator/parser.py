"""Parses PTX to plain data: a `Module` of kernels, each a list of instructions with resolved registers.

Scopes in braces, as inline assembly opens them, have registers and labels of their own (PTX ISA 4.4, "Identifiers").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator.unknown import Known, Parts

# --- operands


@dataclass(frozen=True, slots=True)
class Register:
    """A register. slot: index among the kernel's registers. type: as declared, such as "b32" or "pred"."""

    slot: int
    type: str


@dataclass(frozen=True, slots=True)
class Number:
    """An immediate. bits: of the value, where it was written as 0f… or 0d…; else the integer or float itself."""

    value: int | float
    is_bits: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, a parameter, a label or a special register such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; of a tensor copy `[map, {x, y}]`, with coordinates."""

    base: Register | Symbol | Number
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    parts: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: a result and its predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Not:
    operand: Operand


@dataclass(frozen=True, slots=True)
class Nothing:
    """`_`: an unused result."""


Operand = Register | Number | Symbol | Address | Vector | Pair | Not | Nothing


@dataclass(frozen=True, slots=True)
class SourceLine:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction. name: up to the first dot. modifiers: the rest, such as ("sync", "aligned"). guard: predicate,
    and true if negated. line: in the PTX text.
    """

    opcode: str
    operands: Parts[Operand]
    guard: tuple[Register, bool] | None
    line: int
    text: str
    location: SourceLine | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", Parts(self.operands))  # also of a copy whose operands are a plain tuple

    @property
    def modifiers(self) -> Parts[str]:
        return Parts(self.opcode.split(".")[1:])


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable. space: "shared", "local", "global", "const" or "param". nbytes: None if set by the launch."""

    name: str
    space: str
    nbytes: int | None
    alignment: int
    initial: bytes = b""
    type: str = "b8"


@dataclass(slots=True)
class Entry:
    """A kernel. labels: index of the next instruction. tables: labels of brx.idx, by name.

    registers: the declared type of each.
    """

    name: str
    parameters: list[Variable]
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    target: str
    kernels: dict[str, Entry] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


SIZES_BYTES = Known({"pred": 1, "b8": 1, "b16": 2, "b32": 4, "b64": 8, "b128": 16})
SIZES_BYTES |= {f"{kind}{bits}": bits // 8 for kind in "us" for bits in (8, 16, 32, 64)}
SIZES_BYTES |= {"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4, "f32": 4, "f32x2": 8, "f64": 8}

_TOKENS = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"[^\"]*\")"
    r"|(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|\d+\.\d*(?:[eE][-+]?\d+)?|\d+U?)"
    r"|(?P<directive>\.[a-zA-Z_][\w]*)"
    r"|(?P<word>%?[a-zA-Z_$][\w$]*(?:(?:\.|::)[\w$]+)*(?:::[\w$]+)*|%[\w$]+)"
    r"|(?P<mark>[][{}()<>;:,@!|+\-=&~*])",
    re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Module:
    """Return the module that PTX text describes; InputError, one sentence with the line, if it is malformed."""
    if not re.search(r"^\s*\.version\b", text, re.MULTILINE):
        raise InputError("this is no PTX: it has no .version line.")
    parser = _Parser(text)
    try:
        return parser.module()
    except InputError:
        raise
    except (IndexError, KeyError, ValueError) as error:
        token = parser.tokens[min(parser.at, len(parser.tokens)) - 1]
        raise InputError(f"PTX line {token.line}: {token.text or 'the end'!r} is not understood here.") from error


def _tokens(text: str) -> Iterator[_Token]:
    place, line = 0, 1
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            raise InputError(f"PTX line {line}: {text[place : place + 20].split(chr(10))[0]!r} is not understood.")
        if found.lastgroup != "space":
            yield _Token(str(found.lastgroup), found[0], line)
        line += found[0].count("\n")
        place = found.end()


class _Parser:
    """Recursive descent over the tokens. scopes: names of registers and labels, the innermost last."""

    def __init__(self, text: str) -> None:
        self.tokens = [*_tokens(text), _Token("end", "", text.count("\n") + 1)]
        self.at = 0
        self.files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE))
        self.scopes: list[dict[str, Register | Symbol]] = []
        self.location: SourceLine | None = None
        self.unnamed = 0

    # --- tokens

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def take(self, wanted: str | None = None) -> _Token:
        token = self.tokens[self.at]
        if wanted is not None and token.text != wanted:
            raise InputError(f"PTX line {token.line}: {wanted!r} was expected and {token.text!r} stands there.")
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.next.text != text:
            return False
        self.at += 1
        return True

    def skip_line(self) -> list[_Token]:
        """Return the rest of the last token's line."""
        first = self.at
        while self.next.line == self.tokens[first - 1].line and self.next.kind != "end":
            self.at += 1
        return self.tokens[first : self.at]

    def skip_braces(self) -> None:
        """Skip to the matching brace."""
        while self.next.text != "{":
            self.take()
        self.skip_scope()

    # --- the module

    def module(self) -> Module:
        module = Module(target="")
        while self.next.kind != "end":
            token = self.take()
            if token.text == ".target":
                module.target = self.take().text
                self.skip_line()
            elif token.text in (".entry", ".func"):
                self.function(module, token.text == ".entry")
            elif token.text == ".section":
                self.skip_braces()
            elif token.text in (".global", ".shared", ".const"):
                module.variables += self.variable(token.text[1:])
            elif token.text not in (".visible", ".extern", ".weak", ".common"):
                self.skip_line()
        if not module.kernels:
            raise InputError("this PTX has no kernel (.entry).")
        return module

    def function(self, module: Module, is_kernel: bool) -> None:
        if not is_kernel:  # a device function: a call of it stops with its line
            while self.next.text not in ("{", ";"):
                self.take()
            if not self.accept(";"):
                self.skip_scope()
            return
        kernel = Entry(self.take().text, [])
        if self.accept("("):
            while not self.accept(")"):
                self.accept(",")
                self.take(".param")
                kernel.parameters += self.declarators("param", once=True)
        while not self.accept("{"):
            name, numbers = self.take().text, []
            while self.next.kind == "number" or self.next.text == ",":
                if not self.accept(","):
                    numbers.append(int(self.take().text))
            kernel.directives[name] = tuple(numbers)
        self.body(kernel)
        module.kernels[kernel.name] = kernel

    def skip_scope(self) -> None:
        self.take("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self.take().text, 0)

    def variable(self, space: str) -> list[Variable]:
        found = self.declarators(space)
        self.take(";")
        return found

    def declarators(self, space: str, once: bool = False) -> list[Variable]:
        """Parse `.align 16 .b8 name[n] = {…}` after its space, or several separated by commas."""
        alignment, kind = 0, "b8"
        while self.next.kind == "directive":
            word = self.take().text[1:]
            if word == "align":
                alignment = int(self.take().text)
            elif word in SIZES_BYTES:
                kind = word
        found = []
        while True:
            found.append(self.declarator(space, kind, alignment))
            if once or not self.accept(","):
                return found

    def declarator(self, space: str, kind: str, alignment: int) -> Variable:
        name, size = self.take().text, SIZES_BYTES[kind]
        nbytes: int | None = size
        while self.accept("["):
            nbytes = None if self.next.text == "]" else int(self.take().text.rstrip("U"), 0) * (nbytes or 1)
            self.take("]")
        initial = self.initial(kind) if self.accept("=") else b""
        return Variable(name, space, nbytes, max(alignment, size), initial, kind)

    def initial(self, kind: str) -> bytes:
        if not self.accept("{"):
            return self.constant(kind)
        found = b""
        while not self.accept("}"):
            found += self.constant(kind)
            self.accept(",")
        return found

    def constant(self, kind: str) -> bytes:
        sign = -1 if self.accept("-") else 1
        number, size = _number(self.take().text), SIZES_BYTES[kind]
        bits = (
            float_bits(sign * number.value, size)
            if kind in ("f32", "f64") and not number.is_bits
            else int(number.value) * sign
        )
        return (bits & (1 << 8 * size) - 1).to_bytes(size, "little")

    # --- a kernel's body

    def body(self, kernel: Entry) -> None:
        self.location = None
        self.scopes = [{}]
        while self.scopes:
            self.statement(kernel)

    def statement(self, kernel: Entry) -> None:
        token = self.next
        if token.kind == "directive":
            self.directive(kernel)
        elif self.accept("{"):
            self.scopes.append({name: Symbol(f"{name}@{self.at}") for name in self.labels_ahead()})
        elif self.accept("}"):
            self.scopes.pop()
        elif self.tokens[self.at + 1].text == ":" and token.kind == "word":
            kernel.labels[self.label(token.text)] = len(kernel.instructions)
            self.at += 2
        elif not self.accept(";"):
            kernel.instructions.append(self.instruction())

    def labels_ahead(self) -> Iterator[str]:
        """Yield the labels of the scope just opened, as a jump may precede its label."""
        depth, place = 1, self.at
        while depth:
            text = self.tokens[place].text
            depth += {"{": 1, "}": -1}.get(text, 0)
            if depth == 1 and text == ":" and self.begins(place - 1):
                yield self.tokens[place - 1].text
            place += 1

    def begins(self, place: int) -> bool:
        """Return true if a statement begins here: behind another, or on a new line, as behind `.loc`."""
        before = self.tokens[place - 1]
        return before.text in (";", "{", "}") or before.line < self.tokens[place].line

    def label(self, name: str) -> str:
        named = self.named(name)
        return named.name if isinstance(named, Symbol) else name

    def directive(self, kernel: Entry) -> None:
        word = self.take().text
        if word == ".loc":
            self.locate(self.skip_line())
        elif word == ".reg":
            self.registers(kernel)
        elif word in (".shared", ".local", ".param"):
            kernel.variables += self.variable(word[1:])
        elif word == ".branchtargets":
            kernel.tables[next(reversed(kernel.labels))] = [self.label(name) for name in self.names()]
        elif word in (".calltargets", ".callprototype", ".pragma"):
            while not self.accept(";"):
                self.take()
        else:
            self.skip_line()

    def names(self) -> Iterator[str]:
        """Yield names separated by commas, to the end of the statement."""
        while not self.accept(";"):
            yield self.take().text
            self.accept(",")

    def locate(self, rest: list[_Token]) -> None:
        """Set the source location; of inlined code, the call's in the kernel, which is named last."""
        numbers = [token.text for token in rest if token.kind == "number"]
        *_, file, line, _column = numbers
        self.location = SourceLine(self.files.get(file, f"file {file}"), int(line))

    def registers(self, kernel: Entry) -> None:
        kind = self.take().text[1:]
        if kind in ("v2", "v4") or kind not in SIZES_BYTES:
            what = "vector registers" if kind[0] == "v" else f"registers of type {kind}"
            raise InputError(f"PTX line {self.next.line}: {what} are not emulated.")
        while True:
            name = self.take().text
            if self.accept("<"):
                names = [f"{name}{index}" for index in range(int(self.take().text))]
                self.take(">")
            else:
                names = [name]
            for each in names:
                self.scopes[-1][each] = Register(len(kernel.registers), kind)
                kernel.registers.append(kind)
            if not self.accept(","):
                break
        self.take(";")

    def named(self, name: str) -> Register | Symbol:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return Symbol(name)

    # --- an instruction

    def instruction(self) -> Statement:
        first, guard = self.at, None
        if self.accept("@"):
            negated = self.accept("!")
            register = self.named(self.take().text)
            if not isinstance(register, Register):
                raise InputError(f"PTX line {self.next.line}: the predicate {register.name!r} is not declared.")
            guard = (register, negated)
        place, opcode, operands = self.at, self.take(), []
        if opcode.kind != "word":
            raise InputError(f"PTX line {opcode.line}: {opcode.text!r} is no instruction.")
        while self.next.text != ";":
            operands.append(self.operand())
            self.accept(",")
        self.take(";")
        text = _shown(self.tokens[first:place], self.tokens[place : self.at - 1])
        return Statement(opcode.text, Parts(operands), guard, opcode.line, text, self.location)

    def operand(self) -> Operand:
        found = self.plain_operand()
        if self.accept("|"):
            return Pair(found, self.plain_operand())
        return found

    def plain_operand(self) -> Operand:
        if self.accept("!"):
            return Not(self.plain_operand())
        if self.accept("{"):
            return Vector(self.until("}"))
        if self.accept("("):
            return Vector(self.until(")"))
        if self.accept("["):
            return self.address()
        token = self.take()
        if token.text == "-":
            number = _number(self.take().text)
            return Number(-number.value)
        if token.kind == "number":
            return _number(token.text)
        if token.text == "_":
            return Nothing()
        named = self.named(token.text)
        if isinstance(named, Symbol) and self.accept("+"):
            return Address(named, int(_number(self.take().text).value))
        return named

    def until(self, closing: str) -> tuple[Operand, ...]:
        parts = []
        while not self.accept(closing):
            parts.append(self.operand())
            self.accept(",")
        return tuple(parts)

    def address(self) -> Address:
        first, coordinates = self.plain_operand(), []
        base, offset = (first.base, first.offset) if isinstance(first, Address) else (first, 0)  # `[name+8]`
        if not isinstance(base, (Register, Symbol, Number)):
            raise InputError(f"PTX line {self.next.line}: {base} is no address.")
        while not self.accept("]"):
            if self.accept(","):
                coordinates.append(self.operand())
            else:
                sign = -1 if self.take().text == "-" else 1
                offset += sign * self.signed()
        parts = tuple(part for each in coordinates for part in (each.parts if isinstance(each, Vector) else (each,)))
        return Address(base, offset, parts)

    def signed(self) -> int:
        number = self.plain_operand()
        if not isinstance(number, Number):
            raise InputError(f"PTX line {self.next.line}: an address has a number behind its '+'.")
        return int(number.value)


def _shown(guard: list[_Token], rest: list[_Token]) -> str:
    """Return an instruction as PTX writes it."""
    before, operands = "".join(each.text for each in guard), "".join(each.text for each in rest[1:])
    return f"{before} {rest[0].text} {operands.replace(',', ', ')}".strip()


def _number(text: str) -> Number:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return Number(int(text[2:], 16), is_bits=True)
    if "." in text:
        return Number(float(text))
    text = text.rstrip("U")
    return Number(int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0))


def float_bits(value: float, nbytes: int) -> int:
    return int.from_bytes(struct.pack("<f" if nbytes == 4 else "<d", value), "little")
