"""`check`: runs a kernel in several orders and reports each ordering fault, with the seed that replays it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_values, shown
from blackwell_matmul.frontend import Bound, target_for
from blackwell_matmul.problem.form import check_flag, check_progress
from blackwell_matmul.problem.problem import MAX_ORDERS, Schedule
from blackwell_matmul.simulator.cluster_schedule import positions, schedule, scheduled_from
from blackwell_matmul.simulator.findings import Event, Finding, Run
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.order.causes import in_order
from blackwell_matmul.simulator.report import Report, coverage
from blackwell_matmul.simulator.simulate import new_simulation, plain_options, prepare, run_simulation, show_printed
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.trace.around import around
from blackwell_matmul.simulator.trace.tracer import Tracer

POLICY = "adversarial"
MAX_TIMELINES = 8
"""Maximum number of findings with a timeline; each timeline costs another run of a CTA."""

DEFAULT_ORDER_COUNT = 4
"""Orders of a cheap launch, by default."""

CHEAP_INSTRUCTIONS = 50_000
"""Most warp instructions in one order of a cheap launch: about a second on one core."""

Progress = Callable[[int, int], None]
"""Callback with the CTAs done and their number, over all orders."""


def check(
    kernel_or_class: Any,
    *args: Any,
    schedule: Mapping[str, object] | Schedule | None = None,
    orders: int | None = None,
    seed: int = 0,
    strict: bool = False,
    target: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a kernel on CPU tensors in `orders` orders, and report faults of its ordering.

    orders: None is 4 if they are cheap, about a second each at most; it is 1 for a larger launch, or to replay a seed
    other than 0. Order i is that of `simulate(..., seed=seed + i)`; seed 0 is program order. The first order writes the
    outputs in place; each later one starts from copies of the initial tensors. strict: unguaranteed findings make the
    report not ok, as errors do. args, schedule, target and workers are those of `simulate`.

    Raises InputError, CompileError or UnsupportedError when the kernel cannot run; its faults are in the report.
    """
    _check_arguments(orders, seed, strict, workers, progress)
    target = target_for(kernel_or_class, target)
    bound, lowered = prepare(kernel_or_class, args, schedule, target)
    study = _Study(bound, lowered, seed, orders, _saved(bound, lowered))
    start = time.perf_counter()
    runs = list(study.runs(workers, progress))
    ran = {name for run in runs for name in run.counts}
    findings = tuple(study.with_timelines(_merged(runs, seed)))
    orders = len(runs)
    return Report(
        runs[0].kernel, target, plain_values(runs[0].schedule), runs[0].grid, orders, seed, strict,
        time.perf_counter() - start, findings, coverage(lowered.program, ran, orders),
        runs[0].disagreements,
    )  # fmt: skip


def _check_arguments(orders: object, seed: Any, strict: object, workers: Any, progress: object) -> None:
    wrong = not isinstance(orders, int) or isinstance(orders, bool) or not 1 <= orders <= MAX_ORDERS
    if orders is not None and wrong:
        raise InputError(f"orders is {shown(orders)}; it must be an integer from 1 to {MAX_ORDERS}.")
    plain_options(POLICY, seed, workers)
    if isinstance(orders, int) and seed + orders > 2**63:
        raise InputError(f"seed is {seed} and there are {orders} orders; the last seed must be at most 2**63 - 1.")
    check_flag("strict", strict)
    check_progress(progress)


Saved = Mapping[int, np.ndarray]
"""Initial bytes of the memory that the kernel may write, by address."""


def _saved(bound: Bound, lowered: Lowered) -> Saved:
    memory = new_simulation(bound, lowered, POLICY, 0, checks=False).grid.memory
    return {segment.address: segment.cells.copy() for segment in memory.segments if not segment.constant}


@dataclass(frozen=True, eq=False)
class _Study:
    """One kernel with one set of arguments, to be run repeatedly."""

    bound: Bound
    lowered: Lowered
    seed: int
    orders: int | None
    saved: Saved

    def runs(self, workers: int | None, progress: Progress | None) -> Iterator[Run]:
        first = self._run(0, self.orders or 1, workers, progress)
        yield first
        orders = self.orders or self._affordable(first)
        for i in range(1, orders):
            yield self._run(i, orders, workers, progress)

    def _affordable(self, first: Run) -> int:
        """Return the default number of orders."""
        cheap = self.seed == 0 and sum(first.counts.values()) <= CHEAP_INSTRUCTIONS
        return DEFAULT_ORDER_COUNT if cheap else 1

    def _run(self, i: int, orders: int, workers: int | None, progress: Progress | None) -> Run:
        simulation = self._simulation(self.seed + i, again=i > 0)
        run = run_simulation(self.bound, simulation, workers, _told(progress, i, orders), time.perf_counter())
        if i == 0:
            show_printed(run)
        return run

    def _simulation(self, seed: int, again: bool) -> Simulation:
        """Return a launch; again: on a copy of the initial memory, at the same addresses."""
        simulation = new_simulation(self.bound, self.lowered, POLICY, seed)
        for segment in simulation.grid.memory.segments:
            if again and segment.address in self.saved:
                segment.cells = self.saved[segment.address].copy()
        return simulation

    # timelines

    def with_timelines(self, findings: list[Finding]) -> Iterator[Finding]:
        traced: dict[object, list[Event]] = {}
        for number, finding in enumerate(findings):
            key = (finding.seed, finding.cta)
            if finding.cta is None or number >= MAX_TIMELINES:
                yield finding
                continue
            if key not in traced:
                traced[key] = self._traced(finding.seed or 0, finding.cta)
            yield replace(finding, timeline=around(finding, traced[key]))

    def _traced(self, seed: int, position: tuple[int, int, int]) -> list[Event]:
        """Return the detailed events of one CTA. Its cluster runs alone, unless all CTAs signal each other."""
        simulation = self._simulation(seed, again=True)
        simulation.tracer = Tracer(position, detailed=True)
        grid = simulation.grid
        if self.lowered.interacts:
            simulation.run(list(positions(grid)))
        else:
            scheduled = scheduled_from(grid, position, schedule(grid, seed, self.lowered.cancels))
            simulation.run(scheduled.cluster, Grants(scheduled.grants))
        return simulation.tracer.events


def _told(progress: Progress | None, order: int, orders: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(order * total + done, orders * total)


def _merged(runs: list[Run], seed: int) -> list[Finding]:
    """Return each fault once, from the first order that showed it; errors first, and causes before consequences."""
    found: dict[object, Finding] = {}
    for i, run in enumerate(runs):
        for finding in run.findings:
            first = found.setdefault(finding.key, finding)
            found[finding.key] = replace(first, seeds=(*first.seeds, seed + i))
    return list(in_order(found.values()))
