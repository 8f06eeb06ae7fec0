"""Digests of source and data files: a changed file invalidates results that were compiled, measured or tuned with it.

A process may run files that have changed since their import. The digest of such files is `EDITED`. Call
`is_as_imported` before storing results.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

Stamp = tuple[int, ...]

EDITED = "edited since it was imported"
"""Text in place of a digest, for a package whose files were edited after their import."""

PACKAGE = Path(__file__).parents[1]

READ_SUFFIXES = (".py", ".toml")
"""Suffixes of the files that results depend on: code, and the data files that the code reads."""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamps(folder: Path) -> dict[str, Stamp]:
    """Return the stamps of a folder's code and data, which change on write, replacement or rename."""
    return {entry.path: _stamp(entry.stat()) for entry in _files_read(str(folder))}


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _files_read(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(READ_SUFFIXES):
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files_read(entry.path)


def _tilus() -> Path | None:
    """Return tilus's folder without importing it."""
    try:
        found = importlib.util.find_spec("tilus")
    except ImportError:  # hidden, as by a test
        found = None
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


_seen = {folder: _stamps(folder) for folder in (PACKAGE, _tilus()) if folder is not None}
"""Stamps of both at the import of this module, before the frontend, the compiler and the kernels."""


def is_as_imported() -> bool:
    """Return True if the files of this package and of tilus are unchanged since this process imported them. Takes some
    ms."""
    try:
        return all(_stamps(folder) == stamps for folder, stamps in _seen.items())
    except OSError:
        return False


def is_file_as_imported(file: str) -> bool:
    """Return true for a file of this package or tilus that is unchanged since this process imported it; false for other
    files."""
    stamps = next((each for folder, each in _seen.items() if file.startswith(f"{folder}{os.sep}")), {})
    try:
        return stamps.get(file) == _stamp(os.stat(file))
    except OSError:
        return False


@functools.cache
def kernels_digest() -> str:
    """Return the digest of the rungs' files, their shared parts, the choice of schedules and the figures that it
    uses."""
    return _of_rooms("kernels", "scheduling", "hardware/figures")


@functools.cache
def compiler_digest() -> str:
    """Return the digest of frontend and compiler, as a change there changes generated code."""
    return _of_rooms("compiler", "frontend")


@functools.cache
def tilus_digest() -> str:
    """Return the digest of all files of tilus, which may have been edited in place."""
    return _of(*(folder for folder in _seen if folder != PACKAGE))


def code_digest() -> str:
    """Return the digest of everything that determines compiled kernels."""
    return digest((kernels_digest() + compiler_digest() + tilus_digest()).encode())[:16]


@functools.cache
def package_digest() -> str:
    """Return the digest of every file of this package, for results that depend on all of it."""
    return _of_rooms(".")


def _of_rooms(*rooms: str) -> str:
    return _of(*(PACKAGE / room for room in rooms))


def _of(*folders: Path) -> str:
    """Return the digest of the current files; `EDITED` if they have changed since their import."""
    found = [(folder.parent, Path(file)) for folder in folders for file in sorted(_stamps(folder))]
    named = [f"{file.relative_to(home).as_posix()}\0".encode() + file.read_bytes() for home, file in found]
    return digest(b"\0".join(named))[:16] if is_as_imported() else EDITED
