"""The examples that show how to use the package in code of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["torch_module.py", "own_kernel.py", "own_epilogue.py", "matmul_v7.py"])
def test_example_runs(name: str, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(ROOT / "examples" / name)]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout and not result.stderr
    assert not list(tmp_path.iterdir())


def test_own_kernel_is_short() -> None:
    lines = (ROOT / "examples" / "own_kernel.py").read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("class "))
    end = next(i for i, line in enumerate(lines) if line.startswith("def main"))
    assert end - begin <= 40
