"""The rules of hidet's simplifier, tried where they can hold: it makes and matches dozens of patterns for each
expression, by exceptions, and few match. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tilus.hidet.ir import expr as ir
from tilus.hidet.ir.dialects.pattern import PlaceholderExpr
from tilus.hidet.transforms import _rule_based_simplifier_base as base

from blackwell_matmul.frontend.faults.tilus_compat import mended

_COMMUTATIVE = frozenset((ir.Add, ir.Multiply, ir.BitwiseXor, ir.LogicalAnd, ir.LogicalOr))
_WITH_BOUND_AWARE_RULES = frozenset((ir.Div, ir.Mod))
_WITH_RULES = _COMMUTATIVE | _WITH_BOUND_AWARE_RULES | {ir.Sub, ir.LessThan, ir.LessEqual, ir.IfThenElse}


def quick_rules() -> AbstractContextManager[None]:
    """Make the simplifier skip rules that cannot match, inside the block."""
    rules: Any = base.RuleBasedSimplifier
    return mended(
        (rules, "apply_rule", partial(_only_of, _WITH_RULES)),
        (rules, "apply_bound_aware_rule", partial(_only_of, _WITH_BOUND_AWARE_RULES)),
        (base, "match", _matched),
    )


def _only_of(kinds: frozenset[type], apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return `apply`, restricted to expressions of these classes; every pattern of the rules has such a class."""
    return lambda self, e: apply(self, e) if e.__class__ in kinds else e


def _matched(match: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda pattern, target: match(pattern, target) if can_match(pattern, target) else (None, "")


def can_match(pattern: Any, target: Any) -> bool:
    """Return True if a pattern can match expressions of these classes, whatever their values are."""
    kind = pattern.__class__
    if kind is PlaceholderExpr:
        return not (pattern.require_non_const if isinstance(target, ir.Constant) else pattern.require_const)
    if not isinstance(target, kind):
        return False
    if not isinstance(pattern, ir.BinaryExpr):
        return True
    straight = can_match(pattern.a, target.a) and can_match(pattern.b, target.b)
    return straight or (kind in _COMMUTATIVE and can_match(pattern.a, target.b) and can_match(pattern.b, target.a))
