"""View of `blackwell-matmul tune`: measured candidates, failures and the winner; with --gpu, the predicted order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.base.one_line import spelled_out
from blackwell_matmul.cli.views.schedules_view import alike
from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, line, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.tuner.ranking import Ranked, Ranking
    from blackwell_matmul.tuner.tuning import CandidateTrial, Tuning


TUNING_COLUMNS = (*numbers("time", "spread", "of cuBLAS", "predicted"), Column("schedule", long="wraps"))
PREDICTED_COLUMNS = (*numbers("predicted", "slower"), Column("schedule", long="wraps"))
GPU = Column("GPU")
SHOWN, LEFT_OUT = 16, 6
"""Maximum number of rows: of predictions with --gpu, and of candidates that were not measured."""


def tuning_lines(tuning: Tuning) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"{tuning.kernel} {tuning.problem} on {tuning.gpu}, measured{_by_whom(tuning)}", style="bold")
    timed = [trial for trial in tuning.trials if trial.status == "timed"]
    if timed:
        several = any(trial.gpu is not None for trial in timed)
        yield table(
            (GPU, *TUNING_COLUMNS) if several else TUNING_COLUMNS,
            (_row(trial, trial is tuning.winner) for trial in timed),
        )
    if not all(trial.compared for trial in timed):
        yield Text(f"Compared on GPU {tuning.gpus[0]}; a GPU in brackets has timed a share before, beside cuBLAS.")
    for gpu, reason in tuning.lost.items():
        yield Text.assemble(f"  GPU {gpu}: ", (printable(f"left out, {reason}"), "bold red"))
    for trial in tuning.trials:
        if trial.status != "timed":
            text = trial.reason if trial.reason.startswith(trial.status) else f"{trial.status}: {trial.reason}"
            yield Text.assemble(f"  {_spelled(trial)}: ", (printable(text), "bold red"))
    yield from _left_out(tuning.predicted)
    yield Text(" ".join(_counts(tuning)))
    for reason, count in alike(tuning.refused):
        yield Text(printable(f"  {count} cannot run: {reason}"), style="dim")
    yield Text(_kept(tuning), style="" if tuning.winner else "bold red")


def _by_whom(tuning: Tuning) -> str:
    """Return the numbers of the GPUs that measured, as text; "" for a single GPU."""
    if len(tuning.gpus) + len(tuning.lost) == 1:
        return ""
    which = ", ".join(map(str, sorted(tuning.gpus)))
    return f" by GPUs {which}" if len(tuning.gpus) > 1 else f" by GPU {which or 'none'}"


def _row(trial: CandidateTrial, best: bool) -> TableRow:
    assert trial.median_us is not None
    percent = "" if trial.percent_of_cublas is None else f"{trial.percent_of_cublas:.1f}%"
    predicted = "" if trial.predicted_us is None else duration(trial.predicted_us)
    cells = duration(trial.median_us), f"{trial.spread_percent:.1f}%", percent, predicted, _spelled(trial)
    gpu = () if trial.gpu is None else (str(trial.gpu) if trial.compared else f"({trial.gpu})",)
    return TableRow((*gpu, *cells), "bold green" if best else "")


def _counts(tuning: Tuning) -> Iterator[str]:
    from blackwell_matmul.tuner.candidates import RANKING_RULE

    refused, tried = sum(tuning.refused.values()), len(tuning.trials)
    predicted = any(trial.predicted_us is not None for trial in tuning.trials)
    order = "those of the shortest predicted time" if predicted else RANKING_RULE
    yield f"{refused + tried + tuning.left_out} schedules: {refused} cannot run, {tried} were taken, {order}."
    if tuning.left_out:
        yield f"{tuning.left_out} more could run; --top takes more of them."
    yield f"It took {tuning.seconds:.0f} s."


def _left_out(rows: Sequence[Ranked]) -> Iterator[RenderableType]:
    """Yield the best candidates that were not measured because of their prediction, and the number of the others."""
    for row in rows[:LEFT_OUT]:
        yield line(f"  {_spelled(row)}: left out, {row.reason}", "dim")
    if len(rows) > LEFT_OUT:
        yield line(f"  and {len(rows) - LEFT_OUT} more, the last of them {rows[-1].reason}", "dim")


def ranking_lines(ranking: Ranking) -> Iterator[RenderableType]:
    told = ranking.predicted
    yield line(f"{ranking.kernel} {ranking.problem} on {ranking.gpu}, predicted; nothing was measured", "bold")
    if told:
        yield table(PREDICTED_COLUMNS, (_ranked(row, told[0]) for row in told[:SHOWN]))
    yield from _not_shown(ranking, len(told))
    for reason, count in alike(ranking.refused):
        yield line(f"  {count} cannot run: {reason}", "dim")


def _not_shown(ranking: Ranking, told: int) -> Iterator[RenderableType]:
    reasons = Counter(row.reason for row in ranking.rows[told:])
    for reason, count in alike(reasons):
        yield line(f"  {count} {reason}", "dim")
    schedules = len(ranking.rows) + sum(ranking.refused.values())
    if told:
        yield line(f"{schedules} schedules, {told} predicted in {ranking.seconds:.0f} s; --predict takes more of them.")
    else:
        yield line(f"{schedules} schedules, none of them predicted, so there is no order.", "bold red")


def _ranked(row: Ranked, first: Ranked) -> TableRow:
    assert row.predicted_us is not None and first.predicted_us is not None
    slower = "" if row is first else f"{row.predicted_us / first.predicted_us - 1:.1%}"
    return TableRow((duration(row.predicted_us), slower, _spelled(row)), "bold green" if row is first else "")


def _kept(tuning: Tuning) -> str:
    if tuning.winner is None:
        return "No candidate is right and has a time, so nothing is kept."
    nowhere = "not kept, since the cache is off or cannot be written to"
    where = f"kept in {tuning.stored_in}" if tuning.stored_in else nowhere
    return f"Winner: {_spelled(tuning.winner)}, {where}."


def _spelled(trial: CandidateTrial | Ranked) -> str:
    return spelled_out(trial.schedule)
