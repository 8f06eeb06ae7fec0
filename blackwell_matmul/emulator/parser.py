"""Parses PTX to plain data: a `Module` of kernels, each a list of instructions with resolved registers.

A scope in braces, such as that of inline assembly, has its own registers and labels (PTX ISA 4.4, "Identifiers").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple, TypeVar

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator.constant_expressions import LEVELS, SUMS, UNARY, Value, binary, unary, wrapped
from blackwell_matmul.emulator.unknown import Known, Malformed, Parts

# --- operands


@dataclass(frozen=True, slots=True)
class Register:
    """A register. slot: index in the kernel's list of registers. type: as declared, such as "b32" or "pred"."""

    slot: int
    type: str


@dataclass(frozen=True, slots=True)
class Number:
    """An immediate. value: an integer or a float; with is_bits the bits of a float, which was written as 0f… or 0d…."""

    value: int | float
    is_bits: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, a parameter, a label or a special register such as %tid.x."""

    name: str


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`. coordinates: of a tensor copy's `[map, {x, y}]`."""

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
class Negative:
    """`-%r`: a negated operand of a video instruction."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Selected:
    """`%r.b0`, `%r.h10`: bytes or halves of a register, for a video instruction."""

    register: Register
    part: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """`_`: an unused result."""


Operand = Register | Number | Symbol | Address | Vector | Pair | Not | Negative | Selected | Nothing


@dataclass(frozen=True, slots=True)
class SourceLine:
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One instruction. opcode: with all modifiers, such as "bar.sync.aligned". guard: predicate, and True if negated.
    line: in the PTX text. location: source line named by `.loc`."""

    opcode: str
    operands: Parts[Operand]
    guard: tuple[Register, bool] | None
    line: int
    text: str
    location: SourceLine | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", Parts(self.operands))  # also if `replace` passes a plain tuple

    @property
    def modifiers(self) -> Parts[str]:
        return Parts(self.opcode.split(".")[1:])

    @property
    def vector_elements(self) -> int:
        """Return the number of elements of a vector, from .v2, .v4 or .v8; 0 without one."""
        return next((int(word[1:]) for word in self.modifiers if word in ("v2", "v4", "v8")), 0)


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable's address in an initial value. place, nbytes: offset and size in the initial value. shift: right shift
    of the address. line: in the PTX text."""

    place: int
    nbytes: int
    name: str
    addend: int = 0
    shift: int = 0
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable. space: "shared", "local", "global", "const" or "param". nbytes: None if the launch decides.
    references: addresses in the initial value."""

    name: str
    space: str
    nbytes: int | None
    alignment: int
    initial: bytes = b""
    type: str = "b8"
    references: tuple[Reference, ...] = ()


Formal = Variable | Register
"""Parameter or result of a device function: a variable in `.param` space, or a register."""


@dataclass(slots=True)
class Entry:
    """A kernel or a device function. labels: index of the instruction after each label. tables: labels of each brx.idx
    table. registers: declared type of each register; functions share one list, and a kernel's list begins with it. own:
    slots of a function's own registers. formals, results: of a device function."""

    name: str
    parameters: list[Variable]
    formals: list[Formal] = field(default_factory=list)
    results: list[Formal] = field(default_factory=list)
    own: range = range(0)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    registers: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """A module. functions: device functions with a body. declared: names of device functions without a body, such as
    those with `.extern`. aliases: other names of functions (PTX ISA, ".alias")."""

    target: str
    version: tuple[int, int] = (0, 0)
    kernels: dict[str, Entry] = field(default_factory=dict)
    functions: dict[str, Entry] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)


_SELECTED = re.compile(r"[bh][0-7]{1,4}")
"""Pattern of a selector of bytes or halves of a register, as in video instructions."""

_ENDS = {",", ";", "]", "}", ")", ":"}
"""Tokens after which a number before them is a whole operand, not the beginning of a constant expression."""

SIZES_BYTES = Known({"pred": 1, "b8": 1, "b16": 2, "b32": 4, "b64": 8, "b128": 16})
SIZES_BYTES |= {f"{kind}{bits}": bits // 8 for kind in "us" for bits in (8, 16, 32, 64)}
SIZES_BYTES |= {"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "tf32": 4, "f32": 4, "f32x2": 8, "f64": 8}
SIZES_BYTES |= {"s16x2": 4, "u16x2": 4, "s8x4": 4, "u8x4": 4}

MOST_REGISTERS = 1 << 20
"""Maximum registers of a kernel with its functions. The largest kernels of compilers declare about 10,000."""

_TOKENS = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<string>\"[^\"]*\")"
    r"|(?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?"
    r"|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+U?)"
    r"|(?P<directive>\.[a-zA-Z_][\w]*)"
    r"|(?P<word>%?[a-zA-Z_$][\w$]*(?:(?:\.|::)[\w$]+)*(?:::[\w$]+)*|%[\w$]+)"
    r"|(?P<mark><<|>>|[<>=!]=|&&|\|\||[][{}()<>;:,@!|+\-=&~*/%^?])",
    re.DOTALL | re.ASCII,
)


_BOUNDS = (
    ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".maxnreg", ".local_maxnreg", ".reqnctapercluster",
    ".maxclusterrank",
)  # fmt: skip
"""Kernel directives that take one to three positive numbers. For clusters, 0 means none."""

_PROPERTIES = (".noreturn", ".explicitcluster", ".blocksareclusters", ".abi_preserve", ".abi_preserve_control")
_OF_MODULES = (".file", ".loc", ".pragma", ".metadata", ".language")
"""Directives of a module without effect on the emulation."""

N = TypeVar("N", "Register", "Symbol")


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Module:
    """Return the module that a PTX text describes; raise InputError, one sentence with the line, if malformed."""
    if not re.search(r"^\W*\.version\b", text, re.MULTILINE):
        raise InputError("this is no PTX: it has no .version line.")
    parser = _Parser(text)
    try:
        return parser.module()
    except Malformed as error:
        raise parser.fault(str(error)) from error
    except InputError:
        raise
    except (IndexError, KeyError, ValueError, RecursionError) as error:
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
    """Recursive-descent parser. scopes: registers, labels and variables by name, the innermost scope last.

    labels: places of the labels directly inside each brace, by the brace's place, as a jump may precede its label.
    """

    def __init__(self, text: str) -> None:
        self.tokens = [*_tokens(text), _Token("end", "", text.count("\n") + 1)]
        self.at = 0
        self.files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.MULTILINE))
        self.scopes: list[dict[str, Register | Vector | Symbol]] = []
        self.location: SourceLine | None = None
        self.labels: dict[int, list[int]] = {}
        self.in_kernel = True
        self.is_call = False
        self.declared_outside: set[str] = set()

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

    def fault(self, text: str) -> InputError:
        """Return an InputError for the line of the last token."""
        return InputError(f"PTX line {self.tokens[max(self.at - 1, 0)].line}: {text}.")

    def accept(self, text: str) -> bool:
        if self.next.text != text:
            return False
        self.at += 1
        return True

    def skip_line(self) -> list[_Token]:
        """Skip the rest of the last token's line, and return its tokens."""
        first = self.at
        while self.next.line == self.tokens[first - 1].line and self.next.kind != "end":
            self.at += 1
        return self.tokens[first : self.at]

    def skip_behind(self, text: str) -> None:
        while not self.accept(text):
            self.take()

    # --- the module

    def module(self) -> Module:
        module, bodies, is_extern = Module(target=""), [], False
        while self.next.kind != "end":
            token = self.take()
            if token.text == ".target":
                module.target = self.take().text
                self.skip_line()
            elif token.text in (".version", ".address_size"):
                self.number_of(token.text, module)
            elif token.text in (".entry", ".func"):
                bodies.append((token.text == ".entry", self.at))
                self.skip_function()
            elif token.text == ".alias":
                name, other = self.names()
                module.aliases[name] = other
            elif token.text == ".section":
                while self.next.text != "{":
                    self.take()
                self.skip_scope()
            elif token.text in (".global", ".shared", ".const"):
                self.module_variables(module, self.variable(token.text[1:]), is_extern)
            elif token.text in _OF_MODULES:
                self.skip_line()
            elif token.text not in (".visible", ".extern", ".weak", ".common"):
                raise self.fault(f"{token.text!r} is no directive of a module")
            is_extern = token.text in (".extern", ".common", ".weak")
        registers: list[str] = []
        for is_kernel, self.at in sorted(bodies):  # functions first, as their registers precede a kernel's
            self.in_kernel = is_kernel
            if is_kernel:
                self.kernel(module, Entry("", [], registers=[*registers]))
            else:
                self.function(module, Entry("", [], registers=registers))
        if not module.kernels:
            raise InputError("this PTX has no kernel (.entry).")
        return module

    def number_of(self, directive: str, module: Module) -> None:
        """Parse the number of `.version` or `.address_size`."""
        number = self.take().text
        if directive == ".version":
            if not re.fullmatch(r"\d+\.\d+", number):
                raise self.fault(f".version is {number}, and no version such as 8.7")
            major, minor = number.split(".")
            module.version = int(major), int(minor)
        if directive == ".address_size" and number != "64":
            raise self.fault(f"addresses of {number} bits; those of 64 bits are emulated")

    def module_variables(self, module: Module, found: list[Variable], is_extern: bool) -> None:
        names = {each.name for each in module.variables}
        twice = next((each.name for each in found if each.name in names), None)
        if twice and not is_extern and twice not in self.declared_outside:
            raise self.fault(f"{twice} is declared twice")
        self.declared_outside |= {each.name for each in found if is_extern}
        module.variables += [each for each in found if each.name not in names or not is_extern]

    def skip_function(self) -> None:
        while self.next.text not in ("{", ";"):
            self.take()
        if not self.accept(";"):
            self.skip_scope()

    def kernel(self, module: Module, kernel: Entry) -> None:
        kernel.name, line = self.take().text, self.next.line
        if self.accept("("):
            while not self.accept(")"):
                self.accept(",")
                self.take(".param")
                kernel.parameters += self.declarators("param", once=True)
        names = [each.name for each in kernel.parameters]
        if len({*names}) < len(names):
            raise self.fault(f"two parameters of {kernel.name} have one name")
        self.directives(kernel)
        if self.accept(";"):
            return
        if kernel.name in module.kernels or kernel.name in module.functions:
            raise InputError(f"PTX line {line}: the kernel {kernel.name} is there twice.")
        self.scopes = []
        self.body(kernel)
        module.kernels[kernel.name] = kernel

    def directives(self, kernel: Entry) -> None:
        """Parse the directives between the parameters and the body of a kernel or a device function."""
        while self.next.text not in ("{", ";"):
            token, numbers = self.take(), []
            if token.kind != "directive":
                raise InputError(f"PTX line {token.line}: {token.text!r} is no directive of {kernel.name}.")
            if token.text == ".pragma":
                self.pragma()
                continue
            while self.next.kind == "number" or self.next.text == ",":
                if not self.accept(","):
                    numbers.append(int(self.take().text, 0))
            is_positive = all(numbers) or "cluster" in token.text
            is_right = 1 <= len(numbers) <= 3 and is_positive if token.text in _BOUNDS else token.text in _PROPERTIES
            if not is_right:
                wrong = self.next.text if token.text in _BOUNDS and not numbers else f"{token.text}{numbers or ''}"
                raise self.fault(f"{wrong!r} is no directive of {kernel.name}")
            kernel.directives[token.text] = tuple(numbers)
        if {".maxntid", ".reqntid"} <= {*kernel.directives}:
            raise self.fault(f"{kernel.name} has both .maxntid and .reqntid")

    def function(self, module: Module, function: Entry) -> None:
        """Parse a device function: `.func (results) name (parameters) { … }` (PTX ISA, ".func"). A declaration ends
        with `;` instead of a body."""
        self.scopes = [{}]
        if self.accept(".attribute"):
            self.skip_behind(")")
        results = self.at
        if self.next.text == "(":
            self.skip_behind(")")
        function.name, line = self.take().text, self.next.line
        parameters = self.at
        if self.next.text == "(":
            self.skip_behind(")")
        self.directives(function)
        end, first = self.at, len(function.registers)
        if self.next.text == ";":
            module.declared.add(function.name)
            return
        if function.name in module.functions:
            raise InputError(f"PTX line {line}: the function {function.name} is there twice.")
        for self.at, formals in ((results, function.results), (parameters, function.formals)):
            if self.accept("("):
                formals += self.formals(function)
        self.at = end
        self.body(function)
        function.own = range(first, len(function.registers))
        module.functions[function.name] = function

    def formals(self, function: Entry) -> Iterator[Formal]:
        while not self.accept(")"):
            self.accept(",")
            if self.accept(".reg"):
                kind = self.take().text[1:]
                yield self.register(function, self.take().text, kind)
            else:
                self.take(".param")
                yield from self.declared(function, self.declarators("param", once=True))

    def declared(self, entry: Entry, variables: list[Variable]) -> list[Variable]:
        """Add variables of a kernel or function, with names unique among all functions; return them."""
        named = [replace(each, name=self.own_name(each.name).name) for each in variables]
        entry.variables += named
        return named

    def own_name(self, name: str) -> Symbol:
        """Declare a label or a variable in the innermost scope, and return its unique name. Only names in a kernel's
        outermost scope stay unchanged."""
        keeps = len(self.scopes) == 1 and self.in_kernel
        return self.declare(name, Symbol(name if keeps else f"{name}@{self.at}"))

    def declare(self, name: str, named: N) -> N:
        if name in self.scopes[-1]:
            raise InputError(f"PTX line {self.tokens[self.at - 1].line}: {name} is declared twice.")
        self.scopes[-1][name] = named
        return named

    def register(self, entry: Entry, name: str, kind: str) -> Register:
        entry.registers.append(kind)
        return self.declare(name, Register(len(entry.registers) - 1, kind))

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
        """Parse `.align 16 .b8 name[n] = {…}`, which follows the state space, or several names separated by commas."""
        alignment, kind, count = 0, "", 1
        while self.next.kind == "directive":
            word = self.take().text[1:]
            if word == "align":
                alignment = int(self.take().text)
                if alignment < 1 or alignment & alignment - 1:
                    raise self.fault(f"an alignment of {alignment}, which is no power of two")
            elif word in ("texref", "samplerref", "surfref"):
                kind = "b64"
            elif word in SIZES_BYTES:
                kind = word
            elif word in ("v2", "v4"):
                count = int(word[1:])
            elif self.next.text == "(":  # .attribute(…)
                self.skip_behind(")")
        if kind in ("", "pred"):
            raise self.fault(f"{self.next.text} in .{space} space has {'the type .pred' if kind else 'no type'}")
        found = []
        while True:
            found.append(self.declarator(space, kind, count, alignment))
            if once or not self.accept(","):
                return found

    def declarator(self, space: str, kind: str, count: int, alignment: int) -> Variable:
        """Parse a variable's name, extents and initial value. count: elements of a vector type."""
        name, size = self.take().text, SIZES_BYTES[kind]
        extents: list[int] = []
        while self.accept("["):
            extents.append(0 if self.next.text == "]" else int(self.expression().value))
            self.take("]")
            if extents[-1] < 0:
                raise self.fault(f"{name} has an extent of {extents[-1]}")
        nbytes = size * count * prod(extents)
        initial, references = bytearray(), list[Reference]()
        if self.accept("="):
            self.initial(kind, [*extents, *[count] * (count > 1)], initial, references)
            nbytes = nbytes or len(initial)
            if space not in ("global", "const"):
                raise self.fault(f"{name} in .{space} space has no initial value")
            if len(initial) > nbytes:
                raise self.fault(f"{name} has {nbytes} bytes and initial values of {len(initial)}")
        is_open = bool(extents) and not nbytes
        alignment = max(alignment, size * count)
        return Variable(name, space, None if is_open else nbytes, alignment, bytes(initial), kind, tuple(references))

    def initial(self, kind: str, extents: list[int], found: bytearray, references: list[Reference]) -> None:
        """Parse an initial value, or a list in braces; an inner list is padded with zeros."""
        if not self.accept("{"):
            self.constant(kind, found, references)
            return
        nbytes = SIZES_BYTES[kind] * prod(extents[1:])
        while not self.accept("}"):
            start, is_list = len(found), self.next.text == "{"
            self.initial(kind, extents[1:], found, references)
            found += bytes(max(0, start + nbytes - len(found))) if is_list else b""
            self.accept(",")

    def variable_address(self) -> tuple[str, int]:
        """Parse `name + 4`, also inside `generic(…)` or parentheses; return the name and the offset."""
        if self.accept("("):
            name, addend = self.variable_address()
            self.take(")")
        elif self.next.text == "generic":
            self.take()
            name, addend = self.variable_address()
        else:
            name, addend = self.take().text, 0
        return name, addend + self.addend()

    def constant(self, kind: str, found: bytearray, references: list[Reference]) -> None:
        """Parse a number, `name`, `name+4`, `generic(name)`, or `0xFF00(name)` for a byte of an address."""
        size, place = SIZES_BYTES[kind], len(found)
        is_masked = self.next.kind == "number" and self.tokens[self.at + 1].text == "("
        if self.next.kind != "word" and not is_masked:
            bits = number_bits(self.expression(), kind)
            found += (bits & (1 << 8 * size) - 1).to_bytes(size, "little")
            return
        mask = int(_number(self.take().text).value) if is_masked else 1
        line, shift = self.next.line, (mask & -mask).bit_length() - 1
        references.append(Reference(place, size, *self.variable_address(), shift, line))
        found += bytes(size)

    # --- a kernel's body

    def body(self, kernel: Entry) -> None:
        """Parse the statements of a kernel or function, up to its closing brace."""
        self.location = None
        self.take("{")
        self.find_labels()
        self.scopes = self.scopes or [{}]
        self.declare_labels()
        while self.scopes:
            self.statement(kernel)

    def statement(self, kernel: Entry) -> None:
        token = self.next
        if token.kind == "directive":
            self.directive(kernel)
        elif self.accept("{"):
            self.scopes.append({})
            self.declare_labels()
        elif self.accept("}"):
            self.scopes.pop()
        elif self.tokens[self.at + 1].text == ":" and token.kind == "word":
            kernel.labels[self.label(token.text)] = len(kernel.instructions)
            self.at += 2
        elif not self.accept(";"):
            kernel.instructions.append(self.instruction())

    def find_labels(self) -> None:
        """Find the labels directly inside each brace of the body. `self.at` must be after the first brace."""
        tokens, self.labels, opened, place = self.tokens, {self.at: []}, [self.at], self.at
        while opened:
            kind, text, _ = tokens[place]
            if kind != "mark":
                pass
            elif text == "{":
                opened.append(place + 1)
                self.labels[place + 1] = []
            elif text == "}":
                opened.pop()
            elif text == ":" and self.begins(place - 1):
                self.labels[opened[-1]].append(place - 1)
            place += 1

    def declare_labels(self) -> None:
        """Declare the labels of the scope just opened, as a jump may precede its label."""
        first = self.at
        for place in self.labels[first]:
            self.at = place + 1  # so that an error names the line of a label declared twice
            self.own_name(self.tokens[place].text)
        self.at = first

    def begins(self, place: int) -> bool:
        """Return True if a statement may begin here: after another statement, or on a new line, as after `.loc`."""
        before = self.tokens[place - 1]
        return before.text in (";", "{", "}", ":") or before.line < self.tokens[place].line

    def label(self, name: str) -> str:
        named = self.named(name)
        return named.name if isinstance(named, Symbol) else name

    def directive(self, kernel: Entry) -> None:
        word = self.take().text
        if word == ".loc":
            self.locate(self.skip_line())
        elif word == ".reg":
            self.registers(kernel)
        elif word in (".shared", ".local", ".param", ".global", ".const"):
            self.declared(kernel, self.variable(word[1:]))
        elif word == ".branchtargets":
            kernel.tables[next(reversed(kernel.labels))] = [self.label(name) for name in self.names()]
        elif word == ".pragma":
            self.pragma()
        elif word in _OF_MODULES:
            self.skip_line()
        elif word in (".calltargets", ".callprototype"):
            self.skip_behind(";")
        else:
            raise self.fault(f"{word!r} is no directive of a body")

    def pragma(self) -> None:
        if self.next.kind != "string":
            raise self.fault(f".pragma takes a string, where {self.next.text!r} stands")
        self.take()
        while not self.accept(";"):
            self.take(",")
            self.take()

    def names(self) -> Iterator[str]:
        """Yield the names in a list separated by commas, up to the end of the statement."""
        while not self.accept(";"):
            yield self.take().text
            self.accept(",")

    def locate(self, rest: list[_Token]) -> None:
        """Set the source line from `.loc`. For inlined code, set the line of the call, which is the last in `.loc`."""
        numbers = [token.text for token in rest if token.kind == "number"]
        *_, file, line, _column = numbers
        self.location = SourceLine(self.files.get(file, f"file {file}"), int(line))

    def registers(self, kernel: Entry) -> None:
        kind, parts = self.take().text[1:], 1
        if kind in ("v2", "v4"):
            kind, parts = self.take().text[1:], int(kind[1:])
        if kind not in SIZES_BYTES:
            raise InputError(f"PTX line {self.next.line}: registers of type {kind} are not emulated.")
        while True:
            name = self.take().text
            if self.accept("<"):
                count = int(self.take().text)
                if len(kernel.registers) + count > MOST_REGISTERS:
                    raise InputError(
                        f"PTX line {self.next.line}: {count:,} registers; {MOST_REGISTERS:,} are emulated."
                    )
                names = [f"{name}{index}" for index in range(count)]
                self.take(">")
            else:
                names = [name]
            for each in names:
                self.register(kernel, each, kind) if parts == 1 else self.vector(kernel, each, kind, parts)
            if not self.accept(","):
                break
        self.take(";")

    def vector(self, kernel: Entry, name: str, kind: str, count: int) -> None:
        """Declare a vector register and its elements: `v.x` and `v.r`, `v.y` and `v.g`, and so on."""
        parts = tuple(self.register(kernel, f"{name}.{axis}", kind) for axis in "xyzw"[:count])
        self.scopes[-1] |= {f"{name}.{axis}": each for axis, each in zip("rgba", parts)}
        self.scopes[-1][name] = Vector(parts)

    def named(self, name: str) -> Register | Vector | Selected | Symbol:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        register, _, part = name.rpartition(".")
        selected = self.named(register) if _SELECTED.fullmatch(part) else None
        return Selected(selected, part) if isinstance(selected, Register) else Symbol(name)

    # --- an instruction

    def instruction(self) -> Statement:
        first, guard = self.at, None
        if self.accept("@"):
            negated = self.accept("!")
            name = self.take().text
            register = self.named(name)
            if not isinstance(register, Register):
                raise InputError(f"PTX line {self.next.line}: the predicate {name!r} is not declared.")
            if register.type != "pred":
                raise InputError(f"PTX line {self.next.line}: {name} is no predicate, but a register .{register.type}.")
            guard = (register, negated)
        place, opcode = self.at, self.take()
        self.is_call = opcode.text.startswith("call")
        if opcode.kind != "word":
            raise InputError(f"PTX line {opcode.line}: {opcode.text!r} is no instruction.")
        operands = self.until(";")
        text = _shown(self.tokens[first:place], self.tokens[place : self.at - 1])
        return Statement(opcode.text, Parts(operands), guard, opcode.line, text, self.location)

    def operand(self) -> Operand:
        found = self.plain_operand()
        if self.accept("|"):
            return Pair(found, self.plain_operand())
        return found

    def plain_operand(self) -> Operand:
        if self.next.text in ("-", "!") and self.tokens[self.at + 1].kind == "word":
            return (Negative if self.take().text == "-" else Not)(self.plain_operand())
        if self.accept("{"):
            return Vector(self.until("}"))
        if self.next.text == "(" and self.is_call:
            self.take()
            return Vector(self.until(")"))
        if self.accept("["):
            return self.address()
        if self.next.kind == "number" or self.next.text == "(" or self.next.text in UNARY:
            return self.expression()
        token = self.take()
        if token.text == "_":
            return Nothing()
        if token.kind != "word":
            raise self.fault(f"{token.text!r} is no operand")
        named = self.named(token.text)
        if isinstance(named, Symbol) and self.next.text in ("+", "-"):
            return Address(named, self.addend())
        return named

    # --- constant expressions

    def expression(self) -> Number:
        if self.next.kind == "number" and self.tokens[self.at + 1].text in _ENDS:
            return _number(self.take().text)
        return Number(self.conditional()[0])

    def conditional(self) -> Value:
        value = self.operators(0)
        if not self.accept("?"):
            return value
        one = self.conditional()
        self.take(":")
        other = self.conditional()
        return one if value[0] else other

    def operators(self, level: int) -> Value:
        """Parse an expression whose operators have at least this precedence."""
        return self.continued(level, self.operators(level + 1)) if level < len(LEVELS) else self.primary()

    def continued(self, level: int, value: Value) -> Value:
        while self.next.text in LEVELS[level]:
            value = binary(self.take().text, value, self.operators(level + 1))
        return value

    def addend(self) -> int:
        """Parse the constant offset of an address, such as `+ 4 * 2`."""
        if self.next.text == "+" and self.tokens[self.at + 2].text in _ENDS:
            self.at += 1
            return int(_number(self.take().text).value)
        return int(self.continued(SUMS, (0, False))[0])

    def primary(self) -> Value:
        """Parse a number, an expression in parentheses, or an expression after a unary operator or a cast."""
        token = self.take()
        if token.text in UNARY:
            return unary(token.text, self.primary())
        if token.text != "(":
            return _value(token.text)
        if self.next.kind == "directive":  # (.s64), (.u64)
            kind = self.take().text
            self.take(")")
            return wrapped(self.primary()[0], kind == ".u64")
        value = self.conditional()
        self.take(")")
        return value

    def until(self, closing: str) -> tuple[Operand, ...]:
        if self.accept(closing):
            return ()
        parts = [self.operand()]
        while not self.accept(closing):
            self.take(",")
            parts.append(self.operand())
        return tuple(parts)

    def address(self) -> Address:
        first, coordinates = self.plain_operand(), []
        base, offset = (first.base, first.offset) if isinstance(first, Address) else (first, 0)  # `[name+8]`
        if not isinstance(base, (Register, Symbol, Number)):
            raise InputError(f"PTX line {self.next.line}: {base} is no address.")
        while not self.accept("]"):
            if self.accept(","):
                coordinates.append(self.operand())
            elif self.next.text in ("+", "-"):
                offset += self.addend()
            else:
                raise InputError(f"PTX line {self.next.line}: {self.next.text!r} is no part of an address.")
        self.accept(".unified")
        parts = tuple(part for each in coordinates for part in (each.parts if isinstance(each, Vector) else (each,)))
        return Address(base, offset, parts)


def _shown(guard: list[_Token], rest: list[_Token]) -> str:
    """Return the text of an instruction in PTX's syntax."""
    before, operands = "".join(each.text for each in guard), "".join(each.text for each in rest[1:])
    return f"{before} {rest[0].text} {operands.replace(',', ', ')}".strip()


def _number(text: str) -> Number:
    if text[:2] in ("0f", "0F", "0d", "0D"):
        return Number(int(text[2:], 16), is_bits=True)
    if re.search(r"\.|^\d+[eE]", text):
        return Number(float(text))
    text = text.rstrip("U")
    return Number(int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0))


def _value(text: str) -> Value:
    """Return a number as a constant of type .s64, or .u64 if .s64 cannot hold the number."""
    number = _number(text)
    if number.is_bits:
        bits = int(number.value).to_bytes(4 if len(text) == 10 else 8, "little")
        return float(struct.unpack("<f" if len(bits) == 4 else "<d", bits)[0]), False
    return number.value, text.endswith("U") or number.value >= 1 << 63


def number_bits(number: Number, type: str) -> int:
    """Return a number as this type's bits, maybe negative or too wide; raise Malformed for a float in an integer."""
    if number.is_bits:
        return int(number.value)
    if type in ("f32", "f64") or (type in ("b32", "b64") and isinstance(number.value, float)):
        return float_bits(float(number.value), SIZES_BYTES[type])
    if isinstance(number.value, float):
        raise Malformed(f"{number.value} is no integer, which .{type} takes")
    return int(number.value)


def float_bits(value: float, nbytes: int) -> int:
    return int.from_bytes(struct.pack("<f" if nbytes == 4 else "<d", value), "little")
