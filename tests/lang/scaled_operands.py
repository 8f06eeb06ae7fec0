"""Block-scaled operands as bytes, and their values in float64, made without the package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from blackwell_matmul import emulate
from blackwell_matmul.compiler import Bundle

BLOCKS = {"mxfp8": 32, "mxfp4": 32, "nvfp4": 16}


@dataclass(frozen=True)
class Operand:
    """data, scales: uint8 as a kernel takes them. values: rows x k in float64."""

    data: torch.Tensor
    scales: torch.Tensor
    values: np.ndarray


def operand(name: str, rows: int, k: int, seed: int) -> Operand:
    """Return random elements and scales of a format."""
    rng, block = np.random.default_rng(seed), BLOCKS[name]
    shape = rows, -(-k // block)
    scale_type = ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu
    scales = rng.integers(0x20, 0x48, shape) if name == "nvfp4" else rng.integers(122, 132, shape)
    scales = scales.astype(np.uint8)
    if name == "mxfp8":
        elements = rng.normal(size=(rows, k)).astype(ml_dtypes.float8_e4m3fn)
        data = elements.view(np.uint8)
    else:
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        elements = codes.view(ml_dtypes.float4_e2m1fn)
        data = codes[:, 0::2] | codes[:, 1::2] << 4
    factors = np.repeat(scales.view(scale_type).astype(np.float64), block, axis=1)[:, :k]
    return Operand(torch.from_numpy(data.copy()), in_atoms(scales), elements.astype(np.float64) * factors)


def in_atoms(scales: np.ndarray) -> torch.Tensor:
    """Return scales in atoms of 128 rows and 4 blocks: byte (r % 32) * 16 + (r // 32) * 4 + block of each 512."""
    rows, blocks = (-(-extent // size) for extent, size in zip(scales.shape, (128, 4), strict=True))
    padded = np.zeros((rows * 128, blocks * 4), np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    return torch.from_numpy(padded.reshape(rows, 4, 32, blocks, 4).transpose(0, 3, 2, 1, 4).reshape(-1).copy())


ROUNDING = 2.0**-21
"""Largest error, of the largest element, of sums that each of some ten instructions cuts to float32."""


def operands(name: str, m: int, n: int, k: int) -> tuple[Operand, Operand, torch.Tensor]:
    """Return both operands, and a C of NaN."""
    return operand(name, m, k, 1), operand(name, n, k, 2), torch.full((m, n), float("nan"))


def arguments(m: int, n: int, k: int, a: Operand, b: Operand, c: torch.Tensor) -> list[Any]:
    return [m, n, k, a.data, b.data, a.scales, b.scales, c]


def emulated(bundle: Bundle, called: list[Any], order: str = "late") -> None:
    names = ("m", "n", "k", "a_ptr", "b_ptr", "scale_a_ptr", "scale_b_ptr", "c_ptr")
    named = dict(zip(names, called, strict=True))
    emulate(bundle, *[named[parameter.name] for parameter in bundle.plan.parameters], order=order)


def error(a: Operand, b: Operand, c: torch.Tensor) -> float:
    expected = a.values @ b.values.T
    return float(np.abs(c.numpy() - expected).max() / np.abs(expected).max())
