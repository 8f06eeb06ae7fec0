"""The first lesson runs, as a page and as a notebook; its figures and exercises are what they claim."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import refresh
import torch
from tma import counting, exercises, figures, measured, swizzle
from tma.copies import CopyByCpAsync, CopyByLoads, CopyByTma
from tma.multicast import CopyToBoth
from tma.strip import CopyStrip

from blackwell_matmul import check, simulate
from blackwell_matmul.compiler import compile

pytest.importorskip("cuda.bindings.nvrtc")  # the lesson counts instructions in compiled code

LESSON = "00-tma.md"
TEXT = (refresh.HERE / LESSON).read_text(encoding="utf-8")
WAYS = (CopyByLoads, CopyByCpAsync, CopyByTma)


@pytest.mark.slow
def test_it_runs_from_top_to_bottom_and_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for snippet, text in zip(refresh.snippets(TEXT), refresh.run(TEXT, "00-tma"), strict=True):
        assert snippet.says_the_same(text), f"under:\n{snippet.text}"
    assert not list(tmp_path.iterdir()), "a snippet left files behind"


def test_pieces_are_the_code() -> None:
    assert refresh.expand(TEXT) == TEXT, "run python tutorials/refresh.py"


def test_it_has_its_parts() -> None:
    headings = re.findall(r"^## (.*)$", TEXT, flags=re.M)
    for part in ("Without", "The descriptor", "One thread", "mbarrier", "Swizzle", "Multicast", "Limits", "Measured"):
        assert any(heading.startswith(part) for heading in headings), part
    assert len(re.findall(r"^\*\*Question\.\*\*", TEXT, flags=re.M)) == TEXT.count("<summary>Answer</summary>") >= 3
    assert len(re.findall(r"^\*\*\d\.\*\*", TEXT, flags=re.M)) == TEXT.count("<summary>Solution</summary>") >= 5
    assert TEXT.count("<details") == TEXT.count("</details>")
    assert "provisional" in TEXT


# --- the notebook


def test_notebook_is_the_page() -> None:
    pytest.importorskip("nbformat")
    import notebook

    file = refresh.HERE / notebook.name_of(LESSON)
    assert file.read_text(encoding="utf-8") == notebook.text_of(TEXT), "run python tutorials/refresh.py"


def test_notebook_runs_without_its_solutions() -> None:
    """Its cells are all the snippets but the folded ones, and need nothing of these."""
    nbformat = pytest.importorskip("nbformat")

    cells = nbformat.read(refresh.HERE / "00-tma.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    page = "".join(f"```python\n{cell.source}\n```\n" for cell in code)
    for cell, text in zip(code, refresh.run(page, "notebook"), strict=True):
        shown = "".join(output.text for output in cell.outputs)
        by_itself = "measured.report()" in cell.source and torch.cuda.is_available()
        assert by_itself or shown.split() == text.split(), cell.source
    folded = "".join(cell.source for cell in cells if "<details" in cell.source)
    assert "phase ^= 1" in folded and not any("phase ^= 1" in cell.source for cell in code)


def test_output_of_a_machine_without_a_gpu_stays_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "```python\nprint(1)\n```\n\n<!-- output without a GPU -->\n```text\n2\n```\n"
    (snippet,) = refresh.snippets(page)
    monkeypatch.setattr(refresh, "_has_gpu", lambda: True)
    assert snippet.says_the_same("1") and refresh.with_outputs(page, ["1\n"]) == page
    monkeypatch.setattr(refresh, "_has_gpu", lambda: False)
    assert not snippet.says_the_same("1") and refresh.with_outputs(page, ["1\n"]) == page.replace("2", "1")


# --- the kernels


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(64, 64), (100, 72), (1, 8), (130, 264)])
def test_each_way_copies(way: type, shape: tuple[int, int]) -> None:
    x = torch.randn(shape).half()
    y = torch.full_like(x, float("nan"))
    assert simulate(way, *shape, x, y).findings == () and torch.equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("tile", "target"),
    [(tile, target) for tile, target in zip(measured.TILES, ("sm_90a", "sm_120a", "sm_90a"), strict=True)]
    + [(measured.TILES[-1], target) for target in ("sm_100a", "sm_103a", "sm_121a")],
)
def test_what_is_measured_compiles(way: type, tile: tuple[int, int], target: str) -> None:
    x = torch.empty(tile[0], measured.COLUMNS, dtype=torch.float16)
    schedule = {"rows": tile[0], "columns": tile[1]}
    bundle = compile(way, *x.shape, x, x.clone(), schedule=schedule, target=target)
    assert bundle.resources.spill_bytes == 0
    assert ("cp.async.bulk.tensor" in bundle.ptx) == (way is CopyByTma)


def test_multicast_for_a_cluster_of_two() -> None:
    x, y = torch.randn(64, 64).half(), torch.empty(128, 64).half()
    bundle = compile(CopyToBoth, x, y, target="sm_100a", cache=False)
    assert bundle.plan.cluster == (2, 1, 1) and ".multicast::cluster" in bundle.ptx
    assert not simulate(CopyToBoth, x, y).findings
    assert torch.equal(y, torch.cat([x, x]))


# --- the figures


@pytest.mark.parametrize("tile", counting.TILES)
def test_counts_move_the_whole_tile(tile: tuple[int, int]) -> None:
    pieces = tile[0] * tile[1] * counting.ELEMENT_BYTES / counting.WARP_COPY_BYTES
    copies, loads = (counting.cost(way, *tile).compiled for way in (CopyByCpAsync, CopyByLoads))
    assert copies >= pieces and loads >= 2 * pieces
    assert counting.cost(CopyByTma, *tile) == counting.Cost(compiled=1, simulated=1)


def test_littles_law_is_where_the_page_says() -> None:
    assert figures.little(4) == pytest.approx(148 * 4096 / 600e-9 / 1e12)
    for each in figures.THROUGHPUTS:
        low, high = each.tma
        wrong = figures.little(each.kib) / low - 1, figures.little(each.kib) / high - 1
        assert all(part > 0.3 for part in wrong) if each.kib == 32 else all(abs(part) < 0.2 for part in wrong)


def test_gb10_is_no_hbm() -> None:
    (gb10,) = (each for each in figures.MEMORIES if each.gpu == "GB10")
    assert (gb10.kind, gb10.paper) == ("LPDDR5X", 273)
    assert all(each.measured is None or each.measured[1] <= each.paper for each in figures.MEMORIES)


def test_swizzle_is_a_permutation_that_spreads_each_column() -> None:
    for row in range(swizzle.ROWS):
        assert sorted(swizzle.piece_after(row, piece) for piece in range(swizzle.PIECES)) == list(range(swizzle.PIECES))
    for piece in range(swizzle.PIECES):
        assert (swizzle.most_in_a_bank(piece, False), swizzle.most_in_a_bank(piece, True)) == (8, 1)


# --- the exercises

EXERCISES = (exercises.address, exercises.announce, exercises.boxes, exercises.swizzle, exercises.repair)


@pytest.mark.parametrize(
    ("exercise", "wrong"),
    [
        (exercises.address, lambda row, piece: 2 * (row * 264 + 8 * piece)),
        (exercises.announce, 64 * 64),
        (exercises.announce, 64 * 64 * 2 + 2),
        (exercises.boxes, (300, 50)),
        (exercises.boxes, (150, 200)),
        (exercises.boxes, (74, 200)),
        (exercises.swizzle, lambda row, piece: (piece + row) % 8),
        (exercises.repair, CopyStrip),
        *((exercise, odd) for exercise in EXERCISES for odd in (64, None, "x", (64,), (0, 64), (1.5, 64))),
    ],
)
def test_a_wrong_answer_is_told(exercise, wrong, capsys: pytest.CaptureFixture[str]) -> None:
    exercise(wrong)
    told = capsys.readouterr().out
    assert told.startswith("not yet: ") and told.count("\n") == 1


def test_every_solution_is_right() -> None:
    folded = [snippet for snippet in refresh.snippets(TEXT) if refresh.is_folded(TEXT, snippet)]
    solutions = [snippet for snippet in folded if "exercises." in snippet.text]
    assert len(solutions) == 5
    assert all(snippet.shown and snippet.shown.startswith("right: ") for snippet in solutions)


def test_the_strip_has_one_fault() -> None:
    from edited import edited

    x = torch.randn(64, 256).half()
    found = {finding.code for finding in check(CopyStrip, 64, 256, x, torch.empty_like(x)).findings}
    assert "wrong-phase" in found
    repaired = edited(CopyStrip, "            self.sync()\n", "            self.sync()\n            phase ^= 1\n")
    assert check(repaired, 64, 256, x, torch.empty_like(x), orders=8).findings == ()


# --- the measured part


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    measured.report()
    assert capsys.readouterr().out == "No GPU here that torch can use: nothing was measured.\n"


def test_a_gpu_without_tma_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100")
    measured.report()
    assert capsys.readouterr().out.startswith("NVIDIA A100 has no TMA")


def test_what_it_prints_with_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same code with small tensors on the CPU, where the kernels are simulated and a clock is made up."""
    monkeypatch.setattr(measured, "why_not", lambda: "")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "made up")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(measured, "_input", lambda: torch.randn(64, 64).half())
    monkeypatch.setattr(measured, "_seconds", lambda copy: 1e-6)
    measured.report()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 1 + len(measured.TILES) * len(measured.WAYS)
    assert all(line.split()[-3:] == ["16", "1.00", "right"] for line in lines[2:])


def test_each_takes_its_turn_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    monkeypatch.setattr(measured, "_seconds", lambda copy: copy() or 0.5)
    rates = measured.rates_of({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 10**9)
    assert turns == ["a", "b"] * measured.ROUNDS and rates == {"a": 2.0, "b": 2.0}
