"""Tuner: finds the fastest schedule on this GPU by measurement, and stores it.

`candidates` lists and orders schedules. `ranking` predicts the first of them. `tuning` measures the best through the
harness and stores the winner, which `tuned` returns. `packs` compiles the kernels of common calls ahead.

May import: base, compiler, frontend, hardware, harness, jobs, ops, problem, runtime, scheduling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackwell_matmul.base.first_use import on_first_use

if TYPE_CHECKING:
    from blackwell_matmul.tuner.ranking import Ranking, rank
    from blackwell_matmul.tuner.tuned import stored
    from blackwell_matmul.tuner.tuning import Tuning, tune

__all__ = ["Ranking", "Tuning", "rank", "stored", "tune"]

__getattr__ = on_first_use(
    __name__, {"ranking": ("Ranking", "rank"), "tuned": ("stored",), "tuning": ("Tuning", "tune")}
)
