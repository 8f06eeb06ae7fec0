"""The examples that show how to use the package in code of one's own."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch_module.py", "own_kernel.py", "own_epilogue.py", "matmul_v7.py"])
def test_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert out and not err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_fp4_block_is_what_torch_computes(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "fp4_block.py"))
    assert example["main"](features=32, tokens=5) == 0
    errors = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert errors[0] < 1e-5 < 1e-2 < errors[1] == errors[2] < 0.2


def test_own_kernel_is_short() -> None:
    lines = (ROOT / "examples" / "own_kernel.py").read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("class "))
    end = next(i for i, line in enumerate(lines) if line.startswith("def main"))
    assert end - begin <= 40
