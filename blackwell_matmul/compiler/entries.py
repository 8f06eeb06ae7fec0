"""Entries: small JSON records in the cache, such as the key of a bundle, for kernels of this package.

A file's name is the digest of all inputs of its record: the kernel's meaning, and this package's files if unchanged
since import. A damaged or foreign file counts as missing; the next record replaces the file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blackwell_matmul.base.digests import EDITED, digest, is_as_imported, package_digest
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import make_private, write_whole
from blackwell_matmul.base.records import sealed, unsealed
from blackwell_matmul.compiler import cache
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.frontend.fingerprint import CHOICE, meaning

ENTRY_FORMAT = 2
CODES_FOLDER = "codes"
"""Folder of the cache whose records give a bundle's key by all inputs of its code (`known_code.py`)."""

NAME, KEY = "name", "bundle"
"""Fields of a record: the name of its file, and a bundle's key."""


def place(folder: str, script_cls: type, *about: object) -> Path | None:
    """Return the file of a record in a folder of the cache. None if the cache is off, the script is no kernel of this
    package, its files have changed, or an input has no stable text."""
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
    """Return a file's record; an empty mapping if the file has no record of its name."""
    if file is None:
        return {}
    try:
        record = unsealed(file, ENTRY_FORMAT, "entry")
    except InputError:
        return {}
    return record if record.pop(NAME, None) == file.name else {}


def keep(file: Path | None, record: Mapping[str, Any]) -> bool:
    """Write a record atomically, replacing the file. Return False if the disk refuses, the record is not JSON, or files
    have changed since import."""
    if file is None or not is_as_imported():
        return False
    try:
        make_private(file.parent)
        if file.is_dir():
            cache.discard(file)
        write_whole(file, sealed({**record, NAME: file.name}, ENTRY_FORMAT))
    except (OSError, ValueError):
        return False
    return True


def read_key(file: Path | None) -> str | None:
    """Return the key of a bundle from a record; None if there is no record."""
    key = read(file).get(KEY)
    return key if isinstance(key, str) else None


def read_bundle(file: Path | None) -> Bundle | None:
    """Return the bundle that a record names; None if the record or the bundle is missing."""
    key = read_key(file)
    return None if key is None else cache.read(key)


def keep_key(file: Path | None, key: str) -> None:
    keep(file, {KEY: key})
