"""Arithmetic and conversions for block-scaled data: simulated, and emulated from the PTX, against numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from rounded_script import EveryRounding, NothingWritten
from tilus import float16

from blackwell_matmul import compile, emulate, simulate
from blackwell_matmul.base.errors import CompileError


def tensors() -> list[torch.Tensor]:
    """Return normal and subnormal numbers, zeros, infinities and NaN; and memory for the results."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 64, generator=generator) * torch.exp2(torch.randint(-140, 120, (32, 1), generator=generator))
    x[:4], x[4:12] = torch.randn(4, 64, generator=generator) * 4, x[4:12].sign() * 2.0**-127
    x[0, :8] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 1.0, -2.0])
    y = torch.rand(32, 1, generator=generator) + 0.5
    memory = [torch.full((3, 32, 64), 7.0), torch.zeros(3, 32, 64, dtype=torch.int32)]
    return [x, y, *memory, torch.zeros(32, 32, dtype=torch.uint8)]


def witnessed(how: str) -> list[torch.Tensor]:
    given, script = tensors(), EveryRounding()
    if how == "simulated":
        assert not simulate(script, *given).findings
    else:
        emulate(compile(script, *given, target=how), *given)
    return given


def codes(values: np.ndarray) -> np.ndarray:
    known = np.clip(np.where(np.isnan(values), 6, values), -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return known[:, 0::2] | known[:, 1::2] << 4


@pytest.mark.parametrize("how", ["simulated", "sm_100a", "sm_120a"])
def test_each_rounds_as_numpy(how: str) -> None:
    x, y, results, bits, packed = (each.numpy() for each in witnessed(how))
    with np.errstate(all="ignore"):
        wanted, size = np.stack([x + y, x * y, x / y]), x * x
    assert np.array_equal(results, wanted, equal_nan=True) and (np.abs(results[1]) < 2.0**-126).sum() > 100
    known = ~np.isnan(x)
    assert np.array_equal(bits[0][known], np.abs(x).view(np.int32)[known]) and bits[0][0, 4] > 0x7F800000
    for byte, of in ((bits[1], np.ceil), (bits[2], np.floor)):
        power = np.where(size > 0, of(np.log2(np.where(size > 0, size, 1).astype(np.float64))), -127)
        assert np.array_equal(byte[known], (np.clip(power, -127, 127) + 127)[known])
    assert np.array_equal(packed, codes(wanted[1]))


def test_registers_that_nobody_has_written_are_followed_into_bytes() -> None:
    (finding,) = simulate(NothingWritten(), torch.zeros(32, 32, dtype=torch.uint8)).findings
    assert finding.code == "uninitialised-read" and "r_x" in str(finding)


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"x_type": float16}, "mul takes register tensors of float32; one is float16"),
        ({"columns": 4}, "e2m1x2 packs eights of elements; x has 4 in its last dimension"),
        ({"each": 4}, "e2m1x2 packs eight neighbours of one thread"),
    ],
)
def test_a_misuse_is_one_sentence(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CompileError) as refused:
        simulate(EveryRounding(**knobs), *tensors())
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
