"""`ScaledMmMode` under a tensor subclass that multiplies as torchao's MXTensor and NVFP4Tensor do."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import InputError, ScaledMmMode, UnsupportedError, dequantize, quantize

SWIZZLED = SwizzleType.SWIZZLE_32_4_4


class Quantised(torch.Tensor):
    """Weight [n, k] with scales of blocks, whose linear layer quantises its input and asks torch for the product."""

    @staticmethod
    def __new__(cls, shape, *_):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bfloat16)

    def __init__(self, shape, name, data, scales):
        self.format_, self.data_, self.scales = name, data, scales

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        aten = torch.ops.aten
        if func in (aten.detach.default, aten.t.default):
            shape = args[0].shape[:: 1 if func is aten.detach.default else -1]
            return Quantised(shape, args[0].format_, args[0].data_, args[0].scales)
        assert func in (aten.mm.default, aten.addmm.default)  # of linear
        *bias, x, w = args
        a, scales = quantize(x, w.format_)
        if w.format_ == "mxfp4":
            recipe = ScalingType.BlockWise1x32
            return functional.scaled_mm(
                a, w.data_.t(), scale_a=scales, scale_recipe_a=recipe, scale_b=w.scales, scale_recipe_b=recipe,
                swizzle_a=SWIZZLED, swizzle_b=SWIZZLED, bias=bias[0] if bias else None, output_dtype=torch.bfloat16,
            )  # fmt: skip
        bias = bias[0] if bias else None
        return torch._scaled_mm(a, w.data_.t(), scales, w.scales, bias=bias, out_dtype=torch.bfloat16)


def quantised(w, name):
    return Quantised(w.shape, name, *quantize(w, name))


X = torch.randn(33, 96, generator=torch.Generator().manual_seed(0)).bfloat16()
W = torch.randn(40, 96, generator=torch.Generator().manual_seed(1)).bfloat16()


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "nvfp4"])
def test_a_subclass_multiplies_by_ours(name, with_bias):
    bias = torch.arange(40).bfloat16() if with_bias else None
    with ScaledMmMode(simulate=True):
        made = functional.linear(X, quantised(W, name), bias)
    left, right = (dequantize(*quantize(each, name), name) for each in (X, W))
    exact = left.double() @ right.double().T + (0 if bias is None else bias.double())
    torchs = (left @ right.T + (0 if bias is None else bias.float())).bfloat16()
    assert (made.double() - exact).abs().max() <= 2 * (torchs.double() - exact).abs().max()


def test_two_levels_and_all_that_is_not_a_scaled_product():
    factor = torch.tensor(0.01)
    (a, of_a), (b, of_b) = (quantize(each, "nvfp4", global_scale=factor) for each in (X, W))
    recipe = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    with ScaledMmMode(simulate=True):
        made = functional.scaled_mm(a, b.mT, [of_a, factor], recipe, [of_b, factor], recipe, SWIZZLED, SWIZZLED)
        assert torch.equal(X + X, 2 * X)
    exact = dequantize(a, of_a, "nvfp4", factor).double() @ dequantize(b, of_b, "nvfp4", factor).double().T
    assert (made.double() - exact).abs().max() <= exact.abs().max() * 2**-8


def test_what_does_not_run_here_is_said():
    with pytest.raises(UnsupportedError, match="it runs CUDA tensors, and simulates CPU tensors"), ScaledMmMode():
        functional.linear(X, quantised(W, "mxfp8"))
    with pytest.raises(InputError, match="simulate is 1; it must be True or False"):
        ScaledMmMode(simulate=1)
