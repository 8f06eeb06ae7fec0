"""A report of `blackwell-matmul first-light` as a table that `hardware/figures/` can cite, and what it changes.

    python bench/calibrate/first_light.py report.json bench/calibrate/tables/b200_first_light.csv
    python bench/calibrate/first_light.py report.json OUT --ladders   # and the errors of the published ladders with it

Printed are the figures that the report measures, each with its value now and the measured one. With --ladders the
published ladders of this GPU are predicted twice: with the figures of today, and with the measured ones.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import public_ladder
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.cli.first_light import run_report
from blackwell_matmul.cli.first_light.micro import figures_for
from blackwell_matmul.hardware import gpu_figures
from blackwell_matmul.hardware.gpu_figures import GpuFigure, TimeFigures

FIELDS = ("what", "parameters", "value", "unit", "spread")
LADDERS = ("GAU_NERNST", "GLUON", "MODULAR", "KITTENS", "MLC")


class Change(NamedTuple):
    """A figure now and as measured."""

    name: str
    now: GpuFigure
    measured: float


def measures(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in found["rows"]:
        if row["stage"] == "micro":
            yield from row.get("rows", ())


def write(found: Mapping[str, Any], file: Path) -> int:
    """Write the table; return the number of rows."""
    rows = list(measures(found))
    with file.open("w", newline="") as opened:
        opened.write(f"# {found['gpu']}, {found['sm_count']} SMs; {found['command']}; {found['taken']}\n")
        table = csv.writer(opened)
        table.writerow(FIELDS)
        table.writerows([row[name] for name in FIELDS] for row in rows)
    return len(rows)


def changes(found: Mapping[str, Any], figures: TimeFigures) -> list[Change]:
    """Return the figures that a report measures. Where a rule of the model adds another term, such as N / 2, its figure
    moves by the difference of the measured value and the rule's.
    """
    offsets: dict[str, list[float]] = defaultdict(list)
    for row in measures(found):
        if row["figure"] and row["expected"] is not None:
            offsets[row["figure"]].append(row["value"] - row["expected"])
    known = {name: getattr(figures, name) for name in offsets}
    return [Change(name, known[name], float(known[name]) + statistics.median(each)) for name, each in offsets.items()]


def ladder_errors(gpu: str) -> dict[str, float]:
    """Return the mean error of the time of each published ladder of a GPU."""
    found = {}
    for name in LADDERS:
        rungs = [each for each in getattr(public_ladder, name) if each.gpu == gpu]
        if rungs:
            found[name] = statistics.mean(abs(public_ladder.compared(each).error) for each in rungs)
    return found


def replaced(figures: TimeFigures, found: list[Change]) -> TimeFigures:
    values = {each.name: GpuFigure(each.measured, "measured", "first-light") for each in found}
    return replace(figures, **values)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ladders", action="store_true", help="predict the published ladders with both; minutes")
    given = parser.parse_args(words)
    try:
        found = run_report.load(given.report)
        figures = figures_for(found["gpu"])
        if found["emulated"]:
            raise InputError(f"{given.report} was emulated: its cycles count instructions, and are no figures.")
        if figures is None:
            raise InputError(f"there are no figures of a {found['gpu']} yet, which the report could be compared with.")
        print(f"{write(found, given.out)} rows in {given.out}")
    except BlackwellMatmulError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    moved = changes(found, figures)
    for each in moved:
        what = "replaces an assumed" if each.now.how == "assumed" else f"beside a {each.now.how}"
        print(f"{each.name:24} {what} {each.now:g}: {each.measured:g}")
    if given.ladders:
        before = ladder_errors(found["gpu"])
        new = replaced(figures, moved)
        gpu_figures._figures.cache_clear()
        gpu_figures._figures = lambda file: new  # type: ignore[assignment]
        after = ladder_errors(found["gpu"])
        for name in before:
            print(f"{name:12} mean error of the time {before[name]:.1%}, with the measured figures {after[name]:.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
