"""A run of bench: compile, check each contender alone, time the correct ones together, store the results.

Each step skips what the book has. A contender that is refused, wrong, crashes or hangs becomes a row with the reason,
and the others continue.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.bundles import Index, code_of, described
from blackwell_matmul.harness.bench.contenders import CUBLAS, Contender
from blackwell_matmul.harness.bench.protocol import Settings, Timing
from blackwell_matmul.harness.bench.results import Book, Row, Status
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.bench.workers import Ended, Task, Workers

T = TypeVar("T")
Pair = tuple[Contender, BenchCase]
Tell = Callable[[str], None]
"""Callback with the current step in a few words."""

TASK_LIMIT_S = 90.0
REPETITIONS = 5000
MOST_COMPILERS = 16
"""Maximum compiling processes, as each holds torch and tilus in memory."""


@dataclass(frozen=True)
class Plan:
    """Plan of a run. device: as for `devices.device_named`. limit_s: maximum silence of a child. repetitions: per
    contender and problem, in the stress suite; 0 for none.
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


def run(plan: Plan, book: Book, bundles: Index, gpu: Gpu, tell: Tell = lambda what: None) -> None:
    """Run the steps that the book lacks, and save it after each."""
    forget_old(plan, book)
    with keeping(lambda: kept(plan, bundles)):
        compile_missing(plan, book, bundles, gpu, tell)
    with keeping(lambda: f"{len(list(book))} rows are kept in {book.file}"), Workers(plan.limit_s) as workers:
        check_missing(plan, book, bundles, workers, tell)
        if plan.repetitions:
            stress_missing(plan, book, bundles, workers, tell)
        if plan.time:
            time_missing(plan, book, bundles, workers, tell)


def forget_old(plan: Plan, book: Book) -> None:
    """Remove rows of code that has changed since."""
    for contender in plan.contenders:
        rows = [book.get(contender.name, case.problem) for case in plan.cases_of(contender)]
        book.forget(row.key for row in rows if row is not None and row.code != code_of(contender))


# --- compile


def compile_missing(
    plan: Plan,
    book: Book | None,
    bundles: Index,
    gpu: Gpu,
    tell: Tell,
    until_s: float = math.inf,
    crew: Sequence[Workers] = (),
) -> list[str]:
    """Compile on all cores, or by given workers; return the reasons of refusals, which also get rows. until_s: deadline
    to begin, on time.monotonic's clock.
    """
    missing = [
        (contender, case)
        for contender, case in _kernels(plan)
        if bundles.find(contender, case.problem) is None and not (book and book.get(contender.name, case.problem))
    ]
    reasons, done = [], 0
    task = _compile_task(bundles.folder, gpu)
    ends = shared_out(crew, missing, task, until_s) if crew else on_all_cores(missing, task, plan.limit_s, until_s)
    with closing(ends):
        for (contender, case), ended in ends:
            done += 1
            what = "compiled" if ended.result is not None else "refused"
            tell(f"{what} {done} of {len(missing)}: {contender.name} {case.problem}")
            if ended.result is not None:
                bundles.add(contender, case.problem, ended.result)
                bundles.save()
                continue
            reasons.append(f"{contender.name} {case.problem}: {_reason(ended)}")
            if book is not None:
                book.put(_row(contender, case, ended))
    return reasons


def compiled(plan: Plan, bundles: Index) -> int:
    """Return the number of compiled kernels, each for a problem."""
    return sum(bundles.find(contender, case.problem) is not None for contender, case in _kernels(plan))


def kept(plan: Plan, bundles: Index) -> str:
    """Return the message for an interrupt."""
    return f"{compiled(plan, bundles)} of {len(_kernels(plan))} kernels are compiled and kept in {bundles.folder}"


def _kernels(plan: Plan) -> list[Pair]:
    return [pair for pair in plan.pairs() if pair[0].kind == "kernel"]


def _compile_task(folder: Path, gpu: Gpu) -> Callable[[Pair], Task]:
    def task(pair: Pair) -> Task:
        contender, case = pair
        about = {"contender": contender.as_task(), "problem": case.problem.as_dict()}
        return {"do": "compile", **about, "gpu": described(gpu), "folder": str(folder)}

    return task


def on_all_cores(
    items: Sequence[T], task: Callable[[T], Task], limit_s: float, until_s: float
) -> Generator[tuple[T, Ended]]:
    """Run a task for each item, a child and a share for each core; yield results as they come."""
    if items:
        with crew_of(len(items), limit_s) as crew:
            yield from shared_out(crew, items, task, until_s)


@contextmanager
def crew_of(
    count: int, limit_s: float, environment: Mapping[str, str] | None = None, keep: bool = False
) -> Generator[tuple[Workers, ...]]:
    """Yield workers, at most one a core; their first children start importing."""
    with ExitStack() as stack:
        cores = max(1, min(count, os.cpu_count() or 1, MOST_COMPILERS))
        made = (Workers(limit_s, environment=environment, keep=keep) for _ in range(cores))
        crew = [stack.enter_context(workers) for workers in made]
        for workers in crew:
            workers.prepare()
        yield tuple(crew)


def dealt(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """Deal items in turn."""
    return [items[first::count] for first in range(count)]


def shared_out(
    crew: Sequence[Workers], items: Sequence[T], task: Callable[[T], Task], until_s: float
) -> Generator[tuple[T, Ended]]:
    """Give each worker a share; yield results as they come. After a failure its worker waits for the caller, so close
    this generator if it may not be exhausted.
    """
    ended: queue.SimpleQueue[tuple[T, Ended, threading.Semaphore] | None] = queue.SimpleQueue()
    seen_to = [threading.Semaphore(0) for _ in crew]

    def work(workers: Workers, share: Sequence[T], seen: threading.Semaphore) -> None:
        try:
            with closing(workers.run([task(item) for item in share])) as ends:
                for item, end in zip(takewhile(lambda item: time.monotonic() < until_s, share), ends):
                    ended.put((item, end, seen))
                    seen.acquire()
        finally:
            ended.put(None)

    with ThreadPoolExecutor(len(crew)) as threads, _all_released(seen_to), ended_if_broken_off(crew):
        shares = [threads.submit(work, *each) for each in zip(crew, dealt(items, len(crew)), seen_to)]
        for _ in shares:
            for item, end, seen in iter(ended.get, None):
                yield item, end
                seen.release()
        for share in shares:
            share.result()


@contextmanager
def _all_released(semaphores: Sequence[threading.Semaphore]) -> Iterator[None]:
    try:
        yield
    finally:
        for each in semaphores:
            each.release()


@contextmanager
def ended_if_broken_off(crew: Sequence[Workers]) -> Iterator[None]:
    """Kill the workers on an exception, before joining their threads."""
    try:
        yield
    except BaseException:
        for workers in crew:
            workers.end()
        raise


# --- check


def check_side_by_side(
    plan: Plan,
    book: Book,
    bundles: Index,
    crew: Sequence[Workers],
    tell: Tell,
    until_s: float = math.inf,
    goes_on: Callable[[Row], bool] = lambda row: True,
) -> None:
    """Check as `check_missing` does, in parallel; a share uses one child until it fails. goes_on: asked after each."""
    missing = [(who, case) for who, case in plan.pairs() if book.get(who.name, case.problem) is None]
    tell(f"checking {len(missing)}, {len(crew)} at a time")

    def task(pair: Pair) -> Task:
        return _task("check", *pair, bundles, plan)

    with closing(shared_out(crew, missing, task, until_s)) as ends:
        for (contender, case), ended in ends:
            tell(f"checked {contender.name} {case.problem}")
            row = _row(contender, case, ended, bundles)
            book.put(row)
            book.save()
            if not goes_on(row):
                break


def check_missing(
    plan: Plan, book: Book, bundles: Index, workers: Workers, tell: Tell, until_s: float = math.inf
) -> None:
    """Check each contender in its own child."""
    for contender in takewhile(lambda each: time.monotonic() < until_s, plan.contenders):
        missing = [case for case in plan.cases_of(contender) if book.get(contender.name, case.problem) is None]
        tell(f"checking {contender.name} on {len(missing)} problems")
        tasks = [_task("check", contender, case, bundles, plan) for case in missing]
        for case, ended in _until_hung(workers.run(tasks), missing):
            book.put(_row(contender, case, ended, bundles))
            book.save()


def _until_hung(ends: Generator[Ended], cases: Sequence[BenchCase]) -> Iterator[tuple[BenchCase, Ended]]:
    """Yield results up to the first hang, so that a contender's other problems do not cost the time limit again."""
    hung = ""
    for case in cases:
        ended = Ended(failed=hung) if hung else next(ends, None)
        if ended is None:  # the workers have ended
            return
        yield case, ended
        if ended.hung:
            hung = f"not tried, since it hung on {case.problem}"
            ends.close()


def _task(do: str, contender: Contender, case: BenchCase, bundles: Index, plan: Plan) -> Task:
    return {
        "do": do,
        **_taking_part(contender, case, bundles),
        "problem": case.problem.as_dict(),
        "device": plan.device,
    }


def _taking_part(contender: Contender, case: BenchCase, bundles: Index) -> dict[str, Any]:
    return {"contender": contender.as_task(), "bundle": bundles.find(contender, case.problem)}


def _row(contender: Contender, case: BenchCase, ended: Ended, bundles: Index | None = None) -> Row:
    """Return the row of a check, or of a failed compilation."""
    found = bundles.find(contender, case.problem) if bundles else None
    schedule = (found or {}).get("schedule", {})
    row = Row(contender.name, case.problem, case.band, schedule=schedule, code=code_of(contender))
    if ended.result is None:
        return replace(row, status="refused" if ended.refused else "failed", reason=_reason(ended))
    status: Status = "correct" if ended.result["ok"] else "wrong"
    errors = {name: ended.result[name] for name in ("error", "cublas_error")}
    return replace(row, status=status, reason=ended.result["message"], **errors)


def _reason(ended: Ended) -> str:
    return ended.refused or f"{ended.failed}."


# --- time


def time_missing(plan: Plan, book: Book, bundles: Index, workers: Workers, tell: Tell) -> None:
    """Time each problem with all correct contenders; one missing time repeats them all."""
    while time_pass(plan, book, bundles, workers, tell):
        pass


def time_pass(plan: Plan, book: Book, bundles: Index, workers: Workers, tell: Tell) -> bool:
    """Time problems without times, once; return true if there was one. A failing contender skips the next pass, a
    hanging one all further ones.
    """
    sessions, tried = list(_sessions(plan, book)), False
    ends = workers.run([_measure_task(*session, bundles, plan) for session in sessions])
    for (case, able), ended in zip(sessions, ends):
        tried = True
        tell(f"timed {case.problem}: {', '.join(contender.name for contender in able)}")
        _keep(ended, case, able, plan, book)
        book.save()
        if ended.hung:
            _leave_out(ended.at, case, plan, book)
            break
    ends.close()
    return tried


def _leave_out(name: str, hung_on: BenchCase, plan: Plan, book: Book) -> None:
    for case in plan.cases:
        row = book.get(name, case.problem)
        if row is not None and row.timing is None and not row.untimed:
            book.put(replace(row, untimed=f"not tried, since it hung on {hung_on.problem}."))


def _sessions(plan: Plan, book: Book) -> Iterator[tuple[BenchCase, list[Contender]]]:
    """Yield problems to time, with their contenders."""
    for case in plan.cases:
        able = [each for each in plan.contenders if each.takes(case.problem) and _is_right(book, each, case)]
        if any(_is_untimed(book, contender, case) for contender in able):
            yield case, able


def _measure_task(case: BenchCase, able: Sequence[Contender], bundles: Index, plan: Plan) -> Task:
    parts = [_taking_part(contender, case, bundles) for contender in able]
    about = {"problem": case.problem.as_dict(), "settings": asdict(plan.settings), "device": plan.device}
    return {"do": "measure", "contenders": parts, **about}


def _is_right(book: Book, contender: Contender, case: BenchCase) -> bool:
    """Return true if a contender may be timed; cuBLAS always, as the others' reference."""
    row = book.get(contender.name, case.problem)
    good = ("correct", "wrong") if contender.kind == CUBLAS else ("correct",)
    return row is not None and row.status in good and not row.untimed


def _is_untimed(book: Book, contender: Contender, case: BenchCase) -> bool:
    row = book.get(contender.name, case.problem)
    return row is None or row.timing is None


def _keep(ended: Ended, case: BenchCase, able: Sequence[Contender], plan: Plan, book: Book) -> None:
    if ended.result is not None:
        _keep_times(ended.result, case, plan, book)
        return
    guilty = [contender for contender in able if contender.name == ended.at]
    for contender in guilty or able:  # no contender's step, e.g. buffers do not fit
        book.put(replace(book.row(contender.name, case.problem), untimed=_reason(ended)))


def _keep_times(result: Mapping[str, Any], case: BenchCase, plan: Plan, book: Book) -> None:
    from blackwell_matmul.harness.bench.devices import DATA

    taken = time.strftime("%Y-%m-%d %H:%M:%S")
    session = f"{case.problem} {taken}"
    about = {name: result[name] for name in ("warmup", "telemetry", "sets")}
    book.sessions[session] = {"taken": taken, "data": DATA, "settings": asdict(plan.settings), **about}
    timings = {name: dict(record) for name, record in result["timings"].items()}
    launched_by = {name: record.pop("launched_by") for name, record in timings.items()}
    cublas_us = timings.get(CUBLAS, {}).get("median_us")
    for name, record in timings.items():
        row = book.row(name, case.problem)
        how = {"launched_by": launched_by[name], "session": session, "cublas_us": cublas_us}
        book.put(replace(row, timing=Timing(**record), untimed="", **how))


# --- stress


def stress_missing(plan: Plan, book: Book, bundles: Index, workers: Workers, tell: Tell) -> None:
    for contender in plan.contenders:
        missing = [case for case in plan.cases_of(contender) if _is_unstressed(book, contender, case)]
        tasks = [
            {**_task("stress", contender, case, bundles, plan), "repetitions": plan.repetitions} for case in missing
        ]
        for case, ended in _until_hung(workers.run(tasks, tell), missing):
            row = book.row(contender.name, case.problem)
            found = ended.result or {"ok": False, "message": _reason(ended)}
            book.put(replace(row, stress=found))
            book.save()


def _is_unstressed(book: Book, contender: Contender, case: BenchCase) -> bool:
    row = book.get(contender.name, case.problem)
    return row is not None and row.status == "correct" and row.stress is None


def ok(rows: Iterable[Row]) -> bool:
    """Return true if something was right, and nothing but cuBLAS wrong or failed."""
    found = [row for row in rows if row.contender != CUBLAS]
    bad = [row for row in found if row.status in ("wrong", "failed") or row.untimed or not _stood(row)]
    return not bad and any(row.status == "correct" for row in found)


def _stood(row: Row) -> bool:
    return row.stress is None or bool(row.stress["ok"])
