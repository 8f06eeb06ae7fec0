"""Digests of source and data files: a changed file invalidates results that were compiled, measured or tuned with it.

Files may change after a process has imported them. Their digest is then `EDITED`. Call `is_as_imported` before storing
results.
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
    """Return the stamp of each code and data file in a folder, by path. A stamp changes when a file is written,
    replaced or renamed."""
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
    except ImportError:  # a test may hide tilus
        found = None
    return Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


_seen = {folder: _stamps(folder) for folder in (PACKAGE, _tilus()) if folder is not None}
"""Stamps of this package's and tilus's files at the import of this module, before frontend, compiler, kernels."""


def is_as_imported() -> bool:
    """Return True if the files of this package and of tilus are unchanged since their import. Takes some ms."""
    try:
        return all(_stamps(folder) == stamps for folder, stamps in _seen.items())
    except OSError:
        return False


def is_file_as_imported(file: str) -> bool:
    """Return True for a file of this package or tilus that is unchanged since its import; False for other files."""
    stamps = next((each for folder, each in _seen.items() if file.startswith(f"{folder}{os.sep}")), {})
    try:
        return stamps.get(file) == _stamp(os.stat(file))
    except OSError:
        return False


@functools.cache
def kernels_digest() -> str:
    """Return the digest of the kernels, the rules that choose a schedule, and the GPUs' figures."""
    return _of_rooms("kernels", "scheduling", "hardware/figures")


@functools.cache
def compiler_digest() -> str:
    """Return the digest of the frontend's and the compiler's files, which determine the generated code."""
    return _of_rooms("compiler", "frontend")


@functools.cache
def tilus_digest() -> str:
    """Return the digest of all files of tilus, which a user may have edited in place."""
    return _of(*(folder for folder in _seen if folder != PACKAGE))


def code_digest() -> str:
    """Return the digest of all files that determine compiled kernels."""
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
