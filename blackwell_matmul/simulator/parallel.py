"""Distribution of scheduled clusters (cluster_schedule.py) over the cores. CTAs that interact run in one process."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.errors import SimulationError, UnsupportedError
from blackwell_matmul.base.interrupts import held, leave_with_parent
from blackwell_matmul.base.processes import ForAWhile, can_fork, cores, heap_set_aside
from blackwell_matmul.base.validation import spelled
from blackwell_matmul.simulator.cluster_schedule import ScheduledCluster, positions, schedule
from blackwell_matmul.simulator.machine.grid import Grid
from blackwell_matmul.simulator.replay.alike import Replays
from blackwell_matmul.simulator.simulation import Simulation

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

OPENMP_VARIABLE = "KMP_DUPLICATE_LIB_OK"
FORK_PAYS_SECONDS = 0.15  # forking this process and collecting the results costs some 30 ms; below, one is faster

Progress = Callable[[int, int], None]
"""Callback with the CTAs done, and their number."""


def run_ctas(simulation: Simulation, workers: int | None, progress: Progress | None = None) -> dict[str, int]:
    """Run every CTA; return how often warps executed each instruction."""
    counts = simulation.lowered.counts
    try:
        with _one_blas_thread(), heap_set_aside():
            if simulation.lowered.interacts:
                simulation.run(list(positions(simulation.grid)))
            else:
                _run_independent(simulation, workers, progress or (lambda done, total: None))
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise _as_sentence(simulation, error) from error
    return dict(counts)


@functools.cache
def _blas() -> ThreadpoolController:
    """Return numpy's BLAS, without the environment variable that threadpoolctl's import sets and children would
    inherit."""
    said = os.environ.get(OPENMP_VARIABLE)
    from threadpoolctl import ThreadpoolController

    if said is None:
        os.environ.pop(OPENMP_VARIABLE, None)
    return ThreadpoolController()


@ForAWhile
def _one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: a tile's product is small, and cores are for CTAs."""
    limited: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limited


def _as_sentence(simulation: Simulation, error: Exception) -> SimulationError:
    where = simulation.lowered.location_of_error(error)
    return SimulationError(f"{simulation.lowered.program.name} cannot go on at {where}: {spelled(error)}.")


def _run_independent(simulation: Simulation, workers: int | None, progress: Progress) -> None:
    every = schedule(simulation.grid, simulation.seed, simulation.lowered.cancels)
    alone = bool(simulation.listeners)  # listeners are called in this process
    processes = 1 if alone or not can_fork() else min(workers or cores(), len(every))
    memory = _shared(simulation.grid) if processes > 1 else nullcontext()
    with memory, closing(Replays(simulation)) as replays:
        _run_repeatedly(simulation, replays, every, processes, workers is not None, progress)


@contextmanager
def _shared(grid: Grid) -> Iterator[None]:
    """Share the memory that the kernel may write with forked processes."""
    moved = grid.memory.share()
    try:
        yield
    finally:
        for segment, original in moved:
            original[:] = segment.cells
            segment.cells = original


SEEN_FIRST = 3
"""Number of clusters that run before the rest is distributed to processes; the first cluster of a kind takes longer
than later ones."""


def _run_repeatedly(
    simulation: Simulation,
    replays: Replays,
    every: list[ScheduledCluster],
    processes: int,
    forced: bool,
    progress: Progress,
) -> None:
    """Run clusters until the time shows whether processes pay. forced: use several processes anyway."""
    ends = list(itertools.accumulate(len(scheduled.cluster) * (1 + len(scheduled.grants)) for scheduled in every))
    total = ends[-1]
    times = [time.perf_counter()]
    for done, scheduled in enumerate(every, 1):
        replays.run(scheduled)
        progress(ends[done - 1], total)
        times.append(time.perf_counter())
        if done >= SEEN_FIRST and times[-1] - times[0] > FORK_PAYS_SECONDS / 4:
            break
    done = len(times) - 1
    rest = every[done:]
    ahead = min(times[-1] - times[-2], (times[-1] - times[0]) / done) * len(rest)
    processes = min(processes, len(rest))
    if processes < 2 or (not forced and ahead < FORK_PAYS_SECONDS):
        _run_each(replays, rest, lambda count: progress(ends[done + count - 1], total))
    else:
        tell: Callable[[int], None] = lambda count: progress(ends[min(done + count * processes, len(ends)) - 1], total)  # noqa: E731
        _run_forked(simulation, replays, rest, processes, tell)


def _run_each(replays: Replays, mine: list[ScheduledCluster], tell: Callable[[int], None]) -> None:
    for count, scheduled in enumerate(mine, 1):
        replays.run(scheduled)
        tell(count)


def _run_forked(
    simulation: Simulation,
    replays: Replays,
    rest: list[ScheduledCluster],
    processes: int,
    tell: Callable[[int], None],
) -> None:
    """Give each process every n-th cluster. They write to shared memory and return findings by pipe."""
    context = multiprocessing.get_context("fork")
    children = []
    try:
        for index in range(1, processes):
            receiver, sender = context.Pipe(duplex=False)
            mine = rest[index::processes]
            child = context.Process(target=_child, args=(simulation, replays, mine, sender), daemon=True)
            with held():
                child.start()
            sender.close()
            children.append((child, receiver))
        _run_each(replays, rest[::processes], tell)
        for child, receiver in children:
            _collect(simulation, child, receiver)
    finally:
        for child, _ in children:
            child.kill()
            child.join()


def _child(simulation: Simulation, replays: Replays, mine: list[ScheduledCluster], sender: Any) -> None:
    leave_with_parent()
    simulation.grid.findings.by_key.clear()
    simulation.grid.printed.clear()
    simulation.grid.memory.writes.clear()
    simulation.grid.memory.reads.clear()
    simulation.lowered.counts.clear()
    failure = None
    try:
        _run_each(replays, mine, lambda count: None)
    except UnsupportedError as error:
        failure = str(error)
    except Exception as error:
        failure = str(_as_sentence(simulation, error))
    grid, counts = simulation.grid, dict(simulation.lowered.counts)
    seen = (grid.memory.read, grid.memory.reads)
    sender.send((failure, list(grid.findings), grid.printed, list(grid.memory.writes.items()), counts, seen))
    sender.close()


def _collect(simulation: Simulation, child: Any, receiver: Any) -> None:
    try:
        failure, findings, printed, writes, counts, (read, reads) = receiver.recv()
    except EOFError:
        child.join()
        raise SimulationError(
            f"A process that ran part of {simulation.lowered.program.name} died (exit code {child.exitcode});"
            " workers=1 runs everything in this one."
        ) from None
    if failure is not None:
        raise SimulationError(failure)
    for finding in findings:
        simulation.grid.findings.add(finding)
    simulation.grid.printed += printed
    simulation.grid.memory.writes.update(writes)
    simulation.grid.memory.read |= read
    simulation.grid.memory.reads.update(reads)
    for name, count in counts.items():
        simulation.lowered.counts[name] = simulation.lowered.counts.get(name, 0) + count
