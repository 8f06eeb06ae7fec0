"""The ladder as a picture, drawn from a book of results; matplotlib is imported when one is asked for.

One panel for each type: TFLOPS over the size of square problems, a line for each contender, cuBLAS dashed, the dense
peak above. A suite without squares gets a picture of its percentages of cuBLAS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.harness.bench.contenders import CUBLAS
from blackwell_matmul.harness.bench.results import Book, Machine, Row

INK, QUIET, LINE = "#1f2328", "#57606a", "#d0d7de"
COLORS = ("#9ec3e6", "#6ba3d6", "#3b6ea5", "#2c8c7c", "#7aa833", "#d9761a", "#b5413b", "#7a5ea8")
"""The rungs from the bottom up; more than these start over."""

OTHERS = {"triton": "#a0522d", "torch.compile": "#8f8f1f"}
STYLE = {"svg.hashsalt": "blackwell_matmul", "font.family": "DejaVu Sans", "font.size": 9}


def draw(book: Book, folder: Path) -> list[Path]:
    """The pictures of a book, as SVG and PNG; none where nothing was timed."""
    rows = [row for row in book if row.timing is not None]
    squares = [row for row in rows if row.problem.m == row.problem.n == row.problem.k]
    if not rows:
        return []
    matplotlib = _matplotlib()
    with matplotlib.rc_context(STYLE):
        figure = _ladder(squares, book.machine) if squares else _percentages(rows, book.machine)
        files = [folder / f"{book.suite}.{ending}" for ending in ("svg", "png")]
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


def _figure(width: float, height: float, panels: int, title: str) -> tuple[Any, list[Any]]:
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    figure.suptitle(title, color=INK, weight="bold", x=0.01, ha="left")
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(colors=QUIET)
        each.grid(axis="y", color=LINE, linewidth=0.6)
        each.set_axisbelow(True)
    return figure, list(axes)


def _ladder(rows: Sequence[Row], machine: Machine) -> Any:
    dtypes = sorted({row.problem.dtype for row in rows}, reverse=True)
    figure, panels = _figure(5.2 * len(dtypes), 4.2, len(dtypes), f"M = N = K, {machine.gpu}")
    for axes, dtype in zip(panels, dtypes):
        _ladder_panel(axes, [row for row in rows if row.problem.dtype == dtype], dtype, machine)
    return figure


def _ladder_panel(axes: Any, rows: Sequence[Row], dtype: str, machine: Machine) -> None:
    sizes = sorted({row.problem.m for row in rows})
    for name, style in _styles(rows):
        found = {row.problem.m: row for row in rows if row.contender == name}
        xs = [sizes.index(size) for size in sizes if size in found]
        axes.plot(xs, [found[sizes[x]].tflops for x in xs], label=name, marker="o", markersize=3.5, **style)
    if machine.peak_tflops:
        axes.axhline(machine.peak_tflops, color=QUIET, linewidth=0.8, linestyle=":")
        axes.text(0, machine.peak_tflops, f"dense peak {machine.peak_tflops:g}", color=QUIET, va="bottom", fontsize=7.5)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set(xlabel="size", ylabel=f"TFLOPS, {dtype}", ylim=(0, None))
    axes.legend(frameon=False, fontsize=7.5, ncols=2)


def _percentages(rows: Sequence[Row], machine: Machine) -> Any:
    problems = sorted({row.problem for row in rows}, key=lambda p: (p.dtype, p.n, p.k, p.m))
    figure, (axes,) = _figure(max(6.0, 0.24 * len(problems)), 4.6, 1, f"Percent of cuBLAS, {machine.gpu}")
    for name, style in _styles([row for row in rows if row.contender != CUBLAS]):
        found = {row.problem: row.percent_of_cublas for row in rows if row.contender == name}
        axes.plot([found.get(problem) for problem in problems], label=name, marker="o", **{**style, "linestyle": ""})
    axes.axhline(100, color=INK, linewidth=0.8, linestyle="--")
    names = [f"{p.m}x{p.n}x{p.k}{'' if p.dtype == 'fp16' else ' ' + p.dtype}" for p in problems]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=6.5)
    axes.set(ylabel="% of cuBLAS", ylim=(0, None))
    axes.legend(frameon=False, fontsize=7.5, ncols=4)
    return figure


def _styles(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The contenders in the order of the book, each with its line."""
    names = list(dict.fromkeys(row.contender for row in rows))
    kernels = [name for name in names if name != CUBLAS and name not in OTHERS]
    for name in names:
        if name == CUBLAS:
            yield name, {"color": INK, "linestyle": "--", "linewidth": 1.4}
        elif name in OTHERS:
            yield name, {"color": OTHERS[name], "linestyle": "-.", "linewidth": 1.2}
        else:
            yield name, {"color": COLORS[kernels.index(name) % len(COLORS)], "linewidth": 1.6}
