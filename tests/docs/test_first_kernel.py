"""The page on a first kernel: its code is the example's, runs, and prints what is shown, mistakes included."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tutorials"), str(ROOT / "examples")]

import refresh  # noqa: E402

PAGE = (ROOT / "docs" / "first_kernel.md").read_text(encoding="utf-8")
MISTAKES = {
    "A sync is forgotten": "the missing sync: self.sync() between edited_1.py:",
    "The proxy fence": "missing-proxy-fence",
    "The wait is forgotten": "the missing wait: mbarrier.wait on done",
    "The wrong phase": "the parity that it waits for is wrong",
    "The accumulator": "uninitialised-read",
    "B is not transposed": "a transposed B is b.transpose()",
    "An odd k": "pad the rows to a multiple of 4 bytes (an even k",
    "Tensor memory": "tensor memory is not deallocated",
    "The bias": "findings: 0; wrong elements: ",
}


def test_pieces_are_the_examples_own_and_cover_it() -> None:
    assert refresh.expand(PAGE) == PAGE, "run python tutorials/refresh.py"
    lines = (ROOT / "examples" / "first_kernel.py").read_text(encoding="utf-8").split("\n\n\ndef main")[0].splitlines()
    shown = {i for piece in refresh.pieces(PAGE) for i in range(piece.first, piece.last + 1)}
    assert [line for i, line in enumerate(lines, 1) if i > 2 and line.strip() and i not in shown] == []


@pytest.mark.slow
def test_snippets_print_what_the_page_shows() -> None:
    for snippet, text in zip(refresh.snippets(PAGE), refresh.run(PAGE, "first_kernel"), strict=True):
        assert snippet.says_the_same(text), f"under:\n{snippet.text}"


def test_commands_print_what_the_page_shows() -> None:
    assert refresh.with_commands(PAGE).split() == PAGE.split()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_keeps_its_diagnosis(mistake: str) -> None:
    section = re.split(r"\n\*\*", PAGE.split(f"**{mistake}")[1])[0]
    assert MISTAKES[mistake] in " ".join(section.split())
