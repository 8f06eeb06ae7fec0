"""A block-scaled product that is wrong by one mistake is recognised; a right one and noise are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from blackwell_matmul.harness import make_inputs
from blackwell_matmul.harness.calls.scaled_operands import dequantised
from blackwell_matmul.harness.scale_mistakes import likely_mistake
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.problem.problem import Problem

M, N, K = 256, 320, 512

NIBBLES = "the two nibbles of each byte of A, or of B, are exchanged"


@dataclass
class Made:
    """Rows of an operand: codes of elements, and bytes of scales, rows x blocks."""

    codes: Any
    scales: Any
    kind: str

    @property
    def block(self) -> int:
        return 16 if self.kind == "nvfp4" else 32

    def values(self) -> Any:
        element = ml_dtypes.float8_e4m3fn if self.kind == "mxfp8" else ml_dtypes.float4_e2m1fn
        scale = ml_dtypes.float8_e4m3fn if self.kind == "nvfp4" else ml_dtypes.float8_e8m0fnu
        factors = self.scales.view(scale).astype(np.float64)
        return self.codes.view(element).astype(np.float64) * np.repeat(factors, self.block, axis=1)[:, :K]

    def data(self) -> torch.Tensor:
        if self.kind == "mxfp8":
            return torch.from_numpy(self.codes.copy()).view(torch.float8_e4m3fn)
        return torch.from_numpy(self.codes[:, 0::2] | self.codes[:, 1::2] << 4)

    def atoms(self) -> torch.Tensor:
        down = -(-len(self.scales) // 128)
        padded = np.zeros((128 * down, self.scales.shape[1]), np.uint8)
        padded[: len(self.scales)] = self.scales
        return torch.from_numpy(padded.reshape(down, 4, 32, -1, 4).transpose(0, 3, 2, 1, 4).reshape(-1).copy())


def made(kind: str, rows: int, seed: int) -> Made:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 16, (rows, K)).astype(np.uint8)
    if kind == "mxfp8":
        codes = random.normal(size=(rows, K)).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    low, high = (0x20, 0x48) if kind == "nvfp4" else (122, 132)
    return Made(codes, random.integers(low, high, (rows, K // (16 if kind == "nvfp4" else 32))).astype(np.uint8), kind)


def told(a: Made, b: Made, c: Any, dtype: torch.dtype = torch.bfloat16) -> str:
    scale = torch.float8_e4m3fn if a.kind == "nvfp4" else torch.float8_e8m0fnu
    found = torch.from_numpy(c).to(dtype)
    return likely_mistake(a.data(), b.data(), a.atoms(), b.atoms(), found, block=a.block, scale=scale)


def row_by_row(made: Made) -> Any:
    return made.atoms().numpy().reshape(-1, made.scales.shape[1])[: len(made.scales)]


def halves(made: Made, half: int) -> Any:
    row = np.arange(len(made.scales))
    return made.scales[np.minimum(row ^ half, len(row) - 1)]


def as_of(made: Made, other: int) -> Any:
    """Scales of blocks of another size, of which the bytes are the same, and whose element counts are in turn."""
    flat, along = made.atoms().numpy(), -(-K // (4 * other))
    row, column = np.arange(len(made.scales))[:, None], np.arange(K) // other
    place = (row // 128 * along + column // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4
    return flat[np.minimum(place, len(flat) - 1)]


MISTAKES: dict[str, Callable[[Made, Made], tuple[Any, Any]]] = {
    "the scales of A are read row by row": lambda a, b: (row_by_row(a), b.scales),
    "the scales are read row by row": lambda a, b: (row_by_row(a), row_by_row(b)),
    "B has the scales of A": lambda a, b: (a.scales, np.resize(a.scales, b.scales.shape)),
    "the scales of B are those of 32 rows further on": lambda a, b: (a.scales, np.roll(b.scales, -32, axis=0)),
    "the scales of A are those of 32 rows before": lambda a, b: (np.roll(a.scales, 32, axis=0), b.scales),
    "the scales of A are those of one block further on along k": lambda a, b: (
        np.concatenate([a.scales[:, 1:], a.scales[:, -1:]], axis=1), b.scales
    ),
    "the two halves of each 128 rows of B have each other's scales": lambda a, b: (a.scales, halves(b, 64)),
    "the two halves of each 256 rows of B have each other's scales": lambda a, b: (a.scales, halves(b, 128)),
    "B is multiplied without its scales": lambda a, b: (
        a.scales, np.full_like(b.scales, 0x38 if b.kind == "nvfp4" else 127)
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_scales_is_named(mistake: str, kind: str) -> None:
    a, b = made(kind, M, 1), made(kind, N, 2)
    of_a, of_b = MISTAKES[mistake](a, b)
    read = Made(a.codes, of_a, kind), Made(b.codes, of_b, kind)
    assert told(a, b, read[0].values() @ read[1].values().T).startswith(mistake)


@pytest.mark.parametrize("kind", ["mxfp4", "nvfp4"])
def test_exchanged_nibbles_are_named(kind: str) -> None:
    a, b = made(kind, M, 1), made(kind, N, 2)
    swapped = Made(b.codes.reshape(N, -1, 2)[:, :, ::-1].reshape(N, K), b.scales, kind)
    wrong = a.values() @ swapped.values().T
    assert told(a, b, wrong) == NIBBLES
    mixed = a.values() @ b.values().T
    mixed[:, 64:128] = wrong[:, 64:128]
    assert told(a, b, mixed, torch.float32) == NIBBLES
    kept: Any = {"block": b.block, "scale": torch.float8_e4m3fn if kind == "nvfp4" else torch.float8_e8m0fnu}
    bad, c = torch.tensor([64, 65]), torch.from_numpy(mixed).float()
    assert likely_mistake(a.data(), b.data(), a.atoms(), b.atoms(), c, columns=bad, **kept) == NIBBLES


def test_the_other_size_of_blocks_is_named() -> None:
    a, b = made("nvfp4", M, 1), made("nvfp4", N, 2)
    values = [
        each.codes.view(ml_dtypes.float4_e2m1fn).astype(float)
        * as_of(each, 32).view(ml_dtypes.float8_e4m3fn).astype(float)
        for each in (a, b)
    ]
    assert told(a, b, values[0] @ values[1].T) == "scales of blocks of 16 are read as of blocks of 32"


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_nothing_is_named_where_nothing_fits(kind: str) -> None:
    a, b = made(kind, M, 1), made(kind, N, 2)
    right = a.values() @ b.values().T
    assert told(a, b, right) == ""
    assert told(a, b, right + np.random.default_rng(3).normal(size=right.shape) * np.abs(right).max()) == ""
    assert told(a, b, np.full_like(right, np.nan)) == ""


@pytest.mark.parametrize("dtype", ["mxfp8", "nvfp4"])
def test_the_verdict_names_the_mistake(dtype: str) -> None:
    """One tile of 128 columns has the scales of 32 rows further on."""
    problem = Problem(128, 256, 512, dtype)
    a, b, scale_a, scale_b, c = make_inputs(problem, seed=0)
    c.copy_(dequantised(problem, a, scale_a) @ dequantised(problem, b, scale_b).T)
    assert check_product(problem, (a, b, scale_a, scale_b, c)).ok
    moved = scale_b.view(torch.uint8).reshape(2, -1, 32, 4, 4).roll(-1, dims=3).reshape(scale_b.shape)
    wrong = dequantised(problem, b, moved.view(scale_b.dtype))
    c[:, :96] = (dequantised(problem, a, scale_a) @ wrong.T)[:, :96]
    verdict = check_product(problem, (a, b, scale_a, scale_b, c))
    assert verdict.message.endswith("; C is what comes out if the scales of B are those of 32 rows further on.")
