"""`Request`: the options of `bench`, and the run that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.base.validation import integer, number, shown
from blackwell_matmul.hardware.gpus import Gpu, gpu_named
from blackwell_matmul.harness.bench import bench_machine, contenders, session, suites
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import Contender
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import SuiteResults, require_writable
from blackwell_matmul.harness.bench.session import REPETITIONS, TASK_LIMIT_S, Plan
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

OUT = "bench_results"
BUNDLES = "bundles"
BEST_ALONE = ("llm",)
"""Suites of many problems, in which only the best kernel takes part by default."""

MANY_PROBLEMS = 16
SHORT_WARMUP_S = 1.0
"""Seconds of a warm-up if the suite has more than `MANY_PROBLEMS`: the GPU is still warm from the previous problem."""

Tell = Callable[[str], None]
Extra = Callable[[Sequence[str], Sequence[BenchCase], Gpu], Iterable[Contender]]


@dataclass(frozen=True)
class Request:
    """Options of `bench`.

    rungs: names of kernels, "file.py:Script", or baselines; empty: the GPU's ladder. dtypes: element types; empty: the
    suite's, or all block-scaled types for kernels that take no other. extra: function that returns more contenders for
    rungs, problems and GPU, such as tuned kernels. form, batches: those of every problem.
    """

    suite: str = "ladder"
    size: tuple[int, int, int] | None = None
    rungs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    baselines: bool = False
    rounds: int = Settings.rounds
    repetitions: int = REPETITIONS
    limit_s: float = TASK_LIMIT_S
    out: Path = field(default_factory=lambda: Path(OUT))
    bundles: Path | None = None
    again: bool = False
    extra: Extra | None = None
    form: Form = PLAIN
    batches: int = 1

    def __post_init__(self) -> None:
        require_within("--rounds", self.rounds, 1, 100_000)
        require_within("--repetitions", self.repetitions, 1, 10_000_000)
        require_within("--limit", self.limit_s, 1, 86_400)
        known = all(case.problem.is_plain and case.problem.element_bytes > 1 for case in self._cases)
        if self.baselines and not known:
            raise InputError(
                "--baselines are plain products of 16 bits; leave it out, or what makes the product another one."
            )
        self._check_scaled()
        for rung in self.rungs:
            contenders.named(rung)

    def _check_scaled(self) -> None:
        """Raise InputError for block-scaled problems together with others, or in a form that no kernel computes."""
        scaled = [case.problem for case in self._cases if case.problem.format]
        if scaled and len(scaled) < len(self._cases):
            raise InputError(
                f"dtypes are {', '.join(self.dtypes)}; {', '.join(BLOCK_SCALED)} have rungs of their own, so measure "
                "them in another call."
            )
        for problem in scaled:
            if not problem.is_plain_but_for_c:
                raise InputError(f"{problem}: rungs with block scales compute one product of K-major matrices alone.")

    @property
    def _suite(self) -> str:
        return self.suite if self.size is None else suites.OF_SIZE

    @property
    def _cases(self) -> tuple[BenchCase, ...]:
        only_scaled = self.rungs and set(self.rungs) <= set(BLOCK_SCALED_LADDER)
        dtypes = self.dtypes or (tuple(BLOCK_SCALED) if only_scaled else ())
        return suites.cases(self._suite, dtypes, self.size, self.form, self.batches)

    def plan(self, gpu: Gpu) -> Plan:
        """Return the plan for a GPU. Its contenders are cuBLAS, the kernels, the extra contenders and the baselines."""
        stress = self._suite == "stress"
        cases = self._cases
        return Plan(
            contenders=tuple(dict.fromkeys(self._contenders(gpu, cases))),
            cases=cases,
            settings=Settings(
                self.rounds, warmup_s=SHORT_WARMUP_S if len(cases) > MANY_PROBLEMS else Settings.warmup_s
            ),
            limit_s=self.limit_s,
            repetitions=self.repetitions if stress else 0,
            time=not stress,
        )

    def _contenders(self, gpu: Gpu, cases: Sequence[BenchCase]) -> Iterator[Contender]:
        rungs = self.rungs or self._ladder(gpu)
        yield contenders.cublas()
        yield from map(contenders.named, self.rungs) if self.rungs else map(contenders.kernel, rungs)
        yield from self.extra(rungs, cases, gpu) if self.extra else ()
        yield from contenders.baselines() if self.baselines else ()

    def _ladder(self, gpu: Gpu) -> Sequence[str]:
        """Return the names of the GPU's kernels that can compute the problems."""
        if self._cases[0].problem.format:
            rungs = bench_machine.of_block_scales(gpu)
        else:
            plain = self.form == PLAIN and self.batches == 1
            rungs = bench_machine.ladder(gpu) if plain else bench_machine.of_forms(gpu)
        return rungs[-1:] if self._suite in BEST_ALONE else rungs

    def index(self, gpu: Gpu) -> Index:
        """Return the index of compiled kernels. GPUs with equal target, SMs and bandwidth share an index: their default
        schedules are equal."""
        like = f"{gpu.arch}, {gpu.sm_count} SMs, {gpu.memory_gb_per_s} GB/s"
        return Index(self.bundles or self.out / BUNDLES, like)

    def run(self, tell: Tell = lambda what: None) -> SuiteResults:
        """Run the benchmark on this machine's GPU; return the saved results."""
        gpu = bench_machine.gpu_at_hand()
        plan = self.plan(gpu)
        results = SuiteResults(self.out, self._suite, bench_machine.machine_of(gpu))
        if self.again:
            results.forget((contender.name, case.problem) for contender, case in plan.pairs())
        require_writable(self.out)
        session.run(plan, results, self.index(gpu), gpu, tell)
        results.save()
        return results

    def compile(self, target: str, tell: Tell) -> tuple[Path, list[str], int]:
        """Compile the kernels for a GPU's name or target, without a GPU.

        Returns the folder, the messages of refused kernels, and the number of compiled kernels.
        """
        gpu = gpu_named(target)
        index, plan = self.index(gpu), self.plan(gpu)
        require_writable(index.folder)
        with keeping(lambda: session.progress_message(plan, index)):
            refused = session.compile_missing(plan, None, index, gpu, tell)
        return index.folder, refused, session.compiled(plan, index)


def require_within(name: str, value: object, low: int, high: int, whole: bool = False) -> None:
    """Raise InputError unless an option's value is a number, or an integer, from low to high."""
    found = integer(value, low, high) if whole else number(value)
    if found is None or not low <= found <= high:
        raise InputError(f"{name} is {shown(value)}; it must be {'an integer ' * whole}from {low} to {high}.")
