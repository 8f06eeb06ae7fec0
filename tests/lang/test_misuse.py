"""A wrong statement of a block-scaled product is refused in one sentence, at its line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from lang_scripts import ColumnsAsScales, OneProduct, OutsideOfAWarp
from tilus import float8_e4m3, float16

from blackwell_matmul import compile
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.lang import float8_e8m0

PAIR = {"cta_group": 2, "n": 256}

MISUSES: list[tuple[dict[str, Any], str]] = [
    ({**PAIR}, "scale_b has scales of 128 rows by 16 blocks, and the product reads 256 by 16, as each CTA of a pair"),
    ({"block": 32}, "float4_e2m1x2 has scales of float8_e8m0 for 32, or of float8_e8m0 for 16, or of float8_e4m3 for"),
    ({"scale_b_type": float8_e8m0}, "scale_a is float8_e4m3 and scale_b is float8_e8m0"),
    ({"a_type": float8_e4m3}, "a is float8_e4m3 and b is float4_e2m1x2"),
    ({"scale_type": float16}, "scales are float8_e8m0 or float8_e4m3; dtype is float16"),
    ({"transposed": False}, r"K-major, and b is contiguous along its n; give a shared tensor of \[n, k\]"),
    ({"a_shape": (64, 128)}, "multiplies 128 rows of A in each CTA; a has 64"),
    ({"a_shape": (128, 64)}, r"d is \(m, n\) of a \(m, k\) and b \(k, n\); a is \(128, 64\), b is \(128, 128\)"),
    ({"a_shape": (128, 48), "b_shape": (128, 48)}, "k of kind::mxf4nvf4 is a multiple of 64; a has 96 elements"),
    ({"b_shape": (4, 128), "n": 4}, "n of mma_scaled is a multiple of 8 up to 256; d has 4 columns"),
    ({"d_type": float16}, "accumulates in float32; d is float16"),
    ({"blocks": 8}, r"scale_a has scales of 128 rows by 8 blocks.*alloc_scales\(dtype, rows=128, blocks=16\) fits"),
    ({"blocks": 0}, "blocks of scales is 0"),
    ({"first_row": 80}, "first_row is 80; it is a multiple of 32 below 128"),
    ({"first_row": 32}, "scale_b has scales of 128 rows by 16 blocks, and the product reads 160 by 16"),
    ({"copied": (1, 4, 512)}, r"of shape \(1, 4, 2, 256\); src is float8_e4m3 of shape \(1, 4, 512\)"),
    (
        {"n": 256, "b_shape": (256, 128), "scale_b_rows": 256, "columns_before": 256},
        "alloc_scales of 128 rows by 16 blocks takes 32 columns of tensor memory.* and 0 of 512 are left",
    ),
    ({"n": 256, "columns_before": 512}, r"alloc of shape \(128, 256\) takes 256 columns .* and 0 of 512 are left"),
]


@pytest.mark.parametrize(("knobs", "sentence"), MISUSES, ids=[str(index) for index in range(len(MISUSES))])
def test_a_misuse_is_one_sentence_at_its_statement(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence) as refused:
        compile(OneProduct(**knobs), 1)
    assert re.search(r"lang_scripts\.py:\d+\)\.$", str(refused.value))


def test_scales_are_copied_by_one_warp() -> None:
    with pytest.raises(CompileError, match=r"copy_scales is executed by one warp, .*; here are 128 threads"):
        compile(OutsideOfAWarp(), 1)


def test_columns_are_taken_as_scales_that_fill_them() -> None:
    assert compile(ColumnsAsScales(n=16), 1).ptx.count("@leader tcgen05.cp") == 4
    with pytest.raises(CompileError, match=r"128 rows by 16 blocks fill 16 columns .*; the tensor is float32 of"):
        compile(ColumnsAsScales(n=32), 1)


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_a_gpu_without_tcgen05_is_refused(target: str) -> None:
    with pytest.raises(CompileError, match=f"{target} .* has no tcgen05 instructions; B200, GB200 and B300 have them"):
        compile(OneProduct(), 1, target=target)


def test_what_fits_is_taken() -> None:
    knobs: dict[str, Any] = {"n": 256, "b_shape": (256, 128), "scale_b_rows": 256, "columns_before": 128}
    assert "tcgen05.cp" in compile(OneProduct(**knobs), 1).ptx
