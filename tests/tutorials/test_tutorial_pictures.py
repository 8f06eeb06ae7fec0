"""The pictures are what the script draws from today's simulator; the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def version(svg: str) -> str:
    """What drew it: another matplotlib draws the same picture with other numbers."""
    return re.findall(r"Matplotlib v([\w.]+)", svg)[0]


@pytest.mark.slow
def test_pictures_are_what_the_script_draws(tmp_path: Path) -> None:
    """Of the rungs' timelines, which are drawn alike, two."""
    pytest.importorskip("matplotlib")
    import pictures

    names = [name for name in pictures.PICTURES if not name.endswith("_cycles") or name in ("v3_cycles", "v5_cycles")]
    for path in pictures.draw(tmp_path, names):
        new, old = path.read_text(encoding="utf-8"), (pictures.IMAGES / path.name).read_text(encoding="utf-8")
        if version(new) == version(old):
            assert new == old, f"{path.name} is out of date: run python tutorials/refresh.py"


@pytest.mark.parametrize("path", sorted((ROOT / "tutorials" / "images").iterdir()), ids=lambda path: path.name)
def test_picture_needs_nothing_else(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    assert "<image" not in svg and "font-family" not in svg and "<text" not in svg
    assert len(svg) < 150_000


@pytest.mark.process  # matplotlib asks for the fonts once
def test_barrier_of_a_story_is_the_kernels() -> None:
    """Three stages, five k-tiles: the barriers complete as many phases as their stages have turns."""
    pytest.importorskip("matplotlib")
    import pictures
    from story import Story

    story = Story(pictures.run_of(pictures.BlackwellMatmulV2, 80, e_block_n=32, stages=3).events)
    assert {name: barrier.phase for name, barrier in story.barriers.items()} == {
        "tma_barriers[0]": 2, "tma_barriers[1]": 2, "tma_barriers[2]": 1, "mma_barrier": 5,
    }  # fmt: skip
    assert all(barrier.pending == 1 and barrier.tx_bytes == 0 for barrier in story.barriers.values())


@pytest.mark.process  # matplotlib asks for the fonts once
def test_rings_of_two_tiles_are_the_kernels() -> None:
    """Each accumulator once full and once empty, and two answers."""
    pytest.importorskip("matplotlib")
    import pictures

    story = pictures._v5_story(pictures.V5_SEED)
    slow = {name: barrier.phase for name, barrier in story.barriers.items() if not name.startswith("ring")}
    assert slow == {
        "sums.full_barriers[0]": 1, "sums.full_barriers[1]": 1, "scheduler.responses.full_barriers": 2,
        "sums.empty_barriers[0]": 1, "sums.empty_barriers[1]": 1, "scheduler.responses.empty_barriers": 2,
    }  # fmt: skip
    assert {bar.label for bar in story.bars if bar.kind.endswith("of the next")} == {"k 0", "k 1", "k 2"}


@pytest.mark.process  # matplotlib asks for the fonts once
def test_barriers_of_a_pair_are_the_kernels() -> None:
    """Bytes of both CTAs end the phases of the leader's barriers alone, a commit those of both."""
    pytest.importorskip("matplotlib")
    import pictures

    story = pictures._v6_story()
    rings = {name: barrier.phase for name, barrier in story.barriers.items() if "ring" in name}
    empty = ("ring.empty_barriers[0]", "ring.empty_barriers[1]")
    names = ("ring.full_barriers[0]", "ring.full_barriers[1]", *empty, *(f"peer:{name}" for name in empty))
    assert rings == dict.fromkeys(names, 2)


@pytest.mark.process  # matplotlib asks for the fonts once
def test_a_tile_ends_in_each_timeline_of_a_rung() -> None:
    """Products of its last k-tiles at the beginning, and the longest wait of the tensor core after them, or none:
    of fewer, shorter tiles than the pictures'."""
    pytest.importorskip("matplotlib")
    import cycles

    idle = {}
    for name in ("v3", "v5"):
        shown = cycles.end_of_a_tile(name, (4096, 4096, 2048))
        assert shown.end_cycles - shown.start_cycles == cycles.BEFORE + cycles.AFTER
        ends = cycles._joined([each for each in shown.events if each.track == "tensor core"], "mma")
        idle[name] = max(after[0] - before[1] for before, after in pairwise(ends))
    assert idle["v3"] > 10_000 and idle["v5"] < 1_000


@pytest.mark.process  # matplotlib asks for the fonts once
def test_one_cta_at_a_time_takes_longer_by_tma() -> None:
    """Of one turn of tiles, which are as long as the picture's."""
    pytest.importorskip("matplotlib")
    import cycles

    took = {}
    for name in ("v0", "v1"):
        shown = cycles.k_tiles_alone(name, (2304, 2048, 8192))
        assert len({each.detail.split(", s_a")[0] for each in shown.events if each.track == "tensor core"}) == 1
        took[name] = shown.end_cycles - shown.start_cycles
    assert 1.02 < took["v1"] / took["v0"] < 1.15


@pytest.mark.process
def test_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    for page in (
        "index",
        "00-tma",
        "v0",
        "v1",
        "v2",
        "v5",
        "v6",
        "v7",
        "measured",
        "reference/running",
        "reference/commands",
    ):
        html = (tmp_path / "site" / f"{page}.html").read_text(encoding="utf-8")
        assert not re.findall(r'(?:src|rel="stylesheet" href)="https?://', html), (
            "the site loads something from elsewhere"
        )
