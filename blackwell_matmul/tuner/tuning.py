"""`tune`: rank the candidates, compile the first, check each in a child process of its own, time those that are right,
all in turn; on several GPUs each does so with a share, and the first of each share meet again on one (`several_gpus`).

What hangs, crashes or is wrong costs one candidate and is told with its reason. The winner is kept where calls find it.
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

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.base.validation import number, shown
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import bench_machine, nursery, session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import Contender, cublas
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu, measuring_gpus
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Book, Row
from blackwell_matmul.harness.bench.session import Plan
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.bench.workers import Workers
from blackwell_matmul.harness.calls.user_kernel import UserKernel, find
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import winners
from blackwell_matmul.tuner.candidates import Candidates, Pins, candidates, spelled
from blackwell_matmul.tuner.measuring_crews import measuring_crews
from blackwell_matmul.tuner.predicting_trials import Predictors
from blackwell_matmul.tuner.ranking import MOST, Ranked, first, ordered
from blackwell_matmul.tuner.several_gpus import Measured, SeveralGpus, worth_it

BUDGET_S = 120.0
TOP, TOP_UNPREDICTED = 8, 16
"""How many candidates are measured, where the order of the others is known and where it is a rule of thumb. Of tiles
on an H200 the fastest was always among the first five (docs/time.md); a rung has knobs besides."""

FITTED_ARCH = "sm_90a"
"""There the order of a rung's candidates was fitted to times of an H200, and is better than what the model of time
makes of it (`bench/choice.py`), which costs half a minute."""

LIMIT_S = 30.0
SETTINGS = Settings(rounds=20, group_us=5_000.0, warmup_s=3.0)
PREDICT_SHARE, COMPILE_SHARE, CHECK_SHARE = 0.3, 0.5, 0.8
"""Of the budget: when nothing more is predicted, compiled, and checked; the rest is for timing."""

CHECKERS, MOST_AT_ONCE_BYTES = 4, 1 << 30
"""How many candidates a GPU checks at once, each with matrices of float64; one, where these are larger."""

LEAST_CHECK_S = 10.0
"""For checks, however long compiling took: a short budget finds something, too."""

Status = Literal["timed", "wrong", "refused", "failed", "not tried"]


@dataclass(frozen=True)
class CandidateTrial:
    """One candidate. median_us, spread_percent, percent_of_cublas: None unless it was timed; reason: why not.
    predicted_us: before that; None where it was not. gpu: which one has timed it, where several did; compared: in one
    session with the winner, as all are on one GPU."""

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
        """Times of two sessions are not compared: behind those of the last one it is by percentages of cuBLAS."""
        by = self.median_us if self.compared else -(self.percent_of_cublas or 0.0)
        return self.median_us is None, not self.compared, by or 0.0


@dataclass(frozen=True)
class Tuning:
    """What `tune` found. trials: best first, then those that were not timed. refused: how many schedules cannot run, by
    reason. left_out: how many could and were not among the first `top`; predicted: those of them whose time was
    predicted. gpus: which of this machine measured, the one that the winner was found on first; lost: which did not to
    the end, and why. stored_in: the file; None where none is."""

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
    limit_s: float = LIMIT_S,
    progress: Callable[[str], None] | None = None,
    executor: str = "",
    rows: Path | None = None,
    gpus: Sequence[int] | None = None,
) -> Tuning:
    """Find the fastest schedule of a rung ("v2", or "file.py:Script") for a problem on this machine's GPU, and keep it.

    predict: how many candidates are predicted first, where the GPU has figures; those of the shortest predicted time
    are measured. None is MOST; for a rung on a Hopper none, since the order is as good there. top: how many these are
    at most; None is TOP, or TOP_UNPREDICTED where that order is a rule of thumb.
    budget_s: about how long it may take; what has been checked after most of it is timed. limit_s: the longest that a
    candidate may be silent. executor, rows: who predicts and which file keeps it, as for `rank`. gpus: who measures, by
    index; None is all of the first one's kind. Where these would have fewer than LEAST_SHARE candidates each, fewer of
    them measure. Raises InputError for what is no kernel or cannot run and for GPUs that there are not,
    UnsupportedError where there is no GPU; warns of a GPU that is lost.
    """
    _require("budget", budget_s, 1, 86_400)
    _require("top", TOP if top is None else top, 1, 100_000)
    _require("predict", MOST if predict is None else predict, 0, 100_000)
    _require("limit", limit_s, 1, 86_400)
    kernel, measuring = find(rung), measuring_gpus(gpus)
    gpu, start, tell = bench_machine.gpu_at_hand(measuring[0].index), time.monotonic(), progress or (lambda what: None)
    with ExitStack() as stack:
        stack.enter_context(keeping(lambda: "no winner is kept"))
        stack.callback(nursery.leave)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        compilers = stack.enter_context(session.crew_of(top or TOP, limit_s))  # they import meanwhile
        found = candidates(kernel, problem, gpu)
        until_s, by = start + PREDICT_SHARE * budget_s, Predictors(executor, rows)
        fitted = gpu.arch == FITTED_ARCH and kernel.is_of_the_space
        most = (0 if fitted else MOST) if predict is None else predict
        ranked = ordered(kernel, problem, gpu, found, most, until_s, tell, by)
        tried = first(ranked, top or _top(ranked, fitted), found.ordered[0])
        measuring = worth_it(measuring, len(tried))
        seconds = start, budget_s, limit_s
        measured = _measure(kernel, problem, gpu, measuring, tried, folder, seconds, compilers, tell)
    made = _tuning(kernel, problem, gpu, found, ranked, tried, measured, time.monotonic() - start)
    return _kept(_on(measuring, measured, made), kernel, problem, gpu)


def _top(ranked: Sequence[Ranked], fitted: bool) -> int:
    return TOP if fitted or any(row.predicted_us is not None for row in ranked) else TOP_UNPREDICTED


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
    compilers: Sequence[Workers],
    tell: Callable[[str], None],
) -> Measured:
    """The candidates and cuBLAS through the same steps as in `bench`. seconds: the start, the budget and the limit."""
    start, budget_s, limit_s = seconds
    contenders = (cublas(), *(contender_of(kernel, each.schedule) for each in tried))
    plan = Plan(contenders, (BenchCase(problem),), SETTINGS, DEVICE, limit_s)
    book, index = Book(folder, "tune", bench_machine.machine_of(gpu)), Index(folder / "bundles", gpu.arch)
    with measuring_crews(measuring, _checkers(problem), limit_s) as crews:
        session.compile_missing(plan, book, index, gpu, tell, start + COMPILE_SHARE * budget_s, compilers)
        until_s = max(start + CHECK_SHARE * budget_s, time.monotonic() + LEAST_CHECK_S)
        ready = _compiled(plan, index, problem)
        if len(crews) > 1:
            measured = SeveralGpus(crews, ready, index, book, folder, tell).measure(until_s)
            return replace(measured, rows={**_by_name(book), **measured.rows})
        (crew,) = crews
        session.check_side_by_side(ready, book, index, crew.checkers, tell, until_s)
        session.time_missing(ready, book, index, crew.timer, tell)
    return Measured(_by_name(book))


def _checkers(problem: Problem) -> int:
    m, n, k = problem.m, problem.n, problem.k
    return CHECKERS if 8 * problem.batches * (m * n + m * k + n * k) <= MOST_AT_ONCE_BYTES else 1


def _by_name(book: Book) -> dict[str, Row]:
    return {row.contender: row for row in book}


def _on(measuring: Sequence[MeasuringGpu], measured: Measured, made: Tuning) -> Tuning:
    """The same, with the GPUs that measured: the one of the last session first."""
    indices = [gpu.index for gpu in measuring if gpu.index not in measured.lost]
    where = measured.gpu_of.get(cublas().name)
    return replace(made, gpus=tuple(sorted(indices, key=lambda index: index != where)), lost=measured.lost)


DEVICE = "cuda"


def _compiled(plan: Plan, index: Index, problem: Problem) -> Plan:
    """Without those that the budget left no time for."""
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


def _kept(made: Tuning, kernel: UserKernel, problem: Problem, gpu: Gpu) -> Tuning:
    """The same, with the winner kept."""
    if made.winner is None:
        return made
    record = {
        "schedule": dict(made.winner.schedule),
        "tuning": made.as_dict(),
        "taken": time.strftime("%Y-%m-%d %H:%M"),
    }
    file = winners.keep(kernel.script_cls, problem, gpu, record)
    return replace(made, stored_in=None if file is None else str(file))


def _require(name: str, value: object, low: int, high: int) -> None:
    found = number(value)
    if found is None or not low <= found <= high:
        raise InputError(f"{name} is {shown(value)}; it must be from {low} to {high}.")
