"""What is tried and in which order, from the shared space and from tilus's own."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.calls.user_kernel import find
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling import rules, space
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.tuner.candidates import candidates, cost, spelled

B200, H200 = GPUS["B200"], GPUS["H200"]
FAULTY = f"{Path(__file__).resolve().parents[2]}/bench/gpu/kernels/faulty.py:FaultyMatmul"
LARGE = Problem(4096, 4096, 4096)


def test_every_schedule_of_a_rung_is_tried_or_counted_with_its_reason():
    kernel = find("v2")
    found = candidates(kernel, LARGE, B200)
    assert found.total == len(space.projection(kernel.script_cls)) and found.refused
    tried = {tuple(pins.items()) for pins in found.ordered}
    assert len(tried) == len(found.ordered)
    for schedule in space.projection(kernel.script_cls):
        assert (tuple(schedule.as_dict().items()) in tried) == (not rules.why_not(schedule, LARGE, B200))
    assert all(reason.endswith(".") for reason in found.refused)


def test_a_script_that_is_no_matmul_is_refused_before_anything_is_built(tmp_path):
    file = tmp_path / "scale.py"
    file.write_text(
        "import tilus\nclass Scale(tilus.Script):\n    def __call__(self, m: int, x: ~tilus.float32): pass\n"
        "def example_args(m=1, n=1, k=0): return m, None\n"
    )
    with pytest.raises(InputError, match=r"^Scale is called with \(m, x\), and tune takes matmuls alone"):
        candidates(find(str(file)), LARGE, B200)


@pytest.mark.slow
def test_what_a_call_would_choose_comes_first_and_soon_other_tiles():
    kernel = find("h6")
    features = kernel.script_cls.features
    found = [Schedule(**pins, mma="wgmma", features=features) for pins in candidates(kernel, LARGE, H200).ordered]
    assert found[0] == space.choose(kernel.script_cls, LARGE, H200)
    assert len({(schedule.block_m, schedule.block_n, schedule.cluster_m) for schedule in found[:12]}) >= 6
    one = {"block_m": 128, "block_n": 256, "cluster_m": 2}
    same = [each for each in found if one.items() <= each.as_dict().items()]
    assert found.index(same[1]) == 5  # of the chosen tile its second: four others are less than 10 % slower
    keys = [space.preference(schedule, tile_config(schedule, LARGE, H200)) for schedule in same]
    assert keys == sorted(keys)


def test_why_others_were_refused_is_plain_data():
    """asdict turns a Counter into one of pairs, which JSON cannot have as names."""
    found = candidates(find("v2"), LARGE, B200)
    assert found.refused and json.loads(json.dumps(asdict(found)["refused"])) == found.refused


def test_the_rule_prefers_few_waves_then_large_tiles():
    def first(problem, *tiles):
        return min(tiles, key=lambda tile: cost({"block_m": tile[0], "block_n": tile[1]}, problem, H200))

    assert first(Problem(8192, 8192, 8192), (128, 64), (128, 128), (128, 256)) == (128, 256)
    assert first(Problem(1024, 1024, 1024), (128, 64), (128, 128), (128, 256)) == (128, 64)


def test_what_cannot_run_at_all_says_why():
    with pytest.raises(InputError, match="pad K to 4104"):
        candidates(find("v2"), Problem(4096, 4096, 4097), B200)


def test_a_script_has_the_candidates_that_it_declares_to_tilus():
    found = candidates(find(FAULTY), Problem(1024, 1024, 256), H200)
    assert len(found.ordered) == 8 and found.refused == {}
    assert {(pins["fault"], pins["block_n"]) for pins in found.ordered} == {(f, n) for f in range(4) for n in (64, 128)}


def test_schedules_are_written_as_they_are_read():
    assert spelled({"block_m": 128, "swizzle": True}) == "block_m=128,swizzle=True"
    with pytest.raises(InputError, match="a value has a comma"):
        spelled({"order": "a,b"})


@pytest.mark.parametrize("source", ["v99", "nowhere.py:X"])
def test_no_kernel(source):
    with pytest.raises(InputError):
        find(source)
