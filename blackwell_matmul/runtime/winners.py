"""Schedules that were found fastest, on disk, each under all that it depends on; a call on a GPU takes one from here
when nobody pins a schedule. Who finds them is no concern of this room.

A file is read once in a process. One that is damaged, or is not what its name says, counts as none and is written anew
by the next one that is kept. What was tuned on another GPU or driver, or before an update, is not found.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from blackwell_matmul.base.digests import EDITED, digest, is_as_imported, kernels_digest
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.compiler import entries
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, Problem

FOLDER = "tuned"


def winner(script_cls: Any, problem: Problem, gpu: Gpu) -> dict[str, Any] | None:
    """The schedule that is kept for a kernel, by knob; None where there is none."""
    record = _read(place(script_cls, problem, gpu))
    return None if record is None else dict(record["schedule"])


def pins_for_call(script_cls: Any, pins: Mapping[str, Any], arguments: Sequence[Any], gpu: Gpu) -> Mapping[str, Any]:
    """What a call with these arguments shall pin, of a kernel with these pins, none of a schedule; nothing for any
    other call, whatever it is."""
    try:
        return winner(script_cls, _problem(script_cls, pins, arguments), gpu) or {}
    except (BlackwellMatmulError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _problem(script_cls: Any, pins: Mapping[str, Any], arguments: Sequence[Any]) -> Problem:
    """What a call computes, as its class says; any other script is called as the rungs are."""
    if hasattr(script_cls, "problem_of"):
        problem: Problem = script_cls.problem_of(dict(pins), *arguments)[0]
        return problem
    m, n, k, a = arguments[:4]
    return Problem(m, n, k, DTYPE_OF_TORCH[str(a.dtype)])


def keep(script_cls: Any, problem: Problem, gpu: Gpu, record: Mapping[str, Any]) -> Path | None:
    """Write a winner, whole or not at all: "schedule" by knob, and whatever else is worth knowing. None: no cache,
    or none that can be written to."""
    file = place(script_cls, problem, gpu)
    if file is None or not is_as_imported():
        return None
    if not entries.keep(file, {"under": _under(script_cls, problem, gpu), **record}):
        return None
    _read.cache_clear()
    return file


def band(m: int) -> int:
    """What m counts as: the power of two that holds it. n and k are those of a layer, which stay."""
    return 1 << (m - 1).bit_length()


def place(script_cls: Any, problem: Problem, gpu: Gpu) -> Path | None:
    """The file of a winner; None where the cache is switched off."""
    from blackwell_matmul.compiler import cache

    root = cache.folder()
    if root is None or _source(script_cls) is None:
        return None
    key = json.dumps(_under(script_cls, problem, gpu), sort_keys=True)
    return root / FOLDER / f"{script_cls.__name__}-{digest(key.encode())[:24]}.json"


def _under(script_cls: Any, problem: Problem, gpu: Gpu) -> dict[str, Any]:
    about = {"n": problem.n, "k": problem.k, "dtype": problem.dtype, "m_up_to": band(problem.m)}
    about |= {} if problem.is_plain else {"form": str(problem.form), "batches": problem.batches}
    board = {"gpu": gpu.name, "arch": gpu.arch, "sm_count": gpu.sm_count}
    return {"kernel": script_cls.__name__, "source": _source(script_cls), **about, **board, **_versions()}


@functools.cache
def _versions() -> dict[str, str]:
    from blackwell_matmul.compiler.compiling import versions

    return {**versions(), "torch": importlib.metadata.version("torch"), "driver": _driver()}


def _driver() -> str:
    from blackwell_matmul.hardware.detect import find_driver

    release = Path("/proc/driver/nvidia/version")
    try:
        return release.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return str(find_driver().cuda)


def _source(script_cls: Any) -> str | None:
    """Of a rung, all kernels of this package, which share code; of any other script, what it means. None where that
    is not what its name says."""
    from blackwell_matmul.frontend.fingerprint import meaning

    if kernels_digest() is EDITED:
        return None
    means = meaning(script_cls).name
    return kernels_digest() if means and script_cls.__module__.startswith("blackwell_matmul.") else means


@functools.cache
def _read(file: Path | None) -> Mapping[str, Any] | None:
    """The record of a file, if it has a schedule."""
    record = entries.read(file)
    schedule = record.get("schedule")
    plain = isinstance(schedule, dict) and all(
        isinstance(each, (int, float, str, NoneType)) for each in schedule.values()
    )
    return record if plain else None
