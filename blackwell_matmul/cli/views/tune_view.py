"""What a person sees of `blackwell-matmul tune`: the ranking, what fell out and why, and where the winner is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blackwell_matmul.cli.views.schedules_view import alike
from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.tuner.tuning import CandidateTrial, Tuning


COLUMNS = (*numbers("time", "spread", "of cuBLAS"), Column("schedule", long="wraps"))


def tuning_lines(tuning: Tuning) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"{tuning.kernel} {tuning.problem} on {tuning.gpu}, measured", style="bold")
    timed = [trial for trial in tuning.trials if trial.status == "timed"]
    if timed:
        yield table(COLUMNS, (_row(trial, trial is timed[0]) for trial in timed))
    for trial in tuning.trials:
        if trial.status != "timed":
            told = trial.reason if trial.reason.startswith(trial.status) else f"{trial.status}: {trial.reason}"
            yield Text.assemble(f"  {_spelled(trial)}: ", (printable(told), "bold red"))
    yield Text(" ".join(_counts(tuning)))
    for reason, count in alike(tuning.refused):
        yield Text(printable(f"  {count} cannot run: {reason}"), style="dim")
    yield Text(_kept(tuning), style="" if tuning.winner else "bold red")


def _row(trial: CandidateTrial, best: bool) -> TableRow:
    assert trial.median_us is not None
    percent = "" if trial.percent_of_cublas is None else f"{trial.percent_of_cublas:.1f}%"
    cells = duration(trial.median_us), f"{trial.spread_percent:.1f}%", percent, _spelled(trial)
    return TableRow(cells, "bold green" if best else "")


def _counts(tuning: Tuning) -> Iterator[str]:
    from blackwell_matmul.tuner.candidates import RULE

    refused, tried = sum(tuning.refused.values()), len(tuning.trials)
    yield f"{refused + tried + tuning.left_out} schedules: {refused} cannot run, {tried} were taken, {RULE}."
    if tuning.left_out:
        yield f"{tuning.left_out} more could run; --top takes more of them."
    yield f"It took {tuning.seconds:.0f} s."


def _kept(tuning: Tuning) -> str:
    if tuning.winner is None:
        return "No candidate is right and has a time, so nothing is kept."
    nowhere = "not kept, since the cache is off or cannot be written to"
    where = f"kept in {tuning.stored_in}" if tuning.stored_in else nowhere
    return f"Winner: {_spelled(tuning.winner)}, {where}."


def _spelled(trial: CandidateTrial) -> str:
    return ",".join(f"{name}={value}" for name, value in trial.schedule.items())
