"""Folders packed as one zip file, to be copied to another machine."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blackwell_matmul.base.errors import InputError

MOST_UNPACKED_BYTES = 4 << 30
"""Maximum bytes of an unpacked folder."""


def zip_folder(folder: Path, file: Path, what: str) -> None:
    """Write a folder, except lock files, as one zip file; raise InputError if writing fails. what: noun for the
    message, such as "the kit"."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".lock":
                    packed.write(path, path.relative_to(folder))
    except OSError as error:
        raise InputError(f"cannot write {what} to {file}: {error.strerror or error}; choose another file.") from error


@contextmanager
def unzipped(file: Path, what: str, remedy: str) -> Iterator[Path]:
    """Yield a temporary folder with the content of a zip file. Raise InputError, with the remedy, for a damaged file.
    what: noun for the message, such as "kit"."""
    with tempfile.TemporaryDirectory(prefix="blackwell-matmul-") as folder:
        try:
            with zipfile.ZipFile(file) as packed:
                _require_plain(file, what, packed)
                packed.extractall(folder)
        except (OSError, zipfile.BadZipFile, EOFError, ValueError, RuntimeError) as error:
            why = getattr(error, "strerror", None) or f"{error}".rstrip(".")
            raise InputError(f"{file} is no {what} that can be read: {why}; {remedy}.") from error
        yield Path(folder)


def _require_plain(file: Path, what: str, packed: zipfile.ZipFile) -> None:
    if sum(each.file_size for each in packed.infolist()) > MOST_UNPACKED_BYTES:
        raise InputError(f"{file} has more than {MOST_UNPACKED_BYTES:,} bytes unpacked, which no {what} has.")
