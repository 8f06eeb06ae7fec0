"""The glossary: each word once, and every link leads to a heading that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def test_each_word_is_there_once() -> None:
    words = re.findall(r"\*\*`?([^*`]+)`?\*\*", PAGE)
    assert len(words) > 60 and len(words) == len(set(words))
    field = "CTA cluster warp warpgroup lane tile strip stage ring mbarrier phase tx-count proxy TMA swizzle epilogue"
    assert not {*field.split(), "tensor memory", "CLC", "rasterisation", "k-tile", "tcgen05", "wgmma"} - set(words)


def test_links_lead_to_headings() -> None:
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)", PAGE)
    assert len(links) > 30
    for file, anchor in links:
        text = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert not anchor or anchor in {_anchor(title) for title in re.findall(r"^#+ (.*)$", text, re.M)}, file + anchor


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
