"""The page about emulated programs: its example prints what the page says."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from blackwell_matmul.emulator.cuda_runtime import run

PAGE = Path(__file__).parents[2] / "docs" / "emulated_programs.md"


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler, which builds CUDA's entry points")
def test_the_example_prints_what_the_page_says(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, told = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.S)[0]
    (tmp_path / "example.py").write_text(code)
    assert run([sys.executable, str(tmp_path / "example.py")], "sm_90a") == 0
    assert capfd.readouterr().out == told
