"""`compare`: any kind of output against what its author expects."""

import ml_dtypes
import numpy as np
import pytest
import torch

from blackwell_matmul import InputError
from blackwell_matmul.harness.outputs import compare


@pytest.mark.parametrize("expected", [[1, 2, 3], np.array([1.0, 2.0, 3.0]), torch.tensor([1, 2, 3])])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int8, torch.int64, torch.float8_e4m3fn])
def test_equal_numbers_of_any_type_are_exact(dtype, expected):
    verdict = compare("y", torch.tensor([1.0, 2.0, 3.0]).to(dtype), expected)
    assert verdict.ok and verdict.message == "y is exact"


def test_numpys_bfloat16_is_compared():
    assert compare("y", np.ones(3, ml_dtypes.bfloat16), torch.ones(3)).ok


@pytest.mark.parametrize("big", [2**60, -(2**63), 2**63 - 1])
def test_large_integers_are_exact_or_wrong(big):
    assert compare("y", torch.tensor([big]), torch.tensor([big])).message == "y is exact"
    verdict = compare("y", torch.tensor([big]), np.array([big ^ 1]))
    assert not verdict.ok and verdict.wrong == 1 and verdict.max_abs_error >= 1


@pytest.mark.parametrize(
    "expected", [None, [None], ["1"], np.array([1j]), torch.tensor([1j]), object(), torch.zeros(1, device="meta")]
)
def test_what_is_no_array_of_real_numbers_is_refused(expected):
    with pytest.raises(InputError, match=r"the reference of y is .*; it must be a tensor or an array of real numbers"):
        compare("y", torch.zeros(1), expected)


def test_sums_that_cancel_are_right_and_a_rounding_to_16_bits_is_not():
    """Added as tensor cores do, 16 products at a time."""
    a, b = (torch.randn(64, 4096, generator=torch.Generator().manual_seed(seed)).half() for seed in (0, 1))
    exact, c = a.double() @ b.double().T, torch.zeros(64, 64)
    for k in range(0, 4096, 16):
        c += a[:, k : k + 16].float() @ b[:, k : k + 16].float().T
    assert compare("c", c, exact).ok and compare("c", c, exact).atol < 1.1e-3
    assert compare("c", exact.half().float(), exact).wrong > 2000
    assert not compare("c", c, exact, (1.3e-6, 1e-5)).ok


def test_what_rounding_may_be_names_the_tolerance():
    near = compare("y", torch.full((4,), 1.01).half(), torch.ones(4))
    assert not near.ok
    assert "if that is rounding, `tolerance = (rtol, atol)` beside the class allows more" in near.message
    for far in (torch.full((4,), 2.0).half(), torch.full((4,), float("nan")).half(), torch.full((4,), 3)):
        assert "tolerance" not in compare("y", far, torch.ones(4)).message
