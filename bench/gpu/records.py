"""What a GPU computed of numbers, in one file: it holds the simulator to that GPU on a machine without one.

Of each case the outcome, and for each launch the bytes of the tensors that it changed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RECORDED = frozenset(
    {"unary", "binary", "cast", "scalar", "scalar-unary", "scalar-cast", "scalar-assign", "scalar-tile", "literal-tile"}
)
"""The families whose values depend on types alone."""
NOT_RUN = ("error", "simulate-refuses", "compile-refuses", "no-gpu")
Row = dict[str, Any]


def write(file: Path, rows: Sequence[Row], gpu: str) -> int:
    """The record of some rows, of which it takes those that a GPU ran or both refused; how many these are."""
    cases = {
        row["key"]: {"outcome": row["outcome"], "launches": row["recorded"]}
        for row in sorted(rows, key=lambda row: str(row["key"]))
        if "recorded" in row and row["outcome"] not in NOT_RUN
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"gpu": gpu, "cases": cases}, separators=(",", ":"))
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return len(cases)


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return found


def against(key: str, record: Row, emulator: bool = False) -> Row:
    """What the simulator, or the emulator, says of a recorded case now. worse: than when it was recorded, where both
    run it then and now."""
    from comparing import WORST_FIRST, compare_recorded

    row = compare_recorded(lambda step: None, key, record, emulator)
    then = WORST_FIRST.index(record["outcome"])
    runs = row["outcome"] != "both-refuse" and record["outcome"] != "both-refuse"
    return {**row, "worse": runs and WORST_FIRST.index(row["outcome"]) < then}
