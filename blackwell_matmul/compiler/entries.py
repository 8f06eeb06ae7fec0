"""Entries: small records beside the bundles of the cache, for kernels of this package.

A file's name has the digest of all that a record follows from: what the kernel means in this process, and every file of
this package, where they are the files that this process imported. One that is damaged counts as none.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from blackwell_matmul.compiler import cache
from blackwell_matmul.digests import EDITED, digest, is_as_imported, package_digest
from blackwell_matmul.files import make_private, write_json
from blackwell_matmul.frontend.fingerprint import CHOICE, meaning

FORMAT = 1


def place(folder: str, script_cls: type, *about: object) -> Path | None:
    """The file of a record in a folder of the cache; None where nothing is kept: the cache is off, the script is no
    kernel of this package, its files have changed since, or what the record follows from has no plain words."""
    root = cache.folder()
    if root is None or not script_cls.__module__.startswith("blackwell_matmul.") or package_digest() is EDITED:
        return None
    means = meaning(script_cls, CHOICE).name
    if means is None:
        return None
    whole = (script_cls.__module__, script_cls.__qualname__, *about, means, package_digest())
    try:
        key = json.dumps(whole, default=_plain, sort_keys=True)
    except TypeError:
        return None
    return root / folder / f"{script_cls.__name__}-{digest(key.encode())[:24]}.json"


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, dataclasses.asdict(value)]
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(type(value).__name__)


def read(file: Path | None) -> Mapping[str, Any]:
    """The record; an empty one where there is none."""
    if file is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            record: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if record["format"] == FORMAT:
                return record
    return {}


def keep(file: Path | None, record: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all, where the disk allows it."""
    if file is not None and is_as_imported():
        with suppress(OSError):
            make_private(file.parent)
            write_json(file, {"format": FORMAT, **record})
