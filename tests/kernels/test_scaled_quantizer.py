"""S2 with a block-scaled C: simulated, and emulated from its PTX, has the bytes of `quantize` of the fp32 result."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from blackwell_matmul import InputError, compile, emulate, quantize, simulate
from blackwell_matmul.harness.calls.scaled_operands import operands
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.products.scaled_quantizer import BlackwellScaledQuantizer
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.problem import Problem

pytestmark = pytest.mark.slow

NAMES = ("scale_c_ptr", "factor_ptr", "factor_c_ptr", "bias_ptr")
"""Parameters of the kernel after those of S2."""


def drawn(dtype: str, m: int, n: int, k: int, seed: int = 0) -> dict[str, Any]:
    given = operands(Problem(m, n, k, dtype), torch.Generator().manual_seed(seed))
    names = ("a_ptr", "b_ptr", "scale_a_ptr", "scale_b_ptr")
    return {"m": m, "n": n, "k": k, **dict(zip(names, [each.view(torch.uint8) for each in given], strict=True))}


def call(sums: dict[str, Any], out: str, factor: Any = 0, factor_c: Any = 0, bias: Any = 0) -> dict[str, Any]:
    form, m, n = BLOCK_SCALED[out], sums["m"], sums["n"]
    c = torch.full((m, n // form.per_byte), 0xEE, dtype=torch.uint8)
    scales = torch.full((form.scales(m, n),), 0 if n % form.atom_k else 0xEE, dtype=torch.uint8)
    return {**sums, "c_ptr": c, **dict(zip(NAMES, (scales, factor, factor_c, bias), strict=True))}


@pytest.mark.parametrize(
    ("dtype", "out", "shape", "factor", "factor_c", "bias_type"),
    [
        ("nvfp4", "nvfp4", (200, 160, 96), 0.37, 0.05, torch.bfloat16),
        ("mxfp8", "mxfp8", (129, 128, 64), None, None, None),
        ("mxfp4", "mxfp4", (40, 96, 160), 3.0, None, torch.float32),
        ("nvfp4", "mxfp8", (300, 288, 32), None, None, torch.float16),
    ],
)
def test_the_bytes_are_those_of_torch(
    dtype: str, out: str, shape: tuple[int, int, int], factor: float | None, factor_c: float | None, bias_type: Any
) -> None:
    sums = drawn(dtype, *shape)
    c = torch.zeros(shape[:2])
    assert simulate(rung("s2"), *sums.values(), c, schedule={"dtype": dtype}).ok
    bias = 0 if bias_type is None else torch.randn(shape[1], generator=torch.Generator().manual_seed(1)).to(bias_type)
    wanted = quantize((c if factor is None else c * factor) + bias, out, global_scale=factor_c)
    numbers = [0 if each is None else torch.tensor([each]) for each in (factor, factor_c)]
    kernel = BlackwellScaledQuantizer(dtype=dtype, out=out)
    simulated, emulated = (call(sums, out, *numbers, bias) for _ in range(2))
    found = [each.code for each in simulate(kernel, *simulated.values()).findings]
    assert found in ([], ["never-written"])  # a whole tile before the end of an atom: the caller clears the rest
    bundle = compile(kernel, *emulated.values())
    emulate(bundle, *[emulated[each.name] for each in bundle.plan.parameters])
    for made in (simulated, emulated):
        for each, of_torch in zip((made["c_ptr"], made["scale_c_ptr"]), wanted, strict=True):
            assert torch.equal(each, of_torch.view(torch.uint8))
    assert bundle.resources.spill_bytes == 0


@pytest.mark.parametrize("policy", ["eager", "random"])
def test_every_order_has_the_same_bytes(policy: str) -> None:
    sums, kernel = drawn("nvfp4", 300, 320, 288), BlackwellScaledQuantizer(dtype="nvfp4", out="nvfp4")
    first, second = (call(sums, "nvfp4") for _ in range(2))
    assert not simulate(kernel, *first.values()).findings
    assert not simulate(kernel, *second.values(), policy=policy, seed=1).findings
    assert torch.equal(first["c_ptr"], second["c_ptr"]) and torch.equal(first["scale_c_ptr"], second["scale_c_ptr"])


@pytest.mark.parametrize(
    ("pins", "changed", "said"),
    [
        ({"out": "fp4"}, {}, "out is 'fp4'; pin one of mxfp8, mxfp4, nvfp4"),
        ({"out": "mxfp8"}, {}, "c has shape (40, 48); it must be (m, c) = (40, 96)"),
        ({"e_block_n": 32}, {}, "e_block_n is 32; a strip of a block-scaled C has 64 columns"),
        ({}, {"scale_c_ptr": torch.zeros(8)}, "scale_c has shape (8,); it must be (s) = (1024,)"),
        ({}, drawn("nvfp4", 40, 72, 64), "n is 72; it must be a multiple of 32"),
        ({}, {"bias_ptr": torch.zeros(96).double()}, "bias is torch.float64; it must be"),
        ({}, {"bias_ptr": torch.zeros(8)}, "bias has shape (8,); it must be (n) = (96,)"),
        (
            {},
            {"factor_ptr": torch.zeros(2)},
            "factor has shape (2,) and type torch.float32; it must be one number, of shape (1,)",
        ),
    ],
)
def test_what_is_refused(pins: dict[str, Any], changed: dict[str, Any], said: str) -> None:
    given = {**call(drawn("nvfp4", 40, 96, 64), "nvfp4"), **changed}
    with pytest.raises(InputError) as refused:
        simulate(BlackwellScaledQuantizer(**{"dtype": "nvfp4", "out": "nvfp4", **pins}), *given.values())
    assert said in str(refused.value) and str(refused.value).endswith(".")
