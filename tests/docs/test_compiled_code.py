"""The page on the emulator is executed: its Python runs, in order and in one folder, and prints what it says."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compiled_code.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)
SOFTMAX = ROOT / "tests" / "emulator" / "foreign" / "softmax_float16_200_sm90.ptx.gz"


@pytest.mark.parametrize("place", [place for place, (code, _) in enumerate(BLOCKS) if "needs triton" not in code])
def test_the_page_runs(place: int, tmp_path: Path) -> None:
    code, printed = BLOCKS[place]
    (tmp_path / "softmax.ptx").write_bytes(gzip.decompress(SOFTMAX.read_bytes()))  # as the block before it makes it
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


def test_all_blocks_but_tritons_own_are_run() -> None:
    assert len(BLOCKS) == 3 and sum("needs triton" in code for code, _ in BLOCKS) == 1
