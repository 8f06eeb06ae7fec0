"""Small kernels on one SM of the model: when what happens, on paper and there."""

from pathlib import Path

import pytest
import torch
from timing_scripts import TwoMultiply

from blackwell_matmul import predict
from blackwell_matmul.base.errors import SimulationError, UnsupportedError
from blackwell_matmul.hardware.gpu_figures import figures_of
from blackwell_matmul.simulator.cluster_schedule import clusters
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.simulate import new_simulation, prepare
from blackwell_matmul.simulator.timing.model import one_sm
from blackwell_matmul.simulator.timing.model.one_sm import OneSm
from blackwell_matmul.simulator.timing.model.sm import Conditions

B200 = figures_of("B200")
CONDITIONS = Conditions(B200, ghz=1.5, latency_ns=400, bytes_per_ns=1e6)


def run(gives_up=True, products=1, ctas=1, slots=2, listeners=()):
    a, b = torch.empty(128, 64).half(), torch.empty(256, 64).half()
    schedule = {"gives_up": gives_up, "products": products}
    bound, lowered = prepare(TwoMultiply, (ctas, a, b), schedule, "sm_100a")
    simulation = new_simulation(bound, lowered, "timed", 0, checks=False)
    simulation.listeners = tuple(listeners)
    took = OneSm(simulation, CONDITIONS, clusters(simulation.grid), slots, 512).run()
    assert not list(simulation.grid.findings)
    return took


def test_one_cta_takes_the_sum_of_its_parts():
    sync = 22 + 2 * 4
    before = 1240 * 1.5 + 100 + 253 + sync
    load = 20 + (128 + 256) * 1.04 + 104 + 400 * 1.5 + 30
    product = 3 * 128 + 136 + 128 + 12
    assert run().cycles == pytest.approx(before + load + product + sync + 30)


def test_a_share_that_would_take_minutes_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(one_sm, "MOST_OF_ONE_SM", 50)
    with pytest.raises(UnsupportedError, match=r"no predicted time: .* is more than 50 events; choose a smaller size"):
        run(products=100)


def test_a_kernel_without_an_end_gets_one_sentence_that_says_so_once():
    with pytest.raises(SimulationError, match=r"^Endless has no time: livelock: a loop of warp 0 .*; check says"):
        predict(f"{Path(__file__).parent / 'timing_scripts.py'}:Endless", 8, 8, 8)


def test_a_product_that_is_waited_for_shows_its_latency():
    one, ten = run(products=1), run(products=10)
    assert (ten.cycles - one.cycles) / 9 == pytest.approx(660)
    assert ten.busy_cycles["tensor core"] == 10 * 512


def test_ctas_that_keep_the_permit_work_one_after_the_other():
    alone, kept = run(gives_up=False, products=10), run(gives_up=False, products=10, ctas=2)
    assert (kept.waited, kept.working) == (1, 1)
    assert kept.cycles > 1.6 * (alone.cycles - 1240 * 1.5)


def test_ctas_that_give_it_up_work_side_by_side():
    kept, given = run(gives_up=False, products=10, ctas=2), run(products=10, ctas=2)
    assert given.working == 2
    assert given.cycles < 0.85 * kept.cycles


def test_a_cta_without_a_slot_starts_when_one_is_free():
    two, three = run(products=10, ctas=2), run(products=10, ctas=3)
    assert three.cycles > two.cycles + 5000


def test_who_listens_hears_things_in_the_order_of_time():
    class Order(Listener):
        def __init__(self):
            self.heard = []

        def issued(self, op, warp, instruction, regions):
            self.heard.append(("issued", warp.cta.engine.time))

        def completed(self, op, put_off):
            self.heard.append(("completed", op.cta.engine.time))

    order = Order()
    run(products=3, listeners=[order])
    completed = [time for what, time in order.heard if what == "completed"]
    assert completed == sorted(completed)
    assert len(completed) == 2 + 3 * 2
