"""`simulate`: run a tilus script on CPU tensors, with the rules of the machine."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import InputError, SimulationError, UnsupportedError
from blackwell_matmul.base.strides import require_memory, require_row_major
from blackwell_matmul.base.validation import attribute, shown, spelled
from blackwell_matmul.frontend import Bound, Program, bind_all, build_first, target_for
from blackwell_matmul.frontend.build import CACHED_PROGRAMS
from blackwell_matmul.problem.form import check_flag, check_progress
from blackwell_matmul.problem.problem import Schedule, plain_policy, plain_seed, plain_workers
from blackwell_matmul.simulator.disagreement import disagreements
from blackwell_matmul.simulator.expressions import free_variables, vector_function
from blackwell_matmul.simulator.findings import Finding, Run, Severity
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.lowering.lower import Lowered, lower
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory, Segment, segment_of, share_bytes
from blackwell_matmul.simulator.machine.grid import Grid
from blackwell_matmul.simulator.order.across_ctas import left_behind, merge, semaphores_left
from blackwell_matmul.simulator.order.causes import in_order
from blackwell_matmul.simulator.order.happens_before import HappensBefore
from blackwell_matmul.simulator.order.lines import ProgramLines
from blackwell_matmul.simulator.parallel import run_ctas
from blackwell_matmul.simulator.semantics.cluster import MAX_CLUSTER_CTAS
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.trace.tracer import Tracer

MAX_GRID_X = 2**31 - 1  # CUDA Programming Guide, "Technical Specifications"
MAX_GRID_YZ = 65535
MAX_GRID_CTAS = 2**22  # of a whole grid: their list still fits into memory, and each takes a millisecond or so

_lowered: OrderedDict[Program, Lowered] = OrderedDict()
"""Lowered programs, the latest `CACHED_PROGRAMS`."""


def simulate(
    script: Any,
    *args: Any,
    schedule: Mapping[str, object] | Schedule | None = None,
    target: str | None = None,
    seed: int = 0,
    policy: str = "adversarial",
    workers: int | None = None,
    trace: bool = True,
    checks: bool = True,
    progress: Callable[[int, int], None] | None = None,
    listeners: Sequence[Listener] = (),
    memory: Sequence[Any] = (),
) -> Run:
    """Run `script` (a tilus.Script class, or the result of calling one) on CPU tensors; outputs are written in place.

    args: as for `script.__call__`. schedule: pins arguments of its `__init__`; the class chooses the rest, or the first
    row of its autotune space that compiles does. target: the architecture for code generation (None: that of the
    class's `target`, else sm_100a). policy: the time at which asynchronous operations complete: "adversarial" (as late
    as legal), "eager" (at issue) or "random". seed: the order of warps and completions; 0 is program order, and a seed
    always gives the same run. workers: processes for the CTAs (None: one for each core). trace: keep the first CTA's
    events. checks: report accesses that nothing orders; False computes the values alone. progress: called with (CTAs
    done, CTAs in all) during the run; with several processes the first is an estimate. listeners: called with events
    (`listener.Listener`); every CTA then runs in full, in this process. memory: more CPU tensors, which the kernel
    accesses only by their addresses (`x.data_ptr()` for a `void_p`).

    Raises InputError, CompileError or UnsupportedError when the script cannot run; faults of the kernel itself are
    findings of the returned Run.
    """
    policy, seed, workers = plain_options(policy, seed, workers)
    _check_switches(trace, checks, progress, listeners)
    bound, lowered = prepare(script, args, schedule, target_for(script, target))
    start = time.perf_counter()
    simulation = new_simulation(bound, lowered, policy, seed, checks, _reached(memory))
    simulation.tracer, simulation.listeners = Tracer((0, 0, 0)) if trace else None, tuple(listeners)
    run = run_simulation(bound, simulation, workers, progress, start)
    show_printed(run)
    return run


def prepare(
    script: Any, args: tuple[Any, ...], schedule: Mapping[str, object] | Schedule | None, target: str
) -> tuple[Bound, Lowered]:
    """Return the script with its arguments, and its lowered program, which all runs share."""
    bound, program = build_first(bind_all(script, args, schedule=schedule, target=target), target)
    return bound, lowered(program)


def lowered(program: Program) -> Lowered:
    """Lower a Program, or return the cached result."""
    found = _lowered.pop(program, None) or lower(program)
    _lowered[program] = found
    while len(_lowered) > CACHED_PROGRAMS:
        _lowered.popitem(last=False)
    return found


def _reached(memory: object) -> dict[str, Any]:
    """Return the tensors of `memory`, by a name for reports."""
    if not isinstance(memory, (tuple, list)) or any(attribute(each, "dtype") is None for each in memory):
        raise InputError(f"memory is {shown(memory)}; it must be a list of CPU tensors or arrays.")
    return {f"memory[{i}]": each for i, each in enumerate(memory)}


def new_simulation(
    bound: Bound,
    lowered: Lowered,
    policy: str,
    seed: int,
    checks: bool = True,
    reached: Mapping[str, Any] = MappingProxyType({}),
) -> Simulation:
    """Return a launch ready to run, on the memory of the arguments and of other `reached` tensors."""
    memory, arguments = _arguments(bound, lowered, reached)
    dimensions = _dimensions(lowered, arguments)
    grid = Grid(memory, arguments, dimensions, lowered.cluster, lowered.num_warps, follow_unwritten=checks)
    lines = ProgramLines(lowered.program)

    def follow() -> tuple[Listener, ...]:
        return (HappensBefore(lines),) if checks else ()

    return Simulation(lowered, grid, policy, seed, follow)


def run_simulation(
    bound: Bound, simulation: Simulation, workers: int | None, progress: Callable[[int, int], None] | None, start: float
) -> Run:
    """Run every CTA and check the whole grid. start: time.perf_counter from which `Run.seconds` counts."""
    lowered, program, grid = simulation.lowered, simulation.lowered.program, simulation.grid
    lowered.counts.clear()
    _check_assumptions(grid, program)
    _check_barriers(grid, program)
    with np.errstate(all="ignore"):  # a GPU says nothing of infinities and NaN
        counts = run_ctas(simulation, workers, progress and _told(progress))
    complete = not any(finding.fatal for finding in grid.findings)
    whole = merge(grid.memory, grid.dimensions, lowered.cluster, complete, lowered.interacts)
    left = (*left_behind(grid.memory), *semaphores_left(grid.memory)) if complete else ()
    for finding in (*whole, *left):
        grid.findings.add(finding)
    differing = disagreements(grid.memory)
    grid.memory.close()
    events = simulation.tracer.events if simulation.tracer is not None else ()
    return Run(
        program.name, program.target, types_named(bound.init_kwargs), grid.dimensions, time.perf_counter() - start,
        findings=in_order(grid.findings), events=tuple(events), printed=tuple(grid.printed),
        counts=counts, disagreements=differing,
    )  # fmt: skip


def show_printed(run: Run) -> None:
    """Print the kernel's prints on stdout."""
    for text in run.printed:
        print(text)


def types_named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with tilus's types by name."""
    from tilus.hidet.ir.type import DataType

    return {name: value.name if isinstance(value, DataType) else value for name, value in values.items()}


def plain_options(policy: str, seed: int, workers: int | None) -> tuple[str, int, int | None]:
    """Return the options that do not reach tilus, as plain text and integers."""
    return plain_policy(policy), plain_seed(seed), plain_workers(workers)


def _check_switches(trace: object, checks: object, progress: object, listeners: object) -> None:
    check_flag("trace", trace)
    check_flag("checks", checks)
    check_progress(progress)
    if not isinstance(listeners, (tuple, list)) or not all(isinstance(each, Listener) for each in listeners):
        raise InputError(
            f"listeners is {shown(listeners)}; it must be a list of objects of simulator.listener.Listener."
        )


def _told(progress: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """Return `progress`, wrapped so that its errors are not taken for the kernel's."""

    def tell(done: int, total: int) -> None:
        try:
            progress(done, total)
        except Exception as error:
            raise SimulationError(f"progress({done}, {total}) raises {spelled(error)}.") from error

    return tell


def _arguments(bound: Bound, lowered: Lowered, reached: Mapping[str, Any]) -> tuple[GlobalMemory, dict[str, Any]]:
    """Return the tensors' memory, and each parameter's value in the kernel (an address, or a number)."""
    tensors = {name: value for name, value in bound.kernel_args.items() if attribute(value, "dtype") is not None}
    memory, arguments = GlobalMemory(tensors=tensors), dict(bound.kernel_args)
    program, every = lowered.program, {**tensors, **reached}
    segments = {name: _segment(program.name, name, value) for name, value in every.items()}
    for name, value in tensors.items():
        if name in program.row_major:
            require_row_major(program.name, name, value)
    arguments |= {name: segments[name].address for name in tensors}
    written = lowered.written
    known = written is not None and written <= segments.keys()  # a pointer may be passed as a number
    memory.segments = _joined(segments.values(), written or ())
    for segment in memory.segments:
        segment.constant = known and not any(share_bytes(segment, segments[name]) for name in written or ())
    return memory, arguments


def _joined(segments: Iterable[Segment], written: Collection[str]) -> list[Segment]:
    """Return the memory of all tensors. Tensors that share bytes become one segment, with the name of a written
    one."""
    found: list[Segment] = []
    for each in sorted(segments, key=lambda segment: (segment.address, -segment.nbytes)):
        if not found or not share_bytes(found[-1], each):
            found.append(each)
            continue
        last = found[-1]
        last.name = each.name if each.name in written else last.name
        nbytes = max(last.nbytes, each.address + each.nbytes - last.address)
        last.cells = np.lib.stride_tricks.as_strided(last.cells, (nbytes,), (1,))
    return found


def _segment(kernel: str, name: str, value: Any) -> Segment:
    _require_cpu(kernel, name, value)
    if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
        raise InputError(f"{name} of {kernel} is not contiguous; numpy.ascontiguousarray makes an array that is.")
    require_memory(f"{name} of {kernel}", value)
    return segment_of(name, value)


def _require_cpu(kernel: str, name: str, value: Any) -> None:
    device = str(getattr(value, "device", "cpu"))
    if device != "cpu":
        way = f"torch.zeros_like({name}, device='cpu')" if device == "meta" else f"{name}.cpu()"
        raise UnsupportedError(f"{kernel} got {name} on {device}; the simulator runs CPU tensors, so pass {way}.")


def _dimensions(lowered: Lowered, arguments: dict[str, Any]) -> tuple[int, int, int]:
    x, y, z = (int(extent) for extent in lowered.grid(arguments))
    name = lowered.program.name
    if min(x, y, z) < 1 or x > MAX_GRID_X or max(y, z) > MAX_GRID_YZ:
        raise InputError(
            f"{name} asks for a grid of {x}x{y}x{z} CTAs; each extent must be at least 1, the first"
            f" at most {MAX_GRID_X} and the others at most {MAX_GRID_YZ}."
        )
    _check_clusters(name, (x, y, z), lowered.cluster)
    if x * y * z > MAX_GRID_CTAS:
        raise UnsupportedError(
            f"{name} asks for a grid of {x}x{y}x{z} CTAs; the simulator runs {MAX_GRID_CTAS} at most: "
            "choose a smaller size."
        )
    return x, y, z


def _check_clusters(name: str, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> None:
    shape = "x".join(map(str, cluster))
    if math.prod(cluster) > MAX_CLUSTER_CTAS:
        raise InputError(f"{name} asks for clusters of {shape} CTAs; a cluster has at most {MAX_CLUSTER_CTAS}.")
    if any(extent % size for extent, size in zip(grid, cluster, strict=True)):
        raise InputError(
            f"{name} asks for a grid of {'x'.join(map(str, grid))} CTAs in clusters of {shape}; each extent of the grid"
            " must be a multiple of the cluster's."
        )


def _check_assumptions(grid: Grid, program: Program) -> None:
    """Check self.assume(p % c == 0), a promise to the compiler, which makes wrong code if it is broken."""
    names = {id(var): name for name, var in program.params}
    for condition, location in program.assumes:
        free = free_variables(condition)
        values = [grid.arguments[names[id(var)]] for var in free]
        if not bool(vector_function(free, condition)(*values)):
            text = ", ".join(f"{names[id(v)]} = {x}" for v, x in zip(free, values, strict=True))
            message = f"assume() does not hold for {text}, for every warp of every CTA"
            grid.findings.add(Finding("assumption-false", Severity.ERROR, message, (0, 0, 0), location))


def _check_barriers(grid: Grid, program: Program) -> None:
    """Check mbarriers in bytes that free_shared released and tilus initialises first."""
    for inst, address in program.barriers.items():
        end = address + 8 * len(inst.counts)
        for tensor, place in program.shared.items():
            if address < place.address + place.nbytes and place.address < end:
                message = (
                    f"the mbarriers {program.name_of(inst.output) or ''} lie at shared bytes {address}:{end}, inside"
                    f" {program.name_of(tensor)} ({place.address}:{place.address + place.nbytes}), whose data destroys"
                    " them: tilus reuses freed shared memory for barriers; do not free it before the kernel ends"
                )
                where = program.location_of(inst)
                grid.findings.add(Finding("mbarrier-overlaps-tensor", Severity.ERROR, message, None, where))
