"""What comes from memory, by the order of the tiles."""

import pytest
import torch

from blackwell_matmul import BlackwellMatmulV3, BlackwellMatmulV4
from blackwell_matmul.simulator.simulate import new_simulation, prepare
from blackwell_matmul.simulator.teams import clusters
from blackwell_matmul.simulator.timing.traffic import traffic

M, N, K = 2048, 2048, 256
PINS = {"block_m": 128, "block_n": 128, "block_k": 64, "stages": 2, "e_block_n": 64}
ROWS = 128 * K * 2
"""Bytes of a tile of A or of B, for the whole k."""


def loaded(script, near_bytes, side=16, **pins):
    a, b, c = (torch.empty(shape).half() for shape in ((M, K), (N, K), (M, N)))
    bound, lowered = prepare(script(**PINS, **pins), (M, N, K, a, b, c), None, "sm_100a")
    simulation = new_simulation(bound, lowered, "timed", 0, checks=False)
    found = traffic(lowered, simulation.grid, clusters(simulation.grid), side, near_bytes)
    assert found.written == M * N * 2
    assert found.distinct == pytest.approx(0.75)  # neighbours have a tile of A or of B in common
    return found.from_memory


def test_what_the_l2_holds_does_not_come_from_memory():
    assert loaded(BlackwellMatmulV3, near_bytes=2 * M * K * 2) == 0


def test_a_wave_loads_each_tile_once():
    """16 waves of 16 rows and a column; the L2 forgets the rows."""
    assert loaded(BlackwellMatmulV3, near_bytes=1) == 16 * 17 * ROWS


def test_what_the_last_wave_left_is_not_loaded_again():
    assert loaded(BlackwellMatmulV3, near_bytes=17 * ROWS) == (16 + 16) * ROWS


def test_tiles_in_groups_take_less():
    """16 waves of four by four."""
    assert loaded(BlackwellMatmulV4, near_bytes=1, group_m=4) == 16 * 8 * ROWS
