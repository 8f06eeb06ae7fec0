"""View of `blackwell-matmul bench`: a table for each problem, the means, and the method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.one_line import spelled_out
from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.cli.views.terminal import duration, line, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.harness.bench.results import BenchRow, Machine, SuiteResults


BENCH_COLUMNS = (
    Column(),
    *numbers("time", "spread", "TFLOPS", "of cuBLAS", "of peak"),
    Column("schedule", long="wraps"),
)


def result_lines(results: SuiteResults) -> Iterator[RenderableType]:
    from blackwell_matmul.harness.bench.results import means
    from blackwell_matmul.harness.bench.suites import layers_of

    rows = list(results)
    ordered = sorted(rows, key=lambda row: (row.problem.dtype, row.problem.m, row.problem.n, row.problem.k))
    for problem, members in groupby(ordered, key=lambda row: row.problem):
        layers = layers_of(problem) if results.suite == "llm" else ""
        yield from _problem_lines(f"{problem}{layers and f'  ({layers})'}", list(members), results.machine)
    for mean in means(rows):
        band = f", {mean.band}" if mean.band else ""
        which = f"{mean.problems} of {mean.of} problems{band}"
        yield line(f"{mean.contender}: {mean.percent:.1f}% of cuBLAS, the geometric mean over {which}")
    yield line(measured_on(results), "dim")


def _problem_lines(title: str, rows: Sequence[BenchRow], machine: Machine) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(title, style="bold")
    if timed := [row for row in rows if row.timing is not None]:
        yield table(BENCH_COLUMNS, (TableRow((f"  {row.contender}", *_cells(row, machine))) for row in timed))
    for row in rows:
        if told := _told(row):
            good = row.status == "correct" and not row.untimed and (row.stress is None or row.stress["ok"])
            yield Text.assemble(f"  {row.contender}: ", (printable(told), "green" if good else "bold red"))
    yield Text("")


def _told(row: BenchRow) -> str:
    """Return the remark of a row: why it has no time, or its stress result; "" without a remark."""
    if row.status != "correct":
        return row.reason if row.status == "wrong" else f"{row.status}: {row.reason}"
    if row.untimed:
        return f"not timed: {row.untimed}"
    if row.stress is None:
        return "" if row.timing else row.reason
    counts = f"{row.stress.get('calls', 0)} calls and {row.stress.get('replays', 0)} replays of a graph"
    return f"{counts}: {row.stress['message']}"


def _cells(row: BenchRow, machine: Machine) -> tuple[str, ...]:
    assert row.timing is not None
    schedule = spelled_out(row.schedule)
    return (
        duration(row.timing.median_us),
        f"{row.timing.spread_percent:.1f}%",
        f"{row.tflops:.1f}",
        _percent(row.percent_of_cublas),
        _percent(row.percent_of_peak(machine.peak_tflops)),
        schedule + (" (plain calls)" if row.launched_by == "calls" else ""),
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}%"


def measured_on(results: SuiteResults) -> str:
    """Return one paragraph about the machine, versions, method, data and clocks."""
    peak = f"; dense peak {results.machine.peak_tflops:g} TFLOPS" if results.machine.peak_tflops else ""
    return " ".join([on_what(results.machine, peak), *_how(list(results.sessions.values()))])


def on_what(machine: Machine, peak: str = "") -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.about.get("versions", {}).items())
    return f"Measured on {machine}{peak}, driver {machine.about.get('driver_version', 'unknown')}, {versions}."


def _how(sessions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not sessions:
        return
    last = sessions[-1]
    yield (
        f"Times are medians of {last['settings']['rounds']} rounds, in each of which every contender has a turn, and "
        f"the spread is between their quartiles; operands rotate through more than twice the L2. Data: {last['data']}."
    )
    clocks = [each["telemetry"]["sm_clock_mhz"] for each in sessions]
    powers = [each["telemetry"]["power_w"] for each in sessions]
    yield f"While they ran, SM clock: {_range(clocks, 'MHz')}, power: {_range(powers, 'W')}."
    unsettled = sum(not each["warmup"]["settled"] for each in sessions)
    if unsettled:
        yield f"The times of {unsettled} of {len(sessions)} problems had not settled when the warm-up ended."


def _range(figures: Sequence[Mapping[str, float] | str], unit: str) -> str:
    known = [figure["during"] for figure in figures if not isinstance(figure, str)]
    if not known:
        return "unknown"
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def compiled_lines(folder: Path, target: str, refused: Sequence[str], count: int) -> Iterator[RenderableType]:
    some = f"The other {'kernel is' if count == 1 else f'{count} kernels are'} compiled" if refused else "Compiled"
    where = f"{some} for {target} in {folder}; copy this folder to the machine with the GPU, for bench --bundles there."
    return map(line, [*refused, where if count else "Nothing is compiled."])
