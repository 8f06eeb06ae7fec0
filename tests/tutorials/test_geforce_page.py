"""The page of G1 is true: its code prints what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import refresh

PAGE = (refresh.HERE / "geforce.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_snippets_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(refresh.HERE))
    snippets, printed = refresh.snippets(PAGE), refresh.run(PAGE, "geforce")
    assert len(snippets) == 3
    for snippet, text in zip(snippets, printed, strict=True):
        assert snippet.says_the_same(text), snippet.text


def test_pieces_are_those_of_the_file_and_links_lead_somewhere() -> None:
    assert refresh.expand(PAGE) == PAGE, "run python tutorials/refresh.py"
    links = re.findall(r"\]\(([^)#\s]+)\)", PAGE)
    assert links and all((refresh.HERE / link).exists() for link in links)
    assert "](geforce.md)" in (refresh.HERE / "README.md").read_text(encoding="utf-8")
