"""Each reason of `why_not`, in its words and against code generation."""

from __future__ import annotations

import dataclasses
import random
import re
from functools import cache
from typing import Any

import pytest
import tilus

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend.bind import Bound
from blackwell_matmul.frontend.build import build
from blackwell_matmul.frontend.program import Program
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import KERNELS, rung
from blackwell_matmul.problem.form import PLAIN, Epilogue, Form
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import STRICTER_RULES, broken, can_run, why_not
from blackwell_matmul.scheduling.space import projection

pytestmark = pytest.mark.slow

B200, H200 = GPUS["B200"], GPUS["H200"]
GENERATED = 4
"""Schedules of a rung whose code is generated; where there are more, a seeded draw."""

NAMES = tuple(name for name in KERNELS if name not in ("few", *BLOCK_SCALED_LADDER))
GPU_OF = {name: {"v": B200, "b": B200, "h": H200, "g": GPUS["RTX 5090"]}[name[0]] for name in NAMES}
ODD = Problem(1000, 200, 136)
"""Tails in m, n and k, and 16-byte rows."""

GOOD = {
    "v0": Schedule(128, 128, 64),
    "v1": Schedule(128, 128, 64, 32),
    "v2": Schedule(128, 128, 64, 32, 3),
    "v3": Schedule(128, 128, 64, 32, 3),
    "v4": Schedule(128, 128, 64, 32, 3, group_m=4),
    "v5": Schedule(128, 128, 64, 32, 3, group_m=4),
    "v6": Schedule(256, 128, 64, 32, 3, group_m=4),
    "blackwell": Schedule(256, 128, 64, 32, 3, group_m=4),
    "h0": Schedule(128, 128, 64, mma="wgmma"),
    "h1": Schedule(128, 128, 64, 32, mma="wgmma"),
    "h2": Schedule(128, 128, 64, 32, 3, mma="wgmma"),
    "h3": Schedule(128, 128, 64, 32, 3, 2, mma="wgmma"),
    "h4": Schedule(128, 128, 64, 32, 3, 2, 4, mma="wgmma"),
    "h5": Schedule(128, 128, 64, 32, 3, 2, 4, mma="wgmma"),
    "h6": Schedule(128, 128, 64, 32, 3, 2, 4, 2, mma="wgmma"),
    "h7": Schedule(128, 128, 64, 32, 3, 2, 4, 2, split_k=2, mma="wgmma"),
    "hopper": Schedule(128, 128, 64, 32, 3, 2, 4, 2, 1, 2, 2, 0, mma="wgmma"),
    "g0": Schedule(128, 128, 64, 32, 2, mma="mma.sync"),
}
GOOD = {name: dataclasses.replace(schedule, features=rung(name).features) for name, schedule in GOOD.items()}


def generate(name: str, schedule: Schedule, problem: Problem, target: str) -> Program:
    dtype = {"fp16": tilus.float16, "bf16": tilus.bfloat16}[problem.dtype]
    sizes = {"n": problem.n, "k": problem.k}
    constant = rung(name).__call__.__annotations__["n"] is int
    free = {"m": problem.m, **({} if constant else sizes)}
    kernel_args: dict[str, Any] = {**free, "a_ptr": 0, "b_ptr": 0, "c_ptr": 0}
    forms = "forms" in rung(name).features
    if forms:
        kernel_args |= {f"{each}_ptr": 0 for each in ("bias", "residual", "scale_a", "scale_b")}
        kernel_args["batches"] = problem.batches
    bound = Bound(
        script_cls=rung(name),
        init_kwargs={
            "dtype": dtype,
            **schedule.as_dict(),
            **({"sm_count": 132} if "persistent" in rung(name).features else {}),
            **({"form": problem.form} if forms else {}),
        },
        args=(),
        consts=sizes if constant else {},
        kernel_args=kernel_args,
        divisibility={**dict.fromkeys(free, 1), **({"batches": 1} if forms else {})},
    )
    return build(bound, target)


@cache
def generates(name: str, schedule: Schedule, problem: Problem = ODD, target: str = "sm_100a") -> bool:
    try:
        generate(name, schedule, problem, target)
    except CompileError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
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


FORMS = (
    Form("m", "k"),
    Form("k", "n"),
    Form("m", "n", 1008, 208),
    Form("m", "k", a_batched=False, out="fp32"),
    Form(epilogue=Epilogue(bias=True, residual=True, activation="gelu", scale="rowwise")),
    Form("k", "n", epilogue=Epilogue(bias=True, activation="swiglu", scale="tensor", alpha=0.5)),
)


@pytest.mark.parametrize("name", ["blackwell", "hopper"])
def test_why_not_is_empty_exactly_when_code_is_generated_for_a_form(name: str) -> None:
    gpu, schedules = GPU_OF[name], projection(rung(name))
    for form, schedule in zip(FORMS, random.Random(name).sample(schedules, len(FORMS))):
        problem = dataclasses.replace(ODD, form=form, batches=3, n=208)
        reasons = why_not(schedule, problem, gpu)
        try:
            program = generate(name, schedule, problem, gpu.arch)
        except CompileError:
            assert reasons, (form, schedule)
        else:
            assert not reasons or reasons == broken(STRICTER_RULES, schedule, problem, gpu), (form, schedule)
            assert program.dynamic_shared_bytes == tile_config(schedule, problem, gpu).shared_bytes


@pytest.mark.parametrize(
    ("name", "knobs", "form", "reason"),
    [
        (
            "v6",
            {},
            Form("m"),
            "This rung computes one product of K-major matrices, without a_major=m; blackwell and hopper do.",
        ),
        ("h7", {}, Form(epilogue=Epilogue(bias=True)), "without bias; blackwell and hopper do"),
        (
            "blackwell",
            {"block_n": 160},
            Form(b_major="n"),
            "block_n = 160: B is .* spans of 64, and a CTA loads 80 rows",
        ),
        ("blackwell", {"block_k": 32}, Form("m"), "block_k = 32: tcgen05.mma reads A and B in one swizzle, .* 64 fits"),
        ("hopper", {"block_n": 96}, Form(b_major="n"), "block_n = 96: B is .* spans of 64, and a CTA loads 48 rows"),
        ("hopper", {"cluster_n": 4}, Form(a_major="m"), "block_m = 128: A is .* spans of 64, and a CTA loads 32 rows"),
        ("hopper", {"e_block_n": 64}, Form(out="fp32"), "e_block_n = 64: a row of the tile is 256 bytes"),
        ("hopper", {}, Form("m", a_stride=1004), "M = 1004: a row of A is 2008 bytes, TMA needs a multiple of 16"),
    ],
)
def test_a_form_has_its_reasons(name: str, knobs: dict[str, int], form: Form, reason: str) -> None:
    schedule = dataclasses.replace(GOOD[name], **knobs)
    assert any(re.search(reason, each) for each in why_not(schedule, dataclasses.replace(ODD, form=form), GPU_OF[name]))


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
    ("h6", {"block_n": 144, "e_block_n": 144}, "288 bytes, .* e_block_n can be 8, 16, 32, 64.$"),
    (
        "hopper",
        {"block_n": 192, "e_block_n": 96},
        "192 bytes, .* 64, or block_n, if .* a multiple of 8 and not of 32.$",
    ),
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
    ("h6", {"block_n": 72, "e_block_n": 8}, "cluster_m = 2: .* 72 rows of B, .* a multiple of 16"),
    ("h7", {"e_block_n": 64, "split_k": 4}, "split_k = 4: .* e_block_n = 64 has 2; make e_block_n smaller"),
    ("hopper", {"swap_ab": 1, "block_n": 136, "e_block_n": 68}, "e_block_n = 68: with swap_ab = 1 .* a multiple of 8"),
    ("hopper", {"swap_ab": 1, "block_m": 16, "consumers": 1}, "block_m = 16: of C transposed a tile has 64 rows"),
    ("hopper", {"neighbours": 6}, "neighbours = 6: .* 4 CTAs that compute together"),
    ("hopper", {"neighbours": 16}, "neighbours = 16: .* has 8 at most"),
    ("h7", {"cluster_m": 4, "split_k": 4}, "a cluster would have 16 CTAs, and it can have 8 on every GPU"),
    ("h5", {"block_n": 512}, "takes 256 registers|block_n = 512: a TMA box"),
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
        ("h5", {"group_m": 3}),
        ("h6", {"cluster_m": 4}),
        ("h7", {"cluster_m": 4}),
        ("h7", {"cluster_m": 1, "block_n": 96, "split_k": 3}),
        ("hopper", {"cluster_m": 1, "cluster_n": 2}),
        ("g0", {"block_m": 64}),
    ],
)
def test_a_good_schedule_outside_of_the_space_has_none(name: str, change: dict[str, int]) -> None:
    schedule = dataclasses.replace(GOOD[name], **change)
    gpu = GPU_OF[name]
    assert why_not(schedule, ODD, gpu) == []
    program = generate(name, schedule, ODD, gpu.arch)
    assert program.dynamic_shared_bytes == tile_config(schedule, ODD, gpu).shared_bytes


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_can_run_exactly_when_it_has_no_reason(name: str) -> None:
    listed = projection(rung(name))
    drawn = random.Random(name).sample(listed, min(100, len(listed)))
    for gpu in (GPU_OF[name], GPUS["RTX 5090"]):
        assert all(can_run(each, ODD, gpu) == (not why_not(each, ODD, gpu)) for each in drawn)
    assert not can_run(Schedule(None, 128, 64), ODD, GPU_OF[name])


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
@pytest.mark.parametrize("name", ["v0", "v1", "v6", "h0", "h1", "hopper", "g0"])
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
    without = dataclasses.replace(GOOD["h7"], cluster_m=None, features=None)
    assert why_not(without, ODD, H200) == ["cluster_m is not set; a schedule with split_k has it."]


@pytest.mark.parametrize("consumers", [1, 2])
def test_parts_take_a_barrier_for_each_warpgroup(consumers: int) -> None:
    """Sixteen barriers fill 128 bytes, which is what shared memory is handed out in."""
    schedule = dataclasses.replace(
        GOOD["h7"], block_m=64 * consumers, block_n=64, block_k=32, stages=8, consumers=consumers
    )
    parts, alone = (dataclasses.replace(schedule, split_k=split_k) for split_k in (2, 1))
    for each in (parts, alone):
        assert generate("h7", each, ODD, H200.arch).dynamic_shared_bytes == tile_config(each, ODD, H200).shared_bytes
    assert tile_config(parts, ODD, H200).barriers - tile_config(alone, ODD, H200).barriers == consumers
    assert tile_config(parts, ODD, H200).shared_bytes - tile_config(alone, ODD, H200).shared_bytes == 128


def test_each_reason_is_one_sentence() -> None:
    worst = Schedule(block_m=64, block_n=1000, block_k=200, e_block_n=33, stages=40)
    for reason in why_not(worst, Problem(2**31 - 1, 2**30 + 1, 5), GPUS["RTX 5090"]):
        assert reason.endswith(".") and ". " not in reason


def test_a_gpu_without_the_multiplier_names_those_that_have_it() -> None:
    assert "H100 and H200 have them" in why_not(GOOD["h1"], ODD, B200)[0]
    assert "B200, GB200 and B300 have them" in why_not(GOOD["v1"], ODD, H200)[0]


def test_three_warpgroups_have_registers_for_the_sums_and_a_strip_that_an_epilogue_works_on() -> None:
    """192x192 leaves 64 of 160 registers, of which an epilogue has one strip; one strip of 176 columns spilled."""
    knobs = {"consumers": 3, "block_k": 64, "cluster_n": 1, "split_k": 1, "neighbours": 2, "swap_ab": 0, "cluster_m": 1}

    def reasons(block_n: int, e_block_n: int, form: Form = PLAIN) -> list[str]:
        made = Schedule(
            **knobs, block_m=192, block_n=block_n, e_block_n=e_block_n, stages=3, group_m=16, mma="wgmma",
            features=rung("hopper").features,
        )  # fmt: skip
        return [each for each in why_not(made, Problem(3072, 3072, 4096, form=form), H200) if "registers" in each]

    biased = Form(epilogue=Epilogue(bias=True))
    assert not reasons(192, 32) and "ptxas has registers for 192 columns of three warpgroups" in reasons(208, 16)[0]
    assert not reasons(192, 64, biased) and "takes 176 registers and it has 160" in reasons(176, 176, biased)[0]
