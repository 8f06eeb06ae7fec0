"""`tune`: ranks candidates, compiles the first, checks each in a child process, and times the correct candidates in
turns.

With several GPUs, see `several_gpus`. A candidate that hangs, crashes or is wrong is reported with its reason. The
schedule of the fastest candidate is stored for later calls.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import TASKS, bench_machine, session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import Contender, cublas
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu, measuring_gpus
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.request import require_within
from blackwell_matmul.harness.bench.results import BenchRow, SuiteResults
from blackwell_matmul.harness.bench.session import Plan
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.calls.user_kernel import UserKernel
from blackwell_matmul.jobs import fork_server
from blackwell_matmul.jobs.worker import WorkerPool, worker_pool
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import winners
from blackwell_matmul.tuner.candidates import Candidates, Pins, candidates, spelled
from blackwell_matmul.tuner.gpu_workers import gpu_workers
from blackwell_matmul.tuner.ranking import MOST_PREDICTIONS, Ranked, checked, first, ordered
from blackwell_matmul.tuner.several_gpus import Measured, SeveralGpus, useful_gpus

BUDGET_S = 120.0
TOP, TOP_UNPREDICTED = 8, 16
"""Default number of measured candidates, with and without predictions (data in docs/time.md)."""

FITTED_ARCH = "sm_90a"
"""Architecture for which the fitted order of `candidates` is better than the time model's (`bench/choice.py`)."""

CANDIDATE_LIMIT_S = 30.0
TUNING_SETTINGS = Settings(rounds=20, group_us=5_000.0, warmup_s=3.0)
PREDICT_SHARE, COMPILE_SHARE, CHECK_SHARE = 0.3, 0.5, 0.8
"""Fractions of the budget after which predictions, compilations and checks end; timing gets the rest."""

CHECKERS, MOST_AT_ONCE_BYTES = 4, 1 << 30
"""Number of parallel checks on a GPU; one check at a time for problems whose float64 matrices exceed these bytes."""

LEAST_CHECK_S = 10.0
"""Minimum seconds for checks, however long compiling took, so that a short budget finds a schedule."""

Status = Literal["timed", "wrong", "refused", "failed", "not tried"]


@dataclass(frozen=True)
class CandidateTrial:
    """One candidate. reason: why it has no time. median_us, spread_percent, percent_of_cublas: None unless timed.
    predicted_us: None without prediction. gpu: index of the GPU that timed it, if several did. compared: True if timed
    in the winner's session."""

    schedule: Pins
    status: Status
    reason: str = ""
    median_us: float | None = None
    spread_percent: float | None = None
    percent_of_cublas: float | None = None
    predicted_us: float | None = None
    gpu: int | None = None
    compared: bool = True

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Return a sort key: times of the last session first, then others by percentage of cuBLAS, untimed last."""
        by = self.median_us if self.compared else -(self.percent_of_cublas or 0.0)
        return self.median_us is None, not self.compared, by or 0.0


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`. trials: best first, then untimed candidates. refused: number of schedules that cannot run, by
    reason. left_out: number of candidates beyond the first `top`; predicted: candidates of these with a prediction.
    gpus: indices of the measuring GPUs, the winner's first. lost: GPUs that failed, with reasons. stored_in: the file,
    or None."""

    kernel: str
    problem: Problem
    gpu: str
    trials: tuple[CandidateTrial, ...]
    refused: Mapping[str, int]
    left_out: int
    predicted: tuple[Ranked, ...]
    cublas_us: float | None
    seconds: float
    gpus: tuple[int, ...] = (0,)
    lost: Mapping[int, str] = field(default_factory=dict)
    stored_in: str | None = None

    @property
    def winner(self) -> CandidateTrial | None:
        first = self.trials[0] if self.trials else None
        return first if first and first.status == "timed" and first.compared else None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem.as_dict()}


def tune(
    rung: str,
    problem: Problem,
    *,
    budget_s: float = BUDGET_S,
    top: int | None = None,
    predict: int | None = None,
    limit_s: float = CANDIDATE_LIMIT_S,
    progress: Callable[[str], None] | None = None,
    executor: str = "",
    rows: Path | None = None,
    gpus: Sequence[int] | None = None,
) -> Tuning:
    """Find the fastest schedule of a rung ("v2", or "file.py:Script") for a problem on this machine's GPU, and store
    it.

    predict: number of candidates to predict, if the GPU has figures; None is MOST_PREDICTIONS, or 0 for a rung on
    Hopper. top: maximum number to measure; None is TOP, or TOP_UNPREDICTED without predictions. budget_s: approximate
    total time. limit_s: maximum seconds between reports of a candidate. executor, rows: as for `rank`. gpus: indices of
    measuring GPUs; None is all of the first one's kind, and fewer if each would have fewer than LEAST_SHARE candidates.

    Raises InputError for an unknown kernel, a kernel that cannot run, a file that cannot keep rows, or unknown GPUs.
    Raises UnsupportedError without a GPU. Warns of a lost GPU.
    """
    require_within("budget", budget_s, 1, 86_400)
    require_within("top", TOP if top is None else top, 1, 100_000, whole=True)
    require_within("predict", MOST_PREDICTIONS if predict is None else predict, 0, 100_000, whole=True)
    require_within("limit", limit_s, 1, 86_400)
    kernel, tell, by = checked(rung, problem, progress, executor, rows)
    measuring = measuring_gpus(gpus)
    gpu, start = bench_machine.gpu_at_hand(measuring[0].index), time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(keeping(lambda: "no winner is kept"))
        stack.callback(fork_server.stop_all)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        compilers = stack.enter_context(worker_pool(top or TOP, limit_s, TASKS))  # the workers import meanwhile
        found = candidates(kernel, problem, gpu)
        until_s = start + PREDICT_SHARE * budget_s
        fitted = gpu.arch == FITTED_ARCH and kernel.is_of_the_space
        most = (0 if fitted else MOST_PREDICTIONS) if predict is None else predict
        ranked = ordered(kernel, problem, gpu, found, most, until_s, tell, by)
        usual = TOP if fitted or any(row.predicted_us is not None for row in ranked) else TOP_UNPREDICTED
        tried = first(ranked, top or usual, found.ordered[0])
        measuring = useful_gpus(measuring, len(tried))
        seconds = start, budget_s, limit_s
        measured = _measure(kernel, problem, gpu, measuring, tried, folder, seconds, compilers, tell)
    made = _tuning(kernel, problem, gpu, found, ranked, tried, measured, time.monotonic() - start)
    return _stored(_with_gpus(measuring, measured, made), kernel, problem, gpu)


def contender_of(kernel: UserKernel, pins: Pins) -> Contender:
    return Contender(f"{kernel.name} {spelled(pins)}", "kernel", kernel.source, spelled(pins))


def _measure(
    kernel: UserKernel,
    problem: Problem,
    gpu: Gpu,
    measuring: Sequence[MeasuringGpu],
    tried: Sequence[Ranked],
    folder: Path,
    seconds: tuple[float, float, float],
    compilers: WorkerPool,
    tell: Callable[[str], None],
) -> Measured:
    """Return the measurements of the candidates and cuBLAS, taken as `bench` does. seconds: start, budget and limit."""
    start, budget_s, limit_s = seconds
    contenders = (cublas(), *(contender_of(kernel, each.schedule) for each in tried))
    plan = Plan(contenders, (BenchCase(problem),), TUNING_SETTINGS, DEVICE, limit_s)
    results, index = SuiteResults(folder, "tune", bench_machine.machine_of(gpu)), Index(folder / "bundles", gpu.arch)
    with gpu_workers(measuring, _checkers(problem), limit_s) as workers:
        session.compile_missing(plan, results, index, gpu, tell, start + COMPILE_SHARE * budget_s, compilers)
        until_s = max(start + CHECK_SHARE * budget_s, time.monotonic() + LEAST_CHECK_S)
        ready = _compiled(plan, index, problem)
        if len(workers) > 1:
            measured = SeveralGpus(workers, ready, index, results, folder, tell).measure(until_s)
            return replace(measured, rows={**_by_name(results), **measured.rows})
        (alone,) = workers
        session.check_in_parallel(ready, results, index, alone.checkers, tell, until_s)
        session.time_missing(ready, results, index, alone.timer, tell)
    return Measured(_by_name(results))


def _checkers(problem: Problem) -> int:
    m, n, k = problem.m, problem.n, problem.k
    return CHECKERS if 8 * problem.batches * (m * n + m * k + n * k) <= MOST_AT_ONCE_BYTES else 1


def _by_name(results: SuiteResults) -> dict[str, BenchRow]:
    return {row.contender: row for row in results}


def _with_gpus(measuring: Sequence[MeasuringGpu], measured: Measured, made: Tuning) -> Tuning:
    """Return the result with the measuring GPUs, the last session's first."""
    indices = [gpu.index for gpu in measuring if gpu.index not in measured.lost]
    where = measured.gpu_of.get(cublas().name)
    return replace(made, gpus=tuple(sorted(indices, key=lambda index: index != where)), lost=measured.lost)


DEVICE = "cuda"


def _compiled(plan: Plan, index: Index, problem: Problem) -> Plan:
    """Return the plan without candidates that were not compiled in time."""
    able = (each for each in plan.contenders if each.kind != "kernel" or index.find(each, problem))
    return Plan(tuple(able), plan.cases, plan.settings, plan.device, plan.limit_s)


def _tuning(
    kernel: UserKernel,
    problem: Problem,
    gpu: Gpu,
    found: Candidates,
    ranked: Sequence[Ranked],
    tried: Sequence[Ranked],
    measured: Measured,
    seconds: float,
) -> Tuning:
    trials = [_trial(each, contender_of(kernel, each.schedule).name, measured) for each in tried]
    trials.sort(key=lambda trial: trial.order)
    reference = measured.rows.get(cublas().name)
    cublas_us = reference.timing.median_us if reference and reference.timing else None
    others = [row for row in ranked if row not in tried]
    predicted = tuple(row for row in others if row.predicted_us is not None)
    told = tuple(trials), found.refused, len(others), predicted
    return Tuning(kernel.name, problem, gpu.name, *told, cublas_us, seconds)


def _trial(each: Ranked, name: str, measured: Measured) -> CandidateTrial:
    row, gpu = measured.rows.get(name), measured.gpu_of.get(name)
    compared = gpu is None or name in measured.last
    made = partial(CandidateTrial, each.schedule, predicted_us=each.predicted_us, gpu=gpu, compared=compared)
    if row is None:
        return made("not tried", "the budget was spent.")
    if row.status != "correct":
        return made(row.status, row.reason)
    if row.timing is None:
        return made("failed", row.untimed)
    return made("timed", "", row.timing.median_us, row.timing.spread_percent, row.percent_of_cublas)


def _stored(made: Tuning, kernel: UserKernel, problem: Problem, gpu: Gpu) -> Tuning:
    """Store the winner; return the result with the file."""
    if made.winner is None:
        return made
    record = {
        "schedule": dict(made.winner.schedule),
        "tuning": made.as_dict(),
        "taken": time.strftime("%Y-%m-%d %H:%M"),
    }
    file = winners.keep(kernel.script_cls, problem, gpu, record)
    return replace(made, stored_in=None if file is None else str(file))
