"""Scales that are wrong in tensor memory, or NaN where the operands end, are found by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scaled_operands import ROUNDING, arguments, error, operands
from stored_scales_script import StoredScales

from blackwell_matmul import simulate
from blackwell_matmul.kernels.blackwell.s0 import BlackwellMatmulS0


def in_lanes(scales: torch.Tensor, right: bool) -> torch.Tensor:
    """Return the words of 128 lanes x 4 columns: an atom in each quarter, or row r in lane r."""
    atom = scales.numpy().reshape(32, 4, 4)
    words = np.tile(atom, (4, 1, 1))
    if not right:
        words[:, 0] = atom.transpose(1, 0, 2).reshape(128, 4)
    return torch.from_numpy(words.reshape(-1))


@pytest.mark.parametrize(
    ("warps", "right", "text"),
    [
        (4, True, ""),
        (1, True, "lanes (row 0, block 0: 0x7e in lane 0, 0x00 in lane 32)"),
        (4, False, "lanes (row 0, block 1: 0x7f in lane 0, 0x82 in lane 32)"),
    ],
)
def test_each_quarter_of_the_lanes_has_the_scales(warps: int, right: bool, text: str) -> None:
    """One warp stores to its own lanes alone."""
    a, b, c = operands("mxfp8", 128, 128, 128)
    run = simulate(StoredScales(warps), in_lanes(a.scales, right), a.data, b.data, b.scales, c)
    if not text:
        assert not run.findings and error(a, b, c) < ROUNDING
        return
    first = run.findings[0]
    assert first.code == "scales-not-duplicated" and text in first.message


def padded(rows: slice, blocks: slice) -> tuple[object, torch.Tensor]:
    """Simulate a product of 137 rows and 7 blocks, where A's scales are NaN in these rows and blocks of the atoms."""
    m, n, k = 137, 64, 224
    a, b, c = operands("mxfp8", m, n, k)
    atoms = a.scales.view(2, 2, 32, 4, 4).permute(0, 3, 2, 1, 4)  # tile of rows, r // 32, r % 32, tile of k, block
    by_row = atoms.reshape(256, 8)
    by_row[rows, blocks] = 0xFF
    atoms.copy_(by_row.view(2, 4, 32, 2, 4))
    script = BlackwellMatmulS0(dtype="mxfp8", block_m=128, block_n=64, block_k=128, e_block_n=32)
    out = c.bfloat16()
    run = simulate(script, *arguments(m, n, k, a, b, out))
    return run, out


def test_nan_behind_the_last_block_is_found() -> None:
    run, out = padded(slice(0, 5), slice(7, 8))
    (found,) = run.findings
    assert (
        found.code == "scale-of-padding"
        and "scale_a has NaN in 5 rows of block 3 along k of this tile" in found.message
    )
    assert out[:5].isnan().all() and not out[5:].isnan().any()


def test_nan_behind_the_last_row_reaches_nothing() -> None:
    run, out = padded(slice(137, 256), slice(0, 8))
    assert not run.findings and not out.isnan().any()
