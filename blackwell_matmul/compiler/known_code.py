"""Which bundle of the cache a kernel of this package has, by all that its code depends on: who meets new sizes with a
known schedule need not build the script to learn that its code is there.

A file's name has the digest of all of that, every file of this package among it. One that is damaged counts as none.
This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tilus import DataType

from blackwell_matmul.compiler import cache
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.digests import digest, package_digest
from blackwell_matmul.files import write_json
from blackwell_matmul.frontend import Bound

FOLDER = "codes"
FORMAT = 1


def place(candidates: Sequence[Bound], target: str, versions: Mapping[str, str]) -> Path | None:
    """The file of all calls with one code; None where nothing is kept: the cache is off, the script is no kernel of
    this package, there are several ways to build it, or what it is made with has no plain words."""
    root, bound = cache.folder(), candidates[0]
    script_cls = bound.script_cls
    if root is None or len(candidates) > 1 or not script_cls.__module__.startswith("blackwell_matmul."):
        return None
    depends = dict(bound.init_kwargs), dict(bound.consts), dict(bound.divisibility), _left_out(bound), target
    about = (script_cls.__module__, script_cls.__qualname__, *depends, dict(versions), package_digest())
    try:
        key = json.dumps(about, default=_plain, sort_keys=True)
    except TypeError:
        return None
    return root / FOLDER / f"{script_cls.__name__}-{digest(key.encode())[:24]}.json"


def _left_out(bound: Bound) -> list[str]:
    """The arguments that are as if they had been left out: a bundle says which may be."""
    declared = inspect.signature(bound.script_cls.__call__).parameters
    given = bound.kernel_args.items()
    return [name for name, value in given if isinstance(value, (int, float)) and value == declared[name].default]


def _plain(value: object) -> object:
    if isinstance(value, DataType):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, dataclasses.asdict(value)]
    raise TypeError(type(value).__name__)


def read(file: Path | None) -> Bundle | None:
    """The bundle, if the cache still has it."""
    if file is None:
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        return cache.read(str(record["bundle"])) if record["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(file: Path | None, bundle: Bundle) -> None:
    """Write an entry, whole or not at all, where the disk allows it."""
    if file is not None:
        with suppress(OSError):
            write_json(file, {"format": FORMAT, "bundle": bundle.key})
