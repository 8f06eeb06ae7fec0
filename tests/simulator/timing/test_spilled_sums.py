"""Sums that no thread has the registers for: `predict` says so exactly where the compiler spills, and counts it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("tilus")

from spill_scripts import OneWarpgroup, Warps

from blackwell_matmul import compile, predict

M, N, K = 1024, 1024, 256


def call() -> tuple[Any, ...]:
    return M, N, K, torch.zeros(M, K).half(), torch.zeros(N, K).half(), torch.zeros(M, N)


def predicted(script: Any, *tile: int) -> tuple[float, list[str]]:
    """The time in us, and what is said of registers."""
    told = predict(script(*tile), *call(), gpu="H100", explained=False)
    return told.time_us, [line for line in told.explanation if "register" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, tile, sums, have",
    [
        (OneWarpgroup, (128, 128, 12), 128, None),
        (OneWarpgroup, (128, 144, 12), 144, 168),
        (Warps, (256, 128, 16), 64, None),
        (Warps, (256, 256, 16), 128, 128),
    ],
)
def test_told_where_the_compiler_spills(script: Any, tile: tuple[int, ...], sums: int, have: int | None) -> None:
    _, said = predicted(script, *tile)
    used = compile(script(*tile), *call(), target="sm_90a").resources
    assert used is not None
    if have is None:
        assert not said
        assert not used.spill_bytes
    else:
        (line,) = said
        assert f"take {sums} registers of a thread, which has {have} for everything, and are spilled" in line
        assert "spill_scripts.py:" in line
        assert "fewer rows or columns for each warp keep them in registers" in line
        assert used.spill_bytes


def test_a_tile_that_spills_is_not_the_fastest() -> None:
    """ptxas gives 128x224 in one warpgroup 250 registers, and spills of 128x232 8436 bytes (CUDA 13.0)."""
    fits, spills, large = (predicted(OneWarpgroup, *tile) for tile in ((128, 224), (128, 232), (256, 256)))
    assert (len(fits[1]), len(spills[1]), len(large[1])) == (0, 1, 1)
    assert spills[0] > 1.5 * fits[0]
    assert large[0] > 1.5 * fits[0]


def test_what_is_busy_then_is_not_the_tensor_core() -> None:
    told = predict(OneWarpgroup(256, 256), *call(), gpu="H100")
    assert max(told.by_resource, key=lambda part: told.by_resource[part]) == "loads and stores"
    assert told.tensor_utilisation < 0.1
    assert "512 registers" in told.explanation[0]
