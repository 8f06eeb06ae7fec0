"""A contender of `bench` from a bundle that was carried here: called on a recording driver, without compiling."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import bundles, contenders
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.problem.problem import Problem

WGMMA = contenders.kernel(
    f"{Path(__file__).resolve().parents[2]}/bench/blackwell_matmul_studies/wgmma_kernels/wgmma_serial.py:WgmmaMatmul"
)


@pytest.mark.process
def test_a_carried_bundle_is_called_without_compiling(gpu, on_gpu, tmp_path, monkeypatch):
    problem, index = Problem(129, 512, 128), Index(tmp_path, "sm_90a")
    index.add(WGMMA, problem, bundles.compile_into(tmp_path, WGMMA, problem, GPUS["H200"]))
    monkeypatch.setattr("blackwell_matmul.compiler.compiling.compile", None)
    call = contenders.make_call(WGMMA, problem, index.find(WGMMA, problem))
    a, b, c = (on_gpu(torch.zeros(shape, dtype=torch.float16)) for shape in ((129, 128), (512, 128), (129, 512)))
    gpu.parameters(4, 8, 8, 8, 128, 128)
    call(a, b, c)
    (launch,) = gpu.calls("cuLaunchKernelEx")
    assert launch["grid"] == "2,4,1"
