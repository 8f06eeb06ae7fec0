"""Block-scaled operands of a call: random elements and scales, and the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS, ATOM_ROWS, BlockFormat
from blackwell_matmul.problem.problem import Problem

SCALES = {"float8_e8m0fnu": (121, 127), "float8_e4m3fn": (0x10, 0x38)}
"""First and last byte, excluded, of random scales: 1/64 to 1/2, and 1/32 to 15/16."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of the codes 0 to 7; the codes 8 to 15 have the negative ones (OCP Microscaling Formats, FP4)."""


def unfilled(problem: Problem, make: Callable[[Sequence[int], torch.dtype], torch.Tensor]) -> list[torch.Tensor]:
    """Return a, b, scale_a and scale_b as `make` makes bytes of a shape."""
    form, rows, k = _format(problem), (problem.m, problem.n), problem.k
    data = [make((each, problem.k_bytes), torch.uint8).view(getattr(torch, form.element)) for each in rows]
    return data + [make((form.scales(each, k),), torch.uint8).view(getattr(torch, form.scale)) for each in rows]


def operands(problem: Problem, generator: torch.Generator) -> list[torch.Tensor]:
    """Return a, b, scale_a and scale_b. Elements are any of their type, or of 8 bits normally distributed."""
    form, device = _format(problem), generator.device
    data = []
    for rows in (problem.m, problem.n):
        if form.bits == 8:
            drawn = torch.randn(rows, problem.k, generator=generator, device=device).to(getattr(torch, form.element))
            data.append(drawn)
        else:
            drawn = torch.randint(256, (rows, problem.k // 2), generator=generator, device=device, dtype=torch.uint8)
            data.append(drawn.view(getattr(torch, form.element)))
    return data + [_scales(form, rows, problem.k, generator) for rows in (problem.m, problem.n)]


def _scales(form: BlockFormat, rows: int, k: int, generator: torch.Generator) -> torch.Tensor:
    """Return random scales in atoms, and zeros in the padding."""
    (down, along), blocks = form.atoms(rows, k), -(-k // form.block)
    drawn = torch.zeros(down * ATOM_ROWS, along * ATOM_BLOCKS, dtype=torch.uint8, device=generator.device)
    drawn[:rows, :blocks].random_(*SCALES[form.scale], generator=generator)
    atoms = drawn.view(down, ATOM_BLOCKS, ATOM_ROWS // 4, along, ATOM_BLOCKS).permute(0, 3, 2, 1, 4)
    return atoms.reshape(-1).view(getattr(torch, form.scale))


def dequantised(problem: Problem, data: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the numbers of an operand in float64, rows x k. data, scales: as a kernel takes them."""
    form, rows = _format(problem), data.shape[0]
    down, along = form.atoms(rows, problem.k)
    atoms = scales.reshape(-1).view(torch.uint8).view(down, along, ATOM_ROWS // 4, ATOM_BLOCKS, ATOM_BLOCKS)
    plain = atoms.permute(0, 3, 2, 1, 4).reshape(down * ATOM_ROWS, -1)[:rows].contiguous()
    factors = plain.view(getattr(torch, form.scale)).double()
    return _elements(form, data) * factors.repeat_interleave(form.block, dim=1)[:, : problem.k]


def _elements(form: BlockFormat, data: torch.Tensor) -> torch.Tensor:
    if form.bits == 8:
        return data.view(getattr(torch, form.element)).double()
    codes = data.view(torch.uint8)
    values = torch.tensor(E2M1 + tuple(-each for each in E2M1), dtype=torch.float64, device=data.device)
    return values[torch.stack((codes & 0xF, codes >> 4), dim=2).flatten(1).long()]


def _format(problem: Problem) -> BlockFormat:
    assert problem.format is not None
    return problem.format
