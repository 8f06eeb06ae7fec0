"""Which problems are measured."""

from __future__ import annotations

from collections import Counter

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness.bench import suites
from blackwell_matmul.problem.problem import Problem


@pytest.mark.parametrize("suite", suites.SUITES)
def test_each_suite_has_problems_once_in_its_types(suite):
    cases = suites.cases(suite)
    problems = [case.problem for case in cases]
    assert len(set(problems)) == len(problems) > 4
    assert {problem.dtype for problem in problems} == set(suites.SUITES[suite])
    assert all(case.band for case in cases)


def test_types_may_be_chosen():
    assert {case.problem.dtype for case in suites.cases("llm", ("fp16",))} == {"fp16"}
    assert suites.cases("size", (), (3, 4, 5)) == (suites.BenchCase(Problem(3, 4, 5)),)


def test_the_layers_of_models():
    shapes = {(layer.model, layer.name): (layer.n, layer.k) for layer in suites.LAYERS}
    assert shapes["Llama 3 8B", "qkv"] == (6144, 4096) and shapes["Llama 3 70B", "down"] == (8192, 28672)
    assert suites.layers_of(Problem(1, 6144, 4096)) == "Llama 3 8B qkv" and not suites.layers_of(Problem(1, 8, 8))
    bands = Counter(case.band for case in suites.cases("llm"))
    assert bands == {"small M": 48, "large M": 64}
    assert all((case.problem.m < 128) == (case.band == "small M") for case in suites.cases("llm"))


def test_odd_has_what_divides_badly():
    odd = {case.problem.m for case in suites.cases("odd")}
    assert {1, 333, 896, 1792, 2432} <= odd
    assert any(case.problem.n % 128 and case.problem.k % 64 for case in suites.cases("odd"))


@pytest.mark.parametrize(("suite", "dtypes"), [("all", ()), ("ladder", ("fp8",)), ("", ())])
def test_what_there_is_not_is_named(suite, dtypes):
    with pytest.raises(InputError, match=r"(suite|dtype) is .*; "):
        suites.cases(suite, dtypes)
