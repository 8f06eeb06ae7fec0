"""Plots of a suite's results by matplotlib, which is imported on first use.

Each element type has a panel. For square problems a panel shows TFLOPS over the size, a line for each contender, and
the dense peak. For other suites it shows percentages of cuBLAS over M: a dot for each problem, and a line through the
geometric means.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.harness.bench.contenders import CUBLAS
from blackwell_matmul.harness.bench.results import BenchRow, Machine, SuiteResults

INK, QUIET, LINE = "#1f2328", "#57606a", "#d0d7de"
COLORS = ("#9ec3e6", "#6ba3d6", "#3b6ea5", "#2c8c7c", "#7aa833", "#d9761a", "#b5413b", "#7a5ea8")
"""Colors of the kernels. The best kernel has the last color; colors repeat if there are more kernels."""

OTHERS = {"triton": "#a0522d", "torch.compile": "#8f8f1f"}
CHART_STYLE = {"svg.hashsalt": "blackwell_matmul", "font.family": "DejaVu Sans", "font.size": 9}


def draw(results: SuiteResults, folder: Path) -> list[Path]:
    """Draw a suite's plot as SVG and PNG; return both paths, or an empty list if no kernel was timed."""
    rows = [row for row in results if row.timing is not None]
    if not rows:
        return []
    square = all(row.problem.m == row.problem.n == row.problem.k for row in rows)
    with _matplotlib().rc_context(CHART_STYLE):
        figure = _panels(rows, results.machine, _tflops_panel if square else _percent_panel)
        files = [folder / f"{results.suite}.{ending}" for ending in ("svg", "png")]
        for file in files:
            figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files


def available() -> bool:
    try:
        _matplotlib()
    except UnsupportedError:
        return False
    return True


def _matplotlib() -> Any:
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        raise UnsupportedError(
            "drawing needs matplotlib, which is not installed; pip install matplotlib, then bench --draw FOLDER."
        ) from None
    return importlib.import_module("matplotlib")


Panel = Callable[[Any, Sequence[BenchRow], Machine], None]


def _panels(rows: Sequence[BenchRow], machine: Machine, panel: Panel) -> Any:
    """Return a figure with a panel for each element type and one legend."""
    dtypes = sorted({row.problem.dtype for row in rows}, reverse=True)
    figure = importlib.import_module("matplotlib.figure").Figure(
        figsize=(1.2 + 4.6 * len(dtypes), 4.2), layout="constrained"
    )
    axes = figure.subplots(1, len(dtypes), squeeze=False)[0]
    for each, dtype in zip(axes, dtypes):
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(colors=QUIET)
        each.grid(axis="y", color=LINE, linewidth=0.6)
        each.set_axisbelow(True)
        panel(each, [row for row in rows if row.problem.dtype == dtype], machine)
        each.set_title(dtype, loc="left", color=QUIET, fontsize=9)
    figure.suptitle(f"Measured on {machine.gpu}", color=INK, weight="bold", x=0.01, ha="left", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _tflops_panel(axes: Any, rows: Sequence[BenchRow], machine: Machine) -> None:
    sizes = sorted({row.problem.m for row in rows})
    for name, style in _styles(rows):
        found = {row.problem.m: row for row in rows if row.contender == name}
        xs = [sizes.index(size) for size in found]
        axes.plot(xs, [row.tflops for row in found.values()], label=name, marker="o", markersize=3.5, **style)
    if machine.peak_tflops:
        axes.axhline(machine.peak_tflops, color=QUIET, linewidth=0.8, linestyle=":")
        axes.text(0, machine.peak_tflops, f"dense peak {machine.peak_tflops:g}", color=QUIET, va="bottom", fontsize=7.5)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set(xlabel="M = N = K", ylabel="TFLOPS", ylim=(0, None))


def _percent_panel(axes: Any, rows: Sequence[BenchRow], machine: Machine) -> None:
    ms = sorted({row.problem.m for row in rows})
    styles = [(name, style) for name, style in _styles(rows) if name != CUBLAS]
    for number, (name, style) in enumerate(styles):
        shift = 0.12 * (number - (len(styles) - 1) / 2)
        found = [(ms.index(row.problem.m), row.percent_of_cublas) for row in rows if row.contender == name]
        known = [(x, percent) for x, percent in found if percent is not None]
        places, percents = [x + shift for x, _ in known], [percent for _, percent in known]
        axes.scatter(places, percents, s=9, alpha=0.45, color=style["color"], linewidths=0)
        means = {x: statistics.geometric_mean([p for other, p in known if other == x]) for x, _ in known}
        axes.plot([x + shift for x in sorted(means)], [means[x] for x in sorted(means)], label=name, **style)
    axes.axhline(100, color=INK, linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(ms)), [str(m) for m in ms])
    axes.set(xlabel="M", ylabel="% of cuBLAS", ylim=(0, None))


def _styles(rows: Sequence[BenchRow]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each contender and its line style, in the order of the results."""
    names = list(dict.fromkeys(row.contender for row in rows))
    kernels = [name for name in names if name != CUBLAS and name not in OTHERS]
    for name in names:
        if name == CUBLAS:
            yield name, {"color": INK, "linestyle": "--", "linewidth": 1.4}
        elif name in OTHERS:
            yield name, {"color": OTHERS[name], "linestyle": "-.", "linewidth": 1.2}
        else:
            yield name, {"color": COLORS[(kernels.index(name) - len(kernels)) % len(COLORS)], "linewidth": 1.6}
