"""How much the SMs of a launch have to do, and which one has the most."""

import pytest
from timing_scripts import Stays

from blackwell_matmul import predict
from blackwell_matmul.simulator.timing.model.loads import ClusterLoad
from blackwell_matmul.simulator.timing.model.spread import Spread


def test_one_tile_too_many_is_work_for_one_place():
    spread = Spread.over(4, [ClusterLoad(200, 2), *[ClusterLoad(100, 1)] * 3])
    assert spread.most_at == 0 and spread.most.tiles == 2
    assert spread.full == 500 / 800
    assert spread.fewer == [(0.5, 4)]


def test_clusters_that_follow_each_other_are_added():
    spread = Spread.over(4, [ClusterLoad(100, 1)] * 7)
    assert [each.tiles for each in spread.of_places] == [2, 2, 2, 1]
    assert spread.full == 7 / 8
    assert spread.fewer == [(0.5, 4 / 3)]


def test_the_place_with_the_most_may_be_any():
    assert Spread.over(3, [ClusterLoad(100, 1), ClusterLoad(300, 3), ClusterLoad(200, 2)]).most_at == 1


def test_what_idle_sms_do_not_do_is_not_counted():
    """129 tiles of 128 CTAs."""
    even, odd = (predict(Stays, rows * 128, 128, 2048, schedule="ctas=128", explained=False) for rows in (128, 129))
    products = 2 * 129 * 128 * 128 * 2048
    assert odd.tensor_utilisation == pytest.approx(products / 8192 / 148 / odd.cycles, rel=0.01)
    assert odd.memory_gb == pytest.approx(even.memory_gb, rel=0.02)
    assert odd.ghz > even.ghz
    assert odd.by_resource["tensor core"] == 2 * even.by_resource["tensor core"]


def test_who_is_alone_in_the_last_round_has_the_l2_for_itself():
    """Each asks for more than its share of the L2, while all do."""
    call = {"n": 128 * 128, "k": 2048, "explained": False, "ghz": 1.5, "schedule": "ctas=128"}
    one, two = (predict(Stays, m, **call) for m in (128, 256))
    odd = predict(Stays, 128, **{**call, "n": 129 * 128})
    assert odd.cycles - one.cycles < 0.9 * (two.cycles - one.cycles)


def told(m, n):
    found = predict(Stays, m, n, 1024, schedule="ctas=128")
    return next((each for each in found.explanation if "that stay" in each), "")


def test_a_round_that_few_have_is_told_with_what_it_costs():
    sentence = told(128, 129 * 128)
    assert "129 tiles for 128 CTAs that stay: some have 2 rounds" in sentence and "the mean is 1.01" in sentence
    cycles = {n: predict(Stays, 128, n * 128, 1024, schedule="ctas=128", explained=False).cycles for n in (128, 129)}
    promised = int(sentence.rpartition("even, ")[2].partition("%")[0]) / 100
    assert promised == pytest.approx(1 - cycles[128] / cycles[129], abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [128, 256, 255])
def test_rounds_that_come_out_nearly_even_are_not_told(tiles):
    assert told(128, tiles * 128) == ""
