"""`emulate`: runs PTX on the CPU and writes the results to the given tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import accepts, integer, number, plain_text, shown
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.emulator.arguments import parameter_bytes, plan_value, planned_bytes
from blackwell_matmul.emulator.emulation_listener import EmulationListener
from blackwell_matmul.emulator.loading import LaunchShape, loaded, verified
from blackwell_matmul.emulator.parser import Entry, Module, parse
from blackwell_matmul.emulator.scheduler import ORDERS, Choices, Extents, Limit, Progress
from blackwell_matmul.emulator.spaces import GlobalSpace

MAX_WHOLE = 2**63 - 1
"""Largest seed, extent or number of bytes that is accepted."""

EMULATED_TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")


@dataclass(frozen=True, slots=True)
class Emulation:
    """Result of a run. instructions: number executed by warps. ctas: number of CTAs in the grid.

    never_run: a sentence for each instruction that is not emulated and was not executed. notes: a sentence for each
    line whose effect a GPU leaves undefined, such as a read of unwritten shared memory.
    """

    kernel: str
    target: str
    ctas: int
    instructions: int
    never_run: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def emulate(
    code: Bundle | str | Path,
    *args: object,
    grid: Sequence[int] | int | None = None,
    block: Sequence[int] | int | None = None,
    cluster: Sequence[int] | int | None = None,
    shared_bytes: int = 0,
    kernel: str | None = None,
    order: str = "late",
    seed: int = 0,
    progress: Progress | None = None,
    unwritten: str | None = None,
    limit: Limit | None = None,
    listener: EmulationListener | None = None,
) -> Emulation:
    """Execute compiled code on the CPU: a bundle of this project, its folder, or any PTX as a path or text.

    args: for a bundle, the values of `bundle.plan.parameters`; trailing arguments with defaults may be omitted. For
    other PTX, one for each `.param`: a tensor or array for a pointer (written in place; None is a null pointer), a
    number, or a `TensorMap` whose `pointer` is a tensor. grid, cluster: in CTAs; block: in threads; a bundle's plan has
    them. shared_bytes: dynamic shared memory. kernel: the entry's name, if there are several. order: one of `ORDERS`,
    when asynchronous operations complete. seed: for the order "random". progress: called with the number of finished
    clusters and their total. unwritten: effect of a read of unwritten shared memory: "stop", the default for a bundle,
    or "note", the default for other PTX; the bytes are then 0xFF. limit: of steps, seconds and bytes. listener: gets
    each access, arrival and wait.

    Raises InputError for arguments that do not fit. Raises EmulationError, one sentence with the line of the PTX, for
    undefined behavior, a deadlock or an endless loop. Raises UnsupportedError when an instruction that is not emulated
    is executed.
    """
    ordered, how = plain_text(order), plain_text(unwritten)
    if ordered is None or ordered not in ORDERS:
        raise InputError(f"order is {shown(order)}; there are {', '.join(ORDERS)}.")
    seed, shared_bytes = _whole("seed", seed), _whole("shared_bytes", shared_bytes)
    if unwritten is not None and how not in ("stop", "note"):
        raise InputError(f"unwritten is {shown(unwritten)}; there are stop and note.")
    if progress is not None and not accepts(progress, 2):
        raise InputError(f"progress is {shown(progress)}; it takes a function of the clusters done and their total.")
    if listener is not None and not isinstance(listener, EmulationListener):
        raise InputError(f"listener is {shown(listener)}; it takes an EmulationListener.")
    of_its_own = isinstance(code, Bundle) or is_folder(code)
    choices = Choices(ordered, seed, progress, how or ("stop" if of_its_own else "note"), _limit(limit), listener)
    if of_its_own:
        if grid is not None or block is not None or cluster is not None or shared_bytes or kernel is not None:
            raise InputError("a bundle says its own kernel, grid, block, cluster and shared memory; leave them out.")
        bundle = code if isinstance(code, Bundle) else Bundle.load(code)
        return of_bundle(bundle, parse(bundle.ptx), args, choices)
    module = parse(text_of(code))  # type: ignore[arg-type]
    entry = entry_of(module, kernel)
    shape = LaunchShape(_extents("grid", grid), _extents("block", block), _extents("cluster", cluster), shared_bytes)
    memory = GlobalSpace()
    shape = verified(entry, shape)
    return _run(module, entry, shape, parameter_bytes(entry, args, memory), memory, choices)


def of_bundle(bundle: Bundle, module: Module, args: Sequence[object], choices: Choices) -> Emulation:
    """Execute a module as a bundle's plan launches it. module: the bundle's PTX, or a changed copy."""
    memory, plan = GlobalSpace(), bundle.plan
    plan.require_operands(bundle.name, args)
    launch = plan.evaluate([plan_value(memory, each.name, given) for each, given in zip(plan.parameters, args)])
    if launch.is_empty:
        return Emulation(plan.kernel, bundle.target, 0, 0)
    entry = entry_of(module, plan.kernel)
    shape = LaunchShape(launch.grid, launch.block, launch.cluster, launch.dynamic_shared_bytes)
    shape = verified(entry, shape)
    return _run(module, entry, shape, planned_bytes(entry, launch, memory), memory, choices)


def _run(
    module: Module, entry: Entry, shape: LaunchShape, values: list[bytes], memory: GlobalSpace, choices: Choices
) -> Emulation:
    execution = loaded(module, entry, shape, values, memory, choices)
    execution.run()
    x, y, z = shape.grid
    notes = tuple(execution.notes.values())
    return Emulation(entry.name, module.target, x * y * z, execution.executed, tuple(execution.unknown), notes)


# --- input


def is_folder(code: str | Path) -> bool:
    """Return true for the path of a folder; an empty text is an empty file."""
    try:
        return isinstance(code, (str, Path)) and str(code) != "" and "\n" not in str(code) and Path(code).is_dir()
    except (OSError, ValueError):  # no path: `text_of` says so
        return False


def text_of(code: str | Path) -> str:
    """Return PTX text, given as text or as the path of a file."""
    if isinstance(code, str) and ("\n" in code or not code):
        return code
    if not isinstance(code, (str, Path)):
        raise InputError(f"{shown(code)} is neither a bundle nor PTX, as text or as the path of a file.")
    try:
        raw = Path(code).read_bytes()
        text = raw.decode(errors="replace" if b".version" in raw else "strict")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read PTX from {shown(str(code))}: {why}.") from error


def entry_of(module: Module, name: str | None) -> Entry:
    """Return the kernel of this name, or the only kernel; raise InputError for none, or a target not emulated."""
    if not module.target.startswith(EMULATED_TARGETS):
        raise InputError(f"this PTX is for {module.target or 'no target'}; emulated are {', '.join(EMULATED_TARGETS)}.")
    if name is None and len(module.kernels) == 1:
        return next(iter(module.kernels.values()))
    found = module.kernels.get(plain_text(name) or "")
    if found is None:
        asked = "which kernel?" if name is None else f"there is no kernel {shown(name)}:"
        raise InputError(f"{asked} this PTX has {', '.join(module.kernels)}.")
    return found


def _whole(name: str, value: object) -> int:
    found = integer(value, -MAX_WHOLE, MAX_WHOLE)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it takes a whole number of up to 64 bits.")
    return found


def _limit(limit: Any) -> Limit:
    """Return the limits; raise InputError unless they are positive numbers, those of steps and bytes whole."""
    found = Limit() if limit is None else limit
    if not isinstance(found, Limit):
        raise InputError(f"limit is {shown(limit)}; it takes a Limit(steps=, seconds=, bytes=).")
    seconds, most = number(found.seconds), (integer(each, 1, MAX_WHOLE) for each in (found.steps, found.bytes))
    for name, value in zip(("seconds", "steps", "bytes"), (seconds, *most)):
        given = getattr(found, name)
        if given is not None and not (value or 0) > 0:
            kind = "number" if name == "seconds" else "whole number"
            raise InputError(f"limit has {name} of {shown(given)}; it takes a positive {kind}, or None for none.")
    return replace(found, seconds=seconds)


def _extents(name: str, value: Sequence[int] | int | None) -> Extents:
    given = value if isinstance(value, (list, tuple)) else (1 if value is None else value,)
    found = [each for each in (integer(each, 1, MAX_WHOLE) for each in given) if each is not None]
    if not len(given) == len(found) <= 3 or not found:
        raise InputError(f"{name} is {shown(value)}; it takes one to three positive numbers.")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z
