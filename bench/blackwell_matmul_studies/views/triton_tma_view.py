"""View of the study "triton-tma": a table for each kernel and size, and the gain of large blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, printable
from blackwell_matmul_studies.tma_configurations import TmaConfiguration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul_studies.study_results import StudyResults, TrialRow

PUBLISHED: Mapping[str, float] = MappingProxyType({"gemm 2048": 1.52, "gemm 4096": 1.84, "gemm 8192": 1.92})
"""Published speedups of aggressive over conservative on a B200, Triton 3.5:
github.com/cfregly/ai-performance-engineering, chapter 14, October 2025.
"""
COLUMNS = ("time", "spread", "of torch", "first call", "registers", "spills", "shared")


def lines(results: StudyResults) -> Iterator[RenderableType]:
    ordered = sorted(results, key=_place)
    for title, rows in groupby(ordered, key=_title):
        yield from _block(title, list(rows))


def _title(row: TrialRow) -> str:
    """Return kernel and size, the prefix of a trial's name."""
    return " ".join(row.trial.split(" ", 2)[:2])


def _place(row: TrialRow) -> tuple[bool, int]:
    kernel, size = _title(row).split()
    return kernel != "gemm", int(size)


def _configuration(row: TrialRow) -> TmaConfiguration:
    return TmaConfiguration.parse(row.trial.split(" ", 2)[2])


def _block(title: str, rows: Sequence[TrialRow]) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(title, style="bold")
    if done := [row for row in rows if row.result is not None]:
        yield table([Column(), *numbers(_unit(done[0]), *COLUMNS)], _rows(done))
    for row in rows:
        if row.result is None:
            at = f" ({row.at})" if row.at and row.status != "refused" else ""
            yield Text.assemble(
                f"  {_configuration(row)}: ", (printable(f"{row.status}{at}: {row.reason}"), "bold red")
            )
    yield Text(gain(title, done))
    yield Text("")


def _rows(done: Sequence[TrialRow]) -> Iterator[TableRow]:
    for kind, members in _sets(done).items():
        yield TableRow((kind,), "bold")
        yield from (TableRow((f"  {_configuration(row)}", *_cells(row))) for row in members)


def _sets(rows: Sequence[TrialRow]) -> Mapping[str, Sequence[TrialRow]]:
    """Return the sets with rows, conservative first."""
    small = [row for row in rows if _configuration(row).conservative]
    large = [row for row in rows if not _configuration(row).conservative]
    return {kind: members for kind, members in (("conservative", small), ("aggressive", large)) if members}


def _unit(row: TrialRow) -> str:
    return "TFLOPS" if "tflops" in _result(row) else "GB/s"


def _result(row: TrialRow) -> Mapping[str, Any]:
    assert row.result is not None
    return row.result


def _cells(row: TrialRow) -> tuple[str, ...]:
    found, mine = _result(row), _result(row)["mine"]
    return (
        f"{found['tflops']:.1f}" if "tflops" in found else f"{found['gb_per_s']:.0f}",
        duration(mine["median_us"]),
        f"{100 * (mine['q3_us'] - mine['q1_us']) / mine['median_us']:.1f}%",
        f"{100 * found['of_torch']:.1f}%",
        f"{found['first_call_s']:.1f} s",
        *(_known(found[name]) for name in ("registers", "spills", "shared_bytes")),
    )


def _known(figure: int | None) -> str:
    return "" if figure is None else str(figure)


def gain(title: str, done: Sequence[TrialRow]) -> str:
    """Return the best aggressive over the best conservative ratio, each to torch in its own process."""
    best = {kind: _best([row for row in done if _configuration(row).conservative == kind]) for kind in (True, False)}
    small, large = best[True], best[False]
    if small is None or large is None:
        return f"{title}: no {'conservative' if small is None else 'aggressive'} configuration ran to compare with."
    factor = _of_torch(large) / _of_torch(small)
    text = f"{_configuration(large)} is {factor:.2f} times as fast as {_configuration(small)}, the best of each set"
    known = f"; published for a B200: {PUBLISHED[title]:.2f} times" if title in PUBLISHED else ""
    return f"{title}: {text}{known}."


def _best(rows: Sequence[TrialRow]) -> TrialRow | None:
    return max(rows, key=_of_torch, default=None)


def _of_torch(row: TrialRow) -> float:
    return float(_result(row)["of_torch"])
