"""`.ci/lines_by_room.py`: lines added and removed, by room, and of the whole package."""

from __future__ import annotations

import runpy
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "lines_by_room.py"


def test_a_row_for_each_room_and_one_for_the_package() -> None:
    changes = [
        "3\t1\tblackwell_matmul/cli/doctor/facts.py", "0\t7\tblackwell_matmul/cli/options.py",
        "2\t0\tblackwell_matmul/__init__.py", "-\t-\tdocs/a.png", "1\t1\tREADME.md",
    ]  # fmt: skip
    rows = [line.strip("| ").split(" | ") for line in runpy.run_path(str(SCRIPT))["table"]("\n".join(changes))]
    assert rows[2:] == [
        [".", "1", "1", "+0"], ["blackwell_matmul", "2", "0", "+2"], ["blackwell_matmul/cli", "3", "8", "-5"],
        ["docs", "0", "0", "+0"], ["the package", "5", "8", "-3"],
    ]  # fmt: skip
