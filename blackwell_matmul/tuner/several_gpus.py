"""Tuning on several GPUs of one model in parallel.

Each GPU checks and times a share of the candidates, in processes that see only this GPU. GPUs of one model differ by
some percent, so times compare only within a share. The best of each share are timed again on one GPU, which decides. A
GPU counts as lost if a candidate fails on it and cuBLAS fails afterwards. Other GPUs take over the lost GPU's share.
They check one candidate at a time, to find a candidate that makes a second GPU fail.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from blackwell_matmul.harness.bench import session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import CUBLAS, Contender, cublas
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import BenchRow, SuiteResults
from blackwell_matmul.harness.bench.session import Plan, Tell
from blackwell_matmul.jobs.worker import ended_on_exception
from blackwell_matmul.tuner.gpu_workers import GpuWorkers

LEAST_SHARE = 8
"""Minimum candidates per GPU. Each GPU also runs cuBLAS, and finalists are timed twice."""

FINALISTS = 3
"""Number of finalists of each share. Close times may be in reverse order on another GPU of the model."""

SHARE_ROUNDS_FRACTION = 0.5
"""Fraction of the rounds for timing within a share; finalists get all rounds."""

NO_GPU_LEFT = "no GPU was left for it."


def useful_gpus(gpus: tuple[MeasuringGpu, ...], candidates: int) -> tuple[MeasuringGpu, ...]:
    """Return as many GPUs as get at least LEAST_SHARE candidates each, but at least one GPU."""
    return gpus[: max(1, candidates // LEAST_SHARE)]


@dataclass
class Measured:
    """Result of the measurement. rows: by contender. gpu_of: index of the GPU that timed each contender. last:
    contenders of the final session, on one GPU. lost: reasons, by GPU."""

    rows: dict[str, BenchRow] = field(default_factory=dict)
    gpu_of: dict[str, int] = field(default_factory=dict)
    last: frozenset[str] = frozenset()
    lost: dict[int, str] = field(default_factory=dict)

    def take(self, gpu: MeasuringGpu, rows: Iterable[BenchRow]) -> None:
        for row in rows:
            self.rows[row.contender] = row
            self.gpu_of[row.contender] = gpu.index


class Share:
    """Contenders that one GPU checks and times. lost: the reason if the GPU has failed. failed_at: contender after
    which it failed. in_progress: contenders that may have caused the failure."""

    def __init__(self, workers: GpuWorkers, plan: Plan, results: SuiteResults, index: Index, tell: Tell) -> None:
        self.workers, self.plan, self.results, self._index = workers, plan, results, index
        self._tell: Tell = lambda what: tell(f"GPU {workers.gpu.index}: {what}")
        self.lost, self.failed_at, self.in_progress = "", "", frozenset[str]()

    def run(self, until_s: float) -> None:
        """Check until `until_s` on time.monotonic's clock, and time the correct contenders."""
        about = self.plan, self.results, self._index, self.workers.checkers, self._tell
        session.check_in_parallel(*about, until_s, self._may_continue)
        if not self.lost:
            self.time()

    def time(self) -> None:
        untimed = self._untimed()
        while session.time_pass(self.plan, self.results, self._index, self.workers.timer, self._tell):
            new, untimed = self._untimed() - untimed, self._untimed()
            if new and not self._still_works(min(new)):
                return

    def _may_continue(self, row: BenchRow) -> bool:
        """Return True if the checks may continue after this row. After a failed row, the timer tests the GPU."""
        if row.status != "failed" or self._still_works(row.contender):
            return True
        self.in_progress = frozenset(contender.name for contender, _ in self.workers.checkers.running.values())
        return False

    def rows(self) -> list[BenchRow]:
        return [row for each in self.plan.contenders if (row := self._row(each)) is not None]

    def _row(self, contender: Contender) -> BenchRow | None:
        return self.results.get(contender.name, self.plan.cases[0].problem)

    def _untimed(self) -> set[str]:
        return {row.contender for row in self.results if row.untimed}

    def _still_works(self, at: str) -> bool:
        """Return True if cuBLAS still works on the GPU. at: contender that has failed."""
        again = replace(cublas(), name=f"{CUBLAS} after {at}")
        alone = replace(self.plan, contenders=(again,))
        session.check_missing(alone, self.results, self._index, self.workers.timer, self._tell)
        row = self._row(again)
        if row is not None and row.status == "failed":
            self.lost, self.failed_at = row.reason, at
        return not self.lost


class SeveralGpus:
    """GPUs that measure a plan of one problem in parallel. like: results with this machine's suite and description.
    folder: for intermediate files."""

    def __init__(
        self, workers: Iterable[GpuWorkers], plan: Plan, index: Index, like: SuiteResults, folder: Path, tell: Tell
    ) -> None:
        self._serving, self._plan, self._index, self._tell = list(workers), plan, index, tell
        self._like, self._folder = like, folder
        self._suspects: set[str] = set()
        self.found = Measured()

    def measure(self, until_s: float) -> Measured:
        """Measure the plan. until_s: deadline of the checks."""
        left, finalists = [each for each in self._plan.contenders if each.kind != CUBLAS], list[BenchRow]()
        while left and self._serving:
            shares = self._dealt(left)
            _in_parallel(shares, until_s)
            left = [each for share in shares if share.lost for each in self._reassigned(share)]
            for share in shares:
                if not share.lost:
                    self.found.take(share.workers.gpu, share.rows())
                    finalists += _first(share.rows())
        self._fail(left, NO_GPU_LEFT)
        self._time_finalists(finalists)
        return self.found

    def _dealt(self, left: Sequence[Contender]) -> list[Share]:
        """Return a share of the contenders for each GPU. They are dealt in turn, so that each share has some with short
        predicted times."""
        serving, settings = self._serving[: len(left)], self._plan.settings
        shorter = replace(settings, rounds=math.ceil(SHARE_ROUNDS_FRACTION * settings.rounds))
        return [self._share(workers, left[at :: len(serving)], shorter) for at, workers in enumerate(serving)]

    def _share(self, workers: GpuWorkers, candidates: Sequence[Contender], settings: Settings) -> Share:
        plan = replace(self._plan, contenders=(cublas(), *candidates), settings=settings)
        results = SuiteResults(Path(tempfile.mkdtemp(dir=self._folder)), self._like.suite, self._like.machine)
        mine = workers.with_single_checker() if self.found.lost else workers
        return Share(mine, plan, results, self._index, self._tell)

    def _reassigned(self, share: Share) -> list[Contender]:
        """Return a lost GPU's contenders for other GPUs, except a contender at which two GPUs were lost."""
        self._mark_lost(share)
        mine = list(share.plan.contenders[1:])
        repeated = [each for each in mine if each.name == share.failed_at and each.name in self._suspects]
        self._suspects |= {share.failed_at, *share.in_progress}
        self._fail(repeated, f"two GPUs were lost at its turn; the second one: {share.lost}")
        return [each for each in mine if each not in repeated]

    def _mark_lost(self, share: Share) -> None:
        gpu = share.workers.gpu
        self._serving = [each for each in self._serving if each.gpu != gpu]
        self.found.lost[gpu.index] = share.lost
        then = "the others take its share over" if self._serving else "no other one is left"
        warnings.warn(
            f"GPU {gpu.index} is left out from here on, and {then}: at the turn of {share.failed_at} something failed, "
            f"and then cuBLAS, too: {share.lost}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _fail(self, contenders: Iterable[Contender], reason: str) -> None:
        case = self._plan.cases[0]
        for each in contenders:
            self.found.rows[each.name] = BenchRow(each.name, case.problem, case.band, status="failed", reason=reason)

    def _time_finalists(self, finalists: Sequence[BenchRow]) -> None:
        """Time the finalists on one GPU; if this GPU is lost, on the next."""
        names = {row.contender for row in finalists}
        able = [each for each in self._plan.contenders if each.name in names]
        while able and self._serving:
            share = self._share(self._serving[0], able, self._plan.settings)
            for name in (CUBLAS, *names):
                share.results.put(replace(self.found.rows[name], timing=None, session="", cublas_us=None))
            share.time()
            if not share.lost:
                self.found.take(share.workers.gpu, share.rows())
                self.found.last = frozenset(names)
                return
            self._mark_lost(share)
        for name in names:
            self.found.rows[name] = replace(self.found.rows[name], timing=None, untimed=NO_GPU_LEFT)


def _in_parallel(shares: Sequence[Share], until_s: float) -> None:
    everyone = [worker for share in shares for worker in share.workers.all]
    with ThreadPoolExecutor(len(shares)) as threads, ended_on_exception(everyone):
        list(threads.map(lambda share: share.run(until_s), shares))


def _first(rows: Iterable[BenchRow]) -> list[BenchRow]:
    timed = [row for row in rows if row.timing is not None and row.contender != CUBLAS]
    return sorted(timed, key=lambda row: row.timing.median_us if row.timing else math.inf)[:FINALISTS]
