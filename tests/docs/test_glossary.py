"""The glossary: each word once, with many links (tests/test_readme.py follows them)."""

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


def test_most_words_lead_to_a_page() -> None:
    assert len(re.findall(r"\]\([\w./-]+\.md(?:#[\w-]+)?\)", PAGE)) > 30
