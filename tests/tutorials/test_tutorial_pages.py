"""The pages are true: their code runs, prints what they show, and is the kernels' own; links and pictures exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import refresh

TUTORIALS = refresh.HERE
KERNELS = "blackwell_matmul/kernels/blackwell"
TEXTS = {name: (TUTORIALS / name).read_text(encoding="utf-8") for name in (*refresh.PAGES, "README.md")}


@pytest.mark.parametrize("name", refresh.PAGES)
def test_snippets_print_what_the_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = TEXTS[name]
    snippets = refresh.snippets(page)
    printed = refresh.run(page, name.removesuffix(".md"))
    for snippet, text in zip(snippets, printed, strict=True):
        assert (snippet.shown or "").split() == text.split(), f"in {name}, under:\n{snippet.text}"
    assert not list(tmp_path.iterdir()), "a snippet left files behind"


@pytest.mark.parametrize("name", refresh.PAGES)
def test_pieces_are_the_kernel(name: str) -> None:
    assert refresh.expand(TEXTS[name]) == TEXTS[name], "run python tutorials/refresh.py"


@pytest.mark.parametrize("name", refresh.PAGES)
def test_pieces_cover_the_kernel(name: str) -> None:
    file = f"{KERNELS}/{name.removesuffix('.md')}.py"
    lines = (refresh.ROOT / file).read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines, 1) if line.startswith("class "))
    shown = {
        i for piece in refresh.pieces(TEXTS[name]) if piece.file == file for i in range(piece.first, piece.last + 1)
    }
    missing = [line for i, line in enumerate(lines, 1) if i >= first and line.strip() and i not in shown]
    assert not missing, f"{name} leaves out:\n" + "\n".join(missing)


@pytest.mark.parametrize("name", refresh.PAGES)
def test_page_has_what_the_index_promises(name: str) -> None:
    headings = re.findall(r"^## (.*)$", TEXTS[name], flags=re.M)
    for heading in (
        "The idea",
        "State over time",
        "The kernel",
        "What changed",
        "Step through it",
        "Break it",
        "Exercises",
    ):
        assert heading in headings
    exercises = re.findall(r"^\*\*\d\.\*\*", TEXTS[name], flags=re.M)
    assert 3 <= len(exercises) <= 5
    assert TEXTS[name].count("<summary>Solution</summary>") == len(exercises)
    assert TEXTS[name].count("<details") == TEXTS[name].count("</details>")


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", TEXTS[name])
    assert links
    for link in links:
        assert link.startswith("https://") or (TUTORIALS / link).exists(), link


def test_every_page_and_every_picture_is_used() -> None:
    for name in refresh.PAGES:
        assert f"]({name})" in TEXTS["README.md"]
    used = {link for text in TEXTS.values() for link in re.findall(r"\((images/[^)]+)\)", text)}
    assert used == {f"images/{path.name}" for path in (TUTORIALS / "images").iterdir()}


def test_edited_wants_text_that_is_there() -> None:
    from edited import edited

    from blackwell_matmul import BlackwellMatmulV0

    with pytest.raises(ValueError, match="does not contain 'no such line'"):
        edited(BlackwellMatmulV0, "no such line", "pass")


def test_anchor_must_name_one_line() -> None:
    with pytest.raises(ValueError, match="must name one"):
        refresh.piece_of(f"{KERNELS}/v1.py", "self.sync()", "phase")
    with pytest.raises(ValueError, match='starts with "no such line"'):
        refresh.piece_of(f"{KERNELS}/v1.py", "# Epilogue", "no such line")
