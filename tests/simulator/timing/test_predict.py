"""Predictions of the ladder on a Hopper, pinned: a change of the model of time is a decision. They are no measurements.
Those on a Blackwell are pinned beside the pages that have them (tests/tutorials/test_tutorial_pages.py)."""

import json
import re
from pathlib import Path

import pytest
import torch
from plain_scripts import Scaled

from blackwell_matmul import HopperMatmulV3, predict, run_matmul, trace
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError, UnsupportedError

BENCH = Path(__file__).parents[3] / "bench"
HOPPER = {"h0": 0.1047, "h1": 0.08386, "h2": 0.07801, "h3": 0.08481, "h5": 0.07296, "h7": 0.0392}
"""On an H200 at the schedules that they choose, at 4096x4096x1024; H7, which then shares loads, at 2048x2048x2048."""


@pytest.mark.slow
@pytest.mark.parametrize("rung", HOPPER)
def test_predictions_of_hopper_rungs_are_those_of_today(rung):
    size = (2048, 2048, 2048) if rung == "h7" else (4096, 4096, 1024)
    found = predict(rung, *size, gpu="H200", explained=False)
    assert found.cycles / 1e6 == pytest.approx(HOPPER[rung], rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "held"),
    [("v0", "where it waits for its cp.async."), ("v1", "for tma_barrier, which cp.async.bulk.tensor (load) signals.")],
)
def test_what_holds_a_kernel_is_said_with_its_line(rung, held):
    sentence, *_ = predict(rung, 4096, 4096, 4096, explained=False).explanation
    assert f"of its time at {rung}.py:" in sentence
    assert sentence.endswith(held)


def test_float_arguments_have_their_values():
    x = torch.randn(1024, 64)
    short, long = (predict(Scaled, 1024, 2.0, threshold, x, torch.empty_like(x)).cycles for threshold in (0.25, 0.75))
    assert 10 * short < long  # one row of tiles, and 32
    assert f"cycles 0 to {long:,.0f}," in str(trace(Scaled, 1024, 2.0, 0.75, x, torch.empty_like(x)))


def test_the_measured_rungs_of_an_h200_are_predicted_as_promised():
    record = json.loads((BENCH / "results" / "time_model_h200.json").read_text())["groups"]["without split k"]
    assert record["rows"] > 100
    assert record["mean_error"] <= 0.08


def test_mma_sync_on_an_h200_is_predicted_as_promised():
    record = json.loads((BENCH / "results" / "time_model_h200.json").read_text())["groups"]["mma.sync"]
    assert record["rows"] >= 6
    assert record["mean_error"] <= 0.16 and record["worst_error"] <= 0.38
    several = [abs(row["error"]) for row in json.loads((BENCH / "results" / "h100_mma_sync.json").read_text())["rows"]]
    assert len(several) == 18 and sum(several) / 18 <= 0.12 and max(several) <= 0.39


@pytest.mark.slow
def test_on_an_rtx_5090_the_tensor_cores_hold_the_rung_and_what_is_assumed_is_said():
    found, larger = (predict("g0", size, size, size, gpu="RTX 5090", explained=False) for size in (2048, 4096))
    assert larger.bound == "tensor core" and found.tensor_utilisation > 0.75
    text = f"predicted to reach {found.tflops:.0f} TFLOPS at 2048 and {larger.tflops:.0f} at 4096"
    assert text in (BENCH.parent / "docs" / "time.md").read_text(encoding="utf-8")
    assert larger.tflops < 209.5
    assert re.fullmatch(r"of this RTX 5090 \d+ of \d+ figures are assumed, most .*B200's\.", found.explanation[-1])
    assert not any("assumed" in each for each in predict("g0", 512, 512, 512, gpu="H200", explained=False).explanation)


def test_the_published_ladder_is_predicted_as_promised():
    record = json.loads((BENCH / "results" / "time_model.json").read_text())
    assert record["mean_error"] <= 0.03
    assert record["worst_error"] <= 0.07
    assert record["order_right"]
    by_name = {each["name"]: each for each in record["samples"]}
    assert by_name["v1"]["predicted"] > 1.03 * by_name["v0"]["predicted"]
    assert all("relinquish_alloc_permit" in " ".join(by_name[name]["explanation"]) for name in ("v0", "v1"))


def test_another_published_ladder_is_predicted_as_docs_say():
    record = json.loads((BENCH / "results" / "public_ladder.json").read_text())
    assert record["rows"] == 6
    assert record["mean_error"] <= 0.06 and record["worst_error"] <= 0.13
    told = (BENCH.parent / "docs" / "time.md").read_text(encoding="utf-8")
    for each in record["rungs"]:
        row = f"| {each['name']} | {each['published']:,.0f} | {each['predicted']:,.0f} | {each['error']:+.1%} |"
        assert row.replace("%", " %") in told


def test_a_third_published_ladder_is_predicted_as_docs_say():
    record = json.loads((BENCH / "results" / "public_ladder_gluon.json").read_text())
    told = (BENCH.parent / "docs" / "time.md").read_text(encoding="utf-8")
    assert record["rows"] == 24 and record["mean_error"] <= 0.1
    for each in record["rungs"]:
        cell = f"{each['published']:,.0f}: {each['predicted']:,.0f}, {each['error']:+.1%}"
        assert f"| {cell.replace('%', ' %')} |" in told


def test_block_scaled_kernels_of_others_are_predicted_as_docs_say():
    record = json.loads((BENCH / "results" / "public_ladder_gluon_scaled.json").read_text())
    told = (BENCH.parent / "docs" / "time.md").read_text(encoding="utf-8")
    assert record["rows"] == 15
    for each in record["rungs"]:
        cell = f"{each['published']:,.0f}: {each['predicted']:,.0f}, {each['error']:+.1%}"
        assert f"| {cell.replace('%', ' %')} |" in told
    far = {each["name"] for each in record["rungs"] if abs(each["error"]) > 0.1}
    assert far == {"nvfp4, one CTA, 8192", "nvfp4, pairs of CTAs, 8192", "mxfp8, pairs of CTAs, 32768"}
    assert record["worst_error"] < 0.16


LADDER = "block_n=128,block_k=64,stages=2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "schedule", "dtype"),
    [
        *((kernel, LADDER, "bf16") for kernel in ("Serial", "Specialised", "Pairs")),
        *((kernel, "ctas=3", "fp16") for kernel in ("Together", "Stays")),
        ("Together", "ctas=0", "fp16"),
        ("Scaled", "ctas=1", "mxfp8"),
        ("Scaled", "ctas=2,stages=5", "nvfp4"),
        ("Scaled", "stay=3", "mxfp4"),
    ],
)
def test_the_ladders_kernels_multiply(kernel, schedule, dtype):
    """What is predicted of them is of kernels that run, and are right."""
    path = f"{BENCH / 'public_ladder_kernels.py'}:{kernel}"
    assert run_matmul(path, 256, 512, 512, dtype=dtype, schedule=schedule).ok


def test_the_microbenchmark_is_reproduced():
    record = json.loads((BENCH / "results" / "b200_mainloop.json").read_text())
    assert record["rows"] > 100
    assert record["mean_error"] <= 0.03


def test_numbers_of_a_prediction_fit_together():
    found = predict("v3", 4096, 4096, 4096, explained=False)
    assert found.predicted
    assert found.time_us == pytest.approx(found.cycles / found.ghz / 1e3)
    assert found.tflops == pytest.approx(2 * 4096**3 / found.time_us / 1e6)
    assert found.tensor_utilisation == pytest.approx(2 * 4096**3 / 8192 / 148 / found.cycles, rel=0.02)
    assert found.ghz == pytest.approx(1.965 - 0.616 * found.tensor_utilisation, rel=0.01)
    assert found.as_dict()["kernel"] == "BlackwellMatmulV3"


def test_a_rung_is_the_same_by_name_and_as_a_class():
    """The schedule that this GPU gets, and the ones beside it, too."""
    by_name, as_a_class = (predict(each, 256, 512, 1024, gpu="H100") for each in ("h3", HopperMatmulV3))
    assert as_a_class.explanation == by_name.explanation and as_a_class.cycles == by_name.cycles


def test_ctas_that_share_an_sm_take_over_what_is_left():
    """Five of them fit, and have seven tiles together, of 16 k-tiles."""
    found = predict(
        "v5", 4096, 2048, 512, schedule="block_m=128,block_n=64,block_k=32,stages=3,e_block_n=16", explained=False
    )
    assert found.resident == 5 and found.working > 1
    assert found.by_resource["tensor core"] == pytest.approx(7 * 16 * 2 * 48)


def test_a_small_problem_comes_from_the_l2_and_takes_less_at_a_higher_clock():
    slow, fast = (predict("v2", 1024, 1024, 1024, ghz=ghz, explained=False) for ghz in (1.2, 1.9))
    assert slow.memory_gb == 0
    assert fast.time_us < slow.time_us
    assert fast.cycles > slow.cycles


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["v0", "v3"])
def test_turns_that_are_left_out_take_what_they_would(rung, monkeypatch):
    call = {"m": 8192, "n": 8192, "k": 256, "schedule": "block_m=128,block_n=128", "explained": False}
    every = predict(rung, **call)
    monkeypatch.setattr("blackwell_matmul.simulator.timing.model.timed_launch.MOST_PREDICTED_EVENTS", 0)
    assert predict(rung, **call).cycles == pytest.approx(every.cycles, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"gpu": "B1000"}, "gpu is 'B1000'; time can be predicted for B200"),
        ({"gpu": "RTX 5090"}, "sm_120a .RTX 5090. has no tcgen05"),
        ({"gpu": "GB200"}, "nobody has published the clock that its tensor cores leave it"),
        ({"schedule": "stages=11"}, "stages = 11 is outside of the space"),
        ({"dtype": "fp64"}, "dtype is 'fp64'"),
        ({"kernel": "h5", "gpu": "B200"}, "sm_100a .B200, GB200. has no wgmma"),
        ({"gpu": "H200"}, "sm_90a .H100, H200. has no tcgen05"),
        (
            {"kernel": "g0", "gpu": "B200"},
            "The time of dot at .* is not known .* mma.sync with 16 bits on RTX 5090, H200",
        ),
        ({"k": 100}, "16"),
        ({"m": 0}, "m is 0"),
    ],
)
def test_what_cannot_be_predicted_is_refused_in_a_sentence(arguments, why):
    with pytest.raises(BlackwellMatmulError, match=why) as refused:
        predict(**{"kernel": "v2", "m": 512, "n": 512, "k": 512, **arguments})
    assert isinstance(refused.value, (InputError, UnsupportedError))
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_what_holds_a_launch_is_what_its_what_ifs_would_save():
    """TMA and the tensor core are busy for 91 and 87 % of the time, and a faster one of them saves nothing: a ring of 9
    stages is too short for the latency of its loads. Larger tiles would have no more SMs."""
    found = predict("v4", 16, 1024, 32768, gpu="B200")
    assert found.by_resource["TMA loads"] > 0.9 * found.cycles and found.by_resource["tensor core"] > 0.8 * found.cycles
    assert found.bound == "latency"
    assert any("9 stages cannot hide that" in each for each in found.explanation)
    assert not any("larger tiles" in each for each in found.explanation)
    larger = predict("v4", 16, 1024, 32768, gpu="B200", schedule={"block_n": 128}, explained=False)
    assert larger.cycles > found.cycles
