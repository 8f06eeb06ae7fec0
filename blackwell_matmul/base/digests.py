"""What content is known by: a change of a file makes void what was compiled, measured or tuned with it.

A process may have imported files that have changed since. It has no right to the names of the new ones: where a digest
would be theirs it is `EDITED`, and `is_as_imported` is asked before anything is kept.
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
"""The digest of files that are not those which this process runs."""

PACKAGE = Path(__file__).parents[1]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamps(folder: Path) -> dict[str, Stamp]:
    """Of each of its Python files, what changes when it is written, replaced or renamed."""
    return {entry.path: _stamp(entry.stat()) for entry in _python_files(str(folder))}


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _python_files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _python_files(entry.path)


def _tilus() -> Path | None:
    """Where it is, which does not import it."""
    try:
        found = importlib.util.find_spec("tilus")
    except ImportError:  # somebody hides it
        found = None
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


_seen = {folder: _stamps(folder) for folder in (PACKAGE, _tilus()) if folder is not None}
"""As both were when this module was imported, before the frontend, the compiler and the kernels are."""


def is_as_imported() -> bool:
    """Whether the files of this package and of tilus are those that this process imported, which takes some ms."""
    try:
        return all(_stamps(folder) == stamps for folder, stamps in _seen.items())
    except OSError:
        return False


def is_file_as_imported(file: str) -> bool:
    """The same of one file of them; False for any other."""
    stamps = next((each for folder, each in _seen.items() if file.startswith(f"{folder}{os.sep}")), {})
    try:
        return stamps.get(file) == _stamp(os.stat(file))
    except OSError:
        return False


@functools.cache
def kernels_digest() -> str:
    """Of every file of the rungs, of what they share and of how their schedules are chosen."""
    return _of_rooms("kernels", "schedules")


@functools.cache
def compiler_digest() -> str:
    """Of the frontend and the compiler: a change there makes other code also between two releases."""
    return _of_rooms("compiler", "frontend")


@functools.cache
def tilus_digest() -> str:
    """Of every file of tilus, which may have been edited where it is installed."""
    return _of(*(folder for folder in _seen if folder != PACKAGE))


def code_digest() -> str:
    """Of all that decides how compiled kernels look."""
    return digest((kernels_digest() + compiler_digest() + tilus_digest()).encode())[:16]


@functools.cache
def package_digest() -> str:
    """Of every file of this package: what is found by all of it belongs to that."""
    return _of_rooms(".")


def _of_rooms(*rooms: str) -> str:
    return _of(*(PACKAGE / room for room in rooms))


def _of(*folders: Path) -> str:
    """Of the files as they are now, which are another's where they have changed since they were imported."""
    found = [(folder.parent, Path(file)) for folder in folders for file in sorted(_stamps(folder))]
    named = [f"{file.relative_to(home).as_posix()}\0".encode() + file.read_bytes() for home, file in found]
    return digest(b"\0".join(named))[:16] if is_as_imported() else EDITED
