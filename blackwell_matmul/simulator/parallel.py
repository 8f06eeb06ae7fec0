"""Spreading the teams of clusters of a grid (teams.py) over the cores. CTAs that interact run together, in one
process."""

from __future__ import annotations

import functools
import gc
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.errors import SimulationError, UnsupportedError
from blackwell_matmul.base.interrupts import held, leave_with_parent
from blackwell_matmul.base.processes import ForAWhile
from blackwell_matmul.base.validation import spelled
from blackwell_matmul.simulator.machine.grid import Grid
from blackwell_matmul.simulator.replay.alike import Replays
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.teams import Team, positions, teams

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

OPENMP_VARIABLE = "KMP_DUPLICATE_LIB_OK"
FORK_PAYS_SECONDS = 0.15  # forking this process and collecting the results costs some 30 ms; below, one is faster

Progress = Callable[[int, int], None]
"""Told how many CTAs are done, of how many."""


def run_ctas(simulation: Simulation, workers: int | None, progress: Progress | None = None) -> dict[str, int]:
    """Run every CTA; returns how often each instruction was executed by a warp."""
    counts = simulation.lowered.counts
    try:
        with _one_blas_thread(), _heap_set_aside():
            if simulation.lowered.interacts:
                simulation.run(list(positions(simulation.grid)))
            else:
                _run_independent(simulation, workers, progress or _tell_nobody)
    except (ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise _as_sentence(simulation, error) from error
    return dict(counts)


def _tell_nobody(done: int, total: int) -> None:
    pass


@functools.cache
def _blas() -> ThreadpoolController:
    """The BLAS that numpy brought. threadpoolctl's import says in the environment that several OpenMP libraries may be
    loaded; it loads none, and children would inherit the word."""
    said = os.environ.get(OPENMP_VARIABLE)
    from threadpoolctl import ThreadpoolController

    if said is None:
        os.environ.pop(OPENMP_VARIABLE, None)
    return ThreadpoolController()


@ForAWhile
def _one_blas_thread() -> AbstractContextManager[Any]:
    """A tile's product is too small for threads; cores are for CTAs."""
    limited: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limited


@ForAWhile
@contextmanager
def _heap_set_aside() -> Iterator[None]:
    """The garbage collector leaves alone what is there already, a compiler's worth of objects: to walk through them
    takes as long as dozens of CTAs, and in a forked process it copies them."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _as_sentence(simulation: Simulation, error: Exception) -> SimulationError:
    where = simulation.lowered.location_of_error(error)
    return SimulationError(f"{simulation.lowered.program.name} cannot go on at {where}: {spelled(error)}.")


def _run_independent(simulation: Simulation, workers: int | None, progress: Progress) -> None:
    every = teams(simulation.grid, simulation.seed, simulation.lowered.cancels)
    alone = bool(simulation.listeners)  # they hear of it in this process
    processes = 1 if alone or not _can_fork() else min(workers or _cores(), len(every))
    memory = _shared(simulation.grid) if processes > 1 else nullcontext()
    with memory, closing(Replays(simulation)) as replays:
        _run_repeatedly(simulation, replays, every, processes, workers is not None, progress)


@contextmanager
def _shared(grid: Grid) -> Iterator[None]:
    """What the kernel may write is in memory that forked processes share, so that they go on with what is known."""
    moved = grid.memory.share()
    try:
        yield
    finally:
        for segment, original in moved:
            original[:] = segment.cells
            segment.cells = original


SEEN_FIRST = 3
"""Clusters that are run before the rest is shared out: the first of a kind takes longer than those after it."""


def _run_repeatedly(
    simulation: Simulation,
    replays: Replays,
    every: list[Team],
    processes: int,
    forced: bool,
    progress: Progress,
) -> None:
    """forced: several processes are asked for, whether or not they pay."""
    ends = list(itertools.accumulate(len(team.cluster) * (1 + len(team.grants)) for team in every))
    total = ends[-1]
    times = [time.perf_counter()]
    for done, team in enumerate(every, 1):
        replays.run(team)
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


def _run_each(replays: Replays, mine: list[Team], tell: Callable[[int], None]) -> None:
    for count, team in enumerate(mine, 1):
        replays.run(team)
        tell(count)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _can_fork() -> bool:
    """macOS offers fork, but its system libraries do not survive it; a daemonic process (a worker of a pool) may not
    have children. In both, one process runs everything."""
    if multiprocessing.current_process().daemon:
        return False
    return "fork" in multiprocessing.get_all_start_methods() and sys.platform == "linux"


def _run_forked(
    simulation: Simulation,
    replays: Replays,
    rest: list[Team],
    processes: int,
    tell: Callable[[int], None],
) -> None:
    """Each process takes every n-th team and writes into memory that all share; findings come back by pipe."""
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


def _child(simulation: Simulation, replays: Replays, mine: list[Team], sender: Any) -> None:
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
