"""Tuned schedules on disk, found by kernel, problem, GPU and versions. A call on a GPU uses a tuned schedule unless a
schedule is pinned.

The tuner writes the files. A file is read once in a process. A damaged or mismatched file counts as missing and is
replaced.
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

WINNERS_FOLDER = "tuned"


def winner(script_cls: Any, problem: Problem, gpu: Gpu) -> dict[str, Any] | None:
    """Return the tuned schedule of a kernel for a problem and a GPU, by knob; None if there is none."""
    record = _read(place(script_cls, problem, gpu))
    return None if record is None else dict(record["schedule"])


def pins_for_call(script_cls: Any, pins: Mapping[str, Any], arguments: Sequence[Any], gpu: Gpu) -> Mapping[str, Any]:
    """Return the tuned schedule for a call with these arguments; empty if pins set a knob or nothing was tuned."""
    try:
        return winner(script_cls, _problem(script_cls, pins, arguments), gpu) or {}
    except (BlackwellMatmulError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _problem(script_cls: Any, pins: Mapping[str, Any], arguments: Sequence[Any]) -> Problem:
    """Return a call's problem, from the class's `problem_of`; a script without it takes m, n, k, a as the rungs do."""
    if hasattr(script_cls, "problem_of"):
        problem: Problem = script_cls.problem_of(dict(pins), *arguments)[0]
        return problem
    m, n, k, a = arguments[:4]
    return Problem(m, n, k, DTYPE_OF_TORCH[str(a.dtype)])


def keep(script_cls: Any, problem: Problem, gpu: Gpu, record: Mapping[str, Any]) -> Path | None:
    """Write a tuned schedule and return its file; None if the cache is off or read-only. record: "schedule" by knob,
    and further facts."""
    file = place(script_cls, problem, gpu)
    if file is None or not is_as_imported():
        return None
    if not entries.keep(file, {"under": _under(script_cls, problem, gpu), **record}):
        return None
    _read.cache_clear()
    return file


def band(m: int) -> int:
    """Return the smallest power of two that is at least m. A tuned schedule serves a band of m, with equal n and k."""
    return 1 << (m - 1).bit_length()


def place(script_cls: Any, problem: Problem, gpu: Gpu) -> Path | None:
    """Return the file of a tuned schedule; None if the cache is off or kernel files have changed since import."""
    from blackwell_matmul.compiler import cache

    root = cache.folder()
    if root is None or _source(script_cls) is None:
        return None
    key = json.dumps(_under(script_cls, problem, gpu), sort_keys=True)
    return root / WINNERS_FOLDER / f"{script_cls.__name__}-{digest(key.encode())[:24]}.json"


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
    """Return the digest of all kernels for a kernel of this package, else of the script's meaning; None if files have
    changed since import."""
    from blackwell_matmul.frontend.fingerprint import meaning

    if kernels_digest() is EDITED:
        return None
    means = meaning(script_cls).name
    return kernels_digest() if means and script_cls.__module__.startswith("blackwell_matmul.") else means


@functools.cache
def _read(file: Path | None) -> Mapping[str, Any] | None:
    """Return a file's record; None if the record has no valid schedule."""
    record = entries.read(file)
    schedule = record.get("schedule")
    plain = isinstance(schedule, dict) and all(
        isinstance(each, (int, float, str, NoneType)) for each in schedule.values()
    )
    return record if plain else None
