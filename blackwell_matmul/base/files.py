"""Atomic file writes: another process sees the old content or the new, never a part."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown

TIMELINE_ENDINGS = (".html", ".json", ".svg", ".png")


def file_to_write(name: str, value: object, endings: tuple[str, ...]) -> Path:
    """Return a path for a new file. Raise InputError unless the path has one of these endings and its folder exists.
    name: the argument's name, for the message."""
    path = value if isinstance(value, Path) else Path(plain_text(value) or "")
    if path.suffix.lower() not in endings:
        what = f"{name} is {shown(str(value) if isinstance(value, Path) else value)}"
        raise InputError(f"{what}; the file's name must end in {', '.join(endings[:-1])} or {endings[-1]}.")
    if "\0" in str(path) or not path.parent.is_dir() or path.is_dir():
        raise InputError(f"{name} is {shown(str(path))}; it must be a file in a folder that is there.")
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically into an existing folder, replacing an existing file."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    file = open(draft, "xb")  # noqa: SIM115
    try:
        with file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents; only the owner can access the new folders."""
    for each in (*reversed(folder.parents), folder):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON record atomically, replacing an existing file; make its folder."""
    content = json.dumps(record, indent=1, allow_nan=False).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
