"""hidet expressions as Python source: scalar code for control flow, numpy code for elementwise work.

Integers are Python integers. Unsigned results wrap at their width; division and remainder truncate as in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.simulator.types import convert, element


def c_div(a: Any, b: Any) -> Any:
    """C's integer division: towards zero."""
    if (a >= 0) == (b > 0):
        return a // b
    return -(-a // b)


def c_mod(a: Any, b: Any) -> Any:
    """C's remainder: the sign of the dividend."""
    return a - b * c_div(a, b)


def v_div(a: Any, b: Any) -> Any:
    """Elementwise division, by the types of the operands."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "iub" and b.dtype.kind in "iub":
        with np.errstate(divide="ignore", over="ignore"):
            down = a // b
            return (down + ((down * b != a) & ((a < 0) != (b < 0)))).astype(np.result_type(a, b))
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def v_mod(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmod(a, b).astype(np.result_type(a, b))


def round_to(value: float, bits: int) -> float:
    """A scalar float variable holds what its type can hold."""
    return float(np.float32(value)) if bits == 32 else float(np.float16(value)) if bits == 16 else float(value)


def wrap_int(value: int, bits: int, signed: bool) -> int:
    """An integer variable keeps the low bits of what is assigned to it."""
    value = int(value)
    if 0 <= value < 1 << (bits - 1):
        return value
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _same(f: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in float32 (or wider) and give back the operand's type."""

    def call(*args: Any) -> Any:
        first = np.asarray(args[0])
        wide = [np.asarray(x).astype(np.float32) if np.asarray(x).dtype.itemsize < 4 else x for x in args]
        with np.errstate(all="ignore"):
            return np.asarray(f(*wide)).astype(first.dtype if first.dtype.kind in "fV" else np.float32)

    return call


def _round(x: Any) -> Any:
    """Halves go away from zero in float32 and float64 (roundf), to the even neighbour in narrower types (hrint)."""
    narrow = np.asarray(x).dtype.itemsize < 4
    return _same(np.rint if narrow else lambda v: np.trunc(v + np.copysign(np.nextafter(v.dtype.type(0.5), 0), v)))(x)


VECTOR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": _same(np.exp),
    "exp2": _same(np.exp2),
    "expm1": _same(np.expm1),
    "log": _same(np.log),
    "log2": _same(np.log2),
    "log10": _same(np.log10),
    "log1p": _same(np.log1p),
    "sqrt": _same(np.sqrt),
    "rsqrt": _same(lambda x: 1.0 / np.sqrt(x)),
    "sin": _same(np.sin),
    "cos": _same(np.cos),
    "tan": _same(np.tan),
    "tanh": _same(np.tanh),
    "sinh": _same(np.sinh),
    "cosh": _same(np.cosh),
    "asin": _same(np.arcsin),
    "acos": _same(np.arccos),
    "atan": _same(np.arctan),
    "erf": _same(_erf),
    "round": _round,
    "floor": _same(np.floor),
    "ceil": _same(np.ceil),
    "trunc": _same(np.trunc),
    "pow": _same(np.power),
    "fma": _same(lambda a, b, c: a * b + c),
    "abs": np.abs,
    "max": np.fmax,
    "min": np.fmin,
    "mod": v_mod,
    "isnan": lambda x: np.isnan(x),
    "isinf": lambda x: np.isinf(x),
    "isfinite": lambda x: np.isfinite(x),
}

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
_COMPARISONS = ("LessThan", "LessEqual", "Equal", "NotEqual")
_ARITHMETIC = ("Add", "Sub", "Multiply", "Div", "FloorDiv", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
_MAY_LEAVE_RANGE = ("Add", "Sub", "Multiply", "LeftShift", "BitwiseNot", "Neg", "BitwiseOr", "BitwiseXor")

NAMESPACE: dict[str, Any] = {
    "_div": c_div,
    "_mod": c_mod,
    "_wrap": wrap_int,
    "_round": round_to,
    "_vdiv": v_div,
    "_vmod": v_mod,
    "_vf": VECTOR_FUNCTIONS,
    "_np": np,
}
"""What generated code finds under its private names."""


def function_name(name: str) -> str:
    """`generic_exp`, `cuda_f32_exp`, `cuda_fp16_exp`… are all `exp`."""
    return name.rsplit("_", 1)[-1] if name.startswith(("generic_", "cuda_", "cpu_")) else name


def _promoted(kind: tuple[bool, int]) -> tuple[bool, int]:
    return kind if kind[1] >= 32 else (False, 32)


def _common(a: tuple[bool, int], b: tuple[bool, int]) -> tuple[bool, int]:
    """C's usual arithmetic conversions: the wider type; of two as wide, the unsigned one."""
    a, b = _promoted(a), _promoted(b)
    return max(a, b, key=lambda kind: (kind[1], kind[0]))


def c_type(e: Any) -> tuple[bool, int] | None:
    """(unsigned, bits) of an integer expression as the generated C computes it, which hidet's own types do not say:
    uint32 minus int32 is int64 to hidet and uint32 to C. None: not an integer."""
    from tilus.hidet.ir.tools import infer_type

    kind, inferred = type(e).__name__, infer_type(e)
    if not hasattr(inferred, "is_float") or inferred.is_float():
        return None
    if kind in _ARITHMETIC and inferred.nbits >= 32:
        a, b = c_type(e.a), c_type(e.b)
        return None if a is None or b is None else _common(a, b)
    if kind in ("LeftShift", "RightShift", "Neg", "BitwiseNot"):
        a = c_type(e.a)
        return None if a is None else _promoted(a)
    return inferred.name.startswith("uint"), (32 if inferred.name == "bool" else inferred.nbits)


def _may_be_negative(e: Any) -> bool:
    from tilus.hidet.ir.tools import infer_type

    if type(e).__name__ == "Constant":
        return bool(e.value < 0)
    kind = c_type(e)
    return kind is not None and not kind[0] and infer_type(e).name != "bool"


class ExpressionWriter:
    """Writes one hidet expression as Python; `names` gives the Python name of a variable.

    vector: operands are numpy arrays; otherwise they are Python scalars. Constants that Python cannot spell
    (types for a cast) go to `constants`.
    """

    def __init__(self, names: Callable[[Any], str], vector: bool, constants: Callable[[Any], str]) -> None:
        self.names = names
        self.vector = vector
        self.constants = constants

    def write(self, e: Any) -> str:
        kind = type(e).__name__
        if kind in ("Add", "Sub") and not self.vector and (step := self._pointer_step(e)) > 1:
            return f"({self._scaled(e.a, step)} {_INFIX[kind]} {self._scaled(e.b, step)})"
        if kind in _COMPARISONS:
            a, b = self._operands(e)
            return f"({a} {_INFIX[kind]} {b})"
        if kind in _INFIX:
            return self._wrapped(e, kind, f"({self.write(e.a)} {_INFIX[kind]} {self.write(e.b)})")
        method = getattr(self, f"_{kind}", None)
        if method is None:
            raise UnsupportedError(f"The simulator does not evaluate {kind} expressions; `{e}` is one.")
        return method(e)

    @staticmethod
    def _pointer_step(e: Any) -> int:
        """Bytes that a pointer moves by when one is added to it, as in C; 0 for any other expression."""
        from tilus.hidet.ir.tools import infer_type

        base = getattr(infer_type(e), "base_type", None)
        return getattr(base, "nbits", 0) // 8

    def _scaled(self, operand: Any, step: int) -> str:
        """An operand of pointer arithmetic; addresses are bytes."""
        text = self.write(operand)
        return text if self._pointer_step(operand) else f"{text} * {step}"

    def _wrapped(self, e: Any, kind: str, text: str) -> str:
        """Unsigned scalars wrap; numpy wraps by itself."""
        if self.vector or kind not in _MAY_LEAVE_RANGE:
            return text
        unsigned, bits = c_type(e) or (False, 64)
        if kind in ("BitwiseOr", "BitwiseXor") and not (_may_be_negative(e.a) or _may_be_negative(e.b)):
            return text
        return f"({text} & {(1 << bits) - 1})" if unsigned else text

    def _operands(self, e: Any) -> tuple[str, str]:
        """Both operands after C's usual conversions: with an unsigned one, the other becomes unsigned too."""
        a, b = self.write(e.a), self.write(e.b)
        types = (None, None) if self.vector else (c_type(e.a), c_type(e.b))
        if types[0] is None or types[1] is None:
            return a, b
        unsigned, bits = _common(types[0], types[1])
        if not unsigned:
            return a, b
        mask = (1 << bits) - 1
        return tuple(f"({text} & {mask})" if _may_be_negative(x) else text for text, x in ((a, e.a), (b, e.b)))  # type: ignore[return-value]

    @staticmethod
    def _is_integer(e: Any) -> bool:
        from tilus.hidet.ir.tools import infer_type

        tp = infer_type(e)
        return not hasattr(tp, "is_float") or not tp.is_float()

    def _Var(self, e: Any) -> str:
        return self.names(e)

    _SymbolVar = _Var

    def _Constant(self, e: Any) -> str:
        value = e.value
        if isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, float) and math.isfinite(value):
            return repr(value)
        return self.constants(float(value) if not isinstance(value, np.ndarray) else value)

    def _Div(self, e: Any) -> str:
        a, b = self._operands(e)
        if self.vector:
            return f"_vdiv({a}, {b})"
        return f"_div({a}, {b})" if self._is_integer(e) else f"({a} / {b})"

    _FloorDiv = _Div

    def _Mod(self, e: Any) -> str:
        return f"{'_vmod' if self.vector else '_mod'}({', '.join(self._operands(e))})"

    def _LogicalAnd(self, e: Any) -> str:
        return self._logical(e, "_np.logical_and", "and")

    def _LogicalOr(self, e: Any) -> str:
        return self._logical(e, "_np.logical_or", "or")

    def _logical(self, e: Any, function: str, word: str) -> str:
        a, b = self.write(e.a), self.write(e.b)
        return f"{function}({a}, {b})" if self.vector else f"(bool({a}) {word} bool({b}))"

    def _LogicalNot(self, e: Any) -> str:
        return f"_np.logical_not({self.write(e.a)})" if self.vector else f"(not {self.write(e.a)})"

    def _Neg(self, e: Any) -> str:
        return self._wrapped(e, "Neg", f"(-{self.write(e.a)})")

    def _BitwiseNot(self, e: Any) -> str:
        return self._wrapped(e, "BitwiseNot", f"(~{self.write(e.a)})")

    def _IfThenElse(self, e: Any) -> str:
        cond, yes, no = self.write(e.cond), self.write(e.then_expr), self.write(e.else_expr)
        return f"_np.where({cond}, {yes}, {no})" if self.vector else f"({yes} if {cond} else {no})"

    def _Cast(self, e: Any) -> str:
        inner = self.write(e.expr)
        if type(e.target_type).__name__ != "DataType" and not hasattr(e.target_type, "nbits"):
            return inner  # a cast between pointers: addresses are bytes
        if self.vector:
            return self._vector_cast(e, inner)
        name, bits = e.target_type.name, e.target_type.nbits
        if name == "bool":
            return f"bool({inner})"
        return f"_round({inner}, {bits})" if e.target_type.is_float() else self._int_cast(inner, name, bits)

    @staticmethod
    def _int_cast(inner: str, name: str, bits: int) -> str:
        return f"_wrap({inner}, {bits}, {not name.startswith('u')})"

    def _vector_cast(self, e: Any, inner: str) -> str:
        from tilus.hidet.ir.tools import infer_type

        source, target = element(infer_type(e.expr)), element(e.target_type)
        cast = self.constants(lambda x: convert(np.asarray(x).astype(source.dtype, copy=False), source, target))
        return f"{cast}({inner})"

    def _Call(self, e: Any) -> str:
        name = function_name(e.func_var.name)
        args = [self.write(a) for a in e.args]
        if self.vector and name in VECTOR_FUNCTIONS:
            return f"_vf[{name!r}]({', '.join(args)})"
        if name == "fastdiv":  # fast_divmod means the exact quotient, whatever constants tilus computes for it
            return f"{'_vdiv' if self.vector else '_div'}({', '.join(args)})"
        if not self.vector and name in ("max", "min", "abs"):
            return f"{name}({', '.join(args)})"
        if not self.vector and name in VECTOR_FUNCTIONS:
            return f"float(_vf[{name!r}](_np.float32({args[0]}){''.join(', ' + a for a in args[1:])}))"
        raise UnsupportedError(f"The simulator has no meaning for the function {e.func_var.name} in `{e}`.")


def free_variables(body: Any, bound: Sequence[Any] = ()) -> list[Any]:
    """The variables of an expression that are not in `bound`, in order of appearance."""
    from tilus.hidet.ir.expr import Var
    from tilus.hidet.ir.tools import collect

    called = {id(call.func_var) for call in collect(body, _call_class())}
    skip = {id(v) for v in bound} | called
    unique = {id(v): v for v in collect(body, Var) if id(v) not in skip}
    return list(unique.values())


def _call_class() -> Any:
    from tilus.hidet.ir.expr import Call

    return Call


def vector_function(args: Sequence[Any], body: Any) -> Callable[..., Any]:
    """`body` as a numpy function of the given hidet variables (arrays, or scalars that broadcast)."""
    namespace: dict[str, Any] = dict(NAMESPACE)

    def keep(value: Any) -> str:
        name = f"_k{len(namespace)}"
        namespace[name] = value
        return name

    names = {id(var): f"x{i}" for i, var in enumerate(args)}

    def name_of(var: Any) -> str:
        if id(var) not in names:
            raise UnsupportedError(f"The simulator cannot use the variable {var} inside an elementwise expression.")
        return names[id(var)]

    text = ExpressionWriter(name_of, True, keep).write(body)
    return eval(f"lambda {', '.join(f'x{i}' for i in range(len(args)))}: {text}", namespace)
