"""Block-scaled operands of a call: random elements and scales, and their dequantised values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from blackwell_matmul.ops.block_scaled.formats import FORMATS, TorchFormat, unpacked
from blackwell_matmul.ops.block_scaled.swizzling import swizzle, unswizzle
from blackwell_matmul.problem.problem import Problem

DRAWN_SCALES = {torch.float8_e8m0fnu: (121, 127), torch.float8_e4m3fn: (0x10, 0x38)}
"""Range of the bytes of random scales, the end excluded. The scales are 1/64 to 1/2 (e8m0), 1/32 to 15/16 (e4m3)."""


def unfilled(problem: Problem, make: Callable[[Sequence[int], torch.dtype], torch.Tensor]) -> list[torch.Tensor]:
    """Return a, b, scale_a and scale_b without values. make: function that returns a tensor of a shape and type."""
    form, rows, k = FORMATS[problem.dtype], (problem.m, problem.n), problem.k
    data = [make((each, problem.k_bytes), torch.uint8).view(form.element) for each in rows]
    return data + [make((form.scales(each, k),), torch.uint8).view(form.scale) for each in rows]


def operands(problem: Problem, generator: torch.Generator) -> list[torch.Tensor]:
    """Return random a, b, scale_a and scale_b. Elements of 8 bits are normally distributed, of 4 bits uniformly."""
    form, rows = FORMATS[problem.dtype], (problem.m, problem.n)
    data = [_elements(form, each, problem.k, generator) for each in rows]
    return data + [_scales(form, each, problem.k, generator) for each in rows]


def _elements(form: TorchFormat, rows: int, k: int, generator: torch.Generator) -> torch.Tensor:
    device = generator.device
    if form.per_byte == 1:
        return torch.randn(rows, k, generator=generator, device=device).to(form.element)
    drawn = torch.randint(256, (rows, k // 2), generator=generator, device=device, dtype=torch.uint8)
    return drawn.view(form.element)


def _scales(form: TorchFormat, rows: int, k: int, generator: torch.Generator) -> torch.Tensor:
    """Return random scales in atoms, padded with zeros."""
    drawn = torch.empty(rows, -(-k // form.block), dtype=torch.uint8, device=generator.device)
    return swizzle(drawn.random_(*DRAWN_SCALES[form.scale], generator=generator)).view(form.scale)


def typed(data: torch.Tensor, form: TorchFormat) -> torch.Tensor:
    """Return bytes as the format's elements; return other data unchanged."""
    return data.view(form.element) if data.dtype == torch.uint8 else data


def dequantised(problem: Problem, data: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the elements of an operand [rows, k] multiplied by their scales, in float64. scales: in atoms."""
    form, rows, blocks = FORMATS[problem.dtype], data.shape[0], -(-problem.k // FORMATS[problem.dtype].block)
    factors = unswizzle(scales.reshape(-1), rows, blocks).view(form.scale).double()
    values = unpacked(data, torch.float64) if form.per_byte == 2 else typed(data, form).double()
    return values * factors.repeat_interleave(form.block, dim=1)[:, : problem.k]
