"""The pages on products and on block-scaled operands are executed, and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "products.md").read_text() + (DOCS / "block_scaled.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(BLOCKS)))
def test_the_page_runs(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = BLOCKS[place]
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr() == (printed, "")


def test_every_block_shows_what_it_prints() -> None:
    assert len(BLOCKS) == PAGE.count("```python") == 6
