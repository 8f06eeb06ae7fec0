"""Sectors of 32 bytes that a warp's own loads and stores move."""

import re

import pytest
import torch
from moving_scripts import Turns
from tilus.ir.layout.ops import local, spatial

from blackwell_matmul import predict, simulate
from blackwell_matmul.simulator.machine.registers import ThreadGroup, WarpLayout
from blackwell_matmul.simulator.timing.model.sectors import sectors

pytestmark = pytest.mark.slow

WARP = ThreadGroup(0, 32)


def taken(layout, strides, bits=16, start=0, inside=None):
    return sectors(WarpLayout(layout, WARP, 0), strides, start, bits, inside or layout.shape)


@pytest.mark.parametrize(
    ("layout", "strides", "expected"),
    [
        (spatial(1, 32).local(1, 8), (4096, 1), (16, 16, 0)),  # 512 bytes of a row
        (spatial(32, 1).local(1, 8), (4096, 1), (32, 32, 32)),  # 16 bytes of each of 32 rows
        (spatial(32, 1).local(1, 16), (4096, 1), (64, 32, 64)),  # the second half of each sector, again
        (spatial(1, 32).local(1, 8), (1, 4096), (256, 256, 256)),  # down a column of 4096: an element each
        (spatial(8, 4).local(1, 2), (4096, 1), (8, 8, 8)),  # as a wgmma has them: 16 bytes of each of eight rows
        (spatial(1, 32).local(1, 8), (0, 0), (8, 1, 8)),  # all the same
        (local(1, 8).spatial(1, 32), (4096, 1), (16, 16, 0)),  # 64 bytes at a time
    ],
)
def test_an_instruction_takes_the_sectors_that_its_lanes_lie_in(layout, strides, expected):
    assert taken(layout, strides) == expected


def test_rows_that_begin_inside_of_a_sector_take_one_more_and_what_does_not_exist_none():
    row = spatial(1, 32).local(1, 8)
    assert taken(row, (4096, 1), start=8) == (17, 17, 2)
    assert taken(row, (4096, 1), inside=(1, 16)) == (1, 1, 0)
    assert taken(row, (4096, 1), inside=(0, 256)) == (0, 0, 0)
    halves = taken(row, (4096, 1), bits=32)
    assert halves == (32 * 2, 32, 64)  # two instructions, each with half of the sector of every lane


def test_what_is_stored_down_columns_takes_several_times_as_long():
    x, turned = torch.randn(128, 256).half(), torch.empty(256, 128).half()
    large, theirs = torch.empty(8192, 4096).half(), torch.empty(4096, 8192).half()
    times = {}
    for through_shared in (False, True):
        schedule = {"through_shared": through_shared, "padding": 1}
        assert simulate(Turns, 128, 256, x, turned, schedule=schedule).ok and torch.equal(x.T, turned)
        times[through_shared] = predict(
            Turns, 8192, 4096, large, theirs, gpu="B200", schedule=schedule, explained=False
        ).cycles
    assert times[False] > 4 * times[True]


def test_of_lanes_that_lie_apart_it_is_told_what_they_would_save_side_by_side():
    x, turned = torch.empty(8192, 4096).half(), torch.empty(4096, 8192).half()
    apart, through = (
        predict(Turns, 8192, 4096, x, turned, gpu="H100", schedule={"through_shared": each, "padding": 1})
        for each in (False, True)
    )
    (told,) = [each for each in apart.explanation if "its lanes lie apart" in each]
    assert told.startswith("store_global (moving_scripts.py:")
    promised = int(re.search(r"(\d+)% fewer cycles", told)[1]) / 100
    assert promised == pytest.approx(1 - through.cycles / apart.cycles, abs=0.05)
    assert not any("lie apart" in each for each in through.explanation)


def test_rows_that_begin_within_lines_keep_tma_longer_and_that_is_told(no_other_schedules):
    """2192 bytes apart: on an H100 such a product takes 1.4 times as long as with 2176 (h100_mma_sync.json)."""
    pins = "block_m=64,block_n=64,block_k=64,e_block_n=64,stages=4"
    whole, cut = (predict("g0", 2432, 1024, k, gpu="H100", schedule=pins) for k in (1088, 1096))
    assert 1.25 < cut.time_us / whole.time_us < 1.4
    assert any("begin within lines of 128 bytes" in each for each in cut.explanation)
    assert not any("begin within lines" in each for each in whole.explanation)
