"""The block-scaled product of registers, mma.sync: compiled and emulated, and simulated, against float64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from dot_scaled_script import OneDot
from scaled_operands import ROUNDING, Operand, error, operands
from tilus import float8_e4m3, float16
from tilus.ir.layout.ops import spatial

from blackwell_matmul import compile, emulate, predict, simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.lang import FORMATS, float8_e8m0

pytestmark = pytest.mark.slow

K = {"mxfp8": 128, "mxfp4": 256, "nvfp4": 128}
OPCODES = {
    "mxfp8": "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
    "mxfp4": "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
    "nvfp4": "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
}


def kernel(name: str, **knobs: Any) -> OneDot:
    form, k = FORMATS[name], K[name]
    known = {"k_bytes": k // form.per_byte, "atoms": k // form.block // 4, "block": form.block}
    return OneDot(**{"element": form.element, "scale": form.scale, **known, **knobs})


def call(name: str, a: Operand, b: Operand, c: torch.Tensor) -> list[Any]:
    return [K[name], a.data, b.data, a.scales, b.scales, c]


def emulated(script: OneDot, called: list[Any], target: str = "sm_120a") -> str:
    """Return the PTX, which has been executed."""
    bundle = compile(script, *called, target=target)
    named = dict(zip(("k", "a", "b", "scale_a", "scale_b", "c"), called, strict=True))
    emulate(bundle, *[named[parameter.name] for parameter in bundle.plan.parameters])
    return bundle.ptx


@pytest.mark.parametrize("strip", [16, 64, 128])
@pytest.mark.parametrize("name", K)
def test_the_product_is_right_and_both_witnesses_agree(name: str, strip: int) -> None:
    """Strips of 16 columns give each warp every second 8 of them: the scales of 32 columns lie in two atoms' rows."""
    a, b, c = operands(name, 128, 128, K[name])
    called, script = call(name, a, b, c), kernel(name, strip=strip)
    ptx = emulated(script, called)
    assert f"mma.sync.aligned.{OPCODES[name]} " in ptx and error(a, b, c) < ROUNDING
    simulated = torch.full_like(c, float("nan"))
    assert not simulate(script, *called[:-1], simulated).findings and torch.equal(simulated, c)


def test_each_of_four_lanes_has_scales_of_other_rows() -> None:
    """A register has 32 rows of a warp, so that A needs one and B two in each warp, and a word of each four bytes."""
    a, b, c = operands("mxfp8", 128, 128, 128)
    ptx = emulated(kernel("mxfp8"), call("mxfp8", a, b, c), target="sm_121a")
    pairs = re.findall(r"%r\d+, \{(\d), (\d)\}, %r\d+, \{(\d), (\d)\};", ptx)
    assert len(pairs) == 2 * 8 * 4  # 32 rows, 64 columns and 128 of k in a warp
    assert {pair[0] for pair in pairs} == {pair[2] for pair in pairs} == {"0", "1", "2", "3"}
    assert {pair[1] for pair in pairs} == {"0", "1"} and {pair[3] for pair in pairs} == {"0", "1", "2", "3"}
    assert ptx.count("\tld.shared.u32 ") == 3


@pytest.mark.parametrize(("first", "n"), [(0, 64), (64, 64), (64, 32)])
def test_rows_of_an_atom_have_their_own_scales(first: int, n: int) -> None:
    """A warp has 16 rows, or 16 columns: some lanes of each four repeat what others have."""
    whole, c = operands("nvfp4", 128, 128, 128)[:2], torch.full((64, n), float("nan"))
    a, b = (
        Operand(each.data[first : first + rows].clone(), each.scales, each.values[first : first + rows])
        for each, rows in zip(whole, (64, n), strict=True)
    )
    called, script = call("nvfp4", a, b, c), kernel("nvfp4", m=64, n=n, first_row=first, strip=n)
    emulated(script, called)
    simulated = torch.full_like(c, float("nan"))
    assert simulate(script, *called[:-1], simulated).ok
    assert error(a, b, c) < ROUNDING and torch.equal(simulated, c)


def test_a_scale_moves_its_row_alone() -> None:
    a, b, c = operands("nvfp4", 128, 128, 128)
    called, script = call("nvfp4", a, b, c), kernel("nvfp4")
    emulated(script, called)
    before, row, block = c.clone(), 77, 6
    a.scales[block // 4 * 512 + row % 32 * 16 + row // 32 * 4 + block % 4] ^= 0x08  # twice or half
    emulated(script, called)
    changed = (before != c).any(dim=1)
    assert changed[row] and changed.sum() == 1


def test_a_nan_scale_of_padding_is_told() -> None:
    a, b, c = operands("mxfp8", 128, 128, 128)
    a.scales[0] = 0xFF
    ran = simulate(kernel("mxfp8"), *call("mxfp8", a, b, c))
    assert ran.ok and c[0].isnan().all() and not c[1:].isnan().any()
    a.data[:, :32] = b.data[:, :32] = 0
    ran = simulate(kernel("mxfp8"), *call("mxfp8", a, b, c))
    assert {found.code for found in ran.findings} == {"scale-of-padding"}


def test_the_time_is_that_of_the_instructions() -> None:
    """128x128x128 is 8 x 16 tiles of two steps, and an mma.sync with scales takes the SM 4 cycles."""
    called = call("nvfp4", *operands("nvfp4", 128, 128, 128))
    assert predict(kernel("nvfp4"), *called, gpu="RTX 5090").by_resource["tensor core"] == 8 * 16 * 2 * 4


MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"block": 32}, "float4_e2m1x2 has scales of float8_e8m0 for 32, or of float8_e8m0 for 16, or of float8_e4m3 for"),
    ({"scale_b": float8_e8m0}, "scale_a is float8_e4m3 and scale_b is float8_e8m0"),
    ({"b_element": float8_e4m3}, "a is float4_e2m1x2 and b is float8_e4m3"),
    ({"element": float16}, "a product with scales is of float8_e4m3 or float8_e5m2 by .*; a is float16"),
    ({"scale": float16}, "load_scales reads a shared tensor of float8_e8m0 or float8_e4m3 of shape"),
    ({"stored": (32, 16)}, r"of shape \(atoms along rows, atoms along K, 2, 256\); src is float8_e4m3 of shape"),
    ({"k_bytes_of_b": 32}, r"c is \(m, n\) of a \(m, k\) and b \(k, n\); a is \(128, 64\), b is \(32, 128\) and c is"),
    ({"c_rows": 64}, r"a is \(128, 64\), b is \(64, 128\) and c is \(64, 128\)"),
    ({"k_bytes": 48, "block": 16}, "k of kind::mxf4nvf4 is a multiple of 64; a has 96 elements along k"),
    ({"c_type": float16}, "accumulates in float32; c is float16"),
    ({"atoms": 1}, "scale_a has scales of 128 rows by 4 blocks, and the product reads 128 by 8"),
    ({"rows": 64}, "scale_a has scales of 64 rows by 8 blocks, and the product reads 128 by 8"),
    ({"rows": 96}, "rows is 96; 1 atoms along the rows have 128 rows, of which 32, 64 or all can be loaded"),
    ({"rows": 64, "first_row": 32}, "first_row is 32; with rows = 64 it is a multiple of 64 below 128"),
    ({"layout": None}, "dot_scaled needs the layout of c: annotate_layout"),
    ({"layout": spatial(16, 16).local(8, 8)}, "c of dot_scaled does not lie as mma.sync has it"),
]


@pytest.mark.parametrize(("knobs", "sentence"), MISUSES, ids=[str(index) for index in range(len(MISUSES))])
def test_a_misuse_is_one_sentence_at_its_statement(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CompileError, match=sentence) as refused:
        compile(OneDot(**knobs), 128, *[torch.zeros(4)] * 5)
    assert re.search(r"dot_scaled_script\.py:\d+\)\.$", str(refused.value))


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_gpu_without_it_is_refused(target: str) -> None:
    with pytest.raises(CompileError, match=r"has no mma\.sync\.block_scale instructions; RTX 5090 and GB10 have them"):
        compile(OneDot(), 128, *[torch.zeros(4)] * 5, target=target)
