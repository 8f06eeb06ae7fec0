"""Stored keys of compiled kernels by call, for kernels of this package. A known kind of call needs neither a schedule's
choice nor a built script.

An entry without its kernel in the cache counts as missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from blackwell_matmul.compiler import cache, entries
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.hardware.gpus import Gpu

CALLS_FOLDER = "calls"


def place(script_cls: type, pins: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Path | None:
    """Return a call's entry; None if nothing is stored."""
    from blackwell_matmul.compiler.compiling import versions

    return entries.place(CALLS_FOLDER, script_cls, dict(pins), list(map(_plain, arguments)), gpu, dict(versions()))


def _plain(argument: object) -> object:
    if not isinstance(argument, Tensor):
        return argument
    return [list(argument.shape), argument.stride(), str(argument.dtype)]


def read(file: Path | None) -> str | None:
    """Return the bundle's key."""
    return entries.read_key(file)


def keep(file: Path | None, key: str) -> None:
    entries.keep_key(file, key)


def bundle(key: str) -> Bundle | None:
    """Return the cache's bundle, if it still has it."""
    return cache.read(key)
