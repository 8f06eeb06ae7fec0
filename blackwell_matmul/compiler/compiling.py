"""`compile`: compiles a script for a call's arguments to a `Bundle`, with a cache; `compile_many`: for schedules."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import json
import math
import multiprocessing
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from blackwell_matmul.base.digests import EDITED, compiler_digest, digest, tilus_digest
from blackwell_matmul.base.errors import BlackwellMatmulError, CompileError, InputError
from blackwell_matmul.base.interrupts import Pool
from blackwell_matmul.base.processes import can_fork, cores, uncollected
from blackwell_matmul.base.validation import attribute, integer, shown
from blackwell_matmul.compiler import cache as disk
from blackwell_matmul.compiler import nvrtc
from blackwell_matmul.compiler.bundle import Bundle, Marks
from blackwell_matmul.compiler.plan import Expr, folded
from blackwell_matmul.compiler.resources import resources
from blackwell_matmul.compiler.tilus_faults import shared_bytes_missing
from blackwell_matmul.frontend import Bound, Program, bind_all, bind_call, build_first, import_tilus, target_for
from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.problem.form import check_flag, check_progress
from blackwell_matmul.problem.problem import Schedule, plain_workers

Pins = Mapping[str, object] | Schedule | None
Progress = Callable[[int, int], None]
"""Callback with the number of finished schedules and their total."""

Defaults = Mapping[str, int | float]
"""Default values of optional parameters, by name."""

_memo: weakref.WeakKeyDictionary[Program, dict[tuple[str, ...], Bundle]] = weakref.WeakKeyDictionary()


def compile(
    script: Any,
    *args: Any,
    schedule: Pins = None,
    target: str | None = None,
    cache: bool = True,
    timeline: int | None = None,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> Bundle:
    """Compile `script` (a tilus.Script class, or a call of one) for a call with these arguments.

    args: as for `script.__call__`: tensors, on any device, and numbers. Constants among them (annotated int) are
    compiled in; `bundle.serves` lists them. schedule: pins arguments of its `__init__`; the others are chosen as by
    `simulate`. target: the GPU's architecture (None: as for `simulate`). cache: use the cache in memory and on disk.
    timeline: maximum records per warp; the kernel then takes one more argument, a buffer for the start and end of its
    instructions (`compiler/marks.py`). None: no timeline. marks: names of instructions in the timeline, by tilus's
    class.

    Raises InputError, CompileError or UnsupportedError, each one sentence, if the script cannot be compiled.
    """
    check_flag("cache", cache)
    import_tilus()
    from blackwell_matmul.compiler import entries, known_code

    target = target_for(script, target)
    with uncollected():
        candidates = bind_all(script, args, schedule=schedule, target=target)
        known = known_code.place(candidates, target, versions()) if cache and timeline is None else None
        found = entries.read_bundle(known)
        if found is not None:
            return found
        bound, program = build_first(candidates, target)
        written = None
        if timeline is not None:
            program, written = _with_marks(program, timeline, marks)
        if not cache or compiler_digest() is EDITED:
            return _compiled(program, bound, _key(program, bound), written)
        kept, left_out = _memo.setdefault(program, {}), tuple(_defaults(program, bound))
        found = kept[left_out] = kept.get(left_out) or _from_disk(program, bound, written)
        entries.keep_key(known, found.key)
        return found


def _with_marks(program: Program, events: int, names: Mapping[str, str]) -> tuple[Program, Marks]:
    from blackwell_matmul.compiler.marks import MOST_RECORDED_EVENTS, marked

    found = integer(events, 1, MOST_RECORDED_EVENTS)
    if found is None:
        raise InputError(
            f"timeline is {shown(events)}; it must be how many records a warp may write, from 1 to "
            f"{MOST_RECORDED_EVENTS:,}."
        )
    return marked(program, found, names)


def _from_disk(program: Program, bound: Bound, marks: Marks | None) -> Bundle:
    key = _key(program, bound)
    found = disk.read(key)
    if found is None:
        found = _compiled(program, bound, key, marks)
        disk.write(found)
    return found


def _compiled(program: Program, bound: Bound, key: str, marks: Marks | None) -> Bundle:
    """Run hidet's passes and compile to a cubin."""
    from blackwell_matmul.compiler.host_code import launch_plan
    from blackwell_matmul.compiler.source import device_source, lower

    missing = shared_bytes_missing(program)
    if missing:
        asked = program.dynamic_shared_bytes
        raise CompileError(
            f"{program.name} uses {missing} bytes of shared memory beyond the {asked} that its launch asks for."
        )
    lowered = lower(program)
    source = device_source(lowered, program, _entry(bound))
    early = program.early_start and marks is None  # the preceding kernel may write the buffer
    early_start = _early_start(bound) if early else 0
    plan = launch_plan(lowered.module, program, source.kernel, early_start, _defaults(program, bound))
    if _leaves_zeros(bound):
        plan = replace(plan, workspaces=tuple(replace(each, kept=each.clear) for each in plan.workspaces))
    made = nvrtc.compile_source(source.numbered, program.target, program.name)
    return Bundle(
        name=program.name, target=program.target, source=source.text, ptx=made.ptx, cubin=made.cubin, plan=plan,
        consts=_plain(program.consts), serves=_serves(program, bound), schedule=_plain(bound.init_kwargs),
        resources=resources(made.log, plan, program.target), versions=versions(), key=key,
        marks=marks,
    )  # fmt: skip


def _early_start(bound: Bound) -> Expr:
    """Return the condition under which the grid may start before the preceding grid ends (programmatic dependent
    launch): 1, or the script's own condition."""
    says = getattr(bound.script_cls, "starts_early", None)
    if not callable(says):
        return 1
    return folded(says({**bound.init_kwargs, **{name: name for name in bound.kernel_args}, **bound.consts}))


def _leaves_zeros(bound: Bound) -> bool:
    """Return True if the script says that each launch leaves zeros in its workspaces with `requires_clean=True`."""
    says = getattr(bound.script_cls, "leaves_zeros", None)
    return callable(says) and says() is True


def _defaults(program: Program, bound: Bound) -> Defaults:
    """Return the numeric defaults of `__call__`. A null pointer is a default only if this call passes null, as the code
    may otherwise read the pointer."""
    declared = inspect.signature(bound.script_cls.__call__).parameters
    own = [each for each in program.params if each[0] in declared]  # without the timeline's argument
    found = {name: (declared[name].default, bound.kernel_args[name], var.type) for name, var in own}
    return {
        name: default
        for name, (default, given, kind) in found.items()
        if isinstance(default, (int, float)) and math.isfinite(default)
        if not kind.is_pointer() or (isinstance(given, int) and given == default)
    }


def _entry(bound: Bound) -> Location:
    code = bound.script_cls.__call__.__code__
    return Location(code.co_filename, code.co_firstlineno)


# --- facts of a bundle


def _serves(program: Program, bound: Bound) -> str:
    """Return one sentence: the arguments that may vary, the compiled-in arguments, and the assumptions."""
    fixed = [f"{name} = {shown(value)}" for name, value in program.consts.items()]
    multiples = [f"{name} a multiple of {divisor}" for name, divisor in bound.divisibility.items() if divisor > 1]
    assumed = dict.fromkeys([*multiples, *_assumed(program)])
    pointers = {name for name, var in program.params if var.type.is_pointer()}
    free = [name for name in bound.kernel_args if name not in pointers]
    conditions = [*fixed, *assumed]
    which = f"any {_listed(free)}" if free else "one size"
    return f"Serves {which}" + (f" with {_listed(conditions)}." if conditions else ".")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _assumed(program: Program) -> list[str]:
    """Return the conditions of the script's `self.assume`; results for other arguments are wrong."""
    names = {id(var): name for name, var in program.params}
    texts = []
    for condition, _ in program.assumes:
        var, divisor = condition.a.a, condition.a.b  # tilus accepts only `parameter % constant == 0`
        texts.append(f"{names.get(id(var), 'a size')} a multiple of {divisor}")
    return texts


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for JSON, tilus types by their name."""
    return {name: _plain_value(value) for name, value in values.items()}


def _plain_value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain_value(each) for each in value]
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else shown(value)


# --- the key


@functools.cache
def _versions() -> dict[str, str]:
    return {
        "blackwell-matmul": _package_version("blackwell-matmul"),
        "compiler": compiler_digest(),
        "tilus": f"{_package_version('tilus')} {tilus_digest()}",
        "nvrtc": nvrtc.version(),
        "headers": _package_version("nvidia-cuda-runtime"),
    }


def versions() -> dict[str, str]:
    """Return the versions of all tools that determine the code."""
    return dict(_versions())


def _package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@tilus_compat.deep()
def _key(program: Program, bound: Bound) -> str:
    """Return the bundle's key: a digest of the program's generated code, its lines, and the versions of later tools."""
    lines = [_line(program.location_of(origin)) for origin in program.origins.values()]
    record = [
        str(program.lowered), str(program.final), lines, _line(_entry(bound)), program.name, program.target,
        _serves(program, bound), [name for name, _ in program.params], _plain(program.consts), str(_early_start(bound)),
        _plain(bound.init_kwargs), dict(_defaults(program, bound)), versions(),
    ]  # fmt: skip
    return digest(json.dumps(record, sort_keys=True).encode())


def _line(location: Location | None) -> str:
    return "" if location is None else f"{location.import_path}:{location.line}"


# --- many schedules


def compile_many(
    script: Any,
    *args: Any,
    schedules: Iterable[Mapping[str, object] | Schedule],
    target: str | None = None,
    cache: bool = True,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Bundle | BlackwellMatmulError]:
    """Compile one script with each of these schedules. Return the bundles in order, with an error in place of a refused
    schedule.

    workers: processes (None: one for each core). progress: called with (finished, total) schedules. Raises InputError
    for a script that is no kernel, and for another target or arguments than it takes.
    """
    check_flag("cache", cache)
    some = isinstance(schedules, Iterable) and attribute(schedules, "dtype") is None  # no array or tensor
    if not some or isinstance(schedules, (str, bytes, Mapping)):
        raise InputError(f"schedules is {shown(schedules)}; it must be a list of schedules.")
    asked = plain_workers(workers)
    check_progress(progress, "finished, total")
    import_tilus()
    target = target_for(script, target)
    bind_call(script, args)
    pins = list(schedules)
    processes = min(asked or cores(), len(pins))
    job = functools.partial(_one, script, args, target, cache)
    tell = progress or (lambda done, total: None)
    if processes < 2 or not can_fork():
        return _in_this_process(job, pins, tell)
    return _in_processes(job, pins, processes, tell)


Job = Callable[[Pins], "Bundle | BlackwellMatmulError"]
_job: Job | None = None
"""Job of the worker processes, inherited by fork, so that user scripts need not be importable."""


def _one(
    script: Any, args: Sequence[Any], target: str | None, cache: bool, schedule: Pins
) -> Bundle | BlackwellMatmulError:
    try:
        return compile(script, *args, schedule=schedule, target=target, cache=cache)
    except BlackwellMatmulError as error:
        return type(error)(*error.args)  # a new error without traceback, which cannot be pickled


def _in_this_process(job: Job, pins: Sequence[Pins], tell: Progress) -> list[Bundle | BlackwellMatmulError]:
    results = []
    for each in pins:
        results.append(job(each))
        tell(len(results), len(pins))
    return results


def _in_processes(
    job: Job, pins: Sequence[Pins], processes: int, tell: Progress
) -> list[Bundle | BlackwellMatmulError]:
    results: list[Any] = [None] * len(pins)
    try:
        with Pool(processes, multiprocessing.get_context("fork"), functools.partial(_take_over, job)) as pool:
            futures = {pool.submit(_inherited, each): index for index, each in enumerate(pins)}
            for done, future in enumerate(as_completed(futures), 1):
                results[futures[future]] = future.result()
                tell(done, len(pins))
    except BrokenProcessPool as error:
        raise CompileError(
            "A process that compiled a schedule died; workers=1 compiles everything in this one."
        ) from error
    return results


def _take_over(job: Job) -> None:
    """Set the job in a pool's process."""
    global _job
    _job = job


def _inherited(schedule: Pins) -> Bundle | BlackwellMatmulError:
    assert _job is not None
    return _job(schedule)
