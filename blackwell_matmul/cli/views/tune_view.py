"""What a person sees of `blackwell-matmul tune`: the ranking, what fell out and why, and where the winner is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.screen import alike, duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.tuner.tuning import CandidateTrial, Tuning


def tuning_lines(tuning: Tuning) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"{tuning.kernel} {tuning.problem} on {tuning.gpu}, measured", style="bold")
    timed = [trial for trial in tuning.trials if trial.status == "timed"]
    if timed:
        yield _table(timed)
    for trial in tuning.trials:
        if trial.status != "timed":
            told = trial.reason if trial.reason.startswith(trial.status) else f"{trial.status}: {trial.reason}"
            yield Text.assemble(f"  {_spelled(trial)}: ", (printable(told), "bold red"))
    yield Text(" ".join(_counts(tuning)))
    for reason, count in alike(tuning.refused):
        yield Text(printable(f"  {count} cannot run: {reason}"), style="dim")
    yield Text(_kept(tuning), style="" if tuning.winner else "bold red")


def _table(trials: Sequence[CandidateTrial]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("time", "spread", "of cuBLAS"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("schedule")
    for trial in trials:
        assert trial.median_us is not None
        percent = "" if trial.percent_of_cublas is None else f"{trial.percent_of_cublas:.1f}%"
        style = "bold green" if trial is trials[0] else ""
        table.add_row(duration(trial.median_us), f"{trial.spread_percent:.1f}%", percent, _spelled(trial), style=style)
    return table


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
