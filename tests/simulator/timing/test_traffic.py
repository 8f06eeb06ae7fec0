"""What comes from memory, by the order of the tiles."""

import pytest
import torch
from timing_scripts import Stays

from blackwell_matmul import BlackwellMatmulV3, BlackwellMatmulV4
from blackwell_matmul.simulator.cluster_schedule import clusters
from blackwell_matmul.simulator.simulate import new_simulation, prepare
from blackwell_matmul.simulator.timing.model import loads
from blackwell_matmul.simulator.timing.model.loads import known_loads
from blackwell_matmul.simulator.timing.model.traffic import traffic

M, N, K = 2048, 2048, 256
PINS = {"block_m": 128, "block_n": 128, "block_k": 64, "stages": 2, "e_block_n": 64}
ROWS = 128 * K * 2
"""Bytes of a tile of A or of B, for the whole k."""


def traffic_of(script, near_bytes, side=16, m=M, n=N, k=K, joins=0, **pins):
    a, b, c = (torch.empty(shape).half() for shape in ((m, k), (n, k), (m, n)))
    bound, lowered = prepare(script(**pins), (m, n, k, a, b, c), None, "sm_100a")
    simulation = new_simulation(bound, lowered, "timed", 0, checks=False)
    every = clusters(simulation.grid)
    loads = known_loads(lowered, simulation.grid, every)
    found = traffic(lowered, simulation.grid, every, side, near_bytes, joins, loads)
    assert found.written == m * n * 2
    return found


def loaded(script, near_bytes, **pins):
    found = traffic_of(script, near_bytes, **PINS, **pins)
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


@pytest.mark.parametrize("near_bytes", [1, 17 * ROWS])
def test_tiles_of_ctas_that_stay_are_those_of_ctas_that_follow_each_other(near_bytes):
    """16 rounds of a row of A and all of B, which the L2 keeps or does not."""
    stays = traffic_of(Stays, near_bytes, ctas=16)
    assert stays.from_memory == (16 * 17 if near_bytes == 1 else 16 + 16) * ROWS
    assert stays.distinct == pytest.approx(0.75) and stays.once == (near_bytes != 1)


def test_what_several_pairs_in_a_gpc_load_the_l2_gives_fewer_times():
    """16 CTAs with rows of their own and a column in common, which eight pairs of neighbours ask for."""
    found = traffic_of(BlackwellMatmulV3, 1, joins=0.5, **PINS)
    assert found.distinct == pytest.approx((16 + 8**0.5) / 32)
    assert found.from_memory == loaded(BlackwellMatmulV3, near_bytes=1)


def test_an_order_that_is_bad_from_the_second_round_on_costs_memory():
    even, scattered = (traffic_of(Stays, 1, ctas=16, scattered=each) for each in (False, True))
    assert scattered.from_memory > 1.3 * even.from_memory
    assert scattered.distinct > 0.9 > even.distinct


def test_a_few_rounds_stand_for_all(monkeypatch):
    """Also where the warp that loads stores."""
    monkeypatch.setattr(loads, "MOST_PLACES", 4 * 16 * 2 * K // 64)
    for stores in (False, True):
        assert traffic_of(Stays, 1, ctas=16, stores=stores).from_memory == 16 * 17 * ROWS


def test_a_tile_is_told_by_its_step_along_k_whatever_it_is_loaded_in():
    """Two boxes of rows at a time, and the second tile from its end."""
    head, begins = loads._Head(), loads._Begins(loads.Stride(2, (0, 64)))
    along = [0, 64, 128, 192]
    places = [(row, k) for k in along for row in (0, 64)] + [(row, k) for k in along[::-1] for row in (512, 576)]
    for place in places:
        head.extend(place)
        begins.extend(place)
    assert head.stride() == (2, (0, 64))
    assert begins.begins == [(0, 0), (512, 0)] and begins.seen == 16
