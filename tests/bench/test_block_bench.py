"""The transformer block of bench/gpu/block.py: with our products it trains and infers as with torch's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("tilus")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import block
import torch

pytestmark = pytest.mark.slow

STEPS = 2


@pytest.fixture(scope="module")
def setting():
    return block.Setting.made("small", "cpu")


@pytest.fixture(scope="module")
def rows(setting, tmp_path_factory):
    """By part, mode and contender; of few steps."""
    out = tmp_path_factory.mktemp("block") / "block.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "STEPS", STEPS)
        patch.setattr(block, "WARM", 1)
        found = block.run_parts(setting, list(block.PARTS), lambda rows: out.write_text(json.dumps(rows)))
    assert json.loads(out.read_text()) == found
    return {(row["part"], row["mode"], row["contender"]): row for row in found}


def test_nothing_fails(rows):
    assert [row["error"] for row in rows.values() if "error" in row] == []
    assert not any(row.get("graph_breaks") for row in rows.values())


@pytest.mark.parametrize("contender", ["ours", "ours gated"])
@pytest.mark.parametrize("mode", ["eager", "default"])
def test_the_losses_are_torchs(rows, contender, mode):
    mine, torchs = rows["training", mode, contender], rows["training", mode, "torch"]
    assert len(mine["losses"]) == STEPS and mine["losses"][-1] < 0.8 * mine["losses"][0]
    assert mine["off_fp32"] <= 2 * torchs["off_fp32"]


@pytest.mark.parametrize("part, contender", [
    ("inference", "ours"), ("inference", "ours gated"), ("inference, 8 bits", "ours"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["eager", "default"])
def test_inference_is_torchs(rows, part, contender, mode):
    assert rows[part, mode, contender]["off_torch"] <= 0.01


def test_no_operand_is_copied(rows):
    heard = {at: row for at, row in rows.items() if "copies" in row}
    assert {at[2] for at in heard} == {"ours", "ours gated"}
    assert all(row["copies"] == [] for row in heard.values())
    assert [heard["training", "eager", name]["products"] for name in ("ours", "ours gated")] == [21, 21]


def test_a_copy_would_be_heard(setting):
    def run():
        x = setting.x[0]
        with torch.no_grad():
            block.ours.matmul(x[:, ::2], x.T[::2], simulate=True)
            block.ours.grouped_matmul(
                x.T.contiguous().T, setting.weights["experts_in"].mT, torch.full((8,), 32, dtype=torch.int32),
                simulate=True,
            )  # fmt: skip

    heard = block.copied(run)
    assert heard["products"] == 2 and [said[0] for said in heard["copies"]] == ["a", "b", "a"]


def test_one_that_fails_leaves_the_others(setting, capsys):
    row = {}
    with block.failing_alone(row):
        raise ValueError("no")
    assert row == {"error": "ValueError: no"} and "ValueError" in capsys.readouterr().err


def test_times_memory_and_kernels_of_a_gpu(setting, monkeypatch):
    """What it takes of them, without one."""
    for name in ("synchronize", "reset_peak_memory_stats", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    monkeypatch.setattr(block, "timed", lambda run: run())
    monkeypatch.setattr(block, "_events", lambda profiler: [
        {"cat": "kernel", "name": "gemm", "dur": 2.0}, {"cat": "kernel", "name": "gemm", "dur": 3.0},
        {"cat": "kernel", "name": "add", "dur": 1.0}, {"cat": "gpu_memcpy", "name": "Memcpy"}, {"name": "host"},
    ])  # fmt: skip
    on_gpu = block.Setting(setting.shape, "cuda", setting.x, setting.wanted, setting.weights, setting.by)
    rows = [{"contender": name} for name in ("torch", "ours", "failed")]
    block.measure(on_gpu, rows, {"torch": lambda: 20.0, "ours": lambda: 10.0})
    torchs, mine, failed = rows
    assert (torchs["us"], mine["us"], mine["torch / this"], mine["peak_mib"]) == (20.0, 10.0, 2.0, 2.0)
    assert (mine["kernels"], mine["memory_operations"]) == (3, 1)
    assert mine["longest"] == [["gemm", 2, 5.0], ["add", 1, 1.0]]
    assert failed == {"contender": "failed"}


def test_the_profilers_events_are_found():
    with torch.profiler.profile() as profiler:
        torch.ones(2) + 1
    assert any("aten::add" in event.get("name", "") for event in block._events(profiler))
