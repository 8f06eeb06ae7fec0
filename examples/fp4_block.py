"""A transformer block whose four linear layers multiply nvfp4, on a CPU, with the errors of the formats.

Weights are quantised once, activations in each call. `scaled_mm` runs the kernel in the simulator; on a Blackwell leave
out `simulate=True` and move the model to the GPU.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import dequantize, quantize, scaled_mm

RECIPE = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
SWIZZLE = SwizzleType.SWIZZLE_32_4_4
LARGEST = 448 * 6  # the largest scale of e4m3 times the largest element of e2m1


def quantised(x):
    """Return x[rows, k] in nvfp4: its data, the scales of its blocks, and the scale of the tensor."""
    scale = (x.abs().max() / LARGEST).clamp(min=1e-30)
    return *quantize(x, "nvfp4", global_scale=scale), scale


class Fp4Linear(nn.Module):
    """nn.Linear in nvfp4, by `scaled_mm`."""

    def __init__(self, linear):
        super().__init__()
        self.weight, self.bias = quantised(linear.weight.detach()), linear.bias.detach()

    def forward(self, x):
        y = self.multiply(quantised(x.reshape(-1, x.shape[-1])), self.weight)
        return y.reshape(*x.shape[:-1], y.shape[-1])

    def multiply(self, x, w):
        (a, scale_a, of_a), (b, scale_b, of_b) = x, w
        scales = [scale_a, of_a], RECIPE, [scale_b, of_b], RECIPE, SWIZZLE, SWIZZLE
        return scaled_mm(a, b.mT, *scales, bias=self.bias, output_dtype=torch.float32, simulate=True)


class DequantisedLinear(Fp4Linear):
    """The same numbers, multiplied by torch."""

    def multiply(self, x, w):
        (a, scale_a, of_a), (b, scale_b, of_b) = x, w
        return F.linear(dequantize(a, scale_a, "nvfp4", of_a), dequantize(b, scale_b, "nvfp4", of_b), self.bias)


class Block(nn.Module):
    """Attention and an MLP, each after a norm and added to the input. of: makes a layer of an nn.Linear."""

    def __init__(self, features, heads, of=lambda linear: linear):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.qkv, self.out = of(nn.Linear(features, 3 * features)), of(nn.Linear(features, features))
        self.up, self.down = of(nn.Linear(features, 4 * features)), of(nn.Linear(4 * features, features))

    def forward(self, x):
        x = x + self.out(self.attention(F.rms_norm(x, x.shape[-1:])))
        return x + self.down(F.gelu(self.up(F.rms_norm(x, x.shape[-1:]))))

    def attention(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)


def apart(y, reference):
    return float((y - reference).norm() / reference.norm())


@torch.no_grad()
def main(features: int = 64, heads: int = 2, tokens: int = 33) -> int:
    x = torch.randn(1, tokens, features, generator=torch.Generator().manual_seed(1))
    full, fp4, same = (Block(features, heads, *of)(x) for of in ((), (Fp4Linear,), (DequantisedLinear,)))
    print(f"nvfp4 by scaled_mm, beside torch with the same numbers: relative error {apart(fp4, same):.1e}")
    print(f"nvfp4 by scaled_mm, beside torch in fp32:               relative error {apart(fp4, full):.1e}")
    print(f"the same numbers by torch, beside torch in fp32:        relative error {apart(same, full):.1e}")
    return 0 if apart(fp4, same) < 1e-5 else 1


if __name__ == "__main__":
    raise SystemExit(main())
