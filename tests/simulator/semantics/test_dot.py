"""mma.sync against exact products, and sums in float16 against the rounding of each instruction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clean import clean
from scripts_reduce import HalfWgmma
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


def halves(*shape: int) -> torch.Tensor:
    """Sixty-fourths: sums of a few thousand of them are exact in float32."""
    return torch.from_numpy(np.random.default_rng(sum(shape)).integers(0, 64, shape) / 64).half()


def signed(a: torch.Tensor, columns: list[list[int]]) -> torch.Tensor:
    """Of alternating sign from one instruction to the next, whose sums are hundreds then."""
    for i, part in enumerate(columns):
        a[:, part] *= (-1) ** i * 64
    return a


def rounded_each(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, columns: list[list[int]]) -> torch.Tensor:
    """Each instruction's products and the accumulator, added exactly and rounded to float16."""
    total = c.numpy().copy()
    for part in columns:
        total = (total.astype(np.float64) + a.double().numpy()[:, part] @ b.double().numpy()[part]).astype(np.float16)
    return torch.from_numpy(total)


def in_turn(k: int) -> list[list[int]]:
    return [list(range(i, i + 16)) for i in range(0, k, 16)]


def test_float16_is_rounded_by_each_mma() -> None:
    a, b, c = signed(halves(32, 64), in_turn(64)), halves(64, 32), halves(32, 32)
    d = torch.zeros(32, 32, dtype=torch.float16)
    clean(Dot(float16, float16, 32, 32, 64, 4), a, b, c, d)
    once = (a.double() @ b.double() + c.double()).half()
    assert torch.equal(d, rounded_each(a, b, c, in_turn(64)))
    assert (d - once).abs().max() > 0.1


def test_float16_is_rounded_by_each_wgmma() -> None:
    a, b, d = signed(halves(64, 64), in_turn(64)), halves(32, 64), halves(64, 32)
    want = rounded_each(a, b.T, d, in_turn(64))
    once = (a.double() @ b.T.double() + d.double()).half()
    clean(HalfWgmma(), a, b, d, target="sm_90a")
    assert torch.equal(d, want)
    assert (d - once).abs().max() > 0.1


def test_int32_wraps() -> None:
    a, b, c, d = operands(int8, int32, 16, 8, 32)
    a[:], b[:], c[:] = 1, 1, 2**31 - 1
    clean(Dot(int8, int32, 16, 8, 32, 1), a, b, c, d)
    assert (d == -(2**31) + 31).all()
