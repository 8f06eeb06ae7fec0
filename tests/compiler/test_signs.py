"""tilus takes integer parameters to be >= 0: a negative one gets other code, and other bundles refuse it."""

from __future__ import annotations

import re

import compiler_scripts
import pytest
import torch
from compiler_samples import script_bundle

from blackwell_matmul import simulate
from blackwell_matmul.base.errors import InputError

CONDITIONS = ("if (a < 0)", "if ((a % 4) < 0)", "(0 <= a)")


def test_a_negative_example_keeps_the_conditions() -> None:
    bundle = script_bundle("Signed", -6, 4, "array")
    assert all(condition in bundle.source for condition in CONDITIONS)
    bundle.plan.evaluate([6, 4, 1 << 20])  # this code is right for every sign
    with pytest.raises(InputError, match=r"compiled for n >= 0; .* a negative n .* \(n = -4\)\.$"):
        bundle.plan.evaluate([-6, -4, 1 << 20])


def test_tilus_drops_them_for_the_others_and_the_plan_refuses_a_negative_value() -> None:
    bundle = script_bundle("Signed", 6, 4, "array")
    assert not any(condition in bundle.source for condition in CONDITIONS)
    bundle.plan.evaluate([0, 4, 1 << 20])
    with pytest.raises(
        InputError, match=r"it was compiled for a >= 0; compile it again with a negative a as the example \(a = -6\)\.$"
    ):
        bundle.plan.evaluate([-6, 4, 1 << 20])


@pytest.mark.parametrize(("a", "expected"), [(-6, [1, 1, 0, 0]), (2, [0, 0, 1, 0])])
def test_the_simulator_follows_the_sign(a: int, expected: list[int]) -> None:
    y = torch.zeros(4, dtype=torch.int32)
    assert simulate(compiler_scripts.Signed, a, 4, y, target="sm_90a").ok
    assert y.tolist() == expected


@pytest.mark.parametrize("negative", range(4))
def test_every_signed_type(negative: int) -> None:
    names = "abcd"
    bundle = script_bundle("Signs", *(-1 if each == negative else 1 for each in range(4)), 1, "array")
    assert re.findall(r"if \(\W*(?:int32_t\)\()?([a-d])\)* <", bundle.source) == [names[negative]]
    assert [check.condition for check in bundle.plan.checks] == [
        (">=", name, 0) for name in names if name != names[negative]
    ]
