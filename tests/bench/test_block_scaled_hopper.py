"""bench/gpu/block_scaled_hopper.py without a GPU: schedules, operands, the check of a result, ratios and lines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("tilus")

from blackwell_matmul import HopperMatmul, simulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose

sys.path.insert(0, str(Path(__file__).parents[2] / "bench" / "gpu"))
import block_scaled_hopper as bench

SMALL = Problem(72, 208, 384, "e4m3", bench.FORM)


def test_schedules_are_named_by_their_pins_and_can_run() -> None:
    found = bench.schedules((SMALL, GPUS["H200"]))
    assert {"ours", "ours block_m=64 split_k=2"} <= found.keys() and len(found) > 6
    for schedule in found.values():
        assert not why_not(choose(HopperMatmul, SMALL, GPUS["H200"], schedule), SMALL, GPUS["H200"])


def test_the_product_of_its_operands_is_right_and_a_wrong_scale_shows() -> None:
    torch.manual_seed(0)
    made = bench.drawn(SMALL, "cpu")
    assert simulate(HopperMatmul(form=bench.FORM), *bench.arguments(SMALL, made), workers=1).ok
    right = bench.exact(made)
    found, rounded = bench.errors(made.c, right), bench.errors(right.bfloat16(), right)
    assert found["max"] <= 1.01 * rounded["max"] and found["rms"] <= 1.01 * rounded["rms"]
    made.scale_b[1, 2] *= 1.5
    assert bench.errors(made.c, bench.exact(made))["rms"] > 10 * found["rms"]


def test_ratios_are_of_the_chosen_and_of_the_best() -> None:
    us = {"torch": 2.0, "triton": 8.0, "ours": 4.0, "ours block_m=64": 1.0}
    found = bench.summary(
        {"64x1x1": {"us": us}, "128x1x1": {"us": {"torch": 2.0}, "failed": {"ours": "why"}}, "1x1x1": {}}
    )
    assert found["torch over ours, chosen"] == {"all": 0.5, "M=64": 0.5}
    assert found["torch over ours, best"]["all"] == 2.0 and found["triton over ours, best"]["M=64"] == 8.0
    assert "best (1.0, 'ours block_m=64')" in bench.shown("64x1x1", {"us": us})
    assert bench.shown("1x1x1", {"error": "the process ended"}).endswith("the process ended")
