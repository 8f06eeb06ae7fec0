"""A product divided by parts of K: the sums of each part, and the kernel that adds them up with the epilogue."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from blackwell_matmul import Epilogue, Form, HopperMatmul, InputError, predict
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.products.sum_of_parts import SumOfParts
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.simulator import simulate

POLICIES = ("adversarial", "eager", "random")
SCHEDULE = {
    "block_m": 64, "block_n": 64, "block_k": 32, "e_block_n": 32, "stages": 3, "consumers": 1, "group_m": 4,
    "cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 2, "swap_ab": 0,
}  # fmt: skip


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sums_over_parts(m: int, n: int, k: int, parts: int, majors: str = "kk", policy: str = "adversarial", **knobs: int):
    """The run, the sums [parts, m, n] of the kernel, and those in float64 by its division of k-tiles."""
    a, b = (
        (randn(rows, k, seed=seed) if major == "k" else randn(k, rows, seed=seed).T).bfloat16()
        for seed, (rows, major) in enumerate(zip((m, n), majors))
    )
    line = -(-n // 4) * 4
    sums = torch.full((parts, m, line), float("nan"))[..., :n]
    kernel = HopperMatmul(form=Form(divides_k=True), **{**SCHEDULE, **knobs})
    run = simulate(kernel, m, n, k, a, b, sums, 0, 0, 0, 0, parts, target="sm_90a", policy=policy, workers=1)
    block_k = {**SCHEDULE, **knobs}["block_k"]
    tiles = -(-k // block_k)
    ends = [min(k, tiles * part // parts * block_k) for part in range(parts + 1)]
    exact = [a[:, begin:end].double() @ b[:, begin:end].double().T for begin, end in itertools.pairwise(ends)]
    return run, sums, torch.stack(exact)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "parts", "more"),
    [
        ((64, 64, 320), 3, {}),
        ((40, 24, 1000), 7, {"block_m": 32, "block_n": 16, "e_block_n": 16}),
        ((200, 72, 168), 4, {"cluster_m": 2}),  # more tiles than one, and a cluster that shares B
        ((600, 64, 200), 3, {"block_m": 128, "consumers": 2, "cluster_m": 4}),  # tiles that do not fill a cluster
        ((72, 21, 64), 5, {}),  # fewer k-tiles than parts
        ((130, 64, 520), 2, {"block_m": 128, "consumers": 2, "neighbours": 1}),
        ((64, 64, 264), 3, {"majors": "mn", "block_k": 64}),
    ],
    ids=str,
)
def test_each_part_is_right(size: tuple[int, int, int], parts: int, more: dict[str, Any]) -> None:
    found = []
    for policy in POLICIES:
        run, sums, exact = sums_over_parts(*size, parts, policy=policy, **more)
        assert not run.findings
        torch.testing.assert_close(sums.double(), exact, rtol=1e-5, atol=1e-4)
        found.append(sums)
    assert all(torch.equal(each, found[0]) for each in found)


def added(parts: int, m: int, n: int, form: Form, policy: str = "adversarial", **knobs: int):
    """The run, C, and C in float64."""
    line = -(-n // 4) * 4
    sums, bias, residual = randn(parts, m, line), randn(n, seed=1).half(), randn(m, n, seed=2).half()
    c = torch.full((m, n), float("nan")).half()
    epilogue = form.epilogue
    given = (bias if epilogue.bias else 0, residual if epilogue.residual else 0)
    run = simulate(SumOfParts(form=form, **knobs), parts, m, n, line, sums, c, *given, policy=policy, workers=1)
    exact = epilogue.alpha * sums[..., :n].double().sum(0)
    exact += epilogue.beta * residual.double() if epilogue.residual else 0
    exact += bias.double() if epilogue.bias else 0
    return run, c, exact.relu() if epilogue.activation == "relu" else exact


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "epilogue", "knobs"),
    [
        ((1, 8, 8), Epilogue(), {}),
        ((3, 70, 40), Epilogue(bias=True), {}),
        ((37, 20, 21), Epilogue(residual=True, beta=0.5, alpha=2.0, activation="relu"), {}),
        ((66, 64, 64), Epilogue(bias=True, residual=True), {}),
        ((5, 3, 130), Epilogue(), {"rows": 1, "block_n": 128}),
        ((21, 9, 6), Epilogue(bias=True), {"rows": 4, "block_n": 4}),
    ],
    ids=str,
)
def test_the_parts_are_added(size: tuple[int, int, int], epilogue: Epilogue, knobs: dict[str, int]) -> None:
    found = []
    for policy in POLICIES:
        run, c, exact = added(*size, Form(epilogue=epilogue), policy, **knobs)
        assert not run.findings
        torch.testing.assert_close(c.double(), exact, rtol=2**-10, atol=1e-5)
        found.append(c)
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.slow
def test_compiled_code_of_both_launches_is_right_and_has_a_time() -> None:
    m, n, k, parts = 64, 64, 320, 3
    a, b = randn(m, k).bfloat16(), randn(n, k, seed=1).bfloat16()
    sums, c = torch.zeros(parts, m, n), torch.zeros(m, n).half()
    product = HopperMatmul(form=Form(divides_k=True), **SCHEDULE)
    calls = (
        (product, (m, n, k, a, b, sums, 0, 0, 0, 0, parts)),
        (SumOfParts(), (parts, m, n, n, sums, c, 0, 0)),
    )
    for kernel, arguments in calls:
        bundle = compile(kernel, *arguments, target="sm_90a")
        named = dict(zip(kernel.script_cls.__call__.__annotations__, arguments))
        emulate(bundle, *(named[each.name] for each in bundle.plan.parameters))
        assert predict(kernel, *arguments, target="sm_90a").cycles > 0
    assert bundle.name == "SumOfParts" and bundle.plan.early_start and "ld.global.nc" not in bundle.ptx
    torch.testing.assert_close(c.double(), a.double() @ b.double().T, rtol=2**-10, atol=1e-3)
    simulated = torch.zeros(m, n).half()
    assert simulate(SumOfParts(), parts, m, n, n, sums, simulated, workers=1).ok
    assert torch.equal(c, simulated)


def test_lanes_follow_from_the_size() -> None:
    """Most SMs get a CTA where parts suffice for it, and no lane is without a part."""
    for (parts, m, n), rows, columns in (
        ((132, 64, 64), 16, 32), ((66, 128, 128), 16, 32), ((3, 5000, 64), 1, 64), ((16, 512, 8), 16, 8),
        ((2, 16, 64), 2, 64),
    ):  # fmt: skip
        sums, c = torch.empty(parts, m, n), torch.empty(m, n).half()
        made = SumOfParts.complete({}, (parts, m, n, n, sums, c, 0, 0), "sm_90a")
        assert (made["rows"], made["block_n"]) == (rows, columns)


def test_arguments_that_do_not_fit() -> None:
    sums, c = torch.empty(2, 8, 8), torch.empty(8, 8).half()
    for given, message in (
        ((2, 8, 8, 8, sums.half(), c), "sums is torch.float16 and c torch.float16; sums must be torch.float32, and c"),
        ((2, 8, 8, 8, sums[:1], c), r"sums has shape \(1, 8, 8\); it must be \(p, m, l\) = \(2, 8, 8\)"),
        ((2, 8, 6, 6, torch.empty(2, 8, 6), c[:, :6].contiguous()), "line is 6; it must be a multiple of 4, and n = 6"),
        ((2, 8, 8, 8, sums, c, torch.empty(7).half()), "bias has shape"),
    ):
        with pytest.raises(InputError, match=message):
            SumOfParts()(*given)


def test_parts_of_k_are_of_hopper_and_of_whole_sums() -> None:
    problem = Problem(64, 64, 640, "bf16", Form(a_batched=False, b_batched=False, out="fp32", divides_k=True), 4)
    schedule = Schedule(**SCHEDULE, mma="wgmma", features=HopperMatmul.features)
    assert not why_not(schedule, problem, GPUS["H200"]) and problem.flops == 2 * 64 * 64 * 640
    for change in (
        {"a_batched": True},
        {"epilogue": Epilogue(bias=True)},
    ):
        other = replace(problem, form=replace(problem.form, **change))
        assert any("divides_k" in reason for reason in why_not(schedule, other, GPUS["H200"]))
    split = replace(schedule, split_k=2)
    assert any("divides_k" in reason for reason in why_not(split, problem, GPUS["H200"]))
    a, b, c = torch.zeros(64, 640).bfloat16(), torch.zeros(64, 640).bfloat16(), torch.zeros(4, 64, 64)
    with pytest.raises(InputError, match="divides_k: hopper alone"):
        rung("blackwell").complete({"form": Form(divides_k=True)}, (64, 64, 640, a, b, c, 0, 0, 0, 0, 4), "sm_100a")
