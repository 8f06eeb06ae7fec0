"""S0 compiled and executed, and simulated, against the float64 product of its dequantised operands."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from scaled_operands import ROUNDING, arguments, emulated, error, operands
from tilus import float32

from blackwell_matmul import compile, predict, simulate
from blackwell_matmul.emulator import ORDERS
from blackwell_matmul.kernels.blackwell.s0 import BlackwellMatmulS0

pytestmark = pytest.mark.slow

BLOCK_K = {"mxfp8": 128, "mxfp4": 256, "nvfp4": 256}
POLICIES = ("adversarial", "eager", "random")


def kernel(name: str, block_n: int = 128, script: Any = BlackwellMatmulS0) -> Any:
    return script(
        dtype=name, block_m=128, block_n=block_n, block_k=BLOCK_K[name], e_block_n=32, c_dtype=float32
    )  # fmt: skip


@pytest.mark.parametrize("block_n", [64, 128, 192, 256])
@pytest.mark.parametrize("name", BLOCK_K)
def test_the_product_is_right_and_both_witnesses_agree(name: str, block_n: int) -> None:
    """Tiles of B that begin within an atom, rows and blocks of K that fill none."""
    m, n, k = 137, 200, BLOCK_K[name] + 96
    a, b, c = operands(name, m, n, k)
    called, script = arguments(m, n, k, a, b, c), kernel(name, block_n)
    emulated(compile(script, *called), called, sorted(ORDERS)[block_n // 64 % len(ORDERS)])
    assert error(a, b, c) < ROUNDING
    simulated = torch.full_like(c, float("nan"))
    run = simulate(script, *called[:-1], simulated, policy=POLICIES[block_n // 64 % len(POLICIES)])
    assert not run.findings and torch.equal(simulated, c)


@pytest.mark.parametrize("target", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("name", BLOCK_K)
def test_both_targets_have_the_instructions(name: str, target: str) -> None:
    wanted = {"mxfp8": "mxf8f6f4.block_scale.block32", "mxfp4": "mxf4.block_scale.block32"}
    called = arguments(128, 128, 256, *operands(name, 128, 128, 256))
    bundle = compile(kernel(name), *called, target=target)
    assert bundle.target == target and bundle.cubin
    assert f"kind::{wanted.get(name, 'mxf4nvf4.block_scale.block16')} " in bundle.ptx
    assert "tcgen05.cp.cta_group::1.32x128b.warpx4" in bundle.ptx


def test_a_scale_moves_its_row_alone() -> None:
    a, b, c = operands("nvfp4", 128, 128, 256)
    called = arguments(128, 128, 256, a, b, c)
    bundle = compile(kernel("nvfp4"), *called)
    emulated(bundle, called)
    before, row, block = c.clone(), 45, 6
    a.scales[block // 4 * 512 + row % 32 * 16 + row // 32 * 4 + block % 4] ^= 0x08  # twice or half
    emulated(bundle, called)
    changed = (before != c).any(dim=1)
    assert changed[row] and changed.sum() == 1


def test_tensors_of_torch_types_are_taken() -> None:
    a, b, c = operands("mxfp4", 128, 128, 256)
    data = [each.data.view(torch.float4_e2m1fn_x2) for each in (a, b)]
    scales = [each.scales.view(torch.float8_e8m0fnu) for each in (a, b)]
    assert simulate(kernel("mxfp4"), 128, 128, 256, *data, *scales, c).ok and error(a, b, c) < ROUNDING


def test_a_nan_scale_and_the_smallest_one() -> None:
    a, b, c = operands("mxfp8", 128, 128, 128)
    a.scales[0], a.scales[16] = 0xFF, 0  # rows 0 and 1: NaN, and 2 ** -127
    assert simulate(kernel("mxfp8"), *arguments(128, 128, 128, a, b, c)).ok
    assert c[0].isnan().all() and not c[1:].isnan().any()


def test_the_time_has_the_copies() -> None:
    """A tile of 128x256x256: four products of 256 / 2 cycles, and atoms of 512 bytes at 128 bytes a cycle."""
    called = arguments(128, 256, 256, *operands("nvfp4", 128, 256, 256))
    predicted = predict(kernel("nvfp4", 256), *called)
    atoms = 4 + 2 * 4
    assert predicted.by_resource["tensor core"] == pytest.approx(4 * 256 / 2 + atoms * 512 / 128)


FAULTS = {
    "never copied": ("self.tcgen05.copy_scales(s_scale_b, t_scale_b)", "pass", "uninitialised-read", "t_scale_b"),
    "copied before they came": (
        "self.mbarrier.wait(tma_barrier, phase=phase)", "pass", "read-before-complete", "s_scale_a",
    ),
    "not announced": (" + s_scale_b.nbytes", "", "too-few-bytes", "s_scale_b"),
    "overwritten before the copy": (
        "self.mbarrier.wait(mma_barrier, phase=phase)", "pass", "overwritten-in-flight", "s_scale_a",
    ),
    "freed before the product": (
        "# Main loop over k.", "self.tcgen05.dealloc(t_scale_b)  #", "tensor-memory-not-allocated", "t_scale_b",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_name(fault: str, tmp_path: Path) -> None:
    old, new, code, tensor = FAULTS[fault]
    text = Path(inspect.getfile(BlackwellMatmulS0)).read_text(encoding="utf-8")
    text = text.replace(old, new, 1)
    if "dealloc" in new:
        head, _, tail = text.rpartition("        self.tcgen05.dealloc(t_scale_b)\n")
        text = head + tail
    file = tmp_path / "faulty.py"
    file.write_text(text, encoding="utf-8")
    script = runpy.run_path(str(file))["BlackwellMatmulS0"]
    m, n, k = 128, 128, 768
    run = simulate(kernel("nvfp4", script=script), *arguments(m, n, k, *operands("nvfp4", m, n, k)))
    assert any(found.code == code and tensor in str(found) for found in run.findings)
