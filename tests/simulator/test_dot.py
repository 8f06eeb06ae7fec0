"""mma.sync against exact products."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clean import clean
from scripts_registers import Dot
from tilus import bfloat16, float16, float32, int8, int32

TORCH = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8,
    "int32": torch.int32,
}  # fmt: skip
TYPES = [(float16, float32), (float16, float16), (bfloat16, float32), (int8, int32)]


def operands(dtype, acc_dtype, m: int, n: int, k: int) -> list[torch.Tensor]:
    rng = np.random.default_rng(m * n + k)
    shapes = [(m, k), (k, n), (m, n)]
    kinds = [dtype, dtype, acc_dtype]
    limit = 3 if acc_dtype is float16 else 8
    tensors = [torch.from_numpy(rng.integers(-limit, limit, s)).to(TORCH[t.name]) for s, t in zip(shapes, kinds)]
    return [*tensors, torch.zeros(m, n, dtype=TORCH[acc_dtype.name])]


@pytest.mark.parametrize(("m", "n", "k", "warps"), [(16, 8, 32, 1), (32, 32, 32, 4), (64, 32, 64, 4), (64, 64, 32, 8)])
@pytest.mark.parametrize(("dtype", "acc_dtype"), TYPES)
def test_product(dtype, acc_dtype, m: int, n: int, k: int, warps: int) -> None:
    """Small integers: every sum is exact, in any order."""
    a, b, c, d = operands(dtype, acc_dtype, m, n, k)
    clean(Dot(dtype, acc_dtype, m, n, k, warps), a, b, c, d)
    assert torch.equal(d.long(), a.long() @ b.long() + c.long())


def test_accumulate_in_place() -> None:
    a, b, c, d = operands(float16, float32, 32, 32, 32)
    clean(Dot(float16, float32, 32, 32, 32, 4, both=True), a, b, c, d)
    assert torch.equal(d.long(), 2 * (a.long() @ b.long()) + c.long())


def test_float_product() -> None:
    a, b, c, d = operands(float16, float32, 32, 32, 64)
    rng = np.random.default_rng(5)
    a, b = (torch.from_numpy(rng.random(x.shape)).half() for x in (a, b))
    clean(Dot(float16, float32, 32, 32, 64, 4), a, b, c, d)
    torch.testing.assert_close(d.double(), a.double() @ b.double() + c.double(), rtol=1e-5, atol=1e-5)
