"""Studies: what else a GPU's owner wants to know, measured once and kept. What torch.compile makes of matmuls, which
TMA configurations of Triton win, how fast TMA moves bytes.

A study is a list of trials (`trial`). Each runs in a process of its own, with an environment of its own, under a time
limit, so that a compiler that crashes or a kernel that hangs is a row and not the end; each row is kept
(`study_results`), and a second run goes on with the rest (`running`). One file a study; `STUDIES` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

from blackwell_matmul_studies.trial import Trial

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "torch-compile": "torch_compile",
        "triton-tma": "triton_tma",
        "bandwidth": "bandwidth",
    }
)
STUDIES = tuple(_MODULES)
"""As `blackwell-matmul bench --suite` names them."""


def trials_of(study: str) -> Callable[[bool], tuple[Trial, ...]]:
    """The function that lists a study's trials. It takes whether a few are enough (--quick)."""
    found: Callable[[bool], tuple[Trial, ...]] = import_module(f"{__name__}.{_MODULES[study]}").trials
    return found
