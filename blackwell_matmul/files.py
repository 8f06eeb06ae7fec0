"""Writing files whole or not at all: another process sees the old one or the new one, never half of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from blackwell_matmul.errors import InputError
from blackwell_matmul.validation import plain_text, shown

TIMELINE_ENDINGS = (".html", ".json", ".svg", ".png")


def file_to_write(name: str, value: object, endings: tuple[str, ...]) -> Path:
    """A user's path with one of these endings, in a folder that is there; name: what the user calls it."""
    path = value if isinstance(value, Path) else Path(plain_text(value) or "")
    if path.suffix.lower() not in endings:
        what = f"{name} is {shown(str(value) if isinstance(value, Path) else value)}"
        raise InputError(f"{what}; the file's name must end in {', '.join(endings[:-1])} or {endings[-1]}.")
    if "\0" in str(path) or not path.parent.is_dir() or path.is_dir():
        raise InputError(f"{name} is {shown(str(path))}; it must be a file in a folder that is there.")
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in a folder that is there."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a file with a record that JSON has; its folder is made."""
    content = json.dumps(record, indent=1, allow_nan=False).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
