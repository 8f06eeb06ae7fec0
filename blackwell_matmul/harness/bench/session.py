"""A run of bench: compiles, checks each contender alone, times the correct contenders together, stores the results.

Each step skips rows that the results already have. A contender that is refused, wrong, crashes or hangs gets a row with
the reason, and the other contenders continue.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import TASKS
from blackwell_matmul.harness.bench.bundles import Index, code_of, described
from blackwell_matmul.harness.bench.contenders import CUBLAS, Contender
from blackwell_matmul.harness.bench.protocol import Settings, Timing
from blackwell_matmul.harness.bench.results import BenchRow, Status, SuiteResults
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.jobs.worker import Task, TaskOutcome, Worker, WorkerPool, worker_pool

Pair = tuple[Contender, BenchCase]
Tell = Callable[[str], None]
"""Callback that takes a short description of the current step."""

TASK_LIMIT_S = 90.0
REPETITIONS = 5000


@dataclass(frozen=True)
class Plan:
    """Plan of a run.

    device: a name for `devices.device_named`. limit_s: longest time in seconds without a report of a child process.
    repetitions: number of stress calls for each contender and problem. time: True times the correct contenders.
    """

    contenders: tuple[Contender, ...]
    cases: tuple[BenchCase, ...]
    settings: Settings = field(default_factory=Settings)
    device: str = "cuda"
    limit_s: float = TASK_LIMIT_S
    repetitions: int = 0
    time: bool = True

    def pairs(self) -> Iterator[Pair]:
        return ((contender, case) for contender in self.contenders for case in self.cases_of(contender))

    def cases_of(self, contender: Contender) -> list[BenchCase]:
        return [case for case in self.cases if contender.takes(case.problem)]


def run(plan: Plan, results: SuiteResults, bundles: Index, gpu: Gpu, tell: Tell = lambda what: None) -> None:
    """Run the steps that the results lack, and save after each step."""
    remove_stale(plan, results)
    with keeping(lambda: progress_message(plan, bundles)):
        compile_missing(plan, results, bundles, gpu, tell)
    kept = keeping(lambda: f"{len(list(results))} rows are kept in {results.file}")
    with kept, Worker(plan.limit_s, TASKS) as worker:
        check_missing(plan, results, bundles, worker, tell)
        if plan.repetitions:
            stress_missing(plan, results, bundles, worker, tell)
        if plan.time:
            time_missing(plan, results, bundles, worker, tell)


def remove_stale(plan: Plan, results: SuiteResults) -> None:
    """Remove rows of contenders whose code has changed since."""
    for contender in plan.contenders:
        rows = [results.get(contender.name, case.problem) for case in plan.cases_of(contender)]
        results.forget(row.key for row in rows if row is not None and row.code != code_of(contender))


# --- compile


def compile_missing(
    plan: Plan,
    results: SuiteResults | None,
    bundles: Index,
    gpu: Gpu,
    tell: Tell,
    until_s: float = math.inf,
    pool: WorkerPool | None = None,
) -> list[str]:
    """Compile the kernels that the index lacks; return the messages of refused kernels, which also get rows.

    until_s: value of time.monotonic() after which no compilation begins. pool: worker processes; None: one for each
    core.
    """
    missing = [
        (contender, case)
        for contender, case in _kernels(plan)
        if bundles.find(contender, case.problem) is None and not (results and results.get(contender.name, case.problem))
    ]
    if missing and pool is None:
        with worker_pool(len(missing), plan.limit_s, TASKS) as pool:
            return compile_missing(plan, results, bundles, gpu, tell, until_s, pool)
    reasons = []
    outcomes = pool.run(missing, _compile_task(bundles.folder, gpu), until_s) if pool else ()
    for done, ((contender, case), outcome) in enumerate(outcomes, 1):
        what = "compiled" if outcome.result is not None else "refused"
        tell(f"{what} {done} of {len(missing)}: {contender.name} {case.problem}")
        if outcome.result is not None:
            bundles.add(contender, case.problem, outcome.result)
            bundles.save()
            continue
        reasons.append(f"{contender.name} {case.problem}: {_reason(outcome)}")
        if results is not None:
            results.put(_row(contender, case, outcome))
    return reasons


def compiled(plan: Plan, bundles: Index) -> int:
    """Return the number of compiled pairs of kernel and problem."""
    return sum(bundles.find(contender, case.problem) is not None for contender, case in _kernels(plan))


def progress_message(plan: Plan, bundles: Index) -> str:
    """Return the message of an interrupt: how many kernels are compiled."""
    return f"{compiled(plan, bundles)} of {len(_kernels(plan))} kernels are compiled and kept in {bundles.folder}"


def _kernels(plan: Plan) -> list[Pair]:
    return [pair for pair in plan.pairs() if pair[0].kind == "kernel"]


def _compile_task(folder: Path, gpu: Gpu) -> Callable[[Pair], Task]:
    def task(pair: Pair) -> Task:
        contender, case = pair
        about = {"contender": asdict(contender), "problem": case.problem.as_dict()}
        return {"do": f"{TASKS}:compile_kernel", **about, "gpu": described(gpu), "folder": str(folder)}

    return task


# --- check


def check_in_parallel(
    plan: Plan,
    results: SuiteResults,
    bundles: Index,
    pool: WorkerPool,
    tell: Tell,
    until_s: float = math.inf,
    may_continue: Callable[[BenchRow], bool] = lambda row: True,
) -> None:
    """Check as `check_missing` does, on several workers. A worker keeps its child process until a check fails.

    may_continue: function of each new row; False stops the checks.
    """
    missing = [(who, case) for who, case in plan.pairs() if results.get(who.name, case.problem) is None]
    tell(f"checking {len(missing)}, {len(pool.workers)} at a time")
    with closing(pool.run(missing, lambda pair: _task("check", *pair, bundles, plan), until_s)) as outcomes:
        for (contender, case), outcome in outcomes:
            tell(f"checked {contender.name} {case.problem}")
            row = _row(contender, case, outcome, bundles)
            results.put(row)
            results.save()
            if not may_continue(row):
                break


def check_missing(plan: Plan, results: SuiteResults, bundles: Index, worker: Worker, tell: Tell) -> None:
    """Check the contenders and problems without a row, each contender in a new child process."""
    for contender in plan.contenders:
        missing = [case for case in plan.cases_of(contender) if results.get(contender.name, case.problem) is None]
        tell(f"checking {contender.name} on {len(missing)} problems")
        tasks = ((case, _task("check", contender, case, bundles, plan)) for case in missing)
        for case, outcome in _until_timeout(worker, tasks):
            results.put(_row(contender, case, outcome, bundles))
            results.save()


def _until_timeout(
    worker: Worker, tasks: Iterable[tuple[BenchCase, Task]], step: Tell = lambda what: None
) -> Iterator[tuple[BenchCase, TaskOutcome]]:
    """Yield the outcome of each of a contender's tasks. After a hang the other tasks are not tried, and fail."""
    hung = ""
    for case, task in tasks:
        outcome = TaskOutcome(failed=hung) if hung else worker.do(task, step)
        yield case, outcome
        if outcome.timed_out:
            hung = f"not tried, since it hung on {case.problem}"
    worker.renew()


def _task(do: str, contender: Contender, case: BenchCase, bundles: Index, plan: Plan) -> Task:
    return {
        "do": f"{TASKS}:{do}",
        **_participants(contender, case, bundles),
        "problem": case.problem.as_dict(),
        "device": plan.device,
    }


def _participants(contender: Contender, case: BenchCase, bundles: Index) -> dict[str, Any]:
    return {"contender": asdict(contender), "bundle": bundles.find(contender, case.problem)}


def _row(contender: Contender, case: BenchCase, outcome: TaskOutcome, bundles: Index | None = None) -> BenchRow:
    """Return the row of a check, or of a failed compilation."""
    found = bundles.find(contender, case.problem) if bundles else None
    schedule = (found or {}).get("schedule", {})
    row = BenchRow(contender.name, case.problem, case.band, schedule=schedule, code=code_of(contender))
    if outcome.result is None:
        return replace(row, status="refused" if outcome.refused else "failed", reason=_reason(outcome))
    status: Status = "correct" if outcome.result["ok"] else "wrong"
    errors = {name: outcome.result[name] for name in ("error", "cublas_error")}
    return replace(row, status=status, reason=outcome.result["message"], **errors)


def _reason(outcome: TaskOutcome) -> str:
    return outcome.refused or f"{outcome.failed}."


# --- time


def time_missing(plan: Plan, results: SuiteResults, bundles: Index, worker: Worker, tell: Tell) -> None:
    """Time each problem with all correct contenders. If a contender's time is missing, all contenders of the problem
    are timed again."""
    while time_pass(plan, results, bundles, worker, tell):
        pass


def time_pass(plan: Plan, results: SuiteResults, bundles: Index, worker: Worker, tell: Tell) -> bool:
    """Time once each problem that lacks times; return True if there was one.

    A contender that fails is left out of the problem's next pass, one that hangs of all later passes.
    """
    sessions = list(_sessions(plan, results))
    for case, able in sessions:
        outcome = worker.do(_measure_task(case, able, bundles, plan))
        tell(f"timed {case.problem}: {', '.join(contender.name for contender in able)}")
        _keep(outcome, case, able, plan, results)
        results.save()
        if outcome.timed_out:
            _exclude(outcome.step, case, plan, results)
            break
    return bool(sessions)


def _exclude(name: str, hung_on: BenchCase, plan: Plan, results: SuiteResults) -> None:
    for case in plan.cases:
        row = results.get(name, case.problem)
        if row is not None and row.timing is None and not row.untimed:
            results.put(replace(row, untimed=f"not tried, since it hung on {hung_on.problem}."))


def _sessions(plan: Plan, results: SuiteResults) -> Iterator[tuple[BenchCase, list[Contender]]]:
    """Yield the problems that lack times, each with its correct contenders."""
    for case in plan.cases:
        able = [each for each in plan.contenders if each.takes(case.problem) and _is_right(results, each, case)]
        if any(_is_untimed(results, contender, case) for contender in able):
            yield case, able


def _measure_task(case: BenchCase, able: Sequence[Contender], bundles: Index, plan: Plan) -> Task:
    parts = [_participants(contender, case, bundles) for contender in able]
    about = {"problem": case.problem.as_dict(), "settings": asdict(plan.settings), "device": plan.device}
    return {"do": f"{TASKS}:measure", "contenders": parts, **about}


def _is_right(results: SuiteResults, contender: Contender, case: BenchCase) -> bool:
    """Return True if a contender may be timed: its result is correct, or it is cuBLAS, the reference."""
    row = results.get(contender.name, case.problem)
    good = ("correct", "wrong") if contender.kind == CUBLAS else ("correct",)
    return row is not None and row.status in good and not row.untimed


def _is_untimed(results: SuiteResults, contender: Contender, case: BenchCase) -> bool:
    row = results.get(contender.name, case.problem)
    return row is None or row.timing is None


def _keep(outcome: TaskOutcome, case: BenchCase, able: Sequence[Contender], plan: Plan, results: SuiteResults) -> None:
    if outcome.result is not None:
        _keep_times(outcome.result, case, plan, results)
        return
    at_fault = [contender for contender in able if contender.name == outcome.step]
    for contender in at_fault or able:  # all, if no contender is at fault: buffers may not fit, for example
        results.put(replace(results.row(contender.name, case.problem), untimed=_reason(outcome)))


def _keep_times(result: Mapping[str, Any], case: BenchCase, plan: Plan, results: SuiteResults) -> None:
    from blackwell_matmul.harness.bench.devices import DATA, SCALED_DATA

    taken = time.strftime("%Y-%m-%d %H:%M:%S")
    session = f"{case.problem} {taken}"
    data = SCALED_DATA if case.problem.format else DATA
    about = {name: result[name] for name in ("warmup", "telemetry", "sets")}
    results.sessions[session] = {"taken": taken, "data": data, "settings": asdict(plan.settings), **about}
    timings = {name: dict(record) for name, record in result["timings"].items()}
    launched_by = {name: record.pop("launched_by") for name, record in timings.items()}
    cublas_us = timings.get(CUBLAS, {}).get("median_us")
    for name, record in timings.items():
        row = results.row(name, case.problem)
        how = {"launched_by": launched_by[name], "session": session, "cublas_us": cublas_us}
        results.put(replace(row, timing=Timing(**record), untimed="", **how))


# --- stress


def stress_missing(plan: Plan, results: SuiteResults, bundles: Index, worker: Worker, tell: Tell) -> None:
    for contender in plan.contenders:
        missing = [case for case in plan.cases_of(contender) if _is_unstressed(results, contender, case)]
        repeated = {"repetitions": plan.repetitions}
        tasks = ((case, {**_task("stress", contender, case, bundles, plan), **repeated}) for case in missing)
        for case, outcome in _until_timeout(worker, tasks, tell):
            row = results.row(contender.name, case.problem)
            found = outcome.result or {"ok": False, "message": _reason(outcome)}
            results.put(replace(row, stress=found))
            results.save()


def _is_unstressed(results: SuiteResults, contender: Contender, case: BenchCase) -> bool:
    row = results.get(contender.name, case.problem)
    return row is not None and row.status == "correct" and row.stress is None


def ok(rows: Iterable[BenchRow]) -> bool:
    """Return True if a contender was correct, and none but cuBLAS was wrong, failed or hung."""
    found = [row for row in rows if row.contender != CUBLAS]
    bad = [row for row in found if row.status in ("wrong", "failed") or row.untimed]
    stressed = all(row.stress is None or row.stress["ok"] for row in found)
    return not bad and stressed and any(row.status == "correct" for row in found)
