"""View of a study: its tables, drawn by its own view, and the machine measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from blackwell_matmul.cli.views.bench_view import on_what
from blackwell_matmul.cli.views.terminal import line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul_studies.study_results import StudyResults

_VIEWS: Mapping[str, str] = MappingProxyType(
    {
        "torch-compile": "blackwell_matmul_studies.views.torch_compile_view",
        "triton-tma": "blackwell_matmul_studies.views.triton_tma_view",
        "bandwidth": "blackwell_matmul_studies.views.bandwidth_view",
    }
)
"""Module whose `lines(results)` draws each study."""


def study_lines(results: StudyResults) -> Iterator[RenderableType]:
    draw: Callable[[StudyResults], Iterator[RenderableType]] = import_module(_VIEWS[results.study]).lines
    yield from draw(results)
    yield line(on_what(results.machine), "dim")
    yield line(f"Written: {results.file}")
