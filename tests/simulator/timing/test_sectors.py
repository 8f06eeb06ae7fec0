"""Sectors of 32 bytes that a warp's own loads and stores move."""

import pytest
import torch
from moving_scripts import Turns
from tilus.ir.layout.ops import local, spatial

from blackwell_matmul import predict, simulate
from blackwell_matmul.simulator.machine.registers import ThreadGroup, WarpLayout
from blackwell_matmul.simulator.timing.sectors import sectors

WARP = ThreadGroup(0, 32)


def taken(layout, strides, bits=16, start=0, inside=None):
    return sectors(WarpLayout(layout, WARP, 0), strides, start, bits, inside or layout.shape)


@pytest.mark.parametrize(
    ("layout", "strides", "expected"),
    [
        (spatial(1, 32).local(1, 8), (4096, 1), (16, 16)),  # 512 bytes of a row
        (spatial(32, 1).local(1, 8), (4096, 1), (32, 32)),  # 16 bytes of each of 32 rows
        (spatial(32, 1).local(1, 16), (4096, 1), (64, 32)),  # the second half of each sector, again
        (spatial(1, 32).local(1, 8), (1, 4096), (256, 256)),  # down a column of 4096: an element each
        (spatial(8, 4).local(1, 2), (4096, 1), (8, 8)),  # as a wgmma has them: 16 bytes of each of eight rows
        (spatial(1, 32).local(1, 8), (0, 0), (8, 1)),  # all the same
        (local(1, 8).spatial(1, 32), (4096, 1), (16, 16)),  # 64 bytes at a time
    ],
)
def test_an_instruction_takes_the_sectors_that_its_lanes_lie_in(layout, strides, expected):
    assert taken(layout, strides) == expected


def test_rows_that_begin_inside_of_a_sector_take_one_more_and_what_does_not_exist_none():
    row = spatial(1, 32).local(1, 8)
    assert taken(row, (4096, 1), start=8) == (17, 17)
    assert taken(row, (4096, 1), inside=(1, 16)) == (1, 1)
    assert taken(row, (4096, 1), inside=(0, 256)) == (0, 0)
    assert taken(row, (4096, 1), bits=32) == (32 * 2, 32)  # two instructions, each with half of a sector of all lanes


def test_what_is_stored_down_columns_takes_several_times_as_long():
    x, turned = torch.randn(128, 256).half(), torch.empty(256, 128).half()
    large, theirs = torch.empty(8192, 4096).half(), torch.empty(4096, 8192).half()
    times = {}
    for through_shared in (False, True):
        schedule = {"through_shared": through_shared}
        assert simulate(Turns, 128, 256, x, turned, schedule=schedule).ok and torch.equal(x.T, turned)
        times[through_shared] = predict(
            Turns, 8192, 4096, large, theirs, gpu="B200", schedule=schedule, explained=False
        ).cycles
    assert times[False] > 4 * times[True]
