"""The page of S0 to S2 is true: its code prints what it shows, and its differences are those of the files."""

from __future__ import annotations

import re
from pathlib import Path

import hopper
import pytest
import refresh

PAGE = (refresh.HERE / "block_scales.md").read_text(encoding="utf-8")


def test_differences_are_those_of_the_files() -> None:
    assert hopper.filled(PAGE) == PAGE, "run python tutorials/refresh.py"
    assert all(f"<summary>{below} to {rung}: " in PAGE for below, rung in (("V1", "S0"), ("V4", "S1"), ("V6", "S2")))


@pytest.mark.process
def test_snippets_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except what is predicted, which takes long."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(refresh.HERE))
    kept = "".join(
        PAGE[snippet.start : snippet.after] for snippet in refresh.snippets(PAGE) if "predict(" not in snippet.text
    )
    snippets, printed = refresh.snippets(kept), refresh.run(kept, "block_scales")
    assert len(snippets) == len(refresh.snippets(PAGE)) - 2
    for snippet, text in zip(snippets, printed, strict=True):
        assert snippet.says_the_same(text), snippet.text


def test_links_lead_somewhere_and_the_index_has_the_page() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", PAGE)
    assert links and all((refresh.HERE / link).exists() for link in links if not link.startswith("https://"))
    assert "](block_scales.md)" in (refresh.HERE / "README.md").read_text(encoding="utf-8")
