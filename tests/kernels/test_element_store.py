"""`ElementStore`: rows of C that TMA cannot store, of both products, simulated and as compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from blackwell_matmul import BlackwellMatmul, HopperMatmul
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.problem.form import PLAIN, Epilogue
from blackwell_matmul.simulator import simulate

HOPPER = {
    "block_m": 128, "block_n": 64, "block_k": 64, "e_block_n": 32, "stages": 2, "consumers": 2, "group_m": 4,
    "cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 1, "swap_ab": 0,
}  # fmt: skip
SCHEDULES: dict[str, dict[str, int]] = {
    "two warpgroups": HOPPER,
    "few rows": {**HOPPER, "block_m": 16, "consumers": 1, "block_n": 16, "e_block_n": 16},
    "transposed": {**HOPPER, "swap_ab": 1, "block_n": 120, "e_block_n": 40},
    "clusters": {**HOPPER, "cluster_m": 2, "neighbours": 2, "group_m": 4},
    "parts of K": {**HOPPER, "split_k": 2, "neighbours": 2},
}
BLACKWELL = {"block_m": 256, "block_n": 64, "block_k": 64, "e_block_n": 32, "stages": 2, "group_m": 4}


def operands(m: int, n: int, k: int, *batches: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(*batches, rows, k, generator=generator).bfloat16() for rows in (m, n))
    return a, b, torch.full((*batches, m, n), float("nan")).bfloat16()


@pytest.mark.process
@pytest.mark.parametrize("name", SCHEDULES)
def test_hopper_stores_each_element_once(name: str) -> None:
    """Tiles overlap in the rows that the tile before stores, and end in any column."""
    a, b, c = operands(145, 101, 136)
    run = simulate(HopperMatmul(**SCHEDULES[name]), 145, 101, 136, a, b, c, target="sm_90a")
    assert not run.findings and check_matmul(a, b, c).ok


@pytest.mark.process
@pytest.mark.parametrize("kernel", [HopperMatmul, BlackwellMatmul])
def test_batches_with_an_epilogue(kernel: Any) -> None:
    m, n, k, batches = 70, 46, 72, 3
    a, b, _ = operands(m, n, k, batches)
    c = torch.full((batches, m, n // 2), float("nan"))
    bias = torch.randn(n, generator=torch.Generator().manual_seed(1))
    knobs = BLACKWELL if kernel is BlackwellMatmul else HOPPER
    form = replace(PLAIN, epilogue=Epilogue(activation="swiglu"))
    run = simulate(kernel(form=form, **knobs), m, n, k, a, b, c, bias, 0, 0, 0, batches, target=kernel.target)
    sums = a.double() @ b.double().mT + bias.double()
    wanted = torch.nn.functional.silu(sums[..., ::2]) * sums[..., 1::2]
    assert run.ok and torch.allclose(c.double(), wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("n", "pinned", "message"),
    [(101, 0, "it must be 1, as rows of c are 202 bytes apart"), (104, 2, "it must be 0 or 1"), (104, "x", "0 or 1")],
)
def test_a_pin_that_does_not_fit_is_refused(n: int, pinned: object, message: str) -> None:
    a, b, c = operands(64, n, 72)
    with pytest.raises(InputError, match=f"by_element is .*; .*{message}"):
        HopperMatmul(by_element=pinned)(64, n, 72, a, b, c)


@pytest.mark.process
def test_elements_are_stored_for_aligned_rows_if_pinned() -> None:
    a, b, c = operands(64, 104, 72)
    run = simulate(HopperMatmul(by_element=1, **HOPPER), 64, 104, 72, a, b, c, target="sm_90a")
    assert not run.findings and check_matmul(a, b, c).ok and run.schedule["by_element"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [HopperMatmul, BlackwellMatmul])
def test_the_compiled_kernel_stores_single_elements(kernel: Any) -> None:
    m, n, k = 200, 101, 72
    a, b, c = operands(m, n, k)
    bundle = compile(kernel(**(BLACKWELL if kernel is BlackwellMatmul else HOPPER)), m, n, k, a, b, c)
    assert "st.global.u16" in bundle.ptx and ".global.shared::cta" not in bundle.ptx
    given = {"m": m, "n": n, "k": k, "a": a, "b": b, "c": c, "batches": 1}
    emulate(bundle, *(given.get(each.name.removesuffix("_ptr"), 0) for each in bundle.plan.parameters))
    assert check_matmul(a, b, c).ok
