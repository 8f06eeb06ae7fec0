"""Worker processes for GPUs: several check results, and one measures times. All start their imports at once."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from blackwell_matmul.harness.bench import TASKS
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.jobs.worker import Worker, WorkerPool, worker_pool


@dataclass(frozen=True)
class GpuWorkers:
    """Workers of one GPU. timer: keeps its child process between sessions. checkers: check in parallel."""

    gpu: MeasuringGpu
    timer: Worker
    checkers: WorkerPool

    @property
    def all(self) -> tuple[Worker, ...]:
        return self.timer, *self.checkers.workers

    def with_single_checker(self) -> GpuWorkers:
        return replace(self, checkers=WorkerPool(self.checkers.workers[:1]))


@contextmanager
def gpu_workers(gpus: Sequence[MeasuringGpu], checkers: int, limit_s: float) -> Generator[list[GpuWorkers]]:
    """Yield workers for each GPU, with `checkers` checkers, or as many as the CPU's cores allow."""
    with ExitStack() as stack:
        most = (os.cpu_count() or 1) // len(gpus) - 1

        def pool(gpu: MeasuringGpu, count: int) -> WorkerPool:
            return stack.enter_context(worker_pool(count, limit_s, TASKS, gpu.environment))

        yield [GpuWorkers(gpu, pool(gpu, 1).workers[0], pool(gpu, max(1, min(checkers, most)))) for gpu in gpus]
