"""The page on products is executed, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "products.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_the_page_runs(place: int, tmp_path: Path) -> None:
    code, printed = BLOCKS[place]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_every_block_shows_what_it_prints() -> None:
    assert len(BLOCKS) == PAGE.count("```python") == 2
