"""Which compiled kernel serves a call, on disk, for kernels of this package: who meets a call of a kind that was met
before finds its code without choosing a schedule and building the script.

A file's name has the digest of all that the answer depends on, every file of this package among it. One that is damaged
counts as none, as does one whose kernel the cache has lost.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from blackwell_matmul.compiler import cache
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.digests import digest, package_digest
from blackwell_matmul.files import write_json
from blackwell_matmul.gpus import Gpu

FOLDER = "calls"
FORMAT = 1


class Known(NamedTuple):
    """bundle: its key in the cache. places: which arguments of the call it takes."""

    bundle: str
    places: tuple[int, ...]


def place(script_cls: type, pins: Mapping[str, object], arguments: Sequence[object], gpu: Gpu) -> Path | None:
    """The file of a call; None where nothing is kept: the cache is off, the script is no kernel of this package, or
    what it is called with has no plain words."""
    root = cache.folder()
    if root is None or not script_cls.__module__.startswith("blackwell_matmul."):
        return None
    about = (script_cls.__module__, script_cls.__qualname__, dict(pins), list(arguments), gpu, _versions())
    try:
        key = json.dumps(about, default=_plain, sort_keys=True)
    except TypeError:
        return None
    return root / FOLDER / f"{script_cls.__name__}-{digest(key.encode())[:24]}.json"


def _plain(value: object) -> object:
    if isinstance(value, Tensor):
        return [list(value.shape), value.stride(), str(value.dtype)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, dataclasses.asdict(value)]
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(type(value).__name__)


def _versions() -> Mapping[str, str]:
    from blackwell_matmul.compiler.compiling import versions

    return {**versions(), "package": package_digest()}


def read(file: Path | None) -> Known | None:
    if file is None:
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] == FORMAT:
            return Known(str(record["bundle"]), tuple(map(int, record["places"])))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def keep(file: Path | None, known: Known) -> None:
    """Write an entry, whole or not at all, where the disk allows it."""
    if file is not None:
        with suppress(OSError):
            write_json(file, {"format": FORMAT, **known._asdict()})


def bundle(known: Known) -> Bundle | None:
    """Of the cache, if it still has it."""
    return cache.read(known.bundle)
