"""Size limit of the cache: removes least recently used entries, and files that killed processes have left.

Readers and writers of an entry hold a lock on its folder; a lock ends with its process. Locked entries are not removed.
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
"""Environment variable that sets the cache's limit, in MiB."""

MOST_MIB = 2048
"""Default of the limit, in MiB."""

KEPT_FRACTION = 0.9
"""Fraction of the limit that eviction keeps, so that not every new entry evicts another."""

LOOKED_S = 3600.0
"""Seconds after which a process scans the cache again, for entries of other processes."""

ABANDONED_S = 3600.0
"""Seconds after which an unfinished file counts as abandoned."""

RECORDS = "calls", "codes"
"""Folders of records that may be evicted; tuned schedules are in another folder and stay."""

DRAFT = ".draft-"

_known: dict[Path, tuple[float, int]] = {}
"""Time of the last scan (time.monotonic) and known bytes of each cache."""


class KeptEntry(NamedTuple):
    used: float
    size_bytes: int
    place: Path


def most_bytes() -> int:
    """Return the limit in bytes; raise InputError if the environment variable is no number."""
    named = os.environ.get(VARIABLE, "").strip()
    if named and not (named.isascii() and named.isdigit() and int(named[:12]) > 0):
        raise InputError(f"{VARIABLE} is {shown(named)}; it must be a whole number of MiB, at least 1.")
    return int(named[:12] or MOST_MIB) * 2**20


@contextmanager
def held(folder: Path, alone: bool = False) -> Iterator[bool]:
    """Lock a folder inside the block, exclusively if `alone`, else shared. Yield True if locked, else False."""
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
    """Evict least recently used entries if the cache exceeds its limit. place: the entry just written, which stays."""
    _clear(place.parent)
    looked, known_bytes = _known.get(root, (-LOOKED_S, 0))
    known_bytes += _size_bytes(place)
    if time.monotonic() - looked > LOOKED_S or known_bytes > most_bytes():
        looked, known_bytes = time.monotonic(), _trimmed(root, place)
    _known[root] = looked, known_bytes


def _trimmed(root: Path, spared: Path) -> int:
    """Evict least recently used entries and return the remaining bytes. spared: an entry that stays."""
    for folder in _folders(root):
        _clear(folder)
    found = sorted(_entries(root))
    total, most = sum(each.size_bytes for each in found), most_bytes()
    if total <= most:
        return total
    for each in found:
        if total <= most * KEPT_FRACTION:
            break
        if each.place != spared and _removed(each.place):
            total -= each.size_bytes
    return total


def _folders(root: Path) -> list[Path]:
    """Return the folders of bundles, named by two digits of their keys, and of records."""
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
    """Record the use of an entry, if the disk allows it."""
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
    """Remove an entry; a folder is renamed before its files are deleted."""
    with suppress(OSError):
        if place.is_dir() and not place.is_symlink():
            away = tempfile.mkdtemp(dir=place.parent, prefix=DRAFT)
            os.rename(place, Path(away) / "old")
            shutil.rmtree(away, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Remove unfinished entries that no process holds, and abandoned files."""
    with suppress(OSError):
        for each in [each for each in folder.iterdir() if each.name.startswith(".")]:
            if each.name.startswith(DRAFT) and each.is_dir() and not each.is_symlink():
                with held(each, alone=True) as ours:
                    if ours:
                        shutil.rmtree(each, ignore_errors=True)
            elif time.time() - each.lstat().st_mtime > ABANDONED_S:
                each.unlink(missing_ok=True)
