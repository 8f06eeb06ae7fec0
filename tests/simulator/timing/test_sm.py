"""The tensor core of the model beside tables of tcgen05.mma and of wgmma (bench/calibrate/tables)."""

import csv
import re
from pathlib import Path

import pytest

from blackwell_matmul.hardware.gpu_figures import figures_of
from blackwell_matmul.simulator.timing.model.sm import Conditions, MemoryShare, Sm
from blackwell_matmul.simulator.timing.model.work import interval_of, wgmma_interval_of

TABLES = Path(__file__).parents[3] / "bench" / "calibrate" / "tables"


def rows(name):
    with (TABLES / name).open() as file:
        return [row for row in csv.DictReader(file) if row["Format"] == "BF16" and row["ABLayout"] == "SS"]


def new_sm():
    return Sm(Conditions(figures_of("B200"), ghz=1.3, latency_ns=500, bytes_per_ns=1000), 512)


def shape(row):
    pair = row["CTAGroup"] == "2"
    return int(row["M"]) // (2 if pair else 1), int(row["N"]), pair


def test_the_interval_of_products_is_the_measured_one():
    errors = []
    for row in rows("umma_throughput.csv"):
        if int(row["PipelineDepth"]) == 256:
            rows_of_cta, columns, pair = shape(row)
            errors.append(abs(interval_of(rows_of_cta, columns, pair)[0] / float(row["CyclesPerMMA"]) - 1))
    assert len(errors) > 20
    assert sum(errors) / len(errors) < 0.03
    assert max(errors) < 0.1


def test_the_latency_of_a_product_is_the_measured_one():
    errors = []
    for row in rows("umma_latency.csv"):
        if shape(row)[0] != 128:  # tilus has no other
            continue
        interval, ideal = interval_of(*shape(row))
        chain = float(figures_of("B200").chain_cycles)  # of several; here it is one
        took = new_sm().multiply(0, interval, 1, ideal, shape(row)[2]) - chain
        errors.append(abs(took / float(row["MedianCycles"]) - 1))
    assert len(errors) >= 12
    assert sum(errors) / len(errors) < 0.01
    assert max(errors) < 0.05


def test_chains_follow_each_other_with_a_gap():
    sm = new_sm()
    first = sm.multiply(0, 128, 4, 128, False)
    sm.end_chain()
    assert first == 3 * 128 + 136 + 128 + 12
    assert sm.multiply(0, 128, 4, 128, False) - first == 512 + 6


def test_a_load_takes_its_rows_after_those_before_it():
    sm = new_sm()
    alone = sm.load(0, 128, 16384)
    assert alone == pytest.approx(128 * 1.04 + 104 + 500 * 1.3)
    assert sm.load(0, 128, 16384) - alone == pytest.approx(128 * 1.04)


def test_a_store_waits_for_those_that_have_not_left():
    sm = new_sm()
    free, left = sm.store(0, 4096)
    assert (free, left) == (130 + 32, 208)
    for _ in range(10):
        free, left = sm.store(0, 4096)
    assert free == left - 8 * 52


def test_warps_that_wait_for_what_they_load_do_not_keep_others_out():
    """The first warp is far ahead when the second one comes to its load, and they wait at the same time."""
    sm, trip = new_sm(), 220 * 1.3
    ahead = 0.0
    for number in range(3):
        ahead = sm.load_lines(0, ahead, 256, 4096, own=True)
        assert ahead == pytest.approx((number + 1) * (256 + trip))
    assert sm.load_lines(0, 0, 256, 4096, own=True) == pytest.approx(4 * 256 + trip)


def test_loads_and_stores_share_memory_by_what_of_them_passes_there():
    """All of what is stored, by threads and by TMA, and half of what is loaded, once a burst has passed."""
    memory = MemoryShare(bytes_per_ns=1.3, loaded=0.5, stored=1.0)
    conditions = Conditions(figures_of("B200"), ghz=1.3, latency_ns=500, bytes_per_ns=1e6, memory=memory)
    sm, burst, now = Sm(conditions, 0), 65536, 100_000
    sm.store(now, burst)
    assert sm.store(now, 4096)[1] == now + 4096
    assert sm.store_lines(now, now, 32, 512) == now + 4096 + 512
    assert sm.arrive(now, 2048) == pytest.approx(now + 4096 + 512 + 1024 + 104 + 500 * 1.3)
    assert sm.load_lines(now, now, 32, 512) == pytest.approx(now + 4096 + 512 + 1024 + 256 + 500 * 1.3)
    assert sm.stored_bytes == burst + 4096 + 512 and sm.asked_bytes == 512


def test_a_warp_that_stores_ahead_of_the_others_leaves_them_the_way_until_then():
    sm = new_sm()
    ends = [sm.store_lines(0, 1_000 * turn, 32, 512) for turn in range(8)]
    assert ends == [1_000 * turn + 32 for turn in range(8)]
    assert sm.store_lines(0, 0, 32, 512) == 9 * 32
    assert sm.lines.busy == 9 * 32


def test_an_sm_of_a_hopper_gets_no_more_than_its_port_lets_through():
    alone = Sm(Conditions(figures_of("H200"), ghz=1.5, latency_ns=500, bytes_per_ns=11100), 0)
    every = [alone.load(0, 128, 16384) for _ in range(8)]
    assert every[-1] - every[-2] == pytest.approx(16384 / 93.5)


def wgmma_rows():
    """(columns, warpgroups, cycles) of a wgmma with A in shared memory, one behind the other."""
    with (TABLES / "h200_micro.csv").open() as file:
        file.readline()
        for row in csv.DictReader(file):
            found = re.fullmatch(r"n=(\d+) warpgroups=(\d) a=shared", row["parameters"])
            if found and row["what"] == "wgmma interval":
                yield int(found[1]), int(found[2]), float(row["value"])


def test_the_interval_of_wgmma_is_the_measured_one_at_any_width():
    rows = list(wgmma_rows())
    assert len(rows) >= 30
    for columns, _, measured in rows:
        assert wgmma_interval_of(columns, figures_of("H200")) == pytest.approx(measured, rel=0.01)


def test_multicast_brings_each_sm_as_much_as_a_load_of_its_own():
    sm = Sm(Conditions(figures_of("H200"), ghz=1.5, latency_ns=500, bytes_per_ns=84), 0)
    every = [sm.arrive(0, 16384) for _ in range(8)]
    assert every[-1] - every[-2] == pytest.approx(16384 / 56)


def test_warps_share_the_tensor_cores():
    sm = new_sm()
    assert [sm.multiply_sync(at, 100) for at in (0, 10, 500)] == [100, 200, 600]
