"""The kernel of `quantize`: simulated, and emulated from its PTX, has the bytes of torch's code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from blackwell_matmul import InputError, compile, emulate, predict, quantize, simulate
from blackwell_matmul.kernels.products.quantizer import BlackwellQuantizer
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED

pytestmark = pytest.mark.slow

BITS32, BITS16 = torch.float32, torch.bfloat16


def hard(batches: int, rows: int, k: int) -> torch.Tensor:
    """Return numbers of many powers of two, with ties of the roundings, zeros, subnormal numbers, NaN, infinities."""
    generator = torch.Generator().manual_seed(rows + k)
    powers = torch.randint(-30, 30, (batches, rows, k // 16), generator=generator).repeat_interleave(16, 2)
    x = torch.randn(batches, rows, k, generator=generator) * torch.exp2(powers.float())
    x[:, 1::4] = torch.randint(-24, 25, x[:, 1::4].shape, generator=generator) / 4
    x[:, 2] *= 1e-38
    x[:, 3] = 3e-41 * x[:, 7]
    x[:, 4] = -0.0
    for place, value in enumerate((math.nan, -math.nan, math.inf, -math.inf)):
        x[:, 5 + place, 7 * place] = value
    return x


def call(name: str, x: torch.Tensor, factor: torch.Tensor | None) -> dict[str, Any]:
    form, (batches, m, k) = BLOCK_SCALED[name], x.shape
    shapes = (batches, m, k // form.per_byte), (batches, form.scales(m, k))
    data, scales = (torch.full(shape, 0xEE, dtype=torch.uint8) for shape in shapes)
    given = {"x_ptr": x, "factor_ptr": 0 if factor is None else factor, "data_ptr": data, "scale_ptr": scales}
    return {"batches": batches, "m": m, "k": k, **given}


@pytest.mark.parametrize(
    ("name", "scaling", "shape", "dtype", "factor", "target"),
    [
        ("mxfp8", "rceil", (1, 130, 192), BITS32, None, "sm_100a"),
        ("mxfp8", "floor", (2, 40, 32), BITS16, None, "sm_103a"),
        ("mxfp4", "rceil", (1, 17, 160), torch.float16, None, "sm_120a"),
        ("mxfp4", "floor", (1, 130, 192), BITS32, None, "sm_100a"),
        ("nvfp4", "rceil", (1, 130, 208), BITS32, None, "sm_100a"),
        ("nvfp4", "rceil", (2, 9, 48), BITS16, 0.3, "sm_121a"),
        ("nvfp4", "rceil", (1, 17, 80), BITS32, 1e-40, "sm_100a"),
        ("nvfp4", "rceil", (1, 17, 80), BITS32, 3e38, "sm_100a"),
    ],
)
def test_the_bytes_are_those_of_torch(
    name: str, scaling: str, shape: tuple[int, int, int], dtype: torch.dtype, factor: float | None, target: str
) -> None:
    x, number = hard(*shape).to(dtype), None if factor is None else torch.tensor([factor])
    kernel, wanted = BlackwellQuantizer(dtype=name, scaling=scaling), quantize(x, name, scaling, number)
    simulated, emulated = call(name, x, number), call(name, x, number)
    assert not simulate(kernel, *simulated.values()).findings
    bundle = compile(kernel, *emulated.values(), target=target)
    emulate(bundle, *[emulated[each.name] for each in bundle.plan.parameters])
    for made in (simulated, emulated):
        for each, of_torch in zip((made["data_ptr"], made["scale_ptr"]), wanted, strict=True):
            assert torch.equal(each, of_torch.view(torch.uint8))
    assert bundle.resources.spill_bytes == 0 and "abs.ftz" not in bundle.ptx
    assert ("cvt.rn.satfinite.e2m1x2.f32" in bundle.ptx) == (name != "mxfp8")


def test_its_time_is_predicted() -> None:
    x = torch.zeros(1, 1024, 1024, dtype=BITS16)
    assert 0 < predict(BlackwellQuantizer(dtype="nvfp4"), *call("nvfp4", x, None).values()).time_us < 10


X = torch.zeros(1, 8, 64)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("nvfp4", {"x_ptr": X.double()}, "x is torch.float64; it must be torch.float16 or torch.bfloat16 or"),
        ("nvfp4", {"x_ptr": X[0]}, "x has shape (8, 64); it must be (b, m, k) = (1, 8, 64)"),
        ("nvfp4", {"m": 0}, "m is 0"),
        ("nvfp4", {"factor_ptr": torch.zeros(())}, "factor has shape () and type torch.float32; it must be one number"),
        ("fp4", {}, "dtype is 'fp4'; pin one of mxfp8, mxfp4, nvfp4"),
        ("mxfp8", {}, "data has shape (1, 8, 32); it must be (b, m, c) = (1, 8, 64)"),
        ("nvfp4", {"scale_ptr": X}, "scales has shape (1, 8, 64); it must be (b, s) = (1, 512)"),
        ("mxfp4", {"k": 48, "x_ptr": torch.zeros(1, 8, 48)}, "k is 48; it must be a multiple of 32, a block of mxfp4"),
    ],
)
def test_what_is_refused(name: str, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        simulate(BlackwellQuantizer(dtype=name), *{**call("nvfp4", X, None), **changed}.values())
    assert said in str(refused.value) and str(refused.value).endswith(".")
