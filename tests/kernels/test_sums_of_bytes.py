"""8-bit products on Hopper: wgmma keeps some 13 bits of a sum, and the product adds up its sums in fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tilus")

from blackwell_matmul import Form, HopperMatmul, InputError, check, compile, emulate, scaled_mm, simulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose
from blackwell_matmul.simulator.semantics import wgmma

M, N, K = 64, 64, 4096
FRACTION_BITS = 13
FORMS = [Form(), Form(out="fp32"), Form(fast_accum=True)]


def keeps_13_bits(left: Any, right: Any, total: Any, items: Any, deferrable: bool) -> bool:
    """`wgmma.multiply_add`, with what is below 13 bits of a sum's fraction cut off."""
    total.take(lambda: wgmma.products(left.read(), right.read(), *items))
    total.flush()
    total.total = None
    for sums in total.parts.values():
        fraction, exponent = np.frexp(sums)
        sums[...] = np.ldexp(np.trunc(np.ldexp(fraction, FRACTION_BITS)), exponent - FRACTION_BITS)
    return True


def error(form: Form, **knobs: int) -> float:
    """The largest, over that of the exact sums rounded once to bf16."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(rows, K, generator=generator).to(torch.float8_e4m3fn) for rows in (M, N))
    c = torch.empty(M, N, dtype=torch.float32 if form.out == "fp32" else torch.bfloat16)
    kernel = HopperMatmul(form=form, block_m=64, block_n=64, consumers=1, **knobs)
    assert simulate(kernel, M, N, K, a, b, c, workers=1).ok
    exact = a.double() @ b.double().mT
    return float((c.double() - exact).abs().max() / (exact.bfloat16().double() - exact).abs().max())


@pytest.mark.slow
def test_the_error_does_not_grow_with_k_whatever_wgmma_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wgmma, "multiply_add", keeps_13_bits)
    one_sum, several = (error(Form(out="fp32", fast_accum=fast), block_k=128) for fast in (True, False))
    assert several < one_sum / 3 and several < 0.05
    assert error(Form(), block_k=64, split_k=2) < 1.2


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_each_form_is_right(form: Form) -> None:
    assert error(form, stages=3) <= 1


def test_sums_are_of_as_many_products_whatever_a_k_tile_has() -> None:
    assert [Wgmma.sum_tiles(1, block_k, Form()) for block_k in (32, 64, 128, 256)] == [16, 8, 4, 2]
    assert [Wgmma.sum_tiles(1, block_k, Form(out="fp32")) for block_k in (32, 128, 256)] == [4, 1, 1]
    assert Wgmma.sum_tiles(1, 128, Form(fast_accum=True)) == Wgmma.sum_tiles(2, 64, Form()) == 0


def test_two_sums_take_twice_the_registers() -> None:
    problem, h200 = Problem(4096, 4096, 4096, "e4m3"), GPUS["H200"]
    fast = Problem(4096, 4096, 4096, "e4m3", Form(fast_accum=True))
    wide = choose(HopperMatmul, fast, h200)
    assert wide.block_n == 256 and not why_not(wide, fast, h200)
    assert "takes 256 registers and it has 168" in why_not(wide, problem, h200)[0]
    assert choose(HopperMatmul, problem, h200).block_n == 128


def test_three_warpgroups_have_the_registers_of_two_sums() -> None:
    """With registers that the loading warp's warpgroup gives. Nothing runs out of them in the compiled code."""
    problem, h200 = Problem(8192, 8192, 8192, "e4m3"), GPUS["H200"]
    chosen = choose(HopperMatmul, problem, h200)
    assert (chosen.consumers, chosen.block_m, chosen.block_n, chosen.cluster_n) == (3, 192, 128, 2)
    m, n, k = 200, 264, 1152
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
    calls = [(m, n, k, a, b, torch.empty(m, n, dtype=torch.bfloat16)) for _ in range(2)]
    kernel = HopperMatmul(**chosen.as_dict())
    assert check(kernel, *calls[0]).ok
    bundle = compile(kernel, *calls[1])
    assert bundle.resources.spill_bytes == 0 and bundle.ptx.count("setmaxnreg.inc.sync.aligned.u32 160") == 3
    emulate(bundle, *calls[1])
    assert torch.equal(calls[0][-1], calls[1][-1])
    assert torch.allclose(calls[0][-1].float(), a.float() @ b.float().T, rtol=0.01, atol=0.1)


def test_sums_of_16_bits_are_fp32s_either_way() -> None:
    """So that a kernel serves both."""
    a, b, c = (torch.empty(64, 64, dtype=torch.bfloat16) for _ in range(3))
    problem, _ = HopperMatmul.problem_of({"form": Form(fast_accum=True)}, 64, 64, 64, a, b, c, 0, 0, 0, 0, 1)
    assert not problem.form.fast_accum


def test_the_flag_is_true_or_false() -> None:
    with pytest.raises(InputError, match="fast_accum is 1; it must be True or False"):
        Form(fast_accum=1)  # type: ignore[arg-type]
    x, one = torch.zeros(16, 16).to(torch.float8_e4m3fn), torch.ones(())
    with pytest.raises(InputError, match="use_fast_accum is None; it must be True or False"):
        scaled_mm(x, x.T, one, one, use_fast_accum=None, simulate=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", ["bf16", "fp32"])
def test_two_sums_in_turn_have_the_bits_of_one(out: str) -> None:
    """A single warpgroup has two sums in turn, and two warpgroups have one each, with K = 11 k-tiles."""
    m, n, k = 128, 40, 11 * 128
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn) for rows in (m, n))
    c = [torch.empty(m, n, dtype=torch.float32 if out == "fp32" else torch.bfloat16) for _ in range(2)]
    for consumers, each in enumerate(c, start=1):
        kernel = HopperMatmul(form=Form(out=out), block_m=64 * consumers, block_n=64, block_k=128, consumers=consumers)
        assert check(kernel, m, n, k, a, b, each).ok
    assert Wgmma.two_sums(Form(), 1, 64) and not Wgmma.two_sums(Form(), 2, 64)
    assert torch.equal(*c)
