"""Launch plan of a kernel as plain data: the host's computations for one call, and the driver's arguments.

tilus writes these computations as C++ for a host compiler. A `LaunchPlan` holds them as expressions over the call's
arguments; `evaluate` computes the numbers. This module imports neither tilus nor cuda, so that a saved plan runs
without them.

An expression is an integer, a parameter's name, or a tuple of an operator and its operands, such as `("//", ("+", "m",
127), 128)`. Expressions mean the same as in C, with one exception: numbers are unbounded until a cast such as `("i32",
x)` wraps them. C leaves such overflow undefined.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, cast

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.records import MOST_DEPTH, whole
from blackwell_matmul.base.strides import require_memory, require_row_major
from blackwell_matmul.base.validation import attribute, shown
from blackwell_matmul.problem.elements import require_element, require_taken_as

Expr = int | str | tuple[Any, ...]
Dim3 = tuple[Expr, Expr, Expr]

PLAN_FORMAT = 4
"""Version of the format that `as_dict` writes."""

MAPPED = {"FLOAT16": "float16", "BFLOAT16": "bfloat16", "FLOAT32": "float32"}
"""Element type for each type of a tensor map, by the driver's name. 8-bit types all use UINT8 and are not listed."""

# --- expressions


def c_div(a: int, b: int) -> int:
    """Return C's `/` on integers, rounded toward zero; Python's `//` rounds down."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def c_mod(a: int, b: int) -> int:
    """Return C's `%`; the remainder has the dividend's sign."""
    return a - b * c_div(a, b)


def fastdiv_s(divisor: int) -> int:
    """Return the shift s of the division by multiplication `umulhi(a, m) >> s`: floor(log2(divisor))."""
    if divisor <= 0:
        raise ZeroDivisionError(f"{divisor} is no divisor")
    return divisor.bit_length() - 1


def fastdiv_m(divisor: int) -> int:
    """Return the multiplier m of `umulhi(a, m) >> s`: ceil(2**(32 + s) / divisor) in 32 bits; 0 for a power of two.

    Exact for 0 <= a < 2**31: m * divisor exceeds 2**(32 + s) by less than divisor < 2**(s + 1). So the quotient's error
    is less than a / 2**31 / divisor, below the distance to the next integer. For m = 0 the device code only shifts.
    """
    shift = fastdiv_s(divisor)
    return 0 if divisor == 1 << shift else -(-(1 << (32 + shift)) // divisor)


def places(count: int) -> int:
    """Return a shift's count if C allows it, 0 to 63; else raise ValueError."""
    if not 0 <= count < 64:
        raise ValueError(f"a shift by {shown(count)} bits is none of C")
    return count


def _cast(bits: int, signed: bool) -> str:
    """Return the text of a cast to an integer of this width, which wraps as in C and on every target of CUDA."""
    mask, half = (1 << bits) - 1, 1 << (bits - 1)
    return f"((({{0}}) + {half} & {mask}) - {half})" if signed else f"(({{0}}) & {mask})"


OPERATORS: Mapping[str, str] = {
    **{op: f"({{0}} {op} {{1}})" for op in ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^")},
    **{op: f"({{0}} {op} places({{1}}))" for op in ("<<", ">>")},
    **{op: f"({{0}} {op} {{1}})" for op in ("and", "or")},
    **{f"{kind}{bits}": _cast(bits, kind == "i") for kind in "iu" for bits in (8, 16, 32, 64)},
    "//": "c_div({0}, {1})",
    "%": "c_mod({0}, {1})",
    "min": "min({0}, {1})",
    "max": "max({0}, {1})",
    "not": "(not {0})",
    "neg": "(-{0})",
    "?:": "({1} if {0} else {2})",
    "fastdiv_m": "fastdiv_m({0})",
    "fastdiv_s": "fastdiv_s({0})",
}
"""Python text of every operator, with {0}, {1} and {2} for the operands; generated text contains no other operators."""

_FUNCTIONS: dict[str, Callable[..., int]] = {
    **{function.__name__: function for function in (c_div, c_mod, fastdiv_m, fastdiv_s, places)},
    "min": min,
    "max": max,
}
_ARITY = {op: len(set(re.findall(r"\{(\d)\}", text))) for op, text in OPERATORS.items()}


def python_text(expr: Expr, names: Mapping[str, str]) -> str:
    """Return the Python text of an expression. names: Python name of each parameter."""
    if isinstance(expr, str):
        if expr not in names:
            raise InputError(f"the launch plan reads {shown(expr)}, which is no parameter of the kernel.")
        return names[expr]
    if isinstance(expr, tuple) and expr and isinstance(expr[0], str) and _ARITY.get(expr[0]) == len(expr) - 1:
        return OPERATORS[expr[0]].format(*(python_text(operand, names) for operand in expr[1:]))
    if isinstance(expr, int) and not isinstance(expr, bool):
        return f"({expr})" if expr < 0 else str(expr)
    raise InputError(f"the launch plan has {shown(expr)} where an expression must be.")


def folded(expr: Expr) -> Expr:
    """Return the value of an expression without parameters; any other expression unchanged."""
    if not isinstance(expr, tuple) or parameters_of(expr):
        return expr
    return int(eval(python_text(expr, {}), {"__builtins__": {}, **_FUNCTIONS}))


def parameters_of(expr: Expr) -> frozenset[str]:
    """Return the names of the parameters that an expression reads."""
    if isinstance(expr, str):
        return frozenset([expr])
    return frozenset().union(*map(parameters_of, expr[1:])) if isinstance(expr, tuple) else frozenset()


# --- the parts of a plan


@dataclass(frozen=True)
class Parameter:
    """An argument of the call. type: "pointer", "int32", "uint32", "int64", "float32" and so on.

    element: of a pointer, such as "float16"; "" if unknown. default: None for a required argument. row_major: the
    tensor must be contiguous, as the kernel takes no strides. taken_as: element type that the code assumes for a
    void_p; "" if unknown.
    """

    name: str
    type: str
    element: str = ""
    default: int | float | None = None
    row_major: bool = False
    taken_as: str = ""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Arguments of cuTensorMapEncodeTiled, with the driver's names of enums and types; innermost dimension first.

    dtype: such as "FLOAT16" for CU_TENSOR_MAP_DATA_TYPE_FLOAT16; other enums likewise. strides_bytes: one fewer than
    dims, as the innermost dimension is contiguous.
    """

    dtype: str
    pointer: Expr
    dims: tuple[Expr, ...]
    strides_bytes: tuple[Expr, ...]
    box: tuple[Expr, ...]
    element_strides: tuple[Expr, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    oob_fill: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """Global memory for one launch. clear: True if each launch starts with zeros. kept: True if each launch also leaves
    zeros, so that the next launch of the stream can have the same memory."""

    nbytes: Expr
    clear: bool
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the device function.

    kind: "value", "tensor_map" or "workspace". value: an expression; for a tensor map or a workspace, its index in the
    plan. type: C type of a value: "pointer", "int32", "float32" and so on.
    """

    kind: str
    type: str
    value: Expr


@dataclass(frozen=True)
class Check:
    """A condition on a call, and the message if it fails: one sentence without its period."""

    condition: Expr
    message: str


class Launch(NamedTuple):
    """Evaluated launch plan of one call. All expressions are integers, or floats from arguments."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int
    tensor_maps: tuple[TensorMap, ...]
    workspaces: tuple[Workspace, ...]
    arguments: tuple[Argument, ...]
    early_start: bool

    @property
    def is_empty(self) -> bool:
        """Return True if the grid has no CTA. The driver refuses an empty grid; here an empty grid is no error."""
        return 0 in self.grid


@dataclass(frozen=True)
class LaunchPlan:
    """Plan to launch one kernel. kernel: name of its device function in the cubin.

    parameters: arguments of a call, in order, without compile-time constants. cluster: compiled into the kernel
    (`__cluster_dims__`). early_start: condition (1: always) under which the grid may start before preceding grids of
    the stream have ended; the kernel waits for them itself (`launch_order`).
    """

    kernel: str
    parameters: tuple[Parameter, ...]
    checks: tuple[Check, ...]
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_shared_bytes: Expr
    tensor_maps: tuple[TensorMap, ...]
    workspaces: tuple[Workspace, ...]
    arguments: tuple[Argument, ...]
    early_start: Expr = 0

    @property
    def spoken(self) -> str:
        """Return the script's name for messages, in the lower case of tilus's function name."""
        return self.kernel.removeprefix("tilus_").removesuffix("_kernel")

    def evaluate(self, values: Sequence[int | float]) -> Launch:
        """Return the launch for these arguments, in the order of `parameters`. A tensor is given by its address;
        trailing arguments with defaults may be omitted.

        Raises InputError, one sentence, for a wrong number of values, a value that does not fit, or a failed check.
        """
        if len(values) != len(self.parameters):
            values = self._completed(values)
        try:
            return self._function(*values)
        except (ArithmeticError, ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.spoken} cannot be launched with {self._told(values)}: {error}.") from error

    def require_operands(self, kernel: str, arguments: Sequence[Any]) -> None:
        """Raise InputError for arguments too many, for another value in place of a number, or for a tensor whose
        element type or layout does not match its parameter."""
        if len(arguments) > len(self.parameters):
            self._require_count(len(arguments))
        mapped = {each.pointer: MAPPED.get(each.dtype, "") for each in self.tensor_maps}
        for parameter, each in zip(self.parameters, arguments):
            if parameter.type != "pointer":
                kind = Real if "float" in parameter.type else Integral
                if not isinstance(each, kind) or (isinstance(each, bool) and parameter.type != "bool"):
                    what = f"{parameter.name} of {kernel} is {shown(each)}"
                    raise InputError(f"{what}; it takes a number of {parameter.type}.")
            elif attribute(each, "dtype") is not None and hasattr(type(each), "__len__"):  # no number of numpy
                require_memory(f"{parameter.name} of {kernel}", each)
                require_element(kernel, parameter.name, parameter.element, each)
                require_taken_as(kernel, parameter.name, parameter.taken_as or mapped.get(parameter.name, ""), each)
                if parameter.row_major:
                    require_row_major(kernel, parameter.name, each)

    def _completed(self, values: Sequence[int | float]) -> Sequence[int | float]:
        """Return the values; omitted trailing values are filled with defaults."""
        self._require_count(len(values))
        return [*values, *(cast("int | float", each.default) for each in self.parameters[len(values) :])]

    def _require_count(self, count: int) -> None:
        most = len(self.parameters)
        least = max((i for i, each in enumerate(self.parameters, 1) if each.default is None), default=0)
        if not least <= count <= most:
            named = (each.name + f" = {each.default}" * (each.default is not None) for each in self.parameters)
            takes = f"{least} to {most}" if least < most else str(most)
            raise InputError(f"{self.spoken} takes {takes} arguments ({', '.join(named)}) but got {count}.")

    @functools.cached_property
    def text(self) -> str:
        """Return the source of the Python function that `evaluate` calls."""
        return "\n".join(_text(self))

    @functools.cached_property
    def _function(self) -> Callable[..., Launch]:
        space: dict[str, Any] = {**_FUNCTIONS, "__builtins__": {}, "refuse": self._refuse}
        space.update({kind.__name__: kind for kind in (TensorMap, Workspace, Argument, Launch)})
        exec(compile(self.text, f"<launch plan of {self.kernel}>", "exec"), space)
        return cast("Callable[..., Launch]", space["launch"])

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _fields(LaunchPlan)}  # the generated function cannot be pickled

    def _refuse(self, index: int, *values: int | float) -> None:
        """Raise InputError for a parameter or a failed check. index: first of the parameters, then of the checks."""
        if index < len(self.parameters):
            name, value, kind = self.parameters[index].name, values[index], self.parameters[index].type
            raise InputError(f"{name} of {self.spoken} is {shown(value)}, which does not fit {kind}.")
        check = self.checks[index - len(self.parameters)]
        reads = parameters_of(check.condition)
        told = self._told(values, [p.name for p in self.parameters if p.name in reads])
        raise InputError(f"{self.spoken}: {check.message}{f' ({told})' if told else ''}.")

    def _told(self, values: Sequence[int | float], names: Sequence[str] | None = None) -> str:
        pairs = {parameter.name: value for parameter, value in zip(self.parameters, values)}
        return ", ".join(f"{name} = {shown(pairs[name])}" for name in (pairs if names is None else names))

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for JSON; `from_dict` restores an equal plan."""
        return {"format": PLAN_FORMAT, **{name: _plain(getattr(self, name)) for name in _fields(LaunchPlan)}}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> LaunchPlan:
        """Return the plan of a record that `as_dict` returned; raise InputError, one sentence, for any other record."""
        if not isinstance(record, Mapping) or record.get("format") != PLAN_FORMAT:
            raise InputError(f"this is no launch plan of format {PLAN_FORMAT}.")
        try:
            plan = whole(cls(**{name: _read(name, record[name]) for name in _fields(cls)}))
            _verify(plan)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SyntaxError, MemoryError) as error:
            raise InputError(f"the launch plan is damaged: {_reason(error)}.") from error
        return plan


# --- the generated function


def _text(plan: LaunchPlan) -> Iterator[str]:
    """Yield the lines of `def launch(...)`: range checks, other checks, tensor maps, and the returned expression. Equal
    tensor maps are made once."""
    variables = {parameter.name: f"v{index}" for index, parameter in enumerate(plan.parameters)}
    every = "".join(f", {variable}" for variable in variables.values())
    yield f"def launch({', '.join(variables.values())}):"
    for index, parameter in enumerate(plan.parameters):
        limits = _limits(parameter.type)
        if limits is not None:
            yield f"    if not {limits[0]} <= v{index} <= {limits[1]}: refuse({index}{every})"
    for index, check in enumerate(plan.checks, len(plan.parameters)):
        yield f"    if not {python_text(check.condition, variables)}: refuse({index}{every})"
    maps = list(dict.fromkeys(plan.tensor_maps))
    for index, each in enumerate(maps):
        yield f"    t{index} = {_constructor(each, variables)}"
    fields = [_tuple(getattr(plan, name), variables) for name in ("grid", "block", "cluster")]
    fields.append(python_text(plan.dynamic_shared_bytes, variables))
    fields.append(_joined(f"t{maps.index(each)}" for each in plan.tensor_maps))
    fields.append(_joined(_constructor(each, variables) for each in plan.workspaces))
    fields.append(_joined(_constructor(each, variables) for each in plan.arguments))
    fields.append(f"{python_text(plan.early_start, variables)} != 0")
    yield f"    return Launch({', '.join(fields)})"


def _constructor(part: TensorMap | Workspace | Argument, variables: Mapping[str, str]) -> str:
    """Return the text of a call that makes the part; expressions become Python text, names stay strings."""
    values = [getattr(part, name) for name in _fields(type(part))]
    texts = [repr(value) for value in values]
    for index, name in enumerate(_fields(type(part))):
        if name in _EXPRESSIONS:
            texts[index] = python_text(values[index], variables)
        elif name in _TUPLES:
            texts[index] = _tuple(values[index], variables)
    return f"{type(part).__name__}({', '.join(texts)})"


_EXPRESSIONS = {"pointer", "nbytes", "value", "condition", "dynamic_shared_bytes"}
_TUPLES = {"dims", "strides_bytes", "box", "element_strides", "grid", "block", "cluster"}


def _tuple(exprs: Sequence[Expr], variables: Mapping[str, str]) -> str:
    return _joined(python_text(expr, variables) for expr in exprs)


def _joined(texts: Any) -> str:
    return "(" + "".join(f"{text}, " for text in texts) + ")"


def _limits(kind: str) -> tuple[int, int] | None:
    """Return the minimum and maximum of an integer type, a bool or an address; None for other types."""
    named = re.fullmatch(r"(u?)int(8|16|32|64)", "uint64" if kind == "pointer" else kind)
    if named is None:
        return (0, 1) if kind == "bool" else None
    bits = int(named[2])
    return (0, (1 << bits) - 1) if named[1] else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


# --- plain data


def _fields(kind: type) -> list[str]:
    return list(kind.__dataclass_fields__)  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in _fields(type(value))}
    return value


_PARTS: Mapping[str, type] = {
    "parameters": Parameter,
    "checks": Check,
    "tensor_maps": TensorMap,
    "workspaces": Workspace,
    "arguments": Argument,
}


def _read(name: str, value: Any) -> Any:
    """Return the field `name` of a plan from its JSON value: lists become tuples, mappings become parts."""
    if name not in _PARTS:
        return _tuples(value)
    if not isinstance(value, list):
        raise TypeError(f"{name} is {shown(value)} and not a list")
    return tuple(whole(_PARTS[name](**{key: _tuples(field) for key, field in record.items()})) for record in value)


def _tuples(value: Any, room: int = MOST_DEPTH) -> Any:
    if not isinstance(value, list):
        return value
    if not room:
        raise RecursionError
    return tuple(_tuples(each, room - 1) for each in value)


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]!r}"
    too_deep = isinstance(error, (RecursionError, SyntaxError, MemoryError))  # generated text is valid if short
    return "it is nested too deeply" if too_deep else str(error).rstrip(".")


def _verify(plan: LaunchPlan) -> None:
    """Raise InputError or ValueError for a plan that would fail or be wrong at a launch."""
    if len({parameter.name for parameter in plan.parameters}) != len(plan.parameters):
        raise ValueError("two parameters have one name")
    _verify_arguments(plan)
    _verify_maps(plan)
    if any(len(dim3) != 3 for dim3 in (plan.grid, plan.block, plan.cluster)):
        raise ValueError("grid, block and cluster must have three extents each")
    _ = plan._function  # raises for an invalid expression


def _verify_arguments(plan: LaunchPlan) -> None:
    places = {"tensor_map": len(plan.tensor_maps), "workspace": len(plan.workspaces)}
    for argument in plan.arguments:
        if argument.kind not in ("value", *places):
            raise ValueError(f"argument kind {shown(argument.kind)} is unknown")
        if argument.kind in places and argument.value not in range(places[argument.kind]):
            raise ValueError(f"there is no {argument.kind} {shown(argument.value)}")


def _verify_maps(plan: LaunchPlan) -> None:
    for each in plan.tensor_maps:
        rank = len(each.dims)
        if (len(each.strides_bytes), len(each.box), len(each.element_strides)) != (rank - 1, rank, rank):
            raise ValueError(f"a tensor map of rank {rank} has strides, box or element strides of another rank")
