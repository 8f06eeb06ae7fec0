"""Tuner: finds the fastest schedule on this GPU by measurement, and stores it.

`candidates` lists and orders schedules. `ranking` predicts the first of them. `tuning` measures the best through the
harness and stores the winner, which `tuned` returns. `packs` compiles the kernels of common calls ahead.

May import: base, compiler, frontend, hardware, harness, jobs, kernels, ops, problem, runtime, scheduling.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blackwell_matmul.tuner.ranking import Ranking, rank
    from blackwell_matmul.tuner.tuned import stored
    from blackwell_matmul.tuner.tuning import Tuning, tune

__all__ = ["Ranking", "Tuning", "rank", "stored", "tune"]

_HOMES = {"Ranking": "ranking", "Tuning": "tuning", "rank": "ranking", "stored": "tuned", "tune": "tuning"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
