"""The microbenchmarks assemble for each target and run in the emulator, whose clock counts instructions."""

from __future__ import annotations

import pytest

from blackwell_matmul.cli.first_light import micro
from blackwell_matmul.cli.first_light.cards import EmulatedCard
from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES

GPUS = {"sm_90a": "H200", "sm_100a": "B200", "sm_120a": "RTX 5090"}


@pytest.fixture(scope="module", params=GPUS)
def bench(request):
    card = EmulatedCard(micro.compiled(request.param).ptx)
    return request.param, micro.Bench(card, micro.figures_for(GPUS[request.param]))


@pytest.mark.slow
def test_every_measurement_runs_in_the_emulator(bench, monkeypatch):
    target, card = bench
    monkeypatch.setattr(micro, "PRODUCTS", {kind: micro.PRODUCTS[kind] for kind in ("f16", "mxf8f6f4", "mxf4nvf4")})
    for name in micro.measurements(target):
        rows = micro.measured(card, target, name)
        assert rows, name
        for row in rows:
            assert row["value"] >= 0, row
            assert row["held"] in (None, True), row  # no time is compared, and what is promised holds


@pytest.mark.slow
def test_the_copy_does_not_overtake_the_products(bench):
    target, card = bench
    if target != "sm_100a":
        pytest.skip("block scales of tcgen05")
    assert [row["value"] for row in micro.measured(card, target, "copy_after_mma")] == [0.0, 0.0]


@pytest.mark.parametrize("target", ["sm_103a", "sm_121a"])
def test_other_targets_assemble(target):
    assert f".target {target}" in micro.compiled(target).ptx


def test_descriptors_are_ptx_s():
    assert micro.descriptor("mxf4nvf4", 128, 128) == 0x08200480
    assert micro.descriptor("mxf4nvf4", 256, 256) == 0x10400480
    assert micro.descriptor("f16", 128, 256) == 0x10 | 32 << 17 | 8 << 24


def test_a_figure_that_a_value_measures_exists():
    assert micro.figures_for("NVIDIA H200") is TIME_FIGURES["H200"]
    assert micro.figures_for("RTX PRO 6000") is None


def test_a_value_agrees_within_a_quarter():
    bench = micro.Bench(EmulatedCard(""), TIME_FIGURES["B200"])
    bench.real = True
    near = bench.measure("fence", "", [170, 180], "cycles", "fence_cycles")
    far = bench.measure("fence", "", [17], "cycles", "fence_cycles")
    assert (near.held, near.expected, near.how) == (True, 179.0, "measured")
    assert far.held is False
    assert bench.measure("other", "", [17], "cycles").held is None
