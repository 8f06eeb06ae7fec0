"""Which types of tensors and arrays a typed pointer takes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.problem.elements import fits, require_element


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("float16", torch.float16),
        ("float16", np.dtype("float16")),
        ("bfloat16", torch.bfloat16),
        ("bfloat16", np.dtype(ml_dtypes.bfloat16)),
        ("bfloat16", np.dtype("uint16")),
        ("tfloat32", torch.float32),
        ("float8_e4m3", torch.float8_e4m3fn),
        ("float8_e4m3", torch.uint8),
        ("float8_e5m2", torch.int8),
        ("float4_e2m1", torch.uint8),
        ("float4_e2m1", torch.float4_e2m1fn_x2),
        ("uint4b", torch.int8),
        ("uint32", torch.int32),
        ("int64", np.dtype("uint64")),
        ("bool", torch.bool),
        ("bool", torch.uint8),
        ("float32x4", torch.float32),
        ("uint4bx8", torch.uint8),
    ],
)
def test_a_type_or_its_bits_fit(element: str, dtype: Any) -> None:
    assert fits(element, dtype)


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("float16", torch.float32),
        ("float16", torch.bfloat16),
        ("float16", torch.int16),
        ("float32", torch.float64),
        ("float32", torch.int32),
        ("bfloat16", torch.float16),
        ("float8_e4m3", torch.float8_e5m2),
        ("float8_e4m3", torch.float8_e4m3fnuz),
        ("float8_e4m3", torch.float16),
        ("float4_e2m1", torch.float16),
        ("int32", torch.int64),
        ("int32", torch.float32),
        ("int32", np.dtype("M8[s]")),
        ("float16", np.dtype(object)),
    ],
)
def test_any_other_does_not(element: str, dtype: Any) -> None:
    assert not fits(element, dtype)


def test_a_refusal_names_both_types_and_what_would_fit() -> None:
    def refused(element: str, value: Any) -> str:
        with pytest.raises(InputError) as caught:
            require_element("Relu", "x", element, value)
        return str(caught.value)

    assert refused("float16", torch.zeros(4)) == (
        "x of Relu is a tensor of float32 and the kernel takes ~float16: pass one of torch.float16, such as "
        "x.to(torch.float16) of an input, or annotate x with void_p, which takes any."
    )
    assert "one of numpy.float32, such as x.astype(numpy.float32)" in refused("float32", np.zeros(4))
    assert "one of torch.float8_e4m3fn, such" in refused("float8_e4m3", torch.zeros(4))
    assert "one of numpy.uint16 that holds the bits, or" in refused("bfloat16", np.zeros(4))
    assert "one of torch.uint8 that holds the bits, or" in refused("int4b", torch.zeros(4))
    require_element("Relu", "x", "", np.zeros(4))
