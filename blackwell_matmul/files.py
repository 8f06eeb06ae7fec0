"""Writing files whole or not at all: another process sees the old one or the new one, never half of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any


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
