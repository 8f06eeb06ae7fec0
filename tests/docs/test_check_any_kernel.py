"""The page on checking compiled code is executed, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "check_any_kernel.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    ((code, printed),) = BLOCKS
    exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr() == (printed, "")
