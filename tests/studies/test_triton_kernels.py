"""Triton's own kernels in its interpreter, on the processor; skipped where Triton is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from blackwell_matmul.harness.calls.user_kernel import load_module

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul_studies import bandwidth, triton_tma, interleaved
from blackwell_matmul.harness.bench.devices import Cpu
interleaved.SETTINGS, Cpu.l2_bytes = Settings(rounds=1, group_us=1, warmup_s=0.0), 16
tell = lambda what: None
triton_tma.gemm(tell, 136, "64x64x32 s3 w8", "cpu")
triton_tma.copy(tell, 136, "64x128 s3 w4", "cpu")
for way, kind in (("host", bandwidth.HOST), ("device", bandwidth.DEVICE)):
    bandwidth.move(tell, "copy", (2, 3, 40), kind, (1, 2, 32), "cpu")
    bandwidth.move(tell, "add", (3000,), kind, (2048,), "cpu")
bandwidth.move(tell, "copy", (40, 80), bandwidth.TRITON_PLAIN, None, "cpu")
bandwidth.move(tell, "add", (3000,), bandwidth.TRITON_PLAIN, None, "cpu")
print("right")
"""

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def run(*command: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def sweep(monkeypatch, capfd):
    """triton_sweep.py, of which only the children are other processes."""

    def called(*options: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["triton_sweep.py", *options])
        code = load_module(str(ROOT / "bench" / "triton_sweep.py")).main()
        return code, "".join(capfd.readouterr())

    return called


def test_each_kernel_with_each_kind_of_descriptor_and_without():
    code, said = run("-m", "blackwell_matmul_studies.baselines.triton_kernels")
    assert code == 0 and said.count("right") == 20, said


def test_a_configuration_that_runs_and_one_that_does_not(sweep):
    code, said = sweep("32x32x32", "--size", "72", "--stages", "2")
    assert code == 0 and "in Triton's interpreter\n" in said and "gemm 72, 32x32x32 s2 w4: right\n" in said
    code, said = sweep("32x31", "--size", "72", "--kernel", "copy")
    assert code == 1 and "must be a power of 2" in said and "copy 72, 32x31 s1 w4: failed, exit code 1\n" in said


def test_the_first_that_runs(sweep, monkeypatch):
    monkeypatch.setenv("TRITON_AGGRESSIVE_TMA", "1")
    code, said = sweep("--size", "72")
    assert code == 0 and "gemm 72, 256x256x128 s5 w16: right\n" in said and said.count("gemm") == 1


def test_one_that_takes_too_long_is_ended(sweep):
    code, said = sweep("32x32x32", "--size", "72", "--limit", "0.01")
    assert code == 1 and "still running after 0.01 s, and ended" in said


def test_what_is_no_configuration_is_one_sentence(sweep):
    code, said = sweep("64x64x", "--size", "72")
    assert code == 1 and said.startswith("error: ") and said.count("\n") == 1


def test_the_trials_of_both_studies():
    code, said = run("-c", STUDY)
    assert code == 0 and said.endswith("right\n"), said
