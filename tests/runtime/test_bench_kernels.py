"""The small kernels of bench/gpu are right in the simulator, compile for a Hopper GPU, and their checks run."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from blackwell_matmul import simulate
from blackwell_matmul.compiler import compile
from blackwell_matmul_studies.wgmma_kernels.wgmma_serial import WgmmaMatmul

BENCH = Path(__file__).resolve().parents[2] / "bench" / "gpu"


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    return lambda module, name: getattr(importlib.import_module(f"kernels.{module}"), name)


def nan(rows, columns):
    return torch.full((rows, columns), float("nan"), dtype=torch.float16)


def test_the_copy_copies(kernel):
    x, y = torch.randn(100, 128).half(), nan(100, 128)
    assert simulate(kernel("copy", "TmaCopy"), 100, 128, x, y, target="sm_90a").findings == ()
    assert torch.equal(x, y)


@pytest.mark.process
@pytest.mark.parametrize("m", [129, 896])
def test_the_product_is_exact_for_small_integers_in_every_tile(kernel, m):
    a, b = (torch.randint(-3, 4, (rows, 64)).half() for rows in (m, 512))
    c = nan(m, 512)
    assert simulate(kernel("dot", "DotMatmul"), m, 512, 64, a, b, c, target="sm_90a").findings == ()
    assert torch.equal(c.double(), a.double() @ b.double().T)


def test_the_workspace_is_zero(kernel):
    x, y = torch.randn(300), torch.zeros(300)
    assert simulate(kernel("counts", "ThroughWorkspace"), 300, x, y, target="sm_90a").ok
    assert torch.equal(x, y)


def test_wgmma_compiles(monkeypatch):
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", "off")
    arguments = (torch.empty(shape).half() for shape in ((300, 128), (512, 128), (300, 512)))
    bundle = compile(WgmmaMatmul, 300, 512, 128, *arguments, target="sm_90a")
    assert "wgmma.mma_async" in bundle.ptx and bundle.resources.spill_bytes == 0


@pytest.mark.process
def test_a_check_runs_dry(fake_library, tmp_path):
    command = [sys.executable, str(BENCH / "check_runtime.py"), "--dry-run", "--only", "copies_compiled_here"]
    file = tmp_path / "result.json"
    done = subprocess.run([*command, "--write", str(file)], capture_output=True, text=True, timeout=300)
    assert file.exists(), done.stderr
    assert json.loads(file.read_text())["status"] == "ok", done.stdout
