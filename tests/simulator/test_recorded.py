"""The simulator's numbers against those that an H200 computed: casts, operators, scalars, of all types.

The record is written by `bench/gpu/differential.py --record`; `--check-record` goes through all of it.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "bench" / "results" / "h200_numbers.json.gz"
SAMPLE = 40
"""A case is a build by tilus, 0.15 s of one core."""

pytestmark = pytest.mark.skipif(
    not RECORD.is_file(),
    reason=f"there is no {RECORD.relative_to(ROOT)}; differential.py --record writes it on an H200",
)


@pytest.mark.slow
def test_a_sample_of_the_record() -> None:
    """The same bits, or within the bound that the case names, or neither runs it; nothing worse than was recorded."""
    sys.path.append(str(ROOT / "bench" / "gpu"))
    import records

    cases = records.read(RECORD)["cases"]
    sample = random.Random(0).sample(sorted(cases), min(SAMPLE, len(cases)))
    rows = [records.against(key, cases[key]) for key in sample]
    assert not [row for row in rows if row["worse"]]
    assert sum(row["outcome"] in ("equal", "rounding", "both-refuse") for row in rows) > len(rows) / 2
