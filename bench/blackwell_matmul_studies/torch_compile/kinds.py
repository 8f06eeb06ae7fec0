"""The workloads as functions and tensors: what is compiled, the eager baseline, and the same in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from blackwell_matmul.harness.reference import TORCH_DTYPES

Operands = tuple[torch.Tensor, ...]
Function = Callable[..., torch.Tensor]
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Made:
    """call: what is compiled. operands: draws a set of inputs, the first `activations` of which change from call to
    call; the others are weights. exact: in float64. eager: the baseline, where it is not `call` itself."""

    call: Function
    operands: Callable[[torch.Generator], Operands]
    flops: int
    exact: Function | None = None
    eager: Function | None = None
    activations: int = 1

    @property
    def baseline(self) -> Function:
        return self.eager or self.call

    def reference(self, operands: Operands) -> torch.Tensor:
        return (self.exact or self.baseline)(*(each.double() for each in operands))


def made(kind: str, sizes: Mapping[str, int], dtype: str, device: torch.device) -> Made:
    return KINDS[kind](dtype=dtype, device=device, **sizes)


def linear(m: int, n: int, k: int, dtype: str, device: torch.device) -> Made:
    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w.T

    def operands(seed: torch.Generator) -> Operands:
        return _normal(seed, TORCH_DTYPES[dtype], m, k), _weight(seed, TORCH_DTYPES[dtype], n, k)

    return Made(call, operands, 2 * m * n * k)


def mlp(m: int, hidden: int, intermediate: int, dtype: str, device: torch.device) -> Made:
    """Gate and up, their gated product, down."""

    def call(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return (silu(x @ gate.T) * (x @ up.T)) @ down.T

    def operands(seed: torch.Generator) -> Operands:
        weights = [(intermediate, hidden), (intermediate, hidden), (hidden, intermediate)]
        x = _normal(seed, TORCH_DTYPES[dtype], m, hidden)
        return x, *(_weight(seed, TORCH_DTYPES[dtype], *size) for size in weights)

    return Made(call, operands, 2 * m * 3 * hidden * intermediate)


def attention(batch: int, length: int, heads: int, width: int, dtype: str, device: torch.device) -> Made:
    """QKV, causal attention, the projection behind it."""
    tokens, hidden = batch * length, heads * width

    def call(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        q, k, v = (x @ qkv.T).view(batch, length, 3, heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).reshape(tokens, hidden) @ out.T

    def operands(seed: torch.Generator) -> Operands:
        x = _normal(seed, TORCH_DTYPES[dtype], tokens, hidden)
        return x, *(_weight(seed, TORCH_DTYPES[dtype], rows, hidden) for rows in (3 * hidden, hidden))

    return Made(call, operands, 2 * tokens * 4 * hidden * hidden + _causal_flops(batch, length, heads, width))


def flex(batch: int, length: int, heads: int, width: int, dtype: str, device: torch.device) -> Made:
    """FlexAttention with a causal mask; eager's is the fused attention, which computes the same."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(batch: torch.Tensor, head: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return q >= k

    mask = create_block_mask(causal, None, None, length, length, device=device.type)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mixed = flex_attention(q, k, v, block_mask=mask)
        assert isinstance(mixed, torch.Tensor)
        return mixed

    def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)

    def operands(seed: torch.Generator) -> Operands:
        size = batch, heads, length, width
        return tuple(_normal(seed, TORCH_DTYPES[dtype], *size) for _ in range(3))

    return Made(call, operands, _causal_flops(batch, length, heads, width), eager=fused, activations=3)


def scaled(m: int, n: int, k: int, dtype: str, device: torch.device) -> Made:
    """E4M3 with one scale a tensor, accumulated in float32, to bf16."""

    def call(x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(x, w.T, scale_a=x_scale, scale_b=w_scale, out_dtype=torch.bfloat16)

    def exact(x: torch.Tensor, w: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor) -> torch.Tensor:
        return (x @ w.T) * (x_scale * w_scale)

    def operands(seed: torch.Generator) -> Operands:
        (x, x_scale), (w, w_scale) = _fp8(_normal(seed, torch.float32, m, k)), _fp8(_weight(seed, torch.float32, n, k))
        return x, w, x_scale, w_scale

    return Made(call, operands, 2 * m * n * k, exact)


def integer(m: int, n: int, k: int, dtype: str, device: torch.device) -> Made:
    """int8, accumulated in int32."""

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, w.T)

    def exact(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w.T

    def operands(seed: torch.Generator) -> Operands:
        drawn = [torch.randint(-128, 128, (rows, k), generator=seed, device=seed.device) for rows in (m, n)]
        return tuple(each.to(torch.int8) for each in drawn)

    return Made(call, operands, 2 * m * n * k, exact)


KINDS: Mapping[str, Callable[..., Made]] = MappingProxyType(
    {each.__name__: each for each in (linear, mlp, attention, flex, scaled, integer)}
)


def _causal_flops(batch: int, length: int, heads: int, width: int) -> int:
    """Of two matmuls, half of which the mask spares."""
    return 2 * batch * heads * length * length * width


def _normal(seed: torch.Generator, dtype: torch.dtype, *size: int) -> torch.Tensor:
    return torch.randn(size, generator=seed, device=seed.device, dtype=torch.float32).to(dtype)


def _weight(seed: torch.Generator, dtype: torch.dtype, rows: int, columns: int) -> torch.Tensor:
    """N(0, 1/columns), so that a layer keeps the size of what goes through it."""
    return (_normal(seed, torch.float32, rows, columns) / math.sqrt(columns)).to(dtype)


def _fp8(values: torch.Tensor) -> Operands:
    scale = values.abs().max() / torch.finfo(FP8).max
    return (values / scale).to(FP8), scale
