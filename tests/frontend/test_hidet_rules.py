"""Rules of hidet's simplifier that are left out are those that do not match."""

from __future__ import annotations

from typing import Any

import pytest
from tilus.hidet.ir.dtypes import int32
from tilus.hidet.ir.expr import Expr, IfThenElse, LogicalAnd, Var, constant
from tilus.hidet.transforms import _rule_based_simplifier_base as base
from tilus.hidet.transforms.rule_based_simplifier import RuleBasedSimplifier

from blackwell_matmul.frontend.faster import hidet_rules
from blackwell_matmul.frontend.faster.hidet_rules import can_match, quick_rules

N, M = Var("n", type=int32), Var("m", type=int32)
EXPRESSIONS: tuple[Expr, ...] = (
    N,
    constant(3, int32),
    N + 4,
    4 + N,
    (N + 4) + M,
    (N + 4) - 2,
    (4 - N) - M,
    (N + 4) * 2,
    (N * 4) * 2,
    N // 4 // 2,
    (N * 4 + M) // 4,
    (N * 4 + M) % 4,
    (N % 8) % 4,
    N % 1,
    N + 1 < 8,
    constant(1, int32) <= N - 2,
    LogicalAnd(N < M, constant(True, "bool")),
    IfThenElse(constant(True, "bool"), N, M),
    IfThenElse(N < M, N, N),
    (N * 2) ^ (M * 4),
    N ^ constant(0, int32),
    N // 4 * 4 + N % 4,
)


def patterns() -> list[Expr]:
    simplifier = RuleBasedSimplifier()
    bound_aware = [make(*values) for values, _, make, _ in simplifier.bound_patterns]
    return [*(each[0] for each in simplifier.patterns), *bound_aware]


def test_what_matches_can_match() -> None:
    pairs = [(pattern, each) for pattern in patterns() for each in EXPRESSIONS]
    matching = [(pattern, each) for pattern, each in pairs if base.match(pattern, each)[0]]
    assert len({id(pattern) for pattern, _ in matching}) > 20
    assert all(can_match(*pair) for pair in matching)
    assert sum(can_match(*pair) for pair in pairs) < 2 * len(matching)


def test_each_pattern_is_of_a_class_that_is_tried() -> None:
    simplifier: Any = RuleBasedSimplifier()
    assert {type(each) for each in patterns()} == hidet_rules._WITH_RULES
    bound_aware = {type(make(*values)) for values, _, make, _ in simplifier.bound_patterns}
    assert bound_aware == hidet_rules._WITH_BOUND_AWARE_RULES


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_an_expression_becomes_what_it_became(expression: Expr) -> None:
    theirs = str(RuleBasedSimplifier()(expression))
    with quick_rules():
        assert str(RuleBasedSimplifier()(expression)) == theirs


def test_all_is_as_before_after_the_block() -> None:
    rules: Any = base.RuleBasedSimplifier
    before = rules.apply_rule, rules.apply_bound_aware_rule, base.match
    with pytest.raises(ZeroDivisionError), quick_rules():
        raise ZeroDivisionError
    assert (rules.apply_rule, rules.apply_bound_aware_rule, base.match) == before
