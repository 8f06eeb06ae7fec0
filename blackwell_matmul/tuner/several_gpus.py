"""Candidates on several GPUs of one kind, side by side.

Each GPU checks and times a share of them, in processes that see this GPU alone. GPUs of one kind differ by percents, so
times are compared within a share only; the first of each share are timed again, all on one GPU, and that decides. A GPU
is lost where cuBLAS fails on it as well, after something else has failed; the others take its share over.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from blackwell_matmul.harness.bench import session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import CUBLAS, Contender, cublas
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.harness.bench.results import Book, Row
from blackwell_matmul.harness.bench.session import Plan, Tell
from blackwell_matmul.harness.bench.workers import Workers

FINALISTS = 3
"""Of each share. Which of two is faster can differ between GPUs of one kind where they are within a percent or two."""

NO_GPU_LEFT = "no GPU was left for it."


@dataclass
class Measured:
    """rows: by contender. gpu_of: which GPU has timed whom; last: who was timed in the last session, all on one GPU.
    lost: why, by GPU."""

    rows: dict[str, Row] = field(default_factory=dict)
    gpu_of: dict[str, int] = field(default_factory=dict)
    last: frozenset[str] = frozenset()
    lost: dict[int, str] = field(default_factory=dict)

    def take(self, gpu: MeasuringGpu, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows[row.contender] = row
            self.gpu_of[row.contender] = gpu.index


class Share:
    """What one GPU checks and times, on the one problem of a plan. lost: why the GPU no longer serves; at: whose turn
    it was."""

    def __init__(self, gpu: MeasuringGpu, plan: Plan, book: Book, index: Index, tell: Tell) -> None:
        self.gpu, self.plan, self.book, self._index = gpu, plan, book, index
        self._tell: Tell = lambda what: tell(f"GPU {gpu.index}: {what}")
        self.workers = Workers(plan.limit_s, ahead=1, environment=gpu.environment)
        self.lost, self.at = "", ""

    def run(self, until_s: float) -> None:
        """Check until then, on the clock of time.monotonic, and time those that are right."""
        for contender in self.plan.contenders:
            row = self._checked(contender, until_s)
            if row is not None and row.status == "failed" and not self._serves(contender.name):
                return
        self.time()

    def time(self) -> None:
        broken = self._broken_off()
        while session.time_pass(self.plan, self.book, self._index, self.workers, self._tell):
            new, broken = self._broken_off() - broken, self._broken_off()
            if new and not self._serves(min(new)):
                return

    def rows(self) -> list[Row]:
        return [row for each in self.plan.contenders if (row := self._row(each)) is not None]

    def _checked(self, contender: Contender, until_s: float = math.inf) -> Row | None:
        """None where time was over before."""
        alone = replace(self.plan, contenders=(contender,))
        session.check_missing(alone, self.book, self._index, self.workers, self._tell, until_s)
        return self._row(contender)

    def _row(self, contender: Contender) -> Row | None:
        return self.book.get(contender.name, self.plan.cases[0].problem)

    def _broken_off(self) -> set[str]:
        return {row.contender for row in self.book if row.untimed}

    def _serves(self, at: str) -> bool:
        """Whether cuBLAS runs here after something has failed, which may have been the GPU."""
        row = self._checked(replace(cublas(), name=f"{CUBLAS} after {at}"))
        if row is not None and row.status == "failed":
            self.lost, self.at = row.reason, at
        return not self.lost


class SeveralGpus:
    """They measure a plan of one problem. like: a book of this machine; folder: for what is kept meanwhile."""

    def __init__(
        self, gpus: Sequence[MeasuringGpu], plan: Plan, index: Index, like: Book, folder: Path, tell: Tell
    ) -> None:
        self._serving, self._plan, self._index, self._tell = list(gpus), plan, index, tell
        self._like, self._folder = like, folder
        self._blamed: set[str] = set()
        self.found = Measured()

    def measure(self, until_s: float) -> Measured:
        """until_s: when nothing more is checked."""
        left, finalists = [each for each in self._plan.contenders if each.kind != CUBLAS], list[Row]()
        while left and self._serving:
            shares = self._dealt(left)
            _side_by_side(shares, until_s)
            left = [each for share in shares if share.lost for each in self._to_take_over(share)]
            for share in shares:
                if not share.lost:
                    self.found.take(share.gpu, share.rows())
                    finalists += _first(share.rows())
        self._fail(left, NO_GPU_LEFT)
        self._compare(finalists)
        return self.found

    def _dealt(self, left: Sequence[Contender]) -> list[Share]:
        """By turns: each gets some of those that are predicted to be fast."""
        serving = self._serving[: len(left)]
        return [self._share(gpu, left[first :: len(serving)]) for first, gpu in enumerate(serving)]

    def _share(self, gpu: MeasuringGpu, candidates: Sequence[Contender]) -> Share:
        plan = replace(self._plan, contenders=(cublas(), *candidates))
        book = Book(Path(tempfile.mkdtemp(dir=self._folder)), self._like.suite, self._like.machine)
        return Share(gpu, plan, book, self._index, self._tell)

    def _to_take_over(self, share: Share) -> list[Contender]:
        """What a lost GPU has left. At whose turn a second GPU is lost gets no third one."""
        self._lose(share)
        mine = list(share.plan.contenders[1:])
        guilty = [each for each in mine if each.name == share.at and each.name in self._blamed]
        self._blamed.add(share.at)
        self._fail(guilty, f"two GPUs were lost at its turn; the second one: {share.lost}")
        return [each for each in mine if each not in guilty]

    def _lose(self, share: Share) -> None:
        self._serving.remove(share.gpu)
        self.found.lost[share.gpu.index] = share.lost
        then = "the others take its share over" if self._serving else "no other one is left"
        warnings.warn(
            f"GPU {share.gpu.index} is left out from here on, and {then}: at the turn of {share.at} something failed, "
            f"and then cuBLAS, too: {share.lost}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _fail(self, contenders: Iterable[Contender], reason: str) -> None:
        case = self._plan.cases[0]
        for each in contenders:
            self.found.rows[each.name] = Row(each.name, case.problem, case.band, status="failed", reason=reason)

    def _compare(self, finalists: Sequence[Row]) -> None:
        """Time the finalists on one GPU; on the next one, where that is lost."""
        names = {row.contender for row in finalists}
        able = [each for each in self._plan.contenders if each.name in names]
        while able and self._serving:
            share = self._share(self._serving[0], able)
            for name in (CUBLAS, *names):
                share.book.put(replace(self.found.rows[name], timing=None, session="", cublas_us=None))
            with share.workers:
                share.time()
            if not share.lost:
                self.found.take(share.gpu, share.rows())
                self.found.last = frozenset(names)
                return
            self._lose(share)
        for name in names:
            self.found.rows[name] = replace(self.found.rows[name], timing=None, untimed=NO_GPU_LEFT)


def _side_by_side(shares: Sequence[Share], until_s: float) -> None:
    with ThreadPoolExecutor(len(shares)) as threads, ExitStack() as stack:  # the children end first, also at Ctrl-C
        for share in shares:
            stack.enter_context(share.workers)
        list(threads.map(lambda share: share.run(until_s), shares))


def _first(rows: Iterable[Row]) -> list[Row]:
    timed = [row for row in rows if row.timing is not None and row.contender != CUBLAS]
    return sorted(timed, key=lambda row: row.timing.median_us if row.timing else math.inf)[:FINALISTS]
