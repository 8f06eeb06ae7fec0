"""View of the torch.compile study: a table for each workload, the means, and recommended settings."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, printable
from blackwell_matmul_studies.torch_compile import SWITCHES_TRIAL, trials
from blackwell_matmul_studies.torch_compile.configurations import LEFT_OUT
from blackwell_matmul_studies.torch_compile.recommendation import (
    HELPS,
    ConfigurationMean,
    Figure,
    What,
    exports,
    figures,
    means,
    recommended,
    snippet,
    without_variable,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul_studies.study_results import StudyResults

COLUMNS = ("kernels", "TFLOPS", "speed-up", "in calls", "compile", "error")
LEGEND = (
    "kernels: the GPU's time, from a captured graph. speed-up: over eager in the same process, of that time; in calls: "
    "of plain calls, with Python and launches. error: the largest against float64, over eager's own. template: of the "
    "matmuls; loops: what inductor generates between them."
)


def lines(results: StudyResults) -> Iterator[RenderableType]:
    found = figures(results)
    for workload, members in groupby(sorted(found, key=_order(found)), key=lambda each: each.workload):
        yield from _workload_lines(workload, list(members))
    yield from _mean_lines(means(found))
    yield from _left_out_lines(results)
    yield from _switch_lines(results.result(SWITCHES_TRIAL) or {})


def _left_out_lines(results: StudyResults) -> Iterator[RenderableType]:
    from rich.text import Text

    every = trials(quick=False)
    if missing := [each for each in every if each.name not in results]:
        yield Text(
            f"Not run: {len(missing)} of {len(every)} trials; the same command without --quick goes on with them.",
            style="dim",
        )
    for what in LEFT_OUT:
        yield Text(f"Left out: {what}", style="dim")


def _order(found: Sequence[Figure]) -> Any:
    """Return a sort key in order of first appearance, so that rows of a workload stay together."""
    names = list(dict.fromkeys(each.workload for each in found))
    return lambda each: names.index(each.workload)


def _workload_lines(workload: str, members: Sequence[Figure]) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(printable(workload), style="bold")
    if done := [each for each in members if each.result is not None]:
        yield table([Column(), Column("template", long="wraps"), *numbers(*COLUMNS)], _rows(done))
    for each in members:
        if each.problem:
            yield Text.assemble(f"  {each.configuration}: ", (printable(each.problem), "bold red"))
    yield Text("")


def _rows(done: Sequence[Figure]) -> Iterator[TableRow]:
    yield TableRow(("  eager", "", *_eager_cells(done)))
    yield from (TableRow((f"  {each.configuration}", *_cells(each))) for each in done)


def _eager_cells(done: Sequence[Figure]) -> tuple[str, ...]:
    """Return the cells of eager mode, over all processes."""
    times = [time for each in done if (time := each.time_us("eager", "kernels")) is not None]
    assert done[0].result is not None
    return *_time_cells(statistics.median(times) if times else None, done[0].result["flops"]), "1.00", "1.00", "", "1.0"


def _cells(figure: Figure) -> tuple[str, ...]:
    result = figure.result
    assert result is not None
    ratio = figure.error_ratio
    return (
        result["template"],
        *_time_cells(figure.time_us("compiled", "kernels"), result["flops"]),
        _times(figure.speed_up("kernels")),
        _times(figure.speed_up("calls")),
        f"{result['compile_s']:.1f} s",
        f"{result['error']:.3g}" if ratio is None else f"{ratio:.1f}",
    )


def _time_cells(time_us: float | None, flops: int) -> tuple[str, str]:
    return ("", "") if time_us is None else (duration(time_us), f"{flops / time_us / 1e6:.1f}")


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _mean_lines(found: Sequence[ConfigurationMean]) -> Iterator[RenderableType]:
    from rich.text import Text

    if not found:
        return
    over = f"{found[0].of} workload{'s' if found[0].of > 1 else ''}"
    yield Text(f"Geometric means over {over}", style="bold")
    yield table([Column(), *numbers("speed-up", "in calls", "compile", "good")], map(_mean_row, found))
    yield Text(LEGEND, style="dim")
    yield Text("")
    yield from _recommendation_lines(found)
    yield Text("")


def _mean_row(each: ConfigurationMean) -> TableRow:
    compile_ = f"{each.compile_s:.1f} s" if each.good else ""
    speed_ups = _times(each.kernels), _times(each.calls)
    return TableRow((f"  {each.configuration}", *speed_ups, compile_, f"{each.good} of {each.of}"))


def _recommendation_lines(found: Sequence[ConfigurationMean]) -> Iterator[RenderableType]:
    """Yield the best for GPU time, and the best for calls if different."""
    from rich.text import Text

    kernels, calls = recommended(found, "kernels"), recommended(found, "calls")
    if kernels is None and calls is None:
        yield Text(f"Recommended: eager. No configuration is faster by more than {HELPS - 1:.0%} in the mean.")
        return
    if kernels is not None:
        yield from _advice_lines("Recommended", kernels, "kernels")
    if calls is not None and calls != kernels:
        yield from _advice_lines("For a program that waits for its launches", calls, "calls")


def _advice_lines(intro: str, mean: ConfigurationMean, what: What) -> Iterator[RenderableType]:
    from rich.text import Text

    value = mean.speed_up(what)
    where = "on the GPU" if what == "kernels" else "in calls"
    cost = f"a matmul or block takes {mean.compile_s:.0f} s to compile"
    yield Text(f"{intro}: {mean.configuration}, {value:.2f} times as fast as eager {where}; {cost}.")
    yield from (Text(f"  {line}", style="bold") for line in snippet(mean).split("\n"))
    if shell := exports(mean):
        yield Text("or, for torch.compile(model, dynamic=False), in the shell that starts the program:")
        yield from (Text(f"  {line}", style="bold") for line in shell.split("\n"))
    if lacking := without_variable(mean):
        yield Text(f"  No variable sets {' or '.join(lacking)}.", style="dim")


def _switch_lines(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    for configuration, options in found.get("unknown", {}).items():
        yield Text(f"Left out: {configuration}, since this torch has no {' and no '.join(options)}.", style="dim")
    if unread := found.get("unread"):
        yield Text(f"Nothing in this torch and Triton reads {', '.join(unread)}.", style="dim")
