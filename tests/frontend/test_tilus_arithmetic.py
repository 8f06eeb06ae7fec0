"""tilus's simplifications of arithmetic are kept to the operands for which they hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tilus.hidet.ir.analyzers.bound_analyzer import BoundInfo
from tilus.hidet.ir.dtypes import bfloat16, float8_e4m3, float16, float32, int8, int32, int64, uint8, uint32
from tilus.hidet.ir.expr import Expr, Var, constant
from tilus.hidet.ir.primitives import max as maximum
from tilus.hidet.ir.stmt import AssignStmt
from tilus.hidet.transforms.add_explicit_cast import AddExplicitCastRewriter
from tilus.hidet.transforms.resolve_generic_primitive_function import ResolveGenericPrimitiveFuncRewriter
from tilus.hidet.transforms.rule_based_simplifier import RuleBasedSimplifier
from tilus.hidet.transforms.simplify_addition_chain import AdditionChainRewriter, DecomposeRewriter
from tilus.ir.analyzers import ScalarSet, ScalarSetAnalyzer

from blackwell_matmul.frontend.faults.tilus_arithmetic import held_constants, sound_arithmetic

N, M, U, F, G = (Var(name, type=t) for name, t in zip("nmufg", [int32, int32, uint32, float32, float32]))
P, L = Var("p", type=int32), Var("l", type=int64)


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


def simplified(e: Expr) -> str:
    simplifier = RuleBasedSimplifier()
    simplifier.bound[P] = BoundInfo(min_value=0, max_value=10**6)
    return str(simplifier(e))


RULES = [  # the expression, what tilus makes of it, what it stays
    (lambda: (N + 4) // 4, "((n / 4) + 1)", "((n + 4) / 4)"),
    (lambda: (N * 4 + M) % 4, "(m % 4)", "(((n * 4) + m) % 4)"),
    (lambda: (F + 1.0) - 1.0, "f", "((f + 1.0f) - 1.0f)"),
    (lambda: (U + uint32(1)) < uint32(5), "(u < uint32(4))", "((u + uint32(1)) < uint32(5))"),
    (lambda: N - 2 * 10**9 < 2 * 10**9, "(n < 4000000000)", "((n - 2000000000) < 2000000000)"),
    (lambda: (L + 2 * 10**9) + 2 * 10**9, "(l + 4000000000)", "((l + 2000000000) + 2000000000)"),
]


@pytest.mark.parametrize(("expression", "wrong", "right"), RULES, ids=[rule[2] for rule in RULES])
def test_a_rule_that_does_not_hold_is_not_applied(expression: Any, wrong: str, right: str) -> None:
    """The fault, and the mend."""
    assert simplified(expression()) == wrong
    with sound_arithmetic():
        assert simplified(expression()) == right


def test_a_rule_that_holds_is_applied() -> None:
    with sound_arithmetic():
        assert simplified((P + 4) // 4) == "((p / 4) + 1)"
        assert simplified((P * 4 + P) % 4) == "(p % 4)"
        assert simplified((N + 4) - 1) == "(n + 3)"


@pytest.mark.parametrize(("world", "quotient", "remainder"), [(as_it_is, -4, 1), (sound_arithmetic, -3, -1)])
def test_constants_divide_as_in_c(world: Any, quotient: int, remainder: int) -> None:
    with world():
        seven, two = constant(-7, int32), constant(2, int32)
        assert ((seven // two).value, (seven % two).value) == (quotient, remainder)


def test_what_is_known_of_a_quotient_of_unknown_sign() -> None:
    negative, four = BoundInfo(min_value=-3, max_value=3), BoundInfo(value=4)
    assert (negative % four).possible_min_value() == 0  # and -3 % 4 is -3 in C
    with sound_arithmetic():
        assert (negative % four).possible_min_value() is None
        assert (BoundInfo(min_value=0, max_value=9) // four).possible_max_value() == 2


@pytest.mark.parametrize(("kind", "value", "square"), [(int64, 65536, 65536**2), (int32, 7, 49)])
def test_a_known_value_has_the_type_of_its_expression(kind: Any, value: int, square: int) -> None:
    x = Var("x", type=kind)
    with sound_arithmetic():
        simplifier = RuleBasedSimplifier()
        simplifier.bound[x] = BoundInfo(value=value)
        found = simplifier(x * x)
    assert (found.type, found.value) == (kind, square)


def test_a_sum_that_wraps_has_no_known_value() -> None:
    x = Var("x", type=uint8)
    with sound_arithmetic():
        simplifier = RuleBasedSimplifier()
        simplifier.bound[x] = BoundInfo(value=200)
        assert simplifier.bound[x + x].value is None


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [(int32, -1, 299), (int64, -1, 299), (uint32, 0, 299), (uint8, 0, None), (int8, None, None)],
)
def test_a_sum_that_wraps_has_no_bounds(kind: Any, low: int | None, high: int | None) -> None:
    x = Var("x", type=kind)
    more, less = x + kind(100), x - kind(1)

    def analyzed() -> tuple[Any, Any]:
        analyzer = ScalarSetAnalyzer({x: ScalarSet(lower_bound=0, upper_bound=199)})
        return analyzer(less).lower_bound, analyzer(more).upper_bound

    assert analyzed() == (-1, 299)
    with sound_arithmetic():
        assert analyzed() == (low, high)


def test_constants_of_a_chain_are_not_joined_beyond_their_type() -> None:
    chain, small = (L + 2 * 10**9) + 2 * 10**9, (L + 3) + 4
    with sound_arithmetic():
        assert str(AdditionChainRewriter(transform=lambda terms: terms)(chain)) == str(chain)
        assert str(RuleBasedSimplifier()(small)) == "(l + 7)"
        assert str(DecomposeRewriter()((L + 10**6) * 10**6)) == str((L + 10**6) * 10**6)


def test_sums_of_floats_keep_their_order() -> None:
    reverse = AdditionChainRewriter(transform=lambda chain: chain[::-1])
    total, integers = (F + G) + F * 2.0, (N + M) + P
    assert str(reverse(total)) == "(((f * 2.0f) + f) + g)"
    with sound_arithmetic():
        assert str(AdditionChainRewriter(transform=lambda chain: chain[::-1])(total)) == str(total)
        assert str(AdditionChainRewriter(transform=lambda chain: chain[::-1])(integers)) == "((p + n) + m)"


def test_products_of_float_sums_are_not_taken_apart() -> None:
    product = (F + G) * float32(3.0)
    assert str(DecomposeRewriter()(product)) == "((f * 3.0f) + (g * 3.0f))"
    with sound_arithmetic():
        assert str(DecomposeRewriter()(product)) == str(product)


def test_arguments_inside_of_a_value_are_cast() -> None:
    """C++ has no max of int32 and uint32, or another one than int64's, which tilus means."""
    chosen = ResolveGenericPrimitiveFuncRewriter("cuda")(maximum(N, U))
    statement = AssignStmt(Var("v", type=int32), chosen)
    assert "cast(int64, n)" not in str(AddExplicitCastRewriter()(statement).value)
    with sound_arithmetic():
        assert "cast(int64, n), cast(int64, u)" in str(AddExplicitCastRewriter()(statement).value)


def test_constants_among_arguments_are_cast() -> None:
    statement = AssignStmt(Var("v", type=int64), ResolveGenericPrimitiveFuncRewriter("cuda")(maximum(int32(7), L)))
    assert AddExplicitCastRewriter()(statement).value.args[0].type == int32
    with sound_arithmetic():
        assert AddExplicitCastRewriter()(statement).value.args[0].type == int64


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [(0.1, float16, 0.0999755859375), (16777217.0, float32, 16777216.0), (500.0, float8_e4m3, 448.0),
     (-3, uint32, 2**32 - 3), (2**31 + 1, int32, 1 - 2**31)],
)  # fmt: skip
def test_a_constant_has_the_value_of_its_type(value: Any, kind: Any, held: Any) -> None:
    with sound_arithmetic():
        assert constant(value, kind).value == held


def test_the_limits_of_bfloat16_are_its_largest_numbers() -> None:
    with held_constants():
        limits = bfloat16.min_value.value, bfloat16.max_value.value
    assert limits == (torch.finfo(torch.bfloat16).min, torch.finfo(torch.bfloat16).max)
