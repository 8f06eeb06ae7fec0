"""View of the study "bandwidth": a table, and the rate of torch's copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul_studies.study_results import StudyResults, TrialRow

COLUMNS = ("time", "spread", "GB/s", "of torch's copy", "of torch's own")
BOXES = (
    "A box of TMA has at most 256 elements in each dimension (cuTensorMapEncodeTiled), which in one dimension is 1 KiB "
    "of float32: a CTA that moves one box moves no more."
)


def lines(results: StudyResults) -> Iterator[RenderableType]:
    from rich.text import Text

    rows = sorted(results, key=lambda row: (not _title(row).startswith("copy"), _title(row)))
    done = [row for row in rows if row.result is not None]
    if done:
        yield table([Column(), *numbers(*COLUMNS)], _rows(done))
    for row in rows:
        if row.result is None:
            at = f" ({row.at})" if row.at and row.status != "refused" else ""
            yield Text.assemble(f"{row.trial}: ", (printable(f"{row.status}{at}: {row.reason}"), "bold red"))
    if done:
        yield Text(baseline([_result(row) for row in done]))
        yield Text(BOXES, style="dim")


def _title(row: TrialRow) -> str:
    return row.trial.partition(": ")[0]


def _result(row: TrialRow) -> Mapping[str, Any]:
    assert row.result is not None
    return row.result


def _rows(done: Sequence[TrialRow]) -> Iterator[TableRow]:
    for title, members in groupby(done, key=_title):
        yield TableRow((title,), "bold")
        for row in sorted(members, key=lambda row: -_result(row)["gb_per_s"]):
            yield TableRow((f"  {row.trial.partition(': ')[2]}", *_cells(_result(row))))


def _cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    mine = found["mine"]
    return (
        duration(mine["median_us"]),
        f"{100 * (mine['q3_us'] - mine['q1_us']) / mine['median_us']:.1f}%",
        f"{found['gb_per_s']:.0f}",
        f"{100 * found['of_copy']:.1f}%",
        f"{100 * found['of_torch']:.1f}%",
    )


def baseline(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the rate of torch's copy_, measured in each process that is compared with it."""
    low, high = (f"{pick(found['copy_gb_per_s'] for found in results):.0f}" for pick in (min, max))
    reached = low if low == high else f"{low} to {high}"
    sizes = {found["set_bytes"] for found in results}
    return (
        f"torch's copy_: {reached} GB/s, read and written, beside each of them; a call touches "
        f"{' or '.join(f'{size / 2**30:g}' for size in sorted(sizes))} GiB. torch's own is copy_, or torch.add."
    )
