"""Scalars and control statements, against Python and C."""

from __future__ import annotations

import gc
import linecache

import numpy as np
import pytest
import torch
from clean import clean
from scripts_control import Floats, Loops, Scalars

from blackwell_matmul.simulator import simulate
from blackwell_matmul.simulator.lowering.lower import lower
from blackwell_matmul.simulator.simulate import prepare


def wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def c_division(a: int, b: int) -> tuple[int, int]:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - b * quotient


@pytest.mark.parametrize(("a", "b"), [(7, 3), (-7, 3), (7, -3), (-7, -3), (2**31 - 1, 2), (12, 12), (-(2**31), 5)])
@pytest.mark.parametrize("u", [0, 1, 2000000000, 2**32 - 1])
def test_scalars(a: int, b: int, u: int) -> None:
    """int32 with uint32 is int64 in tilus's code; what overflows is told."""
    y = torch.zeros(15, dtype=torch.int32)
    run = simulate(Scalars(), a, b, u, y, workers=1)
    quotient, rest = c_division(a, b)
    wide_quotient, wide_rest = c_division(u, a)
    assert y.tolist() == [
        wrap(a + b), wrap(a * b), quotient, rest, (u << 4 & 0xFFFFFFFF) >> 8, (u - 2000000000 & 0xFFFFFFFF) >> 1,
        wrap(wrap(a + b) * 3), (a < b) + 2 * (a == b) + 4 * (a >= b), min(a, b), max(a, b), a if a % 2 == 0 else b,
        (a & 12) | (b ^ 3), a < u, wrap(wide_quotient >> 1), wrap(wide_rest >> 1),
    ]  # fmt: skip
    overflows = any(wrap(each) != each for each in (a + b, a * b, wrap(a + b) * 3))
    assert {finding.code for finding in run.findings} == ({"integer-overflow"} if overflows else set())


def test_float_scalars() -> None:
    y = torch.zeros(4)
    clean(Floats(), 1.0, y)
    np.testing.assert_array_equal(y, np.float32(1) / np.float32(3) + np.arange(4, dtype=np.float32))


def collatz(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return steps


EXPECTED = {
    "range": lambda n: sum(range(n)),
    "start": lambda n: sum(range(3, n, 4)),
    "unroll": lambda n: sum(i * i for i in range(n)),
    "unroll_all": lambda n: sum(i * n for i in range(6)),
    "nested": lambda n: sum(i * 10 + j for i in range(n) for j in range(min(i, 5))),
    "while": collatz,
    "break": lambda n: sum(range(n)),
    "return": lambda n: 7 if n > 5 else -1,
}


@pytest.mark.parametrize("n", [1, 3, 9, 27])
@pytest.mark.parametrize("kind", EXPECTED)
def test_loops(kind: str, n: int) -> None:
    y = torch.zeros(1, dtype=torch.int32)
    clean(Loops(kind), n, y)
    assert y.item() == EXPECTED[kind](n)


@pytest.mark.slow
def test_the_lines_of_a_lowered_kernel_go_with_it() -> None:
    gc.freeze()  # the collector is to walk through what this test makes, and through nothing older
    _, found = prepare(Floats(), (1.0, np.zeros(4, np.float32)), None, "sm_100a")
    made = lower(found.program)
    name = made.main.__code__.co_filename
    assert linecache.getline(name, 1).startswith("def main(")
    del made
    gc.collect()
    gc.unfreeze()
    assert name not in linecache.cache
