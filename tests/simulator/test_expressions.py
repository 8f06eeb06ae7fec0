"""hidet expressions as Python, scalar and elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tilus.hidet.ir import primitives
from tilus.hidet.ir.dtypes import float16, float32, int8, int32, int64, uint8, uint32
from tilus.hidet.ir.expr import BitwiseNot, Var, cast, if_then_else, logical_and, logical_not, logical_or
from tilus.hidet.ir.type import PointerType

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.faults.tilus_compat import deep
from blackwell_matmul.simulator.arithmetic import c_div, c_mod, integers, nobody
from blackwell_matmul.simulator.expressions import NAMESPACE, ScalarWriter, vector_function


def scalar(expression: Any, **values: Any) -> Any:
    """The value of an expression whose variables are named by their hints."""
    namespace = dict(NAMESPACE)
    text = ScalarWriter(lambda var: var.hint, namespace).write(expression)
    return eval(text, {**namespace, **values})


v_div = integers("Div", nobody)


A, B = Var("a", type=int32), Var("b", type=int32)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [99, 101, 250])
def test_a_long_chain_is_more_parentheses_than_python_takes(terms: int) -> None:
    total, quotient = A, A
    for _ in range(terms):
        total, quotient = total + B, B // quotient
    with deep():
        assert scalar(total, a=3, b=2) == 3 + 2 * terms
        assert scalar(quotient, a=1, b=5) == (5 if terms % 2 else 1)
        assert vector_function([A, B], total)(np.arange(3), 2).tolist() == [2 * terms, 2 * terms + 1, 2 * terms + 2]


U, L = Var("u", type=uint32), Var("l", type=int64)
F = Var("f", type=float32)


@pytest.mark.parametrize("a", [-9, -8, 0, 7, 8])
@pytest.mark.parametrize("b", [-4, -3, 3, 4])
def test_division_is_c_s(a: int, b: int) -> None:
    assert scalar(A // B, a=a, b=b) == c_div(a, b) == int(a / b)
    assert scalar(A % B, a=a, b=b) == c_mod(a, b) == int(math.fmod(a, b))
    assert int(v_div(np.int32(a), np.int32(b))) == int(a / b)


def test_division_of_the_smallest_integer() -> None:
    assert int(v_div(np.int32(-(2**31)), np.int32(3))) == -715827882
    assert int(v_div(np.int32(-(2**31)), np.int32(2))) == -(2**30)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (U - 1, -1),
        (U - B, -3),
        ((U - B) >> 1, -2),
        (U - uint32(1), 2**32 - 1),
        ((U - uint32(3)) >> 1, (2**32 - 3) >> 1),
        (-cast(U, uint32) - uint32(1), 2**32 - 1),
        (BitwiseNot(U), 2**32 - 1),
        (BitwiseNot(U) << 4, 2**32 - 16),
        (U | A, -5),
        (U | cast(A, uint32), 2**32 - 5),
        (L - U, 7),
        (A < U, True),
        (cast(A, uint32) < U, False),
        (A < 0, True),
        ((A // 2) + U, -2),
        (cast(A, uint8), 251),
        (cast(A, uint32), 2**32 - 5),
        (cast(L * 1000000000, int32), (7 * 10**9 + 2**31) % 2**32 - 2**31),
        (if_then_else(A < 0, L, cast(B, int64)), 7),
        (logical_and(A < 0, logical_not(B == 3)), False),
        (logical_or(A < 0, B // 0 == 3), True),
        (primitives.max(A, B), 3),
        (primitives.min(A, B), -5),
    ],
    ids=str,
)
def test_scalars(expression: Any, value: Any) -> None:
    assert scalar(expression, a=-5, b=3, u=0, l=7) == value


def test_float_scalars_round() -> None:
    assert scalar(cast(F, float16), f=1 + 2**-12) == 1
    assert scalar(cast(F, int32), f=-2.9) == -2


@pytest.mark.parametrize(("base", "step"), [(float32, 4), (float16, 2), (uint8, 1), (int64, 8)])
def test_pointers_move_by_elements(base: Any, step: int) -> None:
    pointer = Var("p", type=PointerType(base))
    assert scalar(pointer + A, p=1000, a=3) == 1000 + 3 * step
    assert scalar(pointer + A * 2 - B, p=1000, a=3, b=1) == 1000 + 5 * step


def vector(types: list[Any], function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    variables = [Var(f"x{i}", type=t) for i, t in enumerate(types)]
    return np.asarray(vector_function(variables, function(*variables))(*arrays))


def test_elementwise_arithmetic() -> None:
    x, y = np.arange(-8, 8, dtype=np.int32), np.arange(1, 17, dtype=np.int32)
    got = vector([int32, int32], lambda a, b: (a * 3 - b) % 5 + if_then_else(a < b, a, b), x, y)
    np.testing.assert_array_equal(got, np.fmod(x * 3 - y, 5) + np.minimum(x, y))


def test_elementwise_casts() -> None:
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    np.testing.assert_array_equal(vector([float32], lambda a: cast(cast(a, int32), float16), x), np.trunc(x))
    np.testing.assert_array_equal(vector([float32], lambda a: cast(a, int8), x), np.trunc(x))


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "sin", "floor", "ceil"])
def test_elementwise_functions_keep_the_type(name: str) -> None:
    x = np.linspace(0.1, 3, 20).astype(np.float16)
    got = vector([float16], getattr(primitives, name), x)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, getattr(np, name)(x.astype(np.float32)).astype(np.float16))


def test_an_unknown_expression_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"Dereference|Address"):
        from tilus.hidet.ir.expr import Address

        scalar(Address(A), a=1)


def test_a_foreign_variable_is_named() -> None:
    with pytest.raises(UnsupportedError, match="inside an elementwise expression"):
        vector_function([A], A + B)
