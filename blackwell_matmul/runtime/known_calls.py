"""Which compiled kernel serves a call, on disk, for kernels of this package: who meets a call of a kind that was met
before finds its code without choosing a schedule and building the script.

An entry whose kernel the cache has lost counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from blackwell_matmul.compiler import cache, entries
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.gpus import Gpu

FOLDER = "calls"


class Known(NamedTuple):
    """bundle: its key in the cache. places: which arguments of the call it takes."""

    bundle: str
    places: tuple[int, ...]


def place(script_cls: type, pins: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Path | None:
    """The entry of a call; None where nothing is kept."""
    from blackwell_matmul.compiler.compiling import versions

    return entries.place(FOLDER, script_cls, dict(pins), list(map(_plain, arguments)), gpu, dict(versions()))


def _plain(argument: object) -> object:
    if not isinstance(argument, Tensor):
        return argument
    return [list(argument.shape), argument.stride(), str(argument.dtype)]


def read(file: Path | None) -> Known | None:
    record = entries.read(file)
    try:
        return Known(str(record["bundle"]), tuple(map(int, record["places"])))
    except (ValueError, KeyError, TypeError):
        return None


def keep(file: Path | None, known: Known) -> None:
    entries.keep(file, known._asdict())


def bundle(known: Known) -> Bundle | None:
    """Of the cache, if it still has it."""
    return cache.read(known.bundle)
