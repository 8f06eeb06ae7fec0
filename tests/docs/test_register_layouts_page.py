"""The page on register layouts: its code runs and prints what is shown, and its pictures are those of the layouts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from blackwell_matmul.frontend import import_tilus

import_tilus()

from tilus.ir.layout.ops import local, spatial  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tutorials")]

import refresh  # noqa: E402

PAGE = (ROOT / "docs" / "register_layouts.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^```text\n(\S+) +(\S+)\n\n(.*?)```", PAGE.replace(", ", ","), re.M | re.S)


def test_snippets_print_what_the_page_shows() -> None:
    printed = refresh.run(PAGE, "register_layouts")
    for snippet, text in zip(refresh.snippets(PAGE), printed, strict=True):
        assert snippet.says_the_same(text), f"under:\n{snippet.text}"
    assert printed[0].splitlines()[0] == printed[1].strip() == "right" and "cannot work with" in printed[0]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture[0])
def test_a_picture_has_the_thread_and_the_register_of_each_element(picture: tuple[str, str, str]) -> None:
    *texts, rows = picture
    cells = [row.split() for row in rows.splitlines()]
    for place, text in enumerate(texts):
        layout = eval(text, {"local": local, "spatial": spatial})
        m, n = layout.shape
        shown = [row[place * n : place * n + n] for row in cells]
        assert shown == [[cell(layout, i, j) for j in range(n)] for i in range(m)]


def cell(layout, i: int, j: int) -> str:
    (thread,) = layout.get_spatial([i, j])
    return f"{thread}.{layout.get_local([i, j])}"


def test_both_pictures_were_found() -> None:
    assert len(PICTURES) == 2
