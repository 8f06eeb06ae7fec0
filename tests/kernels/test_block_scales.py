"""fp32 scales of 1x128 and 128x128 blocks in Hopper's product: right, clean in several orders, and as compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("tilus")

from blackwell_matmul import BlackwellMatmul, Epilogue, HopperMatmul, InputError, check, compile, emulate, simulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels.products.hopper_block_scaled import hopper_block_scaled_mm, in_kernel_order
from blackwell_matmul.problem.form import BLOCK_SCALES, Form
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose

SCALES = list(BLOCK_SCALES)
ONE = {
    "block_m": 64, "block_n": 64, "block_k": 128, "e_block_n": 32, "stages": 3, "consumers": 1, "group_m": 4,
    "cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 1, "swap_ab": 0, "sm_count": 2,
}  # fmt: skip
"""A schedule; two CTAs compute several tiles each, every other one from the end of K."""

OTHERS = {
    "two warpgroups": {"block_m": 128, "block_n": 96, "consumers": 2},
    "three warpgroups": {"block_m": 192, "block_n": 96, "consumers": 3},
    "strips of 16": {"block_n": 96, "e_block_n": 16},
    "a part of K each": {"split_k": 2, "neighbours": 2},
    "shared tiles": {"block_m": 128, "block_n": 96, "consumers": 2, "cluster_m": 2, "neighbours": 2},
    "transposed": {"block_n": 64, "e_block_n": 64, "swap_ab": 1},
}


class Case(NamedTuple):
    """Operands a[m, k] and b[k, n] with torch's scales, and their exact product."""

    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    exact: Tensor


def case(scale: str, m: int, n: int, k: int) -> Case:
    generator = torch.Generator().manual_seed(m + n + k)
    (a, whole_a, scale_a), (b, whole_b, scale_b) = (
        operand(rows, k, per_scale, generator) for rows, per_scale in zip((m, n), BLOCK_SCALES[scale])
    )
    return Case(a, b.T, scale_a, scale_b.T, whole_a @ whole_b.T)


def operand(rows: int, k: int, rows_per_scale: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """8-bit rows, the same rows scaled in float64, and the scales with torch's strides."""
    eight = torch.randn(rows, k, generator=generator).to(torch.float8_e4m3fn)
    blocks, blocks_k = -(-rows // rows_per_scale), -(-k // 128)
    scales = torch.exp2(torch.randn(blocks, blocks_k, generator=generator))
    spread = scales.double().repeat_interleave(rows_per_scale, 0)[:rows].repeat_interleave(128, 1)[:, :k]
    return eight, eight.double() * spread, scales.T.contiguous().T if rows_per_scale == 1 else scales


def call(scale: str, m: int, n: int, k: int, out: torch.dtype = torch.float32) -> tuple[Case, tuple[Any, ...]]:
    """A case, and the arguments of a kernel for it."""
    made = case(scale, m, n, k)
    scales = in_kernel_order(scale, m, n, k, made.scale_a, made.scale_b)
    c = torch.full((m, n), float("nan"), dtype=out)
    return made, (m, n, k, made.a, made.b.T, c, 0, 0, *scales, 1)


def error(c: Tensor, exact: Tensor) -> float:
    """The largest, over that of the exact product rounded once to C's type."""
    rounded = (exact.to(c.dtype).double() - exact).abs().max()
    return float((c.double() - exact).abs().max() / rounded)


def far(c: Tensor, exact: Tensor) -> float:
    """The largest error, over the largest element."""
    return float((c.double() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("how", OTHERS)
def test_every_kind_of_tile_is_right_and_clean(how: str, scale: str) -> None:
    """Tiles begin within a block of 128, so that their scales change at one of their strips or rows."""
    made, arguments = call(scale, 200, 208, 400, torch.bfloat16)
    assert simulate(HopperMatmul(form=Epilogue(scale=scale), **ONE | OTHERS[how]), *arguments, workers=1).ok
    assert error(arguments[5], made.exact) <= 1.01


@pytest.mark.parametrize("scale", SCALES)
def test_several_orders_are_clean_and_equal(scale: str) -> None:
    made, arguments = call(scale, 136, 144, 384)
    result = check(HopperMatmul(form=Epilogue(scale=scale), **ONE), *arguments, orders=4, strict=True, workers=1)
    assert result.ok and far(arguments[5], made.exact) < 1e-6


@pytest.mark.parametrize("scale", SCALES)
def test_the_compiled_kernel_computes_the_same(scale: str) -> None:
    """But for fused multiply-adds."""
    kernel = HopperMatmul(form=Epilogue(scale=scale), **ONE)
    made, arguments = call(scale, 72, 208, 384)
    emulate(compile(kernel, *arguments), *arguments)
    compiled = arguments[5].clone()
    assert simulate(kernel, *arguments, workers=1).ok
    assert far(arguments[5], made.exact) < 1e-6 and far(compiled, made.exact) < 1e-6


@pytest.mark.parametrize("scale", SCALES)
def test_torchs_scales_are_taken_as_they_are(scale: str) -> None:
    made = case(scale, 24, 48, 640)
    bias = torch.randn(48).bfloat16()
    c = hopper_block_scaled_mm(made.a, made.b, made.scale_a, made.scale_b, scale, bias)
    assert error(c, made.exact + bias.double()) <= 1.01


@pytest.mark.parametrize("n", [144, 141])
def test_rows_that_are_no_multiple_of_four_are_right(n: int) -> None:
    """Their scales are copied, since TMA reads lines of multiples of 16 bytes."""
    made = case("1x128 128x128", 27, n, 272)
    c = hopper_block_scaled_mm(made.a, made.b, made.scale_a, made.scale_b, out_dtype=torch.float32)
    assert far(c, made.exact) < 1e-6


def test_scales_are_not_copied_where_lines_are_whole() -> None:
    scale_a, padded = torch.rand(5, 16).T, torch.rand(2, 8)
    found = in_kernel_order("1x128 128x128", 16, 256, 640, scale_a, padded.T)
    assert [each.data_ptr() for each in found] == [scale_a.data_ptr(), padded.data_ptr()]
    assert [tuple(each.shape) for each in found] == [(5, 16), (2, 8)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scale": "128x128 128x128"}, "scale is '128x128 128x128'; it must be one of '1x128 1x128'"),
        ({"scale_a": torch.rand(3, 16)}, r"scale_a is torch.float32 of shape \(3, 16\); .* of shape \(16, 3\)"),
        ({"scale_b": torch.rand(3, 2).double()}, r"scale_b is torch.float64 of shape \(3, 2\); .* of shape \(3, 1\)"),
        ({"scale_b": torch.rand(3)}, r"scale_b is torch.float32 of shape \(3,\); .* of shape \(3, 1\)"),
        ({"scale_a": 1.0}, "scale_a is 1.0; it must be a torch.Tensor"),
        ({"scale": ["1x128"]}, r"scale is \['1x128'\]; it must be one of"),
        ({"out_dtype": torch.int8}, "out_dtype is torch.int8"),
        ({"b": torch.zeros(256, 16)}, r"a is \(16, 384\) and b is \(256, 16\)"),
        (
            {"a": torch.zeros(16, 384).half(), "b": torch.zeros(16, 384).half().T, "out_dtype": torch.half},
            "fp32 scales of blocks are of e4m3 or e5m2",
        ),
    ],
)
def test_what_does_not_fit_is_told(change: dict[str, Any], told: str) -> None:
    a = torch.zeros(16, 384).to(torch.float8_e4m3fn)
    given = {"a": a, "b": a.T, "scale_a": torch.rand(16, 3), "scale_b": torch.rand(3, 1), **change}
    with pytest.raises(InputError, match=told):
        hopper_block_scaled_mm(**given)


def test_other_kernels_and_wider_tiles_refuse_them() -> None:
    problem = Problem(256, 256, 512, "e4m3", Form(epilogue=Epilogue(scale="1x128 128x128")))
    with pytest.raises(InputError, match=r"scale = 1x128 128x128 on tcgen05.mma .*, for wgmma"):
        choose(BlackwellMatmul, problem, GPUS["B200"])
    chosen = choose(HopperMatmul, problem, GPUS["H200"])
    for change in ({"block_n": 192, "e_block_n": 64}, {"block_k": 64}):
        told = why_not(chosen.with_known({**chosen.as_dict(), **change}), problem, GPUS["H200"])
        assert any("with scales of blocks, 1x128 128x128, block_n is at most 128" in each for each in told)


def test_scales_of_columns_take_registers() -> None:
    """So that a warpgroup of two has no room for those of 128 columns."""
    of_both = Problem(4096, 4096, 4096, "e4m3", Form(epilogue=Epilogue(scale="1x128 1x128")))
    of_rows = Problem(4096, 4096, 4096, "e4m3", Form(epilogue=Epilogue(scale="1x128 128x128")))
    wide = choose(HopperMatmul, of_rows, GPUS["H200"], {"block_m": 128, "block_n": 128, "swap_ab": 0})
    assert "takes 160 registers and it has 168" in why_not(wide, of_both, GPUS["H200"])[0]


def test_a_form_with_block_scales_needs_the_scales() -> None:
    a, c = torch.zeros(64, 128).to(torch.float8_e4m3fn), torch.empty(64, 64, dtype=torch.bfloat16)
    kernel = HopperMatmul(form=Epilogue(scale="1x128 1x128"))
    with pytest.raises(InputError, match="has 1x128 1x128 scales and the call has none; pass scale_a= and scale_b="):
        kernel(64, 64, 128, a, a, c)
    with pytest.raises(InputError, match=r"scale_a has shape \(2, 64\) .* must be contiguous and have 64 elements"):
        kernel(64, 64, 128, a, a, c, 0, 0, torch.rand(2, 64), torch.rand(1, 64))
