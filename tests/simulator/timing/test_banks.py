"""Turns that the lanes of a warp take at the banks of shared memory."""

import re

import numpy as np
import pytest
import torch
from moving_scripts import Turns
from tilus.ir.layout import SharedLayout
from tilus.ir.layout.ops import column_spatial, local, spatial
from tilus.ir.layout.ops.shared_ops import shared_row_major_swizzle

from blackwell_matmul import predict, simulate
from blackwell_matmul.simulator.machine.registers import ThreadGroup, WarpLayout
from blackwell_matmul.simulator.timing.model.banks import _turns, width

WARP = ThreadGroup(0, 32)
WGMMA = spatial(8, 4).local(1, 2)
STRIP = local(1, 8).spatial(8, 4).local(1, 2)
"""Eight rows of 64 columns, as a warpgroup has them."""


def taken(layout, shared, bits=16, matrices=False):
    return _turns(WarpLayout(layout, WARP, 0), shared, bits, matrices)


def rows(layout, pitch):
    """That begin so many elements apart."""
    modes = [(extent, stride) for extent, stride in zip(layout.shape, (pitch, 1), strict=True) if extent > 1]
    return SharedLayout.create(layout.shape, *zip(*modes, strict=True), None)


@pytest.mark.parametrize(
    ("layout", "pitch", "bits", "expected"),
    [
        (spatial(1, 32).local(1, 2), 64, 16, (1, 1)),  # a word for each lane
        (spatial(1, 32).local(1, 8), 256, 16, (4, 4)),  # 16 bytes: eight lanes at a time
        (spatial(32, 1).local(1, 2), 64, 16, (32, 1)),  # rows of 128 bytes: all in one bank
        (spatial(32, 1).local(1, 2), 2, 16, (1, 1)),  # rows of four bytes
        (spatial(32, 1).local(1, 4), 64, 32, (32, 4)),  # 16 bytes of rows of 256
        (spatial(1, 32), 64, 16, (1, 1)),  # two lanes share a word
        (local(1, 2).spatial(1, 32), 64, 16, (2, 2)),  # two instructions
        (WGMMA, 64, 16, (8, 1)),  # four words of each of eight rows of 128 bytes
        (WGMMA, 8, 16, (1, 1)),
        (WGMMA, 72, 16, (1, 1)),  # padded
        (STRIP, 64, 16, (64, 8)),
    ],
)
def test_lanes_that_ask_a_bank_for_different_words_take_turns(layout, pitch, bits, expected):
    assert taken(layout, rows(layout, pitch), bits) == expected


def test_swizzled_rows_lie_in_different_banks():
    assert taken(STRIP, shared_row_major_swizzle((8, 64), 2)) == (8, 8)


def test_turned_matrices_move_whole_words_whoever_holds_them():
    held = column_spatial(4, 8).local(2, 1)
    assert taken(held, rows(held, 8), matrices=True) == (1, 1)
    assert taken(held, rows(held, 64), matrices=True) == (8, 1)


def test_an_instruction_moves_what_lies_side_by_side_up_to_16_bytes_where_it_may_begin():
    offsets = np.arange(16)[None, :] * 2
    assert (width(offsets, 16), width(offsets + 4, 16), width(offsets * 2, 16)) == (8, 2, 1)


@pytest.mark.slow
def test_a_column_read_from_shared_memory_takes_32_turns_and_padding_is_what_helps():
    """On an H100 it takes 280 us without (h100_moving.json), of which 134 MB to and fro are 98."""
    x, y = torch.randn(128, 128).half(), torch.empty(128, 128).half()
    assert simulate(Turns, 128, 128, x, y, schedule={"padding": 1}).ok and torch.equal(x.T, y)
    large = torch.empty(8192, 8192).half()
    crowded, padded = (
        predict(Turns, 8192, 8192, large, large.clone(), gpu="H100", schedule={"padding": each}) for each in (0, 1)
    )
    assert crowded.bound == "shared memory" and padded.bound == "memory"
    assert crowded.time_us == pytest.approx(280, rel=0.08)
    (told,) = [each for each in crowded.explanation if "banks" in each]
    assert "load_shared (moving_scripts.py:" in told and "1,024 turns where 32 would do" in told
    promised = int(re.search(r"(\d+)% fewer cycles", told)[1]) / 100
    assert promised == pytest.approx(1 - padded.cycles / crowded.cycles, abs=0.02)
    assert not any("banks" in each for each in padded.explanation)


def test_no_rung_is_in_its_own_way(no_other_schedules):
    found = predict("h7", 2048, 2048, 2048, gpu="H100")
    assert not any("banks" in each or "lie apart" in each for each in found.explanation)
