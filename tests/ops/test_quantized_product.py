"""`scaled_mm` to a block-scaled format: the bytes of `quantize` of its fp32 result, eager and compiled."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import InputError, UnsupportedError, dequantize, quantize, scaled_mm

pytestmark = pytest.mark.slow

RECIPES = {
    "mxfp8": ScalingType.BlockWise1x32,
    "mxfp4": ScalingType.BlockWise1x32,
    "nvfp4": [ScalingType.BlockWise1x16, ScalingType.TensorWise],
}
PLAIN = SwizzleType.NO_SWIZZLE


def operand(name, rows, k, seed=0, swizzled=True):
    """Return data, and its scales as scaled_mm takes them."""
    x = torch.randn(rows, k, generator=torch.Generator().manual_seed(seed))
    factor = x.abs().max() / (448 * 6) if name == "nvfp4" else None
    data, scales = quantize(x, name, global_scale=factor, swizzled=swizzled)
    return data, scales if factor is None else [scales, factor]


def multiplied(name, a, b, *, simulate=True, **options):
    (of_a, scale_a), (of_b, scale_b) = a, b
    return scaled_mm(of_a, of_b.mT, scale_a, RECIPES[name], scale_b, RECIPES[name], simulate=simulate, **options)


def same(made, wanted):
    return all(
        (one.shape, one.dtype) == (two.shape, two.dtype) and torch.equal(one.view(torch.uint8), two.view(torch.uint8))
        for one, two in zip(made, wanted, strict=True)
    )


@pytest.mark.parametrize("out", RECIPES)
@pytest.mark.parametrize("name", RECIPES)
def test_the_result_is_quantised_before_it_is_rounded(name, out):
    a, b = operand(name, 33, 96), operand(name, 160, 96, seed=1)
    bias = torch.randn(160, generator=torch.Generator().manual_seed(2))
    c = multiplied(name, a, b, bias=bias, output_dtype=torch.float32)
    factor = c.abs().max() / (448 * 6) if out == "nvfp4" else None
    made = multiplied(name, a, b, bias=bias, output_dtype=out, global_scale=factor)
    assert same(made, quantize(c, out, global_scale=factor))
    error = (dequantize(*made, out, factor) - c).square().sum() / c.square().sum()
    assert error < {"mxfp8": 1e-3, "mxfp4": 2e-2, "nvfp4": 1e-2}[out]


@pytest.mark.parametrize("types", [("e4m3fn", "e5m2"), ("e5m2", "e4m3fn"), ("e5m2", "e5m2")])
def test_mxfp8_is_of_any_two_types_of_8_bits(types):
    a, b = ((data.float().to(getattr(torch, f"float8_{each}")), scales) for each, (data, scales) in zip(
        types, (operand("mxfp8", 40, 64), operand("mxfp8", 32, 64, seed=1))
    ))  # fmt: skip
    c = multiplied("mxfp8", a, b, output_dtype=torch.float32)
    assert same(multiplied("mxfp8", a, b, output_dtype="mxfp8"), quantize(c, "mxfp8"))


def test_the_next_product_takes_it():
    a, b, w = operand("nvfp4", 40, 64), operand("nvfp4", 96, 64, seed=1), operand("nvfp4", 32, 96, seed=2)
    c = multiplied("nvfp4", a, b, output_dtype=torch.float32)
    factor = c.abs().max() / (448 * 6)
    data, scales = multiplied("nvfp4", a, b, output_dtype="nvfp4", global_scale=factor)
    of_torch, of_scales = quantize(c, "nvfp4", global_scale=factor)
    after = [multiplied("nvfp4", (x, [s, factor]), w) for x, s in ((data, scales), (of_torch, of_scales))]
    assert torch.equal(*after)


def test_plain_scales_a_16_bit_bias_and_a_number_as_second_scale():
    a, b = ((data, scales[0]) for data, scales in (operand("nvfp4", n, 32, swizzled=False) for n in (5, 64)))
    bias = torch.ones(64, dtype=torch.bfloat16)
    recipe = ScalingType.BlockWise1x16
    given = a[0], b[0].mT, a[1], recipe, b[1], recipe, PLAIN, PLAIN
    made = scaled_mm(*given, bias=bias, output_dtype="nvfp4", global_scale=0.5, simulate=True)
    c = scaled_mm(*given, output_dtype=torch.float32, simulate=True) + bias
    assert same(made, quantize(c, "nvfp4", global_scale=0.5))


@pytest.mark.parametrize("sizes", [(0, 32, 32), (8, 0, 32), (8, 64, 0)])
def test_without_products(sizes):
    m, n, k = sizes
    a, b = operand("mxfp8", m, k), operand("mxfp8", n, k)
    made = multiplied("mxfp8", a, b, output_dtype="mxfp4", bias=torch.full((n,), 2.0))
    assert same(made, quantize(torch.full((m, n), 2.0), "mxfp4"))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_compiled_it_is_the_same(backend):
    a, (of_b, scales_b) = operand("nvfp4", 24, 64), operand("nvfp4", 32, 64, seed=1)

    def both(data, scales, factor):
        return multiplied("nvfp4", (data, [scales, factor]), (of_b, scales_b), output_dtype="nvfp4", global_scale=0.1)

    given = a[0], *a[1]
    assert same(torch.compile(both, backend=backend, fullgraph=True)(*given), both(*given))
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        data, scales = both(*[mode.from_tensor(each) for each in given])
    assert data.shape == (24, 16) and data.dtype == torch.float4_e2m1fn_x2 and scales.shape == (512,)


A, B = operand("mxfp8", 8, 64), operand("mxfp8", 32, 64)
EIGHT = torch.ones(8, 64).to(torch.float8_e4m3fn)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: multiplied("mxfp8", A, B, output_dtype="fp4"), InputError, "output_dtype is 'fp4'; it must be one of"),
        (lambda: multiplied("mxfp8", A, operand("mxfp8", 40, 64), output_dtype="mxfp4"), InputError, "n is 40; with"),
        (lambda: multiplied("mxfp8", A, B, output_dtype="mxfp8", global_scale=2.0), InputError, "nvfp4 takes one"),
        (lambda: multiplied("mxfp8", A, B, global_scale=2.0), InputError, "output_dtype must be 'nvfp4'"),
        (
            lambda: multiplied("mxfp8", A, B, output_dtype="mxfp8", bias=torch.ones(32).double()),
            InputError,
            "bias is torch.float64; it must be one of torch.float16",
        ),
        (lambda: multiplied("mxfp8", A, B, output_dtype="mxfp8", bias=torch.ones(8)), InputError, "bias has shape"),
        (lambda: multiplied("mxfp8", A, B, output_dtype="mxfp8", simulate=False), UnsupportedError, "simulate=True"),
        (
            lambda: scaled_mm(
                EIGHT, EIGHT.mT, torch.ones(()), ScalingType.TensorWise, torch.ones(()), ScalingType.TensorWise,
                output_dtype="mxfp8", simulate=True,
            ),
            UnsupportedError,
            "output_dtype is 'mxfp8', for operands of mxfp8, mxfp4, nvfp4; quantize of what scaled_mm returns",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, said):
    with pytest.raises(error) as refused:
        call()
    assert said in str(refused.value) and str(refused.value).endswith(".")
