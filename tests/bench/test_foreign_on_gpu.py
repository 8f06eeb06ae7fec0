"""Foreign text is handed to a driver in a version of PTX that it takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench" / "gpu"), str(ROOT / "bench" / "foreign")]

import foreign_on_gpu  # noqa: E402
from foreign_on_gpu import compare, for_driver, newest_ptx  # noqa: E402
from run import ptx_of  # noqa: E402

RECORDS = sorted((ROOT / "tests" / "emulator" / "foreign").glob("*_sm90.json"))


@pytest.mark.parametrize(
    ("cuda", "ptx"),
    [
        (12000, (8, 0)),
        (12050, (8, 5)),
        (12060, (8, 5)),
        (12080, (8, 7)),
        (12090, (8, 8)),
        (13000, (9, 0)),
        (13010, (9, 1)),
    ],
)
def test_a_driver_takes_the_ptx_of_its_cuda(cuda: int, ptx: tuple[int, int]) -> None:
    assert newest_ptx(cuda) == ptx


def test_only_a_newer_version_is_lowered_and_nothing_else_changes() -> None:
    text = "// .version 9.4\n.version 9.4\n.target sm_90a\n"
    lowered = "// .version 9.4\n.version 9.0\n.target sm_90a\n"
    assert for_driver(text, (9, 0)) == (lowered, "9.4 lowered to 9.0")
    assert for_driver(text, (9, 10)) == (text, "")
    assert for_driver(lowered, (9, 0)) == (lowered, "")


def test_the_row_says_so_even_of_what_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    path, loaded = RECORDS[0], []

    def refuse(ptx: str, *_: Any) -> None:
        loaded.append(ptx)
        raise RuntimeError("does not load")

    monkeypatch.setattr(foreign_on_gpu, "_driver_version", lambda: 12000)
    monkeypatch.setattr(foreign_on_gpu, "on_gpu", refuse)
    (row,) = compare(str(path), "exact")
    version = ptx_of(path).partition(".version ")[2].split()[0]
    assert row == {
        "case": path.stem, "data": "exact", "ptx_version": f"{version} lowered to 8.0",
        "outcome": "error", "sentence": "RuntimeError: does not load",
    }  # fmt: skip
    assert loaded == [ptx_of(path).replace(f".version {version}", ".version 8.0")]
