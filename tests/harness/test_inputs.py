"""The tensors that a kernel is called with, filled or not."""

import sys

import pytest
import torch

from blackwell_matmul import Epilogue, Form, InputError, Problem
from blackwell_matmul.harness.calls.inputs import address_space, arguments_of

LARGE = Problem(2**20, 2**20, 2**20, form=Form(epilogue=Epilogue(residual=True)))
"""Two TiB a matrix: more than any machine of ours has."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, address space is memory")
def test_what_nobody_fills_may_be_larger_than_memory():
    *_, a, b, c, bias, residual, _, _, _ = arguments_of(LARGE, None)
    assert [each.numel() for each in (a, b, c, residual)] == [2**40] * 4
    assert bias == 0 and {each.dtype for each in (a, b, c)} == {torch.float16}


@pytest.mark.parametrize("seed", [None, 0])
def test_what_not_even_an_address_space_holds_is_refused(seed):
    with pytest.raises(InputError, match="this machine"):
        arguments_of(Problem(2**31 - 1, 2**31 - 1, 2**31 - 1), seed)


def test_what_nobody_fills_is_a_tensor_like_any_other():
    made = address_space((3, 8), torch.bfloat16)
    made[1] = 2
    assert made.is_contiguous() and made.data_ptr() % 16 == 0 and made.sum() == 16
