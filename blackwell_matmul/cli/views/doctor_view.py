"""Views of the diagnosis and of the outcomes of `verify`, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.tables import Column, TableRow, table
from blackwell_matmul.hardware.detect import DetectedGpu

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.cli.doctor.diagnosis_lines import Line
    from blackwell_matmul.cli.doctor.facts import Facts
    from blackwell_matmul.cli.doctor.verify import LayerOutcome

STYLES = {
    "ok": "green", "problem": "bold red", "unknown": "yellow",
    "correct": "green", "wrong": "bold red", "failed": "bold red", "not run": "yellow",
}  # fmt: skip


def diagnosis(lines: Sequence[Line]) -> str:
    """Return a table of the lines, then a line with the command for each problem."""
    rows = [(line.status, line.name, line.value) for line in lines]
    fixes = [f"{line.name}: {line.fix}" for line in lines if line.fix]
    return _text([_table(rows)], ["", "To mend it:", *(f"  {fix}" for fix in fixes)] if fixes else [])


def diagnosis_record(facts: Facts, lines: Sequence[Line]) -> dict[str, object]:
    return {
        "ok": all(line.status != "problem" for line in lines),
        "mode": "gpu" if facts.gpus else "simulator",
        "lines": [{"name": x.name, "status": x.status, "value": x.value, "fix": x.fix} for x in lines],
        "gpus": [_gpu_record(gpu) for gpu in facts.gpus],
    }


def _gpu_record(gpu: DetectedGpu) -> dict[str, object]:
    from blackwell_matmul.kernels import LADDERS

    return {
        "index": gpu.index,
        "name": gpu.name,
        "arch": gpu.arch,
        "compute_capability": list(gpu.compute_capability),
        "sm_count": gpu.sm_count,
        "memory_bytes": gpu.memory_bytes,
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "memory_clock_mhz": gpu.memory_clock_mhz,
        "features": dict(gpu.features),
        "rungs": sorted(LADDERS.get(gpu.arch, ())),
    }


def starting(layer: str) -> None:
    """Print the name of the next layer on stderr, if that is a terminal. A layer may take a minute."""
    out = terminal.console(stderr=True)
    if out.is_terminal:
        out.print(f"trying {layer} ...", style="dim")


def outcomes(found: Sequence[LayerOutcome]) -> str:
    rows = [(each.status, each.layer, str(each)) for each in found]
    return _text([_table(rows)], ["", f"To find what mends it: {fix}"] if (fix := _fix(found)) else [])


def outcomes_record(found: Sequence[LayerOutcome]) -> dict[str, object]:
    from blackwell_matmul.cli.doctor.verify import passed

    return {"ok": passed(found), "fix": _fix(found), "outcomes": [vars(each) for each in found]}


def _fix(found: Sequence[LayerOutcome]) -> str:
    """Return the command to type if a check failed; "" else. A wrong result is no fault of the machine."""
    return "blackwell-matmul doctor" if any(each.status == "failed" for each in found) else ""


def _table(rows: Iterable[tuple[str, str, str]]) -> RenderableType:
    from rich.text import Text

    columns = (Column(), Column(), Column(long="folds"))
    cells = (
        (Text(status, STYLES[status]), Text(name), Text(terminal.printable(value))) for status, name, value in rows
    )
    return table(columns, map(TableRow, cells), show_header=False)


def _text(blocks: Iterable[RenderableType], whole: Iterable[str]) -> str:
    """Return text: blocks, wrapped at the terminal's width, then whole lines, which are not wrapped."""
    from rich.text import Text

    out = terminal.console()
    with out.capture() as captured:
        for line in whole:
            out.print(Text(terminal.printable(line)), soft_wrap=True)
    tail = captured.get().rstrip("\n")
    return terminal.rendered(blocks) + (f"\n{tail}" if tail else "")
