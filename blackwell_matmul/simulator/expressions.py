"""hidet expressions as Python source, with the types that the generated C has.

tilus's own pass picks functions and casts operands by type (`as_generated`); its refusals are refusals here. The rest
is C: narrow integers become int, the unsigned type wins of two with equal width, signed overflow is undefined and
reported.

`ScalarWriter` is for control flow: integers are Python's, floats are numpy scalars of their type. `VectorWriter` is for
elementwise work on arrays of the types themselves, `IndexWriter` for offsets, which are int64 throughout.
"""

from __future__ import annotations

import builtins
import dis
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.base.errors import CompileError, UnsupportedError
from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.frontend.messages.lacking import no_code
from blackwell_matmul.simulator.arithmetic import (
    Told,
    c_div,
    c_mod,
    common,
    conversion,
    floats,
    integers,
    known_function,
    limits,
    nobody,
    overflowing,
    promoted,
    quotient,
    remainder,
    shifted,
    wrapped,
)
from blackwell_matmul.simulator.types import Element, convert, element, element_by_name

BOOL, INT64 = element_by_name("bool", 8), element_by_name("int64", 64)

_INFIX = {
    "Add": "+",
    "Sub": "-",
    "Multiply": "*",
    "BitwiseAnd": "&",
    "BitwiseOr": "|",
    "BitwiseXor": "^",
    "LeftShift": "<<",
    "RightShift": ">>",
    "LessThan": "<",
    "LessEqual": "<=",
    "Equal": "==",
    "NotEqual": "!=",
}
_DIVISIONS = ("Div", "FloorDiv", "Mod")
_COMPARISONS = ("LessThan", "LessEqual", "Equal", "NotEqual")
_SHIFTS = ("LeftShift", "RightShift")
_LOGICAL = {"LogicalAnd": "and", "LogicalOr": "or"}
_CAST_BACK = ("Add", "Sub", "Multiply", "Div")
"""Operators whose result tilus casts back to a type narrower than int."""

MAX_BITS = 256
"""Maximum number of bits of a Python integer in a chain of sums and products, before it is wrapped into range."""

DEEPEST_TEXT = 100
"""Maximum nesting of parentheses in one piece of text; Python 3.11 allows 200."""

NAMESPACE: dict[str, Any] = {
    "_div": c_div, "_mod": c_mod, "_wrap": wrapped, "_overflow": overflowing, "_nobody": nobody, "_np": np,
}  # fmt: skip
"""Private names of generated code, with their values."""


def kept(value: Any, namespace: dict[str, Any]) -> str:
    """Put a value into a namespace; return its name there."""
    name = f"_c{len(namespace)}"
    namespace[name] = value
    return name


class Typed(NamedTuple):
    """Python text and its C type (None: an address). low, high: its values before it is brought in range."""

    text: str
    type: Element | None
    low: float = -math.inf
    high: float = math.inf


def function_name(name: str) -> str:
    """Return the plain name: `generic_exp`, `cuda_f32_exp`, `cuda_f16_max_sm80`… are `exp` and `max`."""
    plain = name.removesuffix("_sm80")
    return plain.rsplit("_", 1)[-1] if name.startswith(("generic_", "cuda_", "cpu_")) else plain


def as_generated(expression: Any) -> Any:
    """Return the expression with the casts and functions of tilus's code; raise CompileError, the reason, as tilus
    does."""
    from tilus.hidet.ir.expr import Expr
    from tilus.hidet.ir.tools import infer_type
    from tilus.hidet.transforms.resolve_generic_primitive_function import ResolveGenericPrimitiveFuncRewriter

    if not isinstance(expression, Expr):
        return expression
    try:
        with tilus_compat.hidet_by_name():
            resolved = ResolveGenericPrimitiveFuncRewriter("cuda")(expression)
            infer_type(resolved)  # refuses a conditional of two types
            return resolved
    except Exception as error:
        raise CompileError(_refusal(expression)) from error


def _refusal(expression: Any) -> str:
    from tilus.hidet.ir.expr import Call, IfThenElse
    from tilus.hidet.ir.tools import collect, infer_type

    for each in collect(expression, IfThenElse):
        yes, no = infer_type(each.then_expr).name, infer_type(each.else_expr).name
        if yes != no:
            return f"`x if c else y` gives {yes} or {no}, and C has one type for it: cast one"
    for call in collect(expression, Call):
        types = " and ".join(dict.fromkeys(infer_type(a).name for a in call.args if hasattr(infer_type(a), "name")))
        return no_code(function_name(call.func_var.name), types)
    return "tilus 0.2.0 generates no code for operands of these types: cast them to one type first"


def pointer_step(e: Any) -> int:
    """Return the bytes by which adding one moves a pointer, as in C; 0 for any other expression."""
    from tilus.hidet.ir.tools import infer_type

    base = getattr(infer_type(e), "base_type", None)
    return getattr(base, "nbits", 0) // 8


def _is_address(e: Any) -> bool:
    from tilus.hidet.ir.tools import infer_type

    return not hasattr(infer_type(e), "nbits")


def _depth(text: str) -> int:
    """Return the maximum nesting of parentheses in a text."""
    return max(accumulate((each == "(") - (each == ")") for each in text))


class ExpressionWriter(ABC):
    """Writes one hidet expression as Python. Subclasses say how values are held.

    names: gives the Python name of a variable, which does not begin with "_". namespace: where the text is executed;
    constants are kept in it.
    """

    told: Told = staticmethod(nobody)

    def __init__(self, names: Callable[[Any], str], namespace: dict[str, Any]) -> None:
        self.names = names
        self.namespace = namespace

    def constants(self, value: Any) -> str:
        """Keep a value; return its name."""
        return kept(value, self.namespace)

    def write(self, expression: Any) -> str:
        return self.typed(expression).text

    def typed(self, expression: Any) -> Typed:
        """Return the Python text and C type of an expression, in the range of that type."""
        return self.fitted(self.visit(as_generated(expression)))

    def write_as(self, expression: Any, target: Element) -> str:
        """Return the text of the value that a variable of this type holds after the assignment."""
        return self.converted(self.visit(as_generated(expression)), target).text

    def visit(self, e: Any) -> Typed:
        return self._shortened(self._visited(e))

    def _visited(self, e: Any) -> Typed:
        kind = type(e).__name__
        if kind in _INFIX or kind in _DIVISIONS:
            return self._binary(kind, e)
        if kind in _LOGICAL:
            return self.logical(_LOGICAL[kind], self.truth(e.a), self.truth(e.b))
        method = getattr(self, f"_{kind}", None)
        if method is None:
            raise UnsupportedError(f"The simulator does not evaluate {kind} expressions; `{e}` is one.")
        result: Typed = method(e)
        return result

    def _shortened(self, x: Typed) -> Typed:
        """Return the same value. A text with too deeply nested parentheses becomes a call of a function of its
        variables."""
        if len(x.text) <= DEEPEST_TEXT or _depth(x.text) <= DEEPEST_TEXT:
            return x
        steps = dis.get_instructions(compile(x.text, "<expression>", "eval"))
        read = [each.argval for each in steps if each.opname == "LOAD_NAME"]
        names = dict.fromkeys(name for name in read if not name.startswith("_") and not hasattr(builtins, name))
        used = ", ".join(names)
        return x._replace(text=f"{self.constants(eval(f'lambda {used}: {x.text}', self.namespace))}({used})")

    # leaves

    def _Var(self, e: Any) -> Typed:
        text = self.names(e)
        if not hasattr(e.type, "nbits"):
            return Typed(text, None)
        item = element(e.type)
        return Typed(text, item) if item.is_float else Typed(text, item, *limits(item))

    _SymbolVar = _Var

    def _Constant(self, e: Any) -> Typed:
        value = e.value
        if isinstance(value, str) or not hasattr(e.type, "nbits"):
            return Typed(repr(value), None)
        item = element(e.type)
        return (
            Typed(self.constants(_float_literal(value, item)), item)
            if item.is_float
            else self.literal(int(value), item)
        )

    def literal(self, value: int, item: Element) -> Typed:
        return Typed(repr(bool(value)) if item.name == "bool" else repr(value), item, value, value)

    # operators

    def _binary(self, kind: str, e: Any) -> Typed:
        if kind in ("Add", "Sub") and _is_address(e):
            return self._moved(kind, e)
        a, b = self.visit(e.a), self.visit(e.b)
        if a.type is None or b.type is None:
            return Typed(f"({a.text} {_INFIX[kind]} {b.text})", BOOL, 0, 1)
        if a.type.is_float or b.type.is_float:
            return self._of_floats(kind, a, b, e)
        if kind in _SHIFTS:
            return self.integer(kind, promoted(a.type), self.converted(a, promoted(a.type)), self.fitted(b))
        both = common(a.type, b.type)
        result = self.integer(kind, both, self._operand(a, both), self._operand(b, both))
        return self._cast_back(kind, e, result)

    def _operand(self, x: Typed, item: Element) -> Typed:
        return x if x.type == item else self.converted(x, item)

    def _cast_back(self, kind: str, e: Any, result: Typed) -> Typed:
        from tilus.hidet.ir.tools import infer_type

        narrow = element(infer_type(e)) if kind in _CAST_BACK else BOOL
        return self.converted(result, narrow) if kind in _CAST_BACK and narrow.nbits < 32 else result

    def _of_floats(self, kind: str, a: Typed, b: Typed, e: Any) -> Typed:
        assert a.type is not None
        if a.type != b.type or kind not in ("Add", "Sub", "Multiply", "Div", *_COMPARISONS):
            sign = {**_INFIX, "Mod": "%", "FloorDiv": "//", "Div": "/"}[kind]
            raise UnsupportedError(
                f"`{e}` has no code in C: {sign} of {_type_name(a)} and {_type_name(b)}; cast both to one type first."
            )
        return self.float_call(kind, a.type, [a, b], BOOL if kind in _COMPARISONS else a.type)

    def _moved(self, kind: str, e: Any) -> Typed:
        """Return pointer arithmetic; addresses are bytes."""
        step = pointer_step(e) or 1
        parts = [
            self.fitted(self.visit(x)).text + ("" if _is_address(x) or step == 1 else f" * {step}") for x in (e.a, e.b)
        ]
        return Typed(f"({parts[0]} {_INFIX[kind]} {parts[1]})", None)

    def _Neg(self, e: Any) -> Typed:
        a = self.visit(e.a)
        if a.type is not None and a.type.is_float:
            return self.float_call("Neg", a.type, [a], a.type)
        assert a.type is not None
        item = promoted(a.type)
        return self.integer("Sub", item, self.literal(0, item), self._operand(a, item))

    def _BitwiseNot(self, e: Any) -> Typed:
        a = self.visit(e.a)
        assert a.type is not None
        item = promoted(a.type)
        return self.integer(
            "BitwiseXor", item, self._operand(a, item), self.literal(-1 if item.signed else limits(item)[1], item)
        )

    def _LogicalNot(self, e: Any) -> Typed:
        return self.logical("not", self.truth(e.a))

    def truth(self, e: Any) -> str:
        return self.converted(self.visit(e), BOOL).text

    def _IfThenElse(self, e: Any) -> Typed:
        yes, no = self.visit(e.then_expr), self.visit(e.else_expr)
        if yes.type is not None and no.type is not None and yes.type != no.type:
            both = common(yes.type, no.type)
            yes, no = self.converted(yes, both), self.converted(no, both)
        yes, no = self.fitted(yes), self.fitted(no)
        return Typed(
            self.choice(self.truth(e.cond), yes.text, no.text), yes.type, min(yes.low, no.low), max(yes.high, no.high)
        )

    def _Cast(self, e: Any) -> Typed:
        inner = self.visit(e.expr)
        if not hasattr(e.target_type, "nbits"):
            return Typed(self.fitted(inner).text, None)  # a cast between pointers
        return self.converted(inner, element(e.target_type))

    def _Call(self, e: Any) -> Typed:
        name, args = function_name(e.func_var.name), [self.fitted(self.visit(a)) for a in e.args]
        if name == "fastdiv":  # fast_divmod means the exact quotient, whatever constants tilus computes for it
            item = common(args[0].type or INT64, args[1].type or INT64)
            return self.fitted(self.integer("Div", item, self._operand(args[0], item), self._operand(args[1], item)))
        types = [a.type for a in args if a.type is not None]
        if name in ("max", "min") and types and not any(t.is_float for t in types):
            item = element(e.func_var.type.param_types[0])
            return self.integer(name, item, *[self._operand(a, item) for a in args])
        if name == "f16" and len(args) == 1:  # cuda_i64_to_f16
            return self.converted(args[0], element_by_name("float16", 16))
        return self._function(e, name, args)

    def _function(self, e: Any, name: str, args: list[Typed]) -> Typed:
        kind = e.func_var.type
        first = next(iter(getattr(kind, "param_types", ())), None)
        target = element(first) if first is not None and first.is_data_type() else None
        if target is None or not target.is_float or not known_function(name):
            raise UnsupportedError(f"The simulator has no meaning for the function {e.func_var.name} in `{e}`.")
        return self.float_call(name, target, [self.converted(a, target) for a in args], element(kind.ret_type))

    # how values are held

    def fitted(self, x: Typed) -> Typed:
        """Return the value, wrapped into the range of its type."""
        return x

    def converted(self, x: Typed, target: Element) -> Typed:
        if x.type == target:
            return self.fitted(x)
        source = x.type or INT64
        change = self.constants(conversion(source, target, self.told))
        return Typed(f"{change}({self.fitted(x).text})", target)

    @abstractmethod
    def integer(self, kind: str, item: Element, *operands: Typed) -> Typed:
        """Return an operator of integers of the type `item`, int or wider."""

    def float_call(self, kind: str, item: Element, args: Sequence[Typed], result: Element) -> Typed:
        return Typed(f"{self.constants(floats(kind, item))}({', '.join(a.text for a in args)})", result)

    @abstractmethod
    def logical(self, word: str, *operands: str) -> Typed:
        """Return and, or, not."""

    @abstractmethod
    def choice(self, condition: str, yes: str, no: str) -> str:
        """Return `yes if condition else no`."""


def _float_literal(value: float, item: Element) -> Any:
    """Convert a literal as tilus writes it: a double, or a float and a cast of it."""
    if item.name == "float64":
        return np.float64(value)
    with np.errstate(over="ignore"):
        return convert(np.asarray(value, np.float32), element_by_name("float32", 32), item)[()]


def _type_name(x: Typed) -> str:
    return "an address" if x.type is None else x.type.name


# --- scalars


class ScalarWriter(ExpressionWriter):
    """Writes Python integers, and wraps them where C would observe the range. Sums and products may be wrapped later:
    the result is the same.

    teller: name of the function in the generated code that returns for `w` whom undefined results of C are reported to.
    """

    def __init__(self, names: Callable[[Any], str], namespace: dict[str, Any], teller: str = "") -> None:
        super().__init__(names, namespace)
        self.told_by = f"{teller}(w)" if teller else "_nobody"

    def fitted(self, x: Typed) -> Typed:
        if x.type is None or x.type.is_float:
            return x
        low, high = limits(x.type)
        if low <= x.low and x.high <= high:
            return x
        if not x.type.signed:
            return Typed(f"({x.text} & {high})", x.type, low, high)
        beyond = f"_overflow({self.told_by}, _x, {x.type.nbits})"
        return Typed(f"(_x if {low} <= (_x := {x.text}) <= {high} else {beyond})", x.type, low, high)

    def converted(self, x: Typed, target: Element) -> Typed:
        if x.type is None or x.type.is_float or target.is_float:
            return self._through_numpy(x, target)
        low, high = limits(target)
        exact = self.fitted(x)
        if exact.type == target:
            return exact
        if target.name == "bool":
            return Typed(f"bool({exact.text})", target, 0, 1)
        if low <= exact.low and exact.high <= high:
            return exact._replace(type=target, text=f"int({exact.text})" if x.type.name == "bool" else exact.text)
        return Typed(f"_wrap({exact.text}, {target.nbits}, {target.signed})", target, low, high)

    def _through_numpy(self, x: Typed, target: Element) -> Typed:
        if x.type == target or x.type is None:
            return Typed(x.text, target)
        change = self.constants(_scalar_conversion(x.type, target))
        text = f"{change}({self.fitted(x).text}, {self.told_by})"
        return Typed(text, target) if target.is_float else Typed(text, target, *limits(target))

    def integer(self, kind: str, item: Element, *operands: Typed) -> Typed:
        if kind in ("Add", "Sub", "Multiply"):
            return self._ring(kind, item, *operands)
        a, b = (self.fitted(x) for x in operands)
        low, high = limits(item)
        if kind in _COMPARISONS:
            return Typed(f"({a.text} {_INFIX[kind]} {b.text})", BOOL, 0, 1)
        if kind in ("max", "min"):
            return Typed(f"{kind}({a.text}, {b.text})", item, low, high)
        if kind in _DIVISIONS or kind in _SHIFTS:
            return self._partial(kind, item, a, b)
        return Typed(f"({a.text} {_INFIX[kind]} {b.text})", item, low, high)

    def _ring(self, kind: str, item: Element, a: Typed, b: Typed) -> Typed:
        if kind == "Multiply":
            ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        else:
            low, high = (b.low, b.high) if kind == "Add" else (-b.high, -b.low)
            ends = [a.low + low, a.high + high]
        if max(map(abs, ends)) >= 1 << MAX_BITS:
            return self._ring(kind, item, self.fitted(a), self.fitted(b))
        return Typed(f"({a.text} {_INFIX[kind]} {b.text})", item, min(ends), max(ends))

    def _partial(self, kind: str, item: Element, a: Typed, b: Typed) -> Typed:
        """Return an operator that C leaves undefined for some operands."""
        low, high = limits(item)
        if kind in _SHIFTS:
            left, known = kind == "LeftShift", b.low >= 0 and b.high < item.nbits
            call = self.constants(shifted)
            text = (
                f"({a.text} {_INFIX[kind]} {b.text})"
                if known
                else f"{call}({self.told_by}, {left}, {item.nbits}, {a.text}, {b.text})"
            )
            return Typed(f"_wrap({text}, {item.nbits}, {item.signed})" if left else text, item, low, high)
        rest, zero = kind == "Mod", b.low <= 0 <= b.high
        call = self.constants(remainder if rest else quotient)
        plain = f"({a.text} {'%' if rest else '//'} {b.text})" if a.low >= 0 and b.low > 0 else ""
        checked = f"{call}({self.told_by}, {a.text}, {b.text})"
        text = plain or (checked if zero else f"{'_mod' if rest else '_div'}({a.text}, {b.text})")
        if zero and not item.signed:
            return Typed(f"({text} & {high})", item, low, high)
        return Typed(text, item, *self._quotient_range(rest, a, b, item))

    @staticmethod
    def _quotient_range(rest: bool, a: Typed, b: Typed, item: Element) -> tuple[float, float]:
        """Return the range of a quotient; only the smallest integer over -1 leaves its type."""
        low, high = limits(item)
        if not rest:
            return low, max(high, -a.low if b.low <= -1 <= b.high else 0)
        most = max(abs(b.low), abs(b.high)) - 1
        return max(low, -most if a.low < 0 else 0), min(high, most) if not b.low <= 0 <= b.high else high

    def float_call(self, kind: str, item: Element, args: Sequence[Typed], result: Element) -> Typed:
        array = super().float_call(kind, item, args, result)
        return array._replace(text=f"{array.text}[()]")

    def logical(self, word: str, *operands: str) -> Typed:
        return Typed(f"(not {operands[0]})" if word == "not" else f"({operands[0]} {word} {operands[1]})", BOOL, 0, 1)

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"({yes} if {condition} else {no})"


def _scalar_conversion(source: Element, target: Element) -> Callable[[Any, Told], Any]:
    """Return a conversion between a Python integer and a numpy scalar, or two numpy scalars."""

    def change(value: Any, told: Told) -> Any:
        result = conversion(source, target, told)(np.asarray(value).astype(source.dtype))
        return result[()] if target.is_float else result.item()

    return change


# --- arrays


class VectorWriter(ExpressionWriter):
    """Writes arrays of the C types themselves. told: called with the code of undefined behaviour."""

    def __init__(self, names: Callable[[Any], str], namespace: dict[str, Any], told: Told) -> None:
        super().__init__(names, namespace)
        self.told = told

    def literal(self, value: int, item: Element) -> Typed:
        return Typed(self.constants(np.asarray(value, np.int64).astype(item.dtype)), item)

    def integer(self, kind: str, item: Element, *operands: Typed) -> Typed:
        call = self.constants(integers(kind, self.told))
        return Typed(f"{call}({', '.join(x.text for x in operands)})", BOOL if kind in _COMPARISONS else item)

    def logical(self, word: str, *operands: str) -> Typed:
        return Typed(f"_np.logical_{word}({', '.join(operands)})", BOOL)

    def choice(self, condition: str, yes: str, no: str) -> str:
        return f"_np.where({condition}, {yes}, {no})"


class IndexWriter(VectorWriter):
    """Writes offsets of elements: int64 throughout, with Python's operators."""

    def literal(self, value: int, item: Element) -> Typed:
        return Typed(repr(value), item)

    def converted(self, x: Typed, target: Element) -> Typed:
        return x._replace(type=target)

    def integer(self, kind: str, item: Element, *operands: Typed) -> Typed:
        texts = [x.text for x in operands]
        if kind in _INFIX:
            return Typed(f"({texts[0]} {_INFIX[kind]} {texts[1]})", BOOL if kind in _COMPARISONS else item)
        return super().integer(kind, item, *operands)


def free_variables(body: Any, bound: Sequence[Any] = ()) -> list[Any]:
    """Return the variables of an expression that are not in `bound`, in order of appearance."""
    from tilus.hidet.ir.expr import Call, Var
    from tilus.hidet.ir.tools import collect

    called = {id(call.func_var) for call in collect(body, Call)}
    skip = {id(v) for v in bound} | called
    unique = {id(v): v for v in collect(body, Var) if id(v) not in skip}
    return list(unique.values())


def vector_function(args: Sequence[Any], body: Any, told: Told = nobody) -> Callable[..., Any]:
    """Return `body` as a numpy function of these hidet variables: arrays, or scalars that broadcast, of their types."""
    function = _compiled(args, body, lambda names, namespace: VectorWriter(names, namespace, told))
    dtypes = [element(var.type).dtype if hasattr(var.type, "nbits") else None for var in args]

    def call(*values: Any) -> Any:
        return function(*[np.asarray(x).astype(t, copy=False) if t else x for x, t in zip(values, dtypes, strict=True)])

    return call


def index_function(args: Sequence[Any], body: Any) -> Callable[..., Any]:
    """Return `body`, an offset or a mask, as a function of int64 arrays or Python integers."""
    return _compiled(args, body, lambda names, namespace: IndexWriter(names, namespace, nobody))


def _compiled(args: Sequence[Any], body: Any, writer: Callable[..., ExpressionWriter]) -> Callable[..., Any]:
    namespace: dict[str, Any] = dict(NAMESPACE)
    names = {id(var): f"x{i}" for i, var in enumerate(args)}

    def name_of(var: Any) -> str:
        if id(var) not in names:
            raise UnsupportedError(f"The simulator cannot use the variable {var} inside an elementwise expression.")
        return names[id(var)]

    text = writer(name_of, namespace).write(body)
    function: Callable[..., Any] = eval(f"lambda {', '.join(f'x{i}' for i in range(len(args)))}: {text}", namespace)
    return function
