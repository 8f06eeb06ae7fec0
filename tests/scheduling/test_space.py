"""The autotune space: projections, `why_not` against code generation, the choice of a schedule."""

from __future__ import annotations

import dataclasses
import random
import re
from functools import cache
from typing import Any

import pytest
import tilus

from blackwell_matmul.errors import CompileError, InputError
from blackwell_matmul.frontend.bind import Bound
from blackwell_matmul.frontend.build import build
from blackwell_matmul.frontend.program import Program
from blackwell_matmul.gpus import GPUS
from blackwell_matmul.kernels import RUNGS, rung
from blackwell_matmul.problem import Problem, Schedule
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import STRICTER_RULES, broken, why_not
from blackwell_matmul.scheduling.space import choose, projection

B200, H200 = GPUS["B200"], GPUS["H200"]
GENERATED = 6
"""Schedules of a rung whose code is generated; where there are more, a seeded draw."""

GPU_OF = {name: {"v": B200, "h": H200, "g": GPUS["RTX 5090"]}[name[0]] for name in RUNGS}
ODD = Problem(1000, 200, 136)
"""Tails in m, n and k, and 16-byte rows."""

GOOD = {
    "v0": Schedule(128, 128, 64),
    "v1": Schedule(128, 128, 64, 32),
    "v2": Schedule(128, 128, 64, 32, 3),
    "h0": Schedule(128, 128, 64, mma="wgmma"),
    "h1": Schedule(128, 128, 64, 32, mma="wgmma"),
    "h2": Schedule(128, 128, 64, 32, 3, mma="wgmma"),
    "h3": Schedule(128, 128, 64, 32, 3, 2, mma="wgmma"),
    "h4": Schedule(128, 128, 64, 32, 3, 2, 4, mma="wgmma"),
    "h5": Schedule(128, 128, 64, 32, 3, 2, 4, 2, mma="wgmma"),
    "h6": Schedule(128, 128, 64, 32, 3, 2, 4, 2, 2, mma="wgmma"),
    "g0": Schedule(128, 128, 64, 32, 2, mma="mma.sync"),
}


def generate(name: str, schedule: Schedule, problem: Problem, target: str) -> Program:
    dtype = {"fp16": tilus.float16, "bf16": tilus.bfloat16}[problem.dtype]
    kernel_args: dict[str, Any] = {"m": problem.m, "a_ptr": 0, "b_ptr": 0, "c_ptr": 0}
    bound = Bound(
        script_cls=rung(name),
        init_kwargs={
            "dtype": dtype,
            **schedule.as_dict(),
            **({"sm_count": 132} if "persistent" in rung(name).features else {}),
        },
        args=(),
        consts={"n": problem.n, "k": problem.k},
        kernel_args=kernel_args,
        divisibility={"m": 1},
    )
    return build(bound, target)


@cache
def generates(name: str, schedule: Schedule, problem: Problem = ODD, target: str = "sm_100a") -> bool:
    try:
        generate(name, schedule, problem, target)
    except CompileError:
        return False
    return True


def test_a_projection_has_each_schedule_once_and_only_the_knobs() -> None:
    counts = {"v0": 21, "v1": 54, "v2": 324, "h0": 42, "h2": 648, "h3": 792, "h4": 3168, "h5": 6336, "h6": 9360}
    for name, count in (counts | {"g0": 648}).items():
        schedules = projection(rung(name))
        assert len(schedules) == len(set(schedules)) == count
        assert all(tuple(schedule.as_dict()) == rung(name).knobs for schedule in schedules)


def test_a_projection_has_only_parts_that_share_the_strips_and_fit_in_a_cluster() -> None:
    schedules = projection(rung("h6"))
    assert all(s.block_n // s.e_block_n >= s.split_k and s.cluster_m * s.split_k <= 8 for s in schedules)
    assert {s.group_m for s in schedules if s.split_k > 1} == {16}
    assert {(s.cluster_m, s.split_k) for s in schedules} == {(m, k) for m in (1, 2) for k in (1, 2, 4, 8)} - {(2, 8)}
    alone = {dataclasses.replace(s, split_k=None) for s in schedules if s.split_k == 1}
    assert alone == set(projection(rung("h5")))


def test_projections_nest() -> None:
    lower = {dataclasses.replace(schedule, e_block_n=None) for schedule in projection(rung("v1"))}
    assert lower == set(projection(rung("v0")))


def test_a_projection_has_only_tiles_that_its_mma_computes() -> None:
    assert {schedule.block_m for schedule in projection(rung("v2"))} == {128}
    assert {schedule.block_m for schedule in projection(rung("h2"))} == {64, 128}
    assert all(schedule.block_m == 64 * schedule.consumers for schedule in projection(rung("h3")))
    assert all(schedule.block_n % schedule.e_block_n == 0 for schedule in projection(rung("v1")))


def test_a_projection_takes_knob_names() -> None:
    assert projection(("block_n", "block_m")) == projection(("block_n", "block_m", "block_n"))
    with pytest.raises(InputError, match="knob 'warps' is not in the space"):
        projection(("warps",))


@pytest.mark.parametrize("name", RUNGS)
def test_why_not_is_empty_exactly_when_code_is_generated(name: str) -> None:
    gpu = GPU_OF[name]
    schedules = projection(rung(name))
    for schedule in random.Random(name).sample(schedules, min(len(schedules), GENERATED)):
        reasons = why_not(schedule, ODD, gpu)
        try:
            program = generate(name, schedule, ODD, gpu.arch)
        except CompileError:
            assert reasons, schedule
        else:
            assert not reasons or reasons == broken(STRICTER_RULES, schedule, ODD, gpu), schedule
            assert program.dynamic_shared_bytes == tile_config(schedule, ODD, gpu).shared_bytes


OFF_SPACE: list[tuple[str, dict[str, int], str]] = [
    ("v0", {"block_m": 64}, "block_m = 64: .*128 rows"),
    ("v0", {"block_m": 256}, "block_m = 256"),
    ("v0", {"block_n": 8}, "block_n = 8: .* multiple of 16"),
    ("v0", {"block_n": 20}, "block_n = 20: .*32 is one"),
    ("v0", {"block_n": 520}, "1024 columns .*has 512"),
    ("v0", {"block_n": 512, "block_k": 256}, "327812 bytes .*232448"),
    ("v0", {"block_k": 8}, "block_k = 8: .*16"),
    ("v0", {"block_k": 12}, "block_k = 12"),
    ("v0", {"block_k": 24}, "block_k = 24: .*32 is a multiple"),
    ("v1", {"block_n": 512}, "block_n = 512: a TMA box has at most 256 rows"),
    ("v1", {"block_k": 48}, "block_k = 48: a row of the tile is 96 bytes"),
    ("v1", {"block_k": 128}, "block_k = 128: a row of the tile is 256 bytes"),
    ("v1", {"e_block_n": 4}, "e_block_n = 4: a row of the tile is 8 bytes"),
    ("v1", {"e_block_n": 48}, "strips must fill block_n = 128"),
    ("v1", {"e_block_n": 128}, "e_block_n = 128: a row of the tile is 256 bytes"),
    ("v1", {"block_n": 96, "e_block_n": 64}, "e_block_n = 64: strips must fill block_n = 96"),
    ("v2", {"stages": 9}, "9 stages .*303236 bytes .*232448"),
    ("v2", {"stages": 7}, "237700 bytes"),
    ("h0", {"block_m": 96}, "block_m = 96: wgmma computes 64 rows at a time; 128 fit"),
    ("h0", {"block_n": 20}, "block_n = 20: wgmma needs N a multiple of 8; 24 is one"),
    ("h0", {"block_k": 24}, "block_k = 24: wgmma takes 16"),
    ("h0", {"block_n": 256}, "takes 256 registers and it has 255"),
    ("g0", {"block_m": 96}, "block_m = 96: mma.sync of four warps computes 64 rows; 128 fit"),
    ("g0", {"block_n": 256}, "takes 288 registers"),
    ("h2", {"stages": 7}, "Shared memory: 7 stages"),
    ("h3", {"block_m": 256}, "block_m = 256: consumers = 2 compute 64 rows each, 128 in all"),
    ("h5", {"block_n": 72, "e_block_n": 8}, "cluster_m = 2: .* 72 rows of B, .* a multiple of 16"),
    ("h6", {"e_block_n": 64, "split_k": 4}, "split_k = 4: .* e_block_n = 64 has 2; make e_block_n smaller"),
    ("h6", {"cluster_m": 4, "split_k": 4}, "a cluster would have 16 CTAs, and it can have 8 on every GPU"),
    ("h4", {"block_n": 512}, "takes 256 registers|block_n = 512: a TMA box"),
]


@pytest.mark.parametrize(("name", "change", "reason"), OFF_SPACE)
def test_a_bad_schedule_outside_of_the_space_has_a_reason(name: str, change: dict[str, int], reason: str) -> None:
    schedule = dataclasses.replace(GOOD[name], **change)
    gpu = GPU_OF[name]
    reasons = why_not(schedule, ODD, gpu)
    assert any(re.search(reason, each) for each in reasons), reasons
    if generates(name, schedule, target=gpu.arch):
        assert reasons == broken(STRICTER_RULES, schedule, ODD, gpu)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("v0", {"block_n": 16}),
        ("v0", {"block_n": 96}),
        ("v0", {"block_n": 512}),
        ("v0", {"block_k": 48}),
        ("v0", {"block_k": 128}),
        ("v1", {"block_n": 96}),
        ("v1", {"block_n": 16, "e_block_n": 16}),
        ("v1", {"e_block_n": 8}),
        ("v2", {"stages": 1}),
        ("v2", {"stages": 5}),
        ("h0", {"block_m": 64}),
        ("h0", {"block_m": 192}),
        ("h1", {"block_n": 64, "e_block_n": 64}),
        ("h3", {"stages": 5}),
        ("h3", {"block_m": 64, "consumers": 1}),
        ("h4", {"group_m": 3}),
        ("h5", {"cluster_m": 4}),
        ("h6", {"cluster_m": 4}),
        ("h6", {"cluster_m": 1, "block_n": 96, "split_k": 3}),
        ("g0", {"block_m": 64}),
    ],
)
def test_a_good_schedule_outside_of_the_space_has_none(name: str, change: dict[str, int]) -> None:
    schedule = dataclasses.replace(GOOD[name], **change)
    gpu = GPU_OF[name]
    assert why_not(schedule, ODD, gpu) == []
    program = generate(name, schedule, ODD, gpu.arch)
    assert program.dynamic_shared_bytes == tile_config(schedule, ODD, gpu).shared_bytes


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
@pytest.mark.parametrize("name", RUNGS)
def test_a_gpu_without_the_instructions_has_a_reason(name: str, gpu: Any) -> None:
    reasons = why_not(GOOD[name], ODD, gpu)
    assert generates(name, GOOD[name], target=gpu.arch) == (not reasons)
    assert all(gpu.name in reason for reason in reasons)


@pytest.mark.parametrize(
    ("name", "sizes", "reasons"),
    [
        ("v0", (5, 3, 7), ["K = 7: .*14 bytes, cp.async .*pad K to 8"]),
        ("v0", (5, 3, 6), []),
        ("v1", (5, 8, 511), ["K = 511: .*1022 bytes, TMA needs a multiple of 16; pad K to 512"]),
        ("v1", (5, 9, 512), ["N = 9: a row of C is 18 bytes, .*pad N to 16"]),
        ("v2", (5, 9, 9), ["K = 9: ", "N = 9: "]),
        ("v0", (65536, 64, 65536), ["A has 4294967296 elements"]),
        ("v1", (65536, 64, 65536), []),
        ("v1", (8, 2**24, 8), ["N = 16777216: 131072 tiles along n"]),
    ],
)
def test_a_problem_has_its_reasons(name: str, sizes: tuple[int, int, int], reasons: list[str]) -> None:
    found = why_not(GOOD[name], Problem(*sizes), B200)
    assert len(found) == len(reasons)
    for reason, sentence in zip(reasons, found):
        assert re.search(reason, sentence)


def test_code_generation_agrees_about_odd_k() -> None:
    assert not generates("v0", GOOD["v0"], Problem(5, 3, 7))
    assert generates("v0", GOOD["v0"], Problem(5, 3, 6))
    assert generates("v0", GOOD["v0"], Problem(5, 3, 6, "bf16"))


def test_an_incomplete_schedule_says_what_is_missing() -> None:
    assert why_not(Schedule(block_m=128), ODD, B200) == [
        "block_n is not set; every schedule has block_m, block_n and block_k."
    ]


def test_a_schedule_with_parts_is_one_with_clusters() -> None:
    without = dataclasses.replace(GOOD["h6"], cluster_m=None)
    assert why_not(without, ODD, H200) == ["cluster_m is not set; a schedule with split_k has it."]


@pytest.mark.parametrize("consumers", [1, 2])
def test_parts_take_a_barrier_for_each_warpgroup(consumers: int) -> None:
    """Sixteen barriers fill 128 bytes, which is what shared memory is handed out in."""
    schedule = dataclasses.replace(
        GOOD["h6"], block_m=64 * consumers, block_n=64, block_k=32, stages=8, consumers=consumers
    )
    parts, alone = (dataclasses.replace(schedule, split_k=split_k) for split_k in (2, 1))
    for each in (parts, alone):
        assert generate("h6", each, ODD, H200.arch).dynamic_shared_bytes == tile_config(each, ODD, H200).shared_bytes
    assert tile_config(parts, ODD, H200).barriers - tile_config(alone, ODD, H200).barriers == consumers
    assert tile_config(parts, ODD, H200).shared_bytes - tile_config(alone, ODD, H200).shared_bytes == 128


def test_each_reason_is_one_sentence() -> None:
    worst = Schedule(block_m=64, block_n=1000, block_k=200, e_block_n=33, stages=40)
    for reason in why_not(worst, Problem(2**31 - 1, 2**30 + 1, 5), GPUS["RTX 5090"]):
        assert reason.endswith(".") and ". " not in reason


# --- the choice


CHOSEN: list[tuple[str, tuple[int, int, int], Schedule]] = [
    ("v0", (8192, 8192, 8192), Schedule(128, 256, 64)),  # the widest tile moves the fewest bytes
    ("v1", (2048, 2048, 2048), Schedule(128, 96, 64, 32)),  # one stage: three CTAs an SM hide more than two of 128
    ("v1", (1024, 1024, 1024), Schedule(128, 64, 64, 64)),  # no tile gives every SM one: the most SMs, the least each
    ("v1", (4096, 72, 16), Schedule(128, 64, 16, 64)),  # no larger than n and k need
    ("v2", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 2)),  # two CTAs of two stages: epilogues beside products
    ("v2", (2048, 2048, 64), Schedule(128, 64, 64, 16, 2)),  # one k-tile fills no ring; the most CTAs an SM
    ("h2", (8192, 8192, 8192), Schedule(128, 192, 64, 64, 2, mma="wgmma")),  # one warpgroup holds no wider tile
    ("h4", (8192, 8192, 8192), Schedule(128, 256, 64, 64, 4, 2, 16, mma="wgmma")),  # 18 * 224 columns are hardly fewer
    ("h5", (2048, 2048, 2048), Schedule(128, 256, 64, 64, 4, 2, 16, 1, mma="wgmma")),  # 128 tiles for 132 SMs
    ("h5", (1024, 1024, 1024), Schedule(128, 64, 64, 64, 8, 2, 16, 1, mma="wgmma")),  # as many
    ("h5", (8192, 8192, 4096), Schedule(128, 256, 64, 64, 4, 2, 16, 1, mma="wgmma")),  # neighbours share B as it is
    ("h5", (128, 6144, 4096), Schedule(64, 96, 64, 32, 8, 1, 16, 2, mma="wgmma")),  # there are two rows
    ("h5", (512, 3584, 3584), Schedule(128, 128, 64, 64, 6, 2, 16, 1, mma="wgmma")),  # 112 columns are odd
    ("g0", (4096, 4096, 4096), Schedule(128, 160, 64, 32, 2, mma="mma.sync")),  # 192 wide takes too many registers
]


@pytest.mark.parametrize(("name", "sizes", "expected"), CHOSEN)
def test_the_choice(name: str, sizes: tuple[int, int, int], expected: Schedule) -> None:
    assert choose(rung(name), Problem(*sizes), GPU_OF[name]) == expected


def test_a_split_tile_can_be_pinned_to_any_order_of_the_tiles() -> None:
    problem, pins = Problem(128, 4096, 4096), {"split_k": 2, "group_m": 4}
    chosen = choose(rung("h6"), problem, H200, pins)
    assert chosen == dataclasses.replace(choose(rung("h6"), problem, H200, {"split_k": 2}), group_m=4)


def test_a_gpu_without_the_multiplier_names_those_that_have_it() -> None:
    assert "H100 and H200 have them" in why_not(GOOD["h1"], ODD, B200)[0]
    assert "B200 and GB200 have them" in why_not(GOOD["v1"], ODD, H200)[0]


def test_a_gpu_that_no_schedule_can_run_on_is_named_once() -> None:
    with pytest.raises(InputError) as caught:
        choose(rung("v1"), Problem(64, 64, 64), H200)
    assert str(caught.value).startswith("BlackwellMatmulV1 cannot run: H200 (sm_90a) has no tcgen05 instructions and")
    assert str(caught.value).count("H200") == 1


def test_a_partial_pin_restricts_the_choice() -> None:
    problem = Problem(8192, 8192, 8192)
    assert choose(rung("v2"), problem, B200, {"block_n": 64}) == Schedule(128, 64, 64, 64, 2)
    assert choose(rung("v2"), problem, B200, {"stages": 6}) == Schedule(128, 256, 16, 64, 6)  # two CTAs an SM
    for schedule in projection(rung("v1")):
        assert choose(rung("v1"), problem, B200, schedule.as_dict()) == schedule


@pytest.mark.parametrize(
    ("pins", "problem", "message"),
    [
        ({"block_n": 80}, ODD, "block_n = 80 is outside of the space; block_n can be 64, 96, 128, .*, 256"),
        ({"block_n": "128"}, ODD, "block_n = '128' is outside"),
        ({"block_m": 64}, ODD, "block_m = 64 is outside of the space; block_m can be 128"),
        ({"block_n": 96, "e_block_n": 64}, ODD, "e_block_n = 64: strips must fill block_n = 96"),
        ({"warps": 4}, ODD, "BlackwellMatmulV2 has no knob 'warps'; its knobs are block_m"),
        (
            {"block_n": 256, "block_k": 64, "stages": 6},
            ODD,
            "None of 3 schedules of BlackwellMatmulV2 can run 1000x200x136 .*232448",
        ),
        ({}, Problem(64, 64, 511), "None of 324 schedules of BlackwellMatmulV2 can run .*pad K to 512"),
    ],
)
def test_pins_that_leave_nothing_say_why(pins: dict[str, object], problem: Problem, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(rung("v2"), problem, B200, pins)
