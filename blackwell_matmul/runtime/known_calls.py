"""Which compiled kernel serves a call, on disk, for kernels of this package: who meets a call of a kind that was met
before finds its code without choosing a schedule and building the script.

An entry whose kernel the cache has lost counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from blackwell_matmul.compiler import cache, entries
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.hardware.gpus import Gpu

FOLDER = "calls"


def place(script_cls: type, pins: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Path | None:
    """The entry of a call; None where nothing is kept."""
    from blackwell_matmul.compiler.compiling import versions

    return entries.place(FOLDER, script_cls, dict(pins), list(map(_plain, arguments)), gpu, dict(versions()))


def _plain(argument: object) -> object:
    if not isinstance(argument, Tensor):
        return argument
    return [list(argument.shape), argument.stride(), str(argument.dtype)]


def read(file: Path | None) -> str | None:
    """The key of the bundle."""
    return entries.read_key(file)


def keep(file: Path | None, key: str) -> None:
    entries.keep_key(file, key)


def bundle(key: str) -> Bundle | None:
    """Of the cache, if it still has it."""
    return cache.read(key)
