"""`OutputTile` with C computed transposed: any number of rows, batches, an epilogue, simulated and as compiled."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul import HopperMatmul
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.problem.form import Epilogue, Form
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.simulator import simulate

SCHEDULE = {
    "block_m": 64, "block_n": 120, "block_k": 64, "e_block_n": 40, "stages": 2, "consumers": 1, "group_m": 4,
    "cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 1, "swap_ab": 1,
}  # fmt: skip
TALL = {**SCHEDULE, "block_m": 128, "consumers": 2, "block_n": 136, "e_block_n": 136}


def operands(m: int, n: int, k: int, batches: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(batches, rows, k, generator=generator).bfloat16() for rows in (m, n))
    return a, b, torch.full((batches, m, n), float("nan")).bfloat16()


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["adversarial", "eager", "random"])
@pytest.mark.parametrize(("m", "schedule"), [(1, SCHEDULE), (63, SCHEDULE), (121, SCHEDULE), (137, TALL), (300, TALL)])
def test_any_number_of_rows_is_right(m: int, schedule: dict[str, int], policy: str) -> None:
    a, b, c = (each[0] for each in operands(m, 200, 136))
    run = simulate(HopperMatmul(**schedule), m, 200, 136, a, b, c, target="sm_90a", policy=policy, workers=1)
    assert not run.findings and check_matmul(a, b, c).ok


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [SCHEDULE, TALL])
def test_the_compiled_kernel_turns_strips_by_stmatrix(schedule: dict[str, int]) -> None:
    m, n, k = 145, 136, 72
    a, b, c = (each[0] for each in operands(m, n, k))
    bundle = compile(HopperMatmul(**schedule), m, n, k, a, b, c, target="sm_90a")
    assert ".trans.shared.b16" in bundle.ptx and "st.shared.b16" not in bundle.ptx
    given = {"m": m, "n": n, "k": k, "a": a, "b": b, "c": c, "batches": 1}
    emulate(bundle, *(given.get(each.name.removesuffix("_ptr"), 0) for each in bundle.plan.parameters))
    assert check_matmul(a, b, c).ok


@pytest.mark.process
def test_batches_and_an_epilogue_that_asks_for_no_place() -> None:
    m, n, k, batches = 129, 136, 72, 3
    a, b, c = operands(m, n, k, batches)
    b, scale = b[:1], torch.tensor([0.5])
    kernel = HopperMatmul(form=Epilogue(activation="silu", alpha=2.0), **SCHEDULE)
    arguments = (m, n, k, a, b, c, 0, 0, scale, scale, batches)
    assert simulate(kernel, *arguments, target="sm_90a").ok
    exact, own = (torch.nn.functional.silu(0.5 * (a.to(t) @ b.to(t).mT)) for t in (torch.float64, torch.float32))
    assert (c.double() - exact).abs().max() <= 2 * (own.bfloat16().double() - exact).abs().max()


@pytest.mark.parametrize(
    "form",
    [
        Form(epilogue=Epilogue(bias=True)),
        Form(epilogue=Epilogue(residual=True)),
        Form(epilogue=Epilogue(scale="rowwise")),
        Form(epilogue=Epilogue(activation="swiglu")),
        Form(a_major="m"),
        Form(b_major="n"),
        Form(out="fp32"),
    ],
    ids=str,
)
def test_what_is_not_computed_transposed_has_a_reason(form: Form) -> None:
    features = HopperMatmul.features
    transposed, plain = (
        Schedule(**{**TALL, "block_n": 128, "e_block_n": 32, "swap_ab": swap_ab}, mma="wgmma", features=features)
        for swap_ab in (1, 0)
    )
    problem = Problem(256, 256, 256, "bf16", form)
    assert "swap_ab = 1:" in [reason[:12] for reason in why_not(transposed, problem, GPUS["H200"])]
    assert not why_not(plain, problem, GPUS["H200"])


def test_rows_of_any_length_are_stored() -> None:
    schedule = Schedule(**SCHEDULE, mma="wgmma", features=HopperMatmul.features)
    assert not why_not(schedule, Problem(399, 512, 512, "bf16"), GPUS["H200"])
    assert not why_not(schedule, Problem(512, 399, 512, "bf16"), GPUS["H200"])
