"""How much the cache keeps: what was used longest ago goes first, and whatever a killed process has left.

Who reads or writes an entry has a lock on the entry's folder, which ends with the process. What is locked stays.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown

if sys.platform != "win32":
    import fcntl

VARIABLE = "BLACKWELL_MATMUL_CACHE_MIB"
"""Names another bound, in MiB."""

MOST_MIB = 2048
"""MiB that the cache keeps: some 15,000 bundles."""

LEFT = 0.9
"""The part of the bound that is left once the cache was above it, so that not every entry to come removes one."""

LOOKED_S = 3600.0
"""Seconds until a process looks again at what others have written."""

ABANDONED_S = 3600.0
"""Seconds after which a file that is still being written has nobody who writes it."""

RECORDS = "calls", "codes"
"""Folders of records, which are cheap to lose; the winners of tuning, in a third one, stay."""

DRAFT = ".draft-"

_known: dict[Path, tuple[float, int]] = {}
"""For each cache when this process looked (time.monotonic), and its bytes."""


class KeptEntry(NamedTuple):
    used: float
    size_bytes: int
    place: Path


def most_bytes() -> int:
    """The bound, in bytes; InputError where the environment names none."""
    named = os.environ.get(VARIABLE, "").strip()
    if named and not (named.isascii() and named.isdigit() and int(named[:12]) > 0):
        raise InputError(f"{VARIABLE} is {shown(named)}; it must be a whole number of MiB, at least 1.")
    return int(named[:12] or MOST_MIB) * 2**20


@contextmanager
def held(folder: Path, alone: bool = False) -> Iterator[bool]:
    """Whether this process has the folder for the block: alone, or with others that hold it as well."""
    try:
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:
        yield False
        return
    try:
        yield _locked(handle, alone)
    finally:
        os.close(handle)


def _locked(handle: int, alone: bool) -> bool:
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return True
    return False


def keep_bound(root: Path, place: Path) -> None:
    """After a write: remove what was used longest ago, but the entry of this place, where there is more than the
    bound."""
    _clear(place.parent)
    looked, known_bytes = _known.get(root, (-LOOKED_S, 0))
    known_bytes += _size_bytes(place)
    if time.monotonic() - looked > LOOKED_S or known_bytes > most_bytes():
        looked, known_bytes = time.monotonic(), _trimmed(root, place)
    _known[root] = looked, known_bytes


def _trimmed(root: Path, spared: Path) -> int:
    """The bytes that are left."""
    for folder in _folders(root):
        _clear(folder)
    found = sorted(_entries(root))
    total, most = sum(each.size_bytes for each in found), most_bytes()
    if total <= most:
        return total
    for each in found:
        if total <= most * LEFT:
            break
        if each.place != spared and _removed(each.place):
            total -= each.size_bytes
    return total


def _folders(root: Path) -> list[Path]:
    """Those of bundles, by the first two digits of their keys, and those of records."""
    with suppress(OSError):
        return [each for each in root.iterdir() if (len(each.name) == 2 or each.name in RECORDS) and each.is_dir()]
    return []


def _entries(root: Path) -> Iterator[KeptEntry]:
    for folder in _folders(root):
        with suppress(OSError):
            for place in folder.iterdir():
                if not place.name.startswith("."):
                    with suppress(OSError):
                        yield KeptEntry(place.lstat().st_mtime, _size_bytes(place), place)


def _size_bytes(place: Path) -> int:
    with suppress(OSError):
        return sum(file.lstat().st_size for file in place.iterdir())
    with suppress(OSError):
        return place.lstat().st_size
    return 0


def used(place: Path) -> None:
    """Remember that an entry is used now, where the disk allows it."""
    with suppress(OSError):
        os.utime(place)


def _removed(place: Path) -> bool:
    if not place.is_dir() or place.is_symlink():
        discard(place)
        return True
    with held(place, alone=True) as ours:
        if ours:
            discard(place)
    return ours


def discard(place: Path) -> None:
    """Take an entry away: first its name, by one rename, then the rest."""
    with suppress(OSError):
        if place.is_dir() and not place.is_symlink():
            away = tempfile.mkdtemp(dir=place.parent, prefix=DRAFT)
            os.rename(place, Path(away) / "old")
            shutil.rmtree(away, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Remove drafts that nobody holds, and files that nobody has gone on writing."""
    with suppress(OSError):
        for each in [each for each in folder.iterdir() if each.name.startswith(".")]:
            if each.name.startswith(DRAFT) and each.is_dir() and not each.is_symlink():
                with held(each, alone=True) as ours:
                    if ours:
                        shutil.rmtree(each, ignore_errors=True)
            elif time.time() - each.lstat().st_mtime > ABANDONED_S:
                each.unlink(missing_ok=True)
