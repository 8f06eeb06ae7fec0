"""Order of scales in memory: plain rows, or atoms of 128 rows and 4 blocks (`problem.block_scaled`)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS, ATOM_ROWS, atoms_of

LANES, GROUPS = 32, ATOM_ROWS // 32
"""32 rows and 4 groups of an atom. Row r of group g has its four scales at byte 16 r + 4 g."""


def swizzle(scales: Tensor) -> Tensor:
    """Return scales [.., rows, blocks] as [.., bytes] in whole atoms, padded with zeros."""
    rows, blocks = scales.shape[-2:]
    tiles, along_k = atoms_of(rows, blocks)
    padding = (0, along_k * ATOM_BLOCKS - blocks, 0, tiles * ATOM_ROWS - rows)
    whole = functional.pad(scales.view(torch.uint8), padding)
    atoms = whole.unflatten(-1, (along_k, ATOM_BLOCKS)).unflatten(-3, (tiles, GROUPS, LANES))
    return _exchanged(atoms).flatten(-5).view(scales.dtype)


def unswizzle(scales: Tensor, rows: int, blocks: int) -> Tensor:
    """Return scales [.., bytes] in whole atoms as [.., rows, blocks], the inverse of `swizzle`."""
    tiles, along_k = atoms_of(rows, blocks)
    atoms = scales.view(torch.uint8).unflatten(-1, (tiles, along_k, LANES, GROUPS, ATOM_BLOCKS))
    whole = _exchanged(atoms).flatten(-2).flatten(-4, -2)
    return whole[..., :rows, :blocks].contiguous().view(scales.dtype)


def cleared(scales: Tensor, rows: int, blocks: int) -> Tensor:
    """Return a copy of swizzled scales [bytes] with zeros in the padded blocks."""
    whole = scales.view(torch.uint8).view(*atoms_of(rows, blocks), LANES, GROUPS, ATOM_BLOCKS).clone()
    whole[:, -1, :, :, blocks % ATOM_BLOCKS or ATOM_BLOCKS :] = 0
    return whole.view(-1).view(scales.dtype)


def _exchanged(atoms: Tensor) -> Tensor:
    """Return [tiles][groups][lanes][atoms along K][blocks] as [tiles][atoms along K][lanes][groups][blocks], or the
    reverse."""
    return atoms.transpose(-4, -2)
