"""The study "bandwidth": our kernels in the simulator, others that stand for Triton's, and its screen."""

from __future__ import annotations

import math
import re

import pytest
import torch

from blackwell_matmul.cli.views import terminal
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul_studies import bandwidth, interleaved, trials_of
from blackwell_matmul_studies.study_results import StudyResults, TrialRow
from blackwell_matmul_studies.views import bandwidth_view


class Kernels:
    """In place of baselines/triton_kernels.py."""

    def __init__(self) -> None:
        self.called = []

    def copy(self, x, y, kind, block):
        self.called.append(("copy", kind, block))
        y.copy_(x)

    def add(self, x, y, z, kind, *block):
        self.called.append(("add", kind, *block))
        torch.add(x, y, out=z)


@pytest.fixture
def kernels(monkeypatch):
    made = Kernels()
    monkeypatch.setattr(interleaved, "triton_kernels", lambda: made)
    monkeypatch.setattr(interleaved, "INTERLEAVED_SETTINGS", Settings(rounds=1, group_us=1, warmup_s=0.0))
    monkeypatch.setattr("blackwell_matmul.harness.bench.devices.Cpu.l2_bytes", 16)
    return made


def move(operation, shape, way, block=None):
    return bandwidth.move(lambda what: None, operation, shape, way, block, "cpu")


def test_trials_are_few_enough_and_all_differ():
    for quick, count in ((True, 11), (False, 30)):
        trials = trials_of("bandwidth")(quick)
        assert len(trials) == count == len({trial.name for trial in trials})
        for trial in trials:
            given = trial.arguments
            assert given["way"] in bandwidth._WAYS and given["way"] in trial.name
            assert 4 * math.prod(given["shape"]) == 2**29  # at least four times the L2 of any GPU here
            assert given["block"] is None or len(given["block"]) == len(given["shape"])
    everything = {(t.arguments["operation"], len(t.arguments["shape"]), t.arguments["way"]) for t in trials}
    tma = (bandwidth.TILUS_TMA, bandwidth.HOST, bandwidth.DEVICE)
    assert {("copy", dims, way) for dims in range(1, 6) for way in tma} <= everything


@pytest.mark.parametrize("dims", bandwidth.BLOCKS)
def test_blocks_are_boxes_of_tma(dims):
    block = bandwidth.BLOCKS[dims]
    assert math.prod(block) * 4 == (1024 if dims == 1 else 8192) and max(block) <= 256


@pytest.mark.parametrize(
    ("operation", "shape", "way", "block"),
    [
        ("copy", (300,), bandwidth.TILUS_TMA, (256,)),
        ("copy", (2, 3, 2, 3, 8), bandwidth.TILUS_TMA, (1, 2, 2, 2, 8)),
        ("copy", (5, 12), bandwidth.TILUS_PLAIN, None),
        ("add", (300,), bandwidth.TILUS_TMA, (256,)),
        ("add", (300,), bandwidth.TILUS_PLAIN, None),
    ],
)
def test_our_kernels_are_right_before_they_are_timed(kernels, operation, shape, way, block):
    found = move(operation, shape, way, block)
    tensors = 2 if operation == "copy" else 3
    assert found["set_bytes"] == tensors * 4 * math.prod(shape) and found["mine"] == found["timings"][way]
    assert list(found["timings"]) == [way, "torch copy_", *(["torch.add"] if operation == "add" else [])]


def test_rates_count_what_is_read_and_written(kernels):
    found = move("add", (300,), bandwidth.HOST, [2048])
    assert kernels.called[0] == ("add", "host", 2048)
    median_us = {name: timing["median_us"] for name, timing in found["timings"].items()}
    assert found["gb_per_s"] == pytest.approx(3600 / median_us[bandwidth.HOST] / 1e3)
    assert found["copy_gb_per_s"] == pytest.approx(2400 / median_us["torch copy_"] / 1e3)
    assert found["of_copy"] == pytest.approx(found["gb_per_s"] / found["copy_gb_per_s"])
    assert found["of_torch"] == pytest.approx(median_us["torch.add"] / median_us[bandwidth.HOST])


def test_a_copy_by_triton(kernels):
    found = move("copy", (4, 8), bandwidth.DEVICE, [2, 8])
    assert kernels.called[0] == ("copy", "device", (2, 8))
    assert found["of_torch"] == pytest.approx(found["of_copy"])
    move("copy", (4, 8), bandwidth.TRITON_PLAIN)
    assert kernels.called[-1] == ("copy", "plain", None)


def test_a_wrong_result_is_not_timed(kernels, monkeypatch):
    monkeypatch.setattr(kernels, "copy", lambda x, y, kind, block: y[1:].copy_(x[1:]))
    with pytest.raises(interleaved.WrongResult, match=r"^8 of 32 elements are wrong$"):
        move("copy", (4, 8), bandwidth.HOST, [2, 8])


# --- the screen


def result(gb_per_s: float, copy_gb_per_s: float, set_bytes: int = 2**30):
    median_us = set_bytes / gb_per_s / 1e3
    mine = {"median_us": median_us, "q1_us": median_us, "q3_us": median_us * 1.005, "least_us": median_us, "rounds": 15}
    return {
        "gb_per_s": gb_per_s, "copy_gb_per_s": copy_gb_per_s, "of_copy": gb_per_s / copy_gb_per_s, "of_torch": 0.875,
        "mine": mine, "set_bytes": set_bytes, "first_call_s": 1.0,
    }  # fmt: skip


def test_the_screen(tmp_path):
    results = StudyResults(tmp_path, "bandwidth", Machine("H-made-up", "sm_90a", 132, None))
    results.put(TrialRow("add 1-D: tilus TMA 256", "done", result(2000, 4100, 3 * 2**29)))
    results.put(TrialRow("copy 2-D: tilus TMA 8x256", "done", result(3900, 4000)))
    results.put(TrialRow("copy 2-D: Triton TMA (host) 8x256", "done", result(4000, 4000)))
    results.put(TrialRow("copy 2-D: tilus TMA 64x256", "failed", None, "its process ended with code 1", "compiling"))
    text = re.sub(" +", " ", terminal.rendered(bandwidth_view.lines(results)))
    order = ["copy 2-D", "Triton TMA (host) 8x256", "tilus TMA 8x256", "add 1-D", "tilus TMA 256"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert "tilus TMA 8x256 275.32 µs 0.5% 3900 97.5% 87.5%" in text
    assert "copy 2-D: tilus TMA 64x256: failed (compiling): its process ended with code 1" in text
    assert "torch's copy_: 4000 to 4100 GB/s" in text and "touches 1 or 1.5 GiB" in text


def test_a_screen_of_failures_alone(tmp_path):
    results = StudyResults(tmp_path, "bandwidth", Machine("H-made-up", "sm_90a", 132, None))
    results.put(TrialRow("copy 2-D: tilus TMA 8x256", "refused", None, "no.", "compiling"))
    assert terminal.rendered(bandwidth_view.lines(results)) == "copy 2-D: tilus TMA 8x256: refused: no."
