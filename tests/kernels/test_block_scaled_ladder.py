"""The block-scaled ladder: schedules on odd shapes in both witnesses, its rules, its choice and its arguments."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from blackwell_matmul import check, schedules, simulate
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.frontend import bind, build
from blackwell_matmul.hardware.gpus import GPUS, gpu_for_target
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.harness.calls.scaled_operands import dequantised
from blackwell_matmul.harness.emulated import emulate_call
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import STRICTER_RULES, broken, why_not
from blackwell_matmul.scheduling.space import projection

B200 = GPUS["B200"]
GPU_OF = {name: gpu_for_target(rung(name).target) for name in BLOCK_SCALED_LADDER}
MS, NS, KS = (1, 17, 127, 129, 200), (8, 40, 136, 200, 264), (32, 64, 96, 160, 288, 544)
MOST_K = {"g1": 288}
"""Its MMAs are small and many, which takes the emulator long; 288 is three k-tiles, of two stages the second lap."""
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
EACH = 3
"""Schedules of a rung and a format that are run, drawn with a seed; `bench/block_scaled_sweep.py` runs all."""

Case = tuple[str, Schedule, Problem]


def cases() -> Iterator[Case]:
    for name, dtype in itertools.product(BLOCK_SCALED_LADDER, BLOCK_SCALED):
        draw = random.Random(f"{name} {dtype}")
        listed = projection(rung(name))
        smallest, gpu = Problem(8, 8, 32, dtype), GPU_OF[name]
        able = (each for each in draw.sample(listed, len(listed)) if not why_not(each, smallest, gpu))
        for schedule in itertools.islice(able, EACH):
            m, n, k = draw.choice(MS), draw.choice(NS), draw.choice(KS)
            yield name, schedule, Problem(m, n, min(k, MOST_K.get(name, k)), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "schedule", "problem"), list(cases()), ids=str)
def test_a_schedule_is_right_in_every_order_and_in_the_emulator(
    name: str, schedule: Schedule, problem: Problem
) -> None:
    results = []
    for policy, seed in ORDERS:
        arguments: Any = arguments_of(problem, 0)
        run = simulate(rung(name), *arguments, schedule=schedule, policy=policy, seed=seed, workers=1)
        assert not run.findings, [str(each) for each in run.findings]
        results.append(arguments[-1])
    verdict = check_product(problem, arguments[3:])
    assert verdict.ok, verdict.message
    call = resolve(name, (problem,), schedule=dict(schedule), seed=0)
    assert emulate_call(call).ok
    assert all(torch.equal(each, results[0]) for each in (*results, call.arguments[-1]))


PAIRS = [("e4m3fn", "e5m2"), ("e5m2", "e4m3fn"), ("e5m2", "e5m2")]


def of_types(problem: Problem, types: tuple[str, str]) -> list[Any]:
    """Return the arguments of a call with other 8-bit types of A and B."""
    arguments: list[Any] = list(arguments_of(problem, 0))
    for place, name in zip((3, 4), types):
        arguments[place] = arguments[place].float().to(getattr(torch, f"float8_{name}"))
    return arguments


@pytest.mark.slow
@pytest.mark.parametrize(("name", "types"), [*zip(BLOCK_SCALED_LADDER, (*PAIRS, PAIRS[0])), ("g1", PAIRS[1])], ids=str)
def test_mxfp8_has_any_two_types_of_8_bits(name: str, types: tuple[str, str]) -> None:
    """kind::mxf8f6f4 takes any pair; the simulator and the emulator have the same bits."""
    problem = Problem(40, 72, 160, "mxfp8")
    simulated, emulated = of_types(problem, types), of_types(problem, types)
    run = simulate(rung(name), *simulated)
    told = " ".join(each.removesuffix("fn") for each in types)
    assert not run.findings and run.schedule["types"] == told
    assert check_product(problem, simulated[3:]).ok
    assert emulate_call(resolve(name, emulated)).ok and torch.equal(simulated[-1], emulated[-1])
    as_e4m3 = [each.view(torch.float8_e4m3fn) if place in (3, 4) else each for place, each in enumerate(simulated)]
    assert not check_product(problem, as_e4m3[3:]).ok


def test_types_of_bytes_are_pinned() -> None:
    problem = Problem(8, 8, 32, "mxfp8")
    arguments = of_types(problem, PAIRS[0])
    as_bytes = [each.view(torch.uint8) if place in (3, 4, 5, 6) else each for place, each in enumerate(arguments)]
    assert simulate(rung("s0")(dtype="mxfp8", types="e4m3 e5m2"), *as_bytes).schedule["types"] == "e4m3 e5m2"
    assert check_product(problem, arguments[3:]).ok
    for pinned, given in (("e5m2 e5m2", arguments), ("e4m3", as_bytes), ("e4m3 fp16", as_bytes), (3, as_bytes)):
        with pytest.raises(InputError, match=r"types is pinned to .*; pin two of e4m3 and e5m2, as types='e4m3 e5m2'"):
            simulate(rung("s0")(dtype="mxfp8", types=pinned), *given)
    with pytest.raises(InputError, match=r"types is pinned to 'e4m3 e5m2', .* for bytes of mxfp8 alone"):
        simulate(rung("s0")(types="e4m3 e5m2"), *arguments_of(Problem(8, 8, 32, "nvfp4"), 0))


@pytest.mark.parametrize("out", ["fp16", "fp32"])
def test_c_has_the_type_of_its_tensor(out: str) -> None:
    problem = Problem(40, 72, 96, "nvfp4", Form(out=out))
    arguments: Any = arguments_of(problem, 0)
    assert arguments[-1].dtype == {"fp16": torch.float16, "fp32": torch.float32}[out]
    assert simulate(rung("s0"), *arguments).ok and check_product(problem, arguments[3:]).ok


@pytest.mark.parametrize("out", ["", "fp32"])
@pytest.mark.parametrize("dtype", BLOCK_SCALED)
def test_long_sums_are_right_and_a_changed_scale_is_not(dtype: str, out: str) -> None:
    problem = Problem(40, 72, 2048, dtype, Form(out=out))
    arguments: Any = arguments_of(problem, 0)
    assert simulate(rung("s1"), *arguments).ok and check_product(problem, arguments[3:]).ok
    arguments[5].view(torch.uint8)[:16] ^= 0x08  # of 4 blocks of rows 0 and 32
    verdict = check_product(problem, arguments[3:])
    assert not verdict.ok and verdict.bad_rows == ((0, 0), (32, 32))


@pytest.mark.parametrize("dtype", BLOCK_SCALED)
@pytest.mark.parametrize("name", BLOCK_SCALED_LADDER)
def test_why_not_is_empty_exactly_when_code_is_generated(name: str, dtype: str) -> None:
    problem, gpu = Problem(200, 136, 352, dtype), GPU_OF[name]
    for schedule in random.Random(f"{name} {dtype}").sample(projection(rung(name)), 4):
        reasons = why_not(schedule, problem, gpu)
        pins = {"dtype": dtype, "c_dtype": rung(name).type_of("bf16"), **schedule.as_dict()}
        try:
            bound = bind(rung(name), arguments_of(problem, None), schedule=dict(schedule), target=gpu.arch)
        except InputError as error:
            assert reasons and reasons[0].rstrip(".") in str(error)
            continue
        assert not reasons or reasons == broken(STRICTER_RULES, schedule, problem, gpu)
        assert bound.init_kwargs == pins
        assert build(bound, gpu.arch).dynamic_shared_bytes == tile_config(schedule, problem, gpu).shared_bytes


@pytest.mark.parametrize(
    ("pins", "size", "dtype", "reason"),
    [
        ({"block_k": 64}, (64, 64, 64), "mxfp8", "atoms of 4 blocks of 32 elements along k; 128 is a multiple"),
        ({"block_k": 256}, (64, 64, 64), "mxfp8", "block_k = 256: a row of the tile is 256 bytes, .* 16, 32, 64, 128."),
        ({"block_k": 64}, (64, 64, 64), "mxfp4", "block_k = 64: scales of mxfp4 come in atoms of 4 blocks of 32"),
        ({}, (64, 64, 48), "nvfp4", "K = 48: a row of A and of B is 24 bytes, TMA .* pad K to 64"),
        ({}, (64, 64, 3), "nvfp4", "K = 3: a row of A and of B is 1.5 bytes, TMA .* pad K to 32"),
        ({}, (64, 60, 64), "nvfp4", "N = 60: a row of C is 120 bytes, .* pad N to 64"),
        ({}, (64, 64, 64), "fp16", "the rungs on tcgen05.mma.block_scale take mxfp8 and mxfp4 and nvfp4; those on tcg"),
    ],
)
def test_a_reason_has_the_numbers(pins: dict[str, int], size: tuple[int, int, int], dtype: str, reason: str) -> None:
    problem = Problem(*size, dtype)
    for schedule in (each for each in projection(rung("s0")) if each.matches(pins)):
        assert any(re.search(reason, each) for each in why_not(schedule, problem, B200)), schedule


def test_a_tile_of_b_begins_at_a_column_of_scales() -> None:
    schedule = Schedule(128, 72, 128, 8, features=rung("s0").features)
    assert "block_n = 72: .* a column of 32 rows on, needs N a multiple of 32; 96 is one" in "".join(
        re.sub(r"tcgen05.*from", ".*", each) for each in why_not(schedule, Problem(8, 72, 128, "nvfp4"), B200)
    )


def test_a_tile_of_warps_has_whole_scales() -> None:
    schedule = Schedule(192, 192, 128, 32, 2, mma="mma.sync", features=rung("g1").features)
    reasons = "".join(why_not(schedule, Problem(8, 8, 128, "nvfp4"), GPU_OF["g1"]))
    assert "block_m = 192: mma.sync.block_scale of four warps computes 128 rows; 256 fit." in reasons
    assert "block_n = 192: mma.sync.block_scale reads scales of half an atom" in reasons


def test_other_rungs_refuse_block_scaled_operands() -> None:
    with pytest.raises(InputError, match="V1 takes no scales, and the kernels that do are s0, s1, s2, g1"):
        check("v1", 64, 64, 64, dtype="nvfp4")
    with pytest.raises(InputError, match="dtype is fp16; BlackwellMatmulS0 multiplies mxfp8, mxfp4, nvfp4"):
        check("s0", 64, 64, 64, dtype="fp16")
    (reason, *_) = schedules("v1", 64, 64, 64, dtype="nvfp4").rows[0].reasons
    assert "tcgen05.mma.block_scale, mma.sync.block_scale take it" in reason


def call(dtype: str = "nvfp4", size: tuple[int, int, int] = (40, 72, 128)) -> dict[str, Any]:
    names = ("m", "n", "k", "a", "b", "scale_a", "scale_b", "c")
    return dict(zip(names, arguments_of(Problem(*size, dtype), 0), strict=True))


WRONG: list[tuple[str, Any, str]] = [
    (
        "a",
        torch.zeros(40, 128),
        "a is torch.float32 and b is .*; they must be float8_e4m3fn or float8_e5m2 for mxfp8, .* uint8",
    ),
    ("a", torch.zeros(40, 128, dtype=torch.uint8), r"a has shape \(40, 128\); it must be \(m, k / 2\) = \(40, 64\)"),
    ("scale_a", torch.zeros(512), "scale_a is torch.float32 and scale_b is .*; they must be float8_e8m0fnu for mxfp4"),
    ("scale_a", torch.zeros(320, dtype=torch.uint8), "scale_a has 320 scales; 40 rows of k = 128, padded .* have 1024"),
    ("scale_b", torch.zeros(1024, dtype=torch.uint8), "scale_b"),
    ("c", torch.zeros(40, 72, dtype=torch.float64), "c is torch.float64; it must be torch.float16, torch.bfloat16"),
    ("c", torch.zeros(72, 40), r"c has shape \(72, 40\); it must be \(m, n\) = \(40, 72\)"),
    ("k", 127, "k is 127; two elements of 4 bits are in one byte, so k must be even"),
    ("b", torch.zeros(72, 128, dtype=torch.uint8)[:, ::2], "b has strides .*; b.contiguous"),
    ("scale_b", torch.zeros(2048, dtype=torch.uint8)[::2], "scale_b has strides .*; scale_b.contiguous"),
    ("scale_a", 3, "scale_a is 3; it must be a torch.Tensor"),
    ("m", -1, "m is -1"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), WRONG, ids=lambda each: str(each)[:20])
def test_a_wrong_argument_is_one_sentence(name: str, value: Any, sentence: str) -> None:
    arguments = {**call(), name: value}
    if sentence == name:  # bytes of the right length are taken
        rung("s0").check_arguments(**arguments)
        return
    with pytest.raises(InputError, match=sentence) as caught:
        simulate(rung("s0"), *arguments.values())
    assert str(caught.value).count("\n") == 0


def test_bytes_tell_their_format_where_they_can() -> None:
    found = call()
    given = ("a", "b", "scale_a", "scale_b")
    as_bytes = {name: each.view(torch.uint8) if name in given else each for name, each in found.items()}
    assert simulate(rung("s0"), *as_bytes.values()).schedule["dtype"] == "nvfp4"
    scales = torch.zeros(512, dtype=torch.uint8)
    few = {**call(size=(40, 72, 32)), "scale_a": scales, "scale_b": scales}
    with pytest.raises(InputError, match="these bytes can be mxfp4 or nvfp4; pin one of them, as dtype='mxfp4'"):
        simulate(rung("s0"), *few.values())
    assert simulate(rung("s0")(dtype="mxfp4"), *few.values()).schedule["dtype"] == "mxfp4"
    with pytest.raises(InputError, match="dtype is pinned to 'mxfp8' and the tensors are nvfp4; leave dtype out"):
        simulate(rung("s0")(dtype="mxfp8"), *found.values())
    with pytest.raises(InputError, match=r"c_dtype is pinned to float32 and c is torch\.bfloat16; leave c_dtype out"):
        simulate(rung("s0")(c_dtype=rung("s0").type_of("fp32")), *found.values())


def test_operands_have_the_numbers_that_their_bytes_say() -> None:
    """An element and a scale at a place that is neither first nor last, in each format."""
    for dtype, form in BLOCK_SCALED.items():
        problem, (row, column) = Problem(200, 8, 288, dtype), (157, 213)
        a, _, scales, *_ = arguments_of(problem, 0)[3:]
        block = column // form.block
        atom = row // 128 * form.atoms(200, 288)[1] + block // 4
        factor = float(scales[atom * 512 + row % 32 * 16 + row // 32 % 4 * 4 + block % 4])
        if form.bits == 8:
            element = float(a[row, column])
        else:
            code = int(a.view(torch.uint8)[row, column // 2]) >> 4 * (column % 2) & 0xF
            element = (-1) ** (code >> 3) * [0, 0.5, 1, 1.5, 2, 3, 4, 6][code & 7]
        assert dequantised(problem, a, scales)[row, column] == element * factor


def test_a_script_of_ones_own_is_not_taken_for_one_with_scales() -> None:
    with pytest.raises(BlackwellMatmulError, match="takes no scales"):
        check("v0", Problem(64, 64, 64, "mxfp8"))
