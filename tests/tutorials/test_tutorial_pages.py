"""The pages are true: their code runs, prints what they show, and is the kernels' own; links and pictures exist."""

from __future__ import annotations

import inspect
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import hopper
import pytest
import refresh

import blackwell_matmul
from blackwell_matmul import Prediction, predict
from blackwell_matmul.kernels import rung

pytestmark = pytest.mark.slow

TUTORIALS = refresh.HERE
KERNELS = "blackwell_matmul/kernels/blackwell"
TEXTS = {
    name: (TUTORIALS / name).read_text(encoding="utf-8")
    for name in (*refresh.LESSONS, "01-block-scaling.md", *refresh.PAGES, "README.md")
}

LADDER = tuple(name for name in refresh.PAGES if name != "v7.md")
"""Pages of rungs that have a place on the published ladder, with all of the kernel. The product is V6 in its plain
form: its page has what it changes."""

BROKEN = {
    "v0.md": {
        "missing-proxy-fence": '==> missing fence: fence.proxy_async(space="shared") after line N by warp 2',
        "dealloc-in-flight": "==> warp 3 has waited for it: the missing sync: self.sync() between line N and line N",
    },
    "v1.md": {
        "too-few-bytes": "which ended without the bytes of cp.async.bulk.tensor (load): arrive_and_expect_tx announces",
        "missing-proxy-fence": '==> missing fence: fence.proxy_async(space="shared") after line N by warp 0',
    },
    "v2.md": {
        "wrong-phase": "passed on phase 0, and cp.async.bulk.tensor (load) is part of phase 1: the parity that",
        "overwritten-in-flight": "==> missing wait: mbarrier.wait on mma_barrier",
    },
    "v3.md": {
        "overwritten-in-flight": "==> missing wait: mbarrier.wait on empty[0] before line N of the next round",
        "deadlock": "they wait for each other: warp 0 waits for empty[0] at line",
    },
    "v4.md": {"written-by-two-ctas": "CTA (12, 0, 0)"},
    "v5.md": {
        "data-race": "the count of 192 at line N is too small where warps 0..6 arrive",
        "cancel-after-refusal": "asks again after its CTA has read at line N that nothing is granted",
        "too-few-bytes": "which ended without the bytes of clusterlaunchcontrol.try_cancel",
    },
    "v6.md": {
        "too-few-bytes": "which ended without the bytes of cp.async.bulk.tensor (load): arrive_and_expect_tx announces",
        "mbarrier-not-initialised": "==> missing sync: self.cluster.sync() before line N",
        "dealloc-in-flight": "the missing sync: self.cluster.sync() between line N and line N",
    },
    "v7.md": {"read-before-complete": "==> missing wait: tcgen05.wait_load by the same warp"},
}
"""By page, what check must say in "Break it": the code, and what is missing; whichever line N is."""

TODAY = {"v0": 2.1163, "v1": 2.0991, "v2": 1.6062, "v3": 1.2008, "v4": 1.1683, "v5": 0.9891, "v6": 0.9552}
"""Millions of cycles at 8192x8192x8192 in fp16, tiles of 128x256x64 with the most stages: a change of the model of time
is a decision. They are no measurements."""


@cache
def kept_prediction(name: str, size: tuple[int, ...], schedule: str) -> Prediction:
    return predict(name, *size, gpu="B200", schedule=schedule, explained=False)


def predicted_once(kernel: Any, *size: int, schedule: Any, explained: bool, gpu: str = "B200") -> Prediction:
    """Predict as `predict` does; predictions of rungs are kept, as V1's page and the text on it ask for the same."""
    assert not explained and gpu == "B200"
    name = next((name for name in TODAY if kernel in (name, rung(name))), None)
    if name is None:
        return predict(kernel, *size, gpu=gpu, schedule=schedule, explained=False)
    pins = schedule if isinstance(schedule, str) else ",".join(f"{knob}={value}" for knob, value in schedule.items())
    return kept_prediction(name, size, pins)


@pytest.mark.parametrize("name", refresh.PAGES)
def test_snippets_print_what_the_page_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(blackwell_matmul, "predict", predicted_once)
    page = TEXTS[name]
    snippets = refresh.snippets(page)
    printed = refresh.run(page, name.removesuffix(".md"))
    for snippet, text in zip(snippets, printed, strict=True):
        assert snippet.says_the_same(text), f"in {name}, under:\n{snippet.text}"
    assert not list(tmp_path.iterdir()), "a snippet left files behind"


@pytest.mark.parametrize("name", refresh.PAGES)
def test_commands_print_what_the_page_shows(name: str) -> None:
    assert refresh.with_commands(TEXTS[name]).split() == TEXTS[name].split()


@pytest.mark.parametrize("name", LADDER)
def test_each_page_says_where_its_rung_stands_and_predictions_are_those_of_today(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of one prediction, which takes a second or two."""
    import cycles

    monkeypatch.setattr(cycles, "predict", predicted_once)
    of_rung = name.removesuffix(".md")
    assert cycles.predicted(of_rung).cycles / 1e6 == pytest.approx(TODAY[of_rung], rel=0.001)
    assert f"<!-- predicted: {name.removesuffix('.md')} -->\nPredicted, for" in TEXTS[name]
    assert f"(images/{name.removesuffix('.md')}_cycles.svg)" in TEXTS[name]
    assert refresh.with_places(TEXTS[name]) == TEXTS[name], "run python tutorials/refresh.py"


def test_predictions_in_the_record_are_those_of_today() -> None:
    import cycles

    record = json.loads(cycles.RESULTS.read_text(encoding="utf-8"))["samples"]
    assert {each["name"]: each["own"] for each in record} == pytest.approx(TODAY, rel=0.001)


def test_some_page_shows_check_on_a_terminal() -> None:
    assert any("```console\n$ blackwell-matmul check v1" in text for text in TEXTS.values())


@pytest.mark.parametrize("name", refresh.PAGES)
def test_check_says_what_is_missing(name: str) -> None:
    """Whatever the outputs are refreshed to, each broken kernel keeps its diagnosis."""
    section = TEXTS[name].split("## Break it\n")[1].split("\n## ")[0]
    told = (" ".join(snippet.shown.split()) for snippet in refresh.snippets(section) if snippet.shown)
    shown = [re.sub(r"\bline \d+", "line N", text) for text in told]
    for code, missing in BROKEN[name].items():
        found = re.compile(rf"\b(error|unguaranteed) {code} ")
        assert any(found.search(text) and missing in text for text in shown), f"{code} in {name}"


def test_index_names_the_findings_that_the_pages_show() -> None:
    row = re.compile(r"^\| (?:\[[\w ]+\]\(([\w-]+\.md)#break-it\))? ?\|.*\| (`.*) \|$", re.M)
    page, rows = "", row.findall(TEXTS["README.md"])
    assert len(rows) >= 6
    for link, says in rows:
        page = link or page
        shown = "".join(snippet.shown or "" for snippet in refresh.snippets(TEXTS[page]))
        assert all(code in shown for code in re.findall(r"`([\w-]+)`", says)), f"{page}: {says}"


@pytest.mark.parametrize("name", refresh.PAGES)
def test_pieces_are_the_kernel(name: str) -> None:
    assert refresh.expand(TEXTS[name]) == TEXTS[name], "run python tutorials/refresh.py"


def test_page_of_v7_has_all_that_it_changes() -> None:
    page = TEXTS["v7.md"]
    assert "<summary>V6 to BLACKWELL: " in page and hopper.filled(page) == page, "run python tutorials/refresh.py"


@pytest.mark.parametrize("name", LADDER)
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
    for name in (*refresh.LESSONS, *refresh.PAGES):
        assert f"]({name})" in TEXTS["README.md"]
    used = {link for text in TEXTS.values() for link in re.findall(r"\((images/[^)]+)\)", text)}
    assert used == {f"images/{path.name}" for path in (TUTORIALS / "images").iterdir()}


def test_edited_wants_text_that_is_there() -> None:
    from edited import edited

    from blackwell_matmul import BlackwellMatmulV0

    with pytest.raises(ValueError, match="does not contain 'no such line'"):
        edited(BlackwellMatmulV0, "no such line", "pass")


def test_a_copy_can_be_edited_again() -> None:
    from edited import edited

    from blackwell_matmul import BlackwellMatmulV0

    twice = edited(edited(BlackwellMatmulV0, "V0: ", "V0 once: "), "V0 once: ", "V0 twice: ")
    assert Path(inspect.getfile(twice)).read_text(encoding="utf-8").startswith('"""V0 twice: ')


def test_a_part_that_was_edited_stays_so_in_a_copy_of_the_copy() -> None:
    from edited import edited

    from blackwell_matmul import BlackwellMatmulV4

    once = edited(BlackwellMatmulV4, "tile % group_tiles // rows", "tile % rows")
    twice = edited(once, "V4: ", "V4 twice: ")
    part = vars(sys.modules[twice.__module__])["GroupedTiles"]
    assert "column: int32 = tile % rows" in Path(inspect.getfile(part)).read_text(encoding="utf-8")


def test_anchor_must_name_one_line() -> None:
    with pytest.raises(ValueError, match="must name one"):
        refresh.piece_of(f"{KERNELS}/v1.py", "self.sync()", "phase")
    with pytest.raises(ValueError, match='starts with "no such line"'):
        refresh.piece_of(f"{KERNELS}/v1.py", "# Epilogue", "no such line")
