"""What a person sees of a study: its tables, drawn by a screen of its own, and on what it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from blackwell_matmul.screen import printable, telling
from blackwell_matmul.screen_bench import Outcome, on_what

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.studies.study_results import StudyResults

_SCREENS: Mapping[str, str] = MappingProxyType(
    {
        "torch-compile": "blackwell_matmul.screen_torch_compile",
        "triton-tma": "blackwell_matmul.screen_triton_tma",
        "bandwidth": "blackwell_matmul.screen_bandwidth",
    }
)
"""For each study the module whose `lines(results)` draws it."""


def studied(study: str, out: str, limit_s: float, again: bool, quick: bool, quiet: bool) -> Outcome:
    """Run what is missing on this machine's GPU, and draw all that is there."""
    from blackwell_matmul.harness.bench import bench_machine
    from blackwell_matmul.harness.bench.results import require_writable
    from blackwell_matmul.studies import running, trials_of
    from blackwell_matmul.studies.study_results import StudyResults

    gpu = bench_machine.gpu_at_hand()
    results = StudyResults(Path(out), study, bench_machine.machine_of(gpu))
    require_writable(Path(out))
    if again:
        results.forget()
    with telling(quiet) as tell:
        running.run(trials_of(study)(quick), results, limit_s, tell)
    return Outcome(
        results.as_dict(), [*study_lines(results)], all(row.status in ("done", "refused") for row in results)
    )


def study_lines(results: StudyResults) -> Iterator[RenderableType]:
    from rich.text import Text

    draw: Callable[[StudyResults], Iterator[RenderableType]] = import_module(_SCREENS[results.study]).lines
    yield from draw(results)
    yield Text(on_what(results.machine), style="dim")
    yield Text(printable(f"Written: {results.file}"))
