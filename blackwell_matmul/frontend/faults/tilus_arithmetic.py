"""Guards for rules of tilus 0.2.0 that simplify arithmetic but do not always hold in C.

- tilus's simplifiers treat `//` and `%` as Python's (towards minus infinity), but the code is C (towards zero). (n +
  4) // 4 becomes n // 4 + 1, which is 1 and not 0 for n = -1.
- The simplifiers treat sums as exact. Sums of floats and of unsigned integers are not.
- A constant is not converted to its type: in tilus a float16 can be 0.1 and an int8 300. Infinity is cut.

Here a rule is applied only to operands for which the rule holds; other expressions stay as written. A constant has the
value of a variable of its type. Removable when tilus's rules depend on the sign and type of their operands.
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from blackwell_matmul.frontend.faults.tilus_compat import given, lock, mended, replaced

_DIVISIONS = ("Div", "FloorDiv", "Mod")
_NUMERIC = ("Add", "Sub", "Multiply", *_DIVISIONS)
_ORDERINGS = ("LessThan", "LessEqual")
_SUMS = ("visit_Add", "visit_Sub", "visit_Multiply")


@contextmanager
def sound_arithmetic() -> Iterator[None]:
    """Restrict the simplifications of tilus and hidet, inside the block, to operands for which they hold: not negative,
    not unsigned, not floating-point."""
    base: Any = importlib.import_module("tilus.hidet.transforms._rule_based_simplifier_base")
    chains: Any = importlib.import_module("tilus.hidet.transforms.simplify_addition_chain")
    analyzers: Any = importlib.import_module("tilus.hidet.ir.analyzers.bound_analyzer")
    bounds = analyzers.BoundInfo
    rules, plain = base.RuleBasedSimplifier, base.IRRewriter
    all_rules: Any = importlib.import_module("tilus.hidet.transforms.rule_based_simplifier").RuleBasedSimplifier
    tree: Any = importlib.import_module("tilus.hidet.ir.expr")
    scalars: Any = importlib.import_module("tilus.ir.analyzers.scalar_analyzer")
    sets, known = scalars.ScalarSetAnalyzer, analyzers.BoundAnalyzer
    casts: Any = importlib.import_module("tilus.hidet.transforms.add_explicit_cast").AddExplicitCastRewriter
    floats: Any = importlib.import_module("tilus.hidet.ir.dtypes.floats").FloatType
    types: Any = importlib.import_module("tilus.hidet.ir.tools").TypeInfer
    towards_zero = {tree.Div: quotient, tree.FloorDiv: quotient, tree.Mod: lambda a, b: a - b * quotient(a, b)}
    with lock, replaced(
        (sys.modules[__name__], "_type_of", types()),  # one, which remembers: most is asked again
        (rules, "apply_rule", _guarded(rules.apply_rule, _rule_holds)),
        (rules, "apply_bound_aware_rule", _guarded(rules.apply_bound_aware_rule, _rule_holds)),
        (rules, "visit", _typed(rules.visit, tree)),
        (all_rules, "visit_BitwiseXor", _of_xors(tree.BitwiseXor, all_rules)),
        (rules, "visit_Mod", _guarded(rules.visit_Mod, _not_negative, plain.visit_Mod)),
        (chains.DecomposeRewriter, "visit_Multiply",
         _guarded(chains.DecomposeRewriter.visit_Multiply, _sum_holds, plain.visit_Multiply)),
        (chains.AdditionChainRewriter, "visit_Add",
         _chained(chains.AdditionChainRewriter.visit_Add, plain.visit_Add)),
        (base.ConstExprSimplifier, "op_dict", {**base.ConstExprSimplifier.op_dict, **towards_zero}),
        (tree, "operator_dict", {**tree.operator_dict, **towards_zero}),
        (tree.Expr, "_binary", staticmethod(_with_zero(tree, tree.Expr._binary))),
        (tree.Constant, "__init__", _of_its_type(tree.Constant.__init__)),
        (floats, "constant", lambda self, value: tree.constant(getattr(value, "value", value), self)),
        (casts, "process", _visited(casts.process)),
        (casts, "visit_Call", _guarded(_with_cast_arguments, _has_parameters, plain.visit_Call)),
        (known, "visit_LetStmt", _with_groups(bounds)),
        (known, "combine", _in_range(known.combine, bounds)),
        *((sets, name, _wrapping(getattr(sets, name), scalars.ScalarSet)) for name in _SUMS),
        (bounds, "__floordiv__", _of_known_sign(bounds, bounds.__floordiv__)),
        (bounds, "__mod__", _of_known_sign(bounds, bounds.__mod__)),
    ):  # fmt: skip
        yield


# --- constants


def _of_its_type(construct: Callable[[Any, Any, Any], None]) -> Callable[[Any, Any, Any], None]:
    def init(self: Any, value: Any, const_type: Any) -> None:
        if type(value) is float and hasattr(const_type, "finfo"):
            value = rounded(value, const_type)
        elif type(value) is int and hasattr(const_type, "iinfo"):
            value = wrapped(value, const_type)
        construct(self, value, const_type)

    return init


def held_constants() -> AbstractContextManager[None]:
    """Refuse a number of a script that a constant's type does not hold. tilus cuts it, with a warning that names no
    line. A constant that a later pass computes may be infinite. Removable when tilus raises.
    """
    integers: Any = importlib.import_module("tilus.hidet.ir.dtypes.integer").IntegerType
    tree: Any = importlib.import_module("tilus.hidet.ir.expr")
    floats: Any = importlib.import_module("tilus.hidet.ir.dtypes.floats")
    most = (2 - 2**-7) * 2.0**127  # tilus says 3.4e38, which rounds to infinity
    return mended(
        (integers, "constant", given(_whole)),
        (tree.Constant, "__init__", given(_held)),
        (floats.bfloat16, "_max_value", lambda _: most),
        (floats.bfloat16, "_min_value", lambda _: -most),
    )


def _whole(constant: Any, self: Any, value: Any) -> Any:
    from blackwell_matmul.frontend.messages.raised import Refusal

    found = getattr(value, "value", value)
    if isinstance(found, float) and not found.is_integer():
        raise Refusal(f"{found} is no {self.name}, which would cut it; int({found}) does")
    return constant(self, int(found) if isinstance(found, float) else value)


def _held(construct: Any, self: Any, value: Any, const_type: Any) -> None:
    from blackwell_matmul.frontend.messages.raised import Refusal

    if type(value) is float and hasattr(const_type, "finfo") and overflows(value, const_type):
        name, wide = const_type.name, f", and float64({value}) for a number of a wider type"
        raise Refusal(
            f"a constant is of {name}, which does not hold {value}; write float('inf') for infinity"
            f"{wide if name == 'float32' else ''}"
        )
    construct(self, value, const_type)


def rounded(value: float, into: Any) -> float:
    """Return a number rounded to a float type; unchanged for types without an entry in `_ROUNDED`. float8 has no
    infinity here: larger numbers become its largest number."""
    import ml_dtypes  # here, as a command that is refused loads no numpy
    import numpy as np

    if into.name.startswith("float8"):
        value = min(max(value, into.finfo().min), into.finfo().max)
    with np.errstate(over="ignore"):
        name = _ROUNDED.get(into.name, "float64")
        return float(np.array(value, np.float64).astype(getattr(ml_dtypes, name, name)))


def overflows(value: float, into: Any) -> bool:
    """Return True for a finite number that a float type rounds to infinity."""
    return math.isfinite(value) and math.isinf(rounded(value, into))


_ROUNDED = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}
"""Types of floats in numpy or ml_dtypes, by tilus's names."""


def wrapped(value: int, into: Any) -> int:
    """Return an integer wrapped to an integer type: the value of its low bits."""
    limits = into.iinfo()
    return int((value - limits.min) % (limits.max - limits.min + 1) + limits.min)


# --- what holds


def quotient(a: Any, b: Any) -> Any:
    """Return C's quotient of constants, which is cut towards zero for integers; a division by zero is undefined, and
    may have any value."""
    if not (isinstance(a, int) and isinstance(b, int)):
        return a / b
    if b == 0:
        return 0
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _with_zero(tree: Any, binary: Callable[..., Any]) -> Callable[..., Any]:
    """A float times 0 is NaN for NaN and infinity; of integers alone, the product is 0."""

    def apply(cls: Any, a: Any, b: Any) -> Any:
        if cls is tree.Multiply and (_is_zero(a) or _is_zero(b)):
            product = cls(tree.convert(a), tree.convert(b))
            if not all(hasattr(each, "value") for each in (product.a, product.b)) and not _exact(None, product):
                return product
        return binary(cls, a, b)

    return apply


def _is_zero(e: Any) -> bool:
    value = getattr(e, "value", e)
    return isinstance(value, (int, float)) and value == 0


def _type_of(e: Any) -> Any:
    from tilus.hidet.ir.tools import infer_type

    return infer_type(e)


def _with_groups(bounds: Any) -> Callable[[Any, Any], None]:
    """Add the bound that the number of a thread in its group is 0 or more. A condition around it ensures that. The
    analyzer does not read conditions, and sees only `threadIdx.x - 32`."""

    def visit_let(self: Any, stmt: Any) -> None:
        for var, value in zip(stmt.bind_vars, stmt.bind_values, strict=True):
            self.visit(value)
            self.bound[var] = self.bound[value]
            if _is_thread(var) and _is_thread(getattr(value, "a", None)):
                self.bound[var] = bounds(min_value=0, max_value=self.bound[value].possible_max_value())
        self.visit(stmt.body)

    return visit_let


def _overflows(e: Any, low: int | None, high: int | None) -> Any:
    """Return the limits of a sum's type, unsigned or narrow, if these bounds exceed them; else None."""
    kind = _type_of(e)
    limits = kind.iinfo() if hasattr(kind, "iinfo") else None
    if limits is None or (limits.min < 0 and limits.bits >= 32):
        return None
    held = low is not None and high is not None and limits.min <= low and high <= limits.max
    return None if held else limits


def _in_range(combine: Callable[[Any, Any], None], unknown: Callable[[], Any]) -> Callable[[Any, Any], None]:
    """Forget the bounds of a sum that its type does not hold. To tilus the sum of two uint8 of 200 is 400."""

    def visit_sum(self: Any, e: Any) -> None:
        combine(self, e)
        found = self.bound[e]
        if _overflows(e, found.possible_min_value(), found.possible_max_value()) is not None:
            self.bound[e] = unknown()

    return visit_sum


def _wrapping(visit: Callable[[Any, Any], Any], scalar_set: Any) -> Callable[[Any, Any], Any]:
    """Return a visitor that forgets bounds of variables which may wrap: a uint32 that counts down from 5 is not always
    less than 6."""

    def visit_sum(self: Any, e: Any) -> Any:
        found = visit(self, e)
        limits = None if found.is_empty() else _overflows(e, found.lower_bound, found.upper_bound)
        if limits is None:
            return found
        return scalar_set(math.gcd(found.divisibility, limits.max - limits.min + 1), 0 if limits.min == 0 else None)

    return visit_sum


def _typed(visit: Callable[[Any, Any], Any], tree: Any) -> Callable[[Any, Any], Any]:
    """Return a visitor that gives known values the types of their expressions; in tilus they are all int32. A variable
    keeps its replacement, and a value that int32 holds."""

    def visit_known(self: Any, e: Any) -> Any:
        replaced_before = isinstance(e, tree.Var) and e in self.memo
        found = visit(self, e)
        known = isinstance(found, tree.Constant) and not isinstance(e, tree.Constant) and not replaced_before
        if not (known and found.type.name == "int32" and hasattr(_type_of(e), "iinfo")):
            return found
        value = self.bound[e].value
        if isinstance(e, tree.Var) and value == found.value:
            return found
        return _type_of(e)(found.value if value is None else value)

    return visit_known


def _is_thread(e: Any) -> bool:
    """Return True for the CTA's thread index, or tilus's expression of it in a thread group."""
    return getattr(e, "name", None) == "threadIdx.x" or getattr(e, "hint", None) == "tid"


def _exact(_: Any, e: Any) -> bool:
    """Return True if the terms of a sum may be regrouped: sums of integers wrap alike, sums of floats round
    differently."""
    kind = _type_of(e)
    return not (hasattr(kind, "is_float") and kind.is_float())


def _not_negative(simplifier: Any, e: Any) -> bool:
    """Return True if e, and every operand of the sums and products in it, is known to be 0 or more."""
    if type(e).__name__ in _NUMERIC and not (_not_negative(simplifier, e.a) and _not_negative(simplifier, e.b)):
        return False
    if type(e).__name__ == "Constant":
        return bool(e.value >= 0)
    simplifier.analyzer(e)
    low = simplifier.bound[e].possible_min_value()
    return low is not None and low >= 0


def _constants_join(e: Any) -> bool:
    """Return True if no sum, difference or product of integers in an expression leaves their type. tilus 0.2.0 joins
    them in that type: `n - 2000000000 < 2000000000` became `n < -294967296`, and `n + uint8(200) + uint8(100)`
    became `n + uint8(44)`."""
    mine, inner = _integers(e), [each for x in _operands(e) for each in _integers(x)]
    if all(-SMALL_CONSTANT < each.value < SMALL_CONSTANT and each.type.nbytes >= 4 for each in (*mine, *inner)):
        return True
    most = min(each.type.iinfo().max for each in (*mine, *inner))
    pairs = list(itertools.combinations((*mine, *inner), 2))
    if any(abs(one.value) + abs(other.value) > most for one, other in pairs):
        return False
    scales = type(e).__name__ in ("Multiply", *_DIVISIONS)
    return not scales or all(abs(one.value * other.value) <= most for one in mine for other in inner)


SMALL_CONSTANT = 1 << 15
"""Bound of integers whose products fit into int32."""


def _operands(e: Any) -> list[Any]:
    return [x for x in (getattr(e, "a", None), getattr(e, "b", None)) if x is not None]


def _integers(e: Any) -> list[Any]:
    """Return the operands that are integer constants."""
    return [x for x in _operands(e) if type(x).__name__ == "Constant" and hasattr(x.type, "iinfo")]


def _sum_holds(_: Any, e: Any) -> bool:
    return _exact(None, e) and _constants_join(e)


def _rule_holds(simplifier: Any, e: Any) -> bool:
    kind = type(e).__name__
    if not _constants_join(e):
        return False
    if kind in _DIVISIONS:
        return _exact(simplifier, e) and _not_negative(simplifier, e)
    if kind in _ORDERINGS:
        return all(_exact(simplifier, x) and not _type_of(x).name.startswith("u") for x in (e.a, e.b) if _is_number(x))
    return kind not in _NUMERIC or _exact(simplifier, e)


def _has_parameters(_: Any, call: Any) -> bool:
    """Return True if a function has a list of its parameters' types; some take any arguments."""
    return call.func_var.type.param_types is not None


def _is_number(e: Any) -> bool:
    return hasattr(_type_of(e), "nbits")


# --- how a rule is kept to it


def _guarded(
    rule: Callable[[Any, Any], Any],
    holds: Callable[[Any, Any], bool],
    otherwise: Callable[[Any, Any], Any] | None = None,
) -> Callable[[Any, Any], Any]:
    def apply(self: Any, e: Any) -> Any:
        if holds(self, e):
            return rule(self, e)
        return e if otherwise is None else otherwise(self, e)

    return apply


def _of_xors(xor: type, rules: Any) -> Callable[[Any, Any], Any]:
    """Return a visitor that applies tilus's rules for `a ^ b`; for two constants the result is a constant."""

    def visit_xor(self: Any, e: Any) -> Any:
        for rule in (rules.simplify_xor_by_factor, rules.simplify_xor_by_sum, rules.simplify_xor_v3):
            e = rule(self, e) if isinstance(e, xor) else e
        return e

    return visit_xor


def _chained(rule: Callable[[Any, Any], Any], plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a visitor of sums that keeps the order of floats. tilus sorts the items of a sum by their text; here a sum
    of floats is one item of another sum."""

    def visit_add(self: Any, e: Any) -> Any:
        if _sum_holds(self, e):
            return rule(self, e)
        added = plain(self, e)
        self.add2chain[e] = [added]
        return added

    return visit_add


def _visited(process: Callable[..., Any]) -> Callable[..., Any]:
    """Return a processor of stored and assigned values that visits a value before its cast. Then the arguments of
    functions in it are cast to the types of their parameters. tilus does not visit them, so C picks another max, or
    finds none."""

    def visit_and_process(self: Any, expression: Any, target: Any) -> Any:
        return process(self, self.visit(expression), target)

    return visit_and_process


def _with_cast_arguments(self: Any, call: Any) -> Any:
    """Keep the cast arguments of a call. tilus keeps the old call if its arguments are equal to the cast ones, and 7 is
    equal to int64(7)."""
    return type(call)(call.func_var, tuple(self.process_list(self.visit(call.args), call.func_var.type.param_types)))


def _of_known_sign(known: Any, operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the bounds of a quotient or a remainder; none where an operand may be negative."""

    def apply(self: Any, other: Any) -> Any:
        return operation(self, other) if _starts_at_zero(self) and _starts_at_zero(other) else known()

    return apply


def _starts_at_zero(values: Any) -> bool:
    low = values.possible_min_value()
    return low is not None and low >= 0
