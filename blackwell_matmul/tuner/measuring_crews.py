"""Measuring processes of GPUs: several check, one times; they start their imports at once."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from blackwell_matmul.harness.bench import session
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.harness.bench.workers import Workers


@dataclass(frozen=True)
class MeasuringCrew:
    """Processes of one GPU. timer: kept between sessions. checkers: check in parallel."""

    gpu: MeasuringGpu
    timer: Workers
    checkers: tuple[Workers, ...]

    @property
    def everyone(self) -> tuple[Workers, ...]:
        return self.timer, *self.checkers

    def one_by_one(self) -> MeasuringCrew:
        return replace(self, checkers=self.checkers[:1])


@contextmanager
def measuring_crews(gpus: Sequence[MeasuringGpu], checkers: int, limit_s: float) -> Generator[list[MeasuringCrew]]:
    """Yield processes for each GPU, with this many checkers, or as many as the cores allow."""
    with ExitStack() as stack:
        most = (os.cpu_count() or 1) // len(gpus) - 1
        yield [stack.enter_context(_crew(gpu, max(1, min(checkers, most)), limit_s)) for gpu in gpus]


@contextmanager
def _crew(gpu: MeasuringGpu, checkers: int, limit_s: float) -> Generator[MeasuringCrew]:
    with (
        session.crew_of(1, limit_s, gpu.environment, keep=True) as (timer,),
        session.crew_of(checkers, limit_s, gpu.environment) as crew,
    ):
        yield MeasuringCrew(gpu, timer, crew)
