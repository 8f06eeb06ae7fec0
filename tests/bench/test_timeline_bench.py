"""`bench/gpu/timeline.py` from compile to summary, with the emulator in the GPU's place."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from blackwell_matmul import Timeline
from blackwell_matmul.simulator.trace.recorded import TimelineEvent

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "gpu"


@pytest.fixture
def timeline_bench(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import timeline

    return timeline


@pytest.mark.slow
def test_the_whole_way_on_a_cpu(timeline_bench, tmp_path, capsys):
    assert timeline_bench.main([str(tmp_path / "out"), "--emulate", "--rungs", "h7"]) == 0
    (row,) = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert row["correct"] and row["same_with_marks"] and row["size"] == [128, 256, 256]
    assert row["time_us"]["without_marks"] is None and row["time_us"]["predicted"] > 1
    (issued,) = [each for each in row["lines"] if each["name"] == "wgmma.mma_async"]
    schedule = row["schedule"]
    tiles, warps = 256 // schedule["block_k"], 4 * schedule["consumers"]
    ctas = 128 // schedule["block_m"] * (256 // schedule["block_n"])
    assert (issued["measured"]["count"], issued["predicted"]["count"]) == (tiles * warps * ctas, tiles * warps)
    assert "self.wgmma.mma(" in issued["source"] and 0 < issued["measured"]["median"] <= issued["measured"]["p90"]
    assert {each.suffix for each in (tmp_path / "out").iterdir()} == {".json", ".html"}
    told = capsys.readouterr().out
    assert "waits for ring.full_barriers " in told and "correct" in told


def test_an_instruction_and_its_wait_are_one_span(timeline_bench):
    made = [
        ("warp 0", "mbarrier.wait", 0, 30, "k.py:5"), ("warp 1", "mbarrier.wait", 0, 30, "k.py:5"),
        ("warp 0", "waits for full[3]", 30, 90, "k.py:5"), ("warp 0", "mbarrier.wait", 90, 120, "k.py:5"),
        ("warp 0", "mma", 120, 150, "k.py:6"), ("tensor core", "mma", 150, 400, "k.py:6"),
    ]  # fmt: skip
    events = tuple(TimelineEvent(*each) for each in made)
    found = timeline_bench.spans(Timeline("K", "H200", "", 1.0, 0, 400, ("warp 0", "warp 1"), events, {}))
    assert sorted(found) == [
        ("k.py:5", "mbarrier.wait", 30), ("k.py:5", "mbarrier.wait", 30),
        ("k.py:5", "waits for full", 90), ("k.py:6", "mma", 30),
    ]  # fmt: skip


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", ["timeline.py", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / "timeline.py"), run_name="__main__")
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("error: torch sees no GPU; an H100 or H200 can measure, and --emulate goes")
    assert err.endswith(" the same way on a CPU.\n") and err.count("\n") == 1
