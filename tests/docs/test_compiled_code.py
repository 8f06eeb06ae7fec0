"""The page on the emulator is executed: its Python runs, in order and in one folder, and prints what it says."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compiled_code.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)
SOFTMAX = ROOT / "tests" / "emulator" / "foreign" / "softmax_float16_200_sm90.ptx.gz"


@pytest.mark.parametrize("place", [place for place, (code, _) in enumerate(BLOCKS) if "needs triton" not in code])
def test_the_page_runs(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = BLOCKS[place]
    (tmp_path / "softmax.ptx").write_bytes(gzip.decompress(SOFTMAX.read_bytes()))  # as the block before it makes it
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr() == (printed, "")


def test_all_blocks_but_tritons_own_are_run() -> None:
    assert len(BLOCKS) == 3 and sum("needs triton" in code for code, _ in BLOCKS) == 1
