"""What decides how compiled kernels look, in a few letters: a change makes void what was compiled or tuned before."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def kernels_digest() -> str:
    """Of every file of the rungs, of what they share and of what chooses their schedules."""
    here = Path(__file__).parent
    return _digest(here, here.parent / "scheduling")


@functools.cache
def code_digest() -> str:
    """Of the rungs, their schedules, the frontend and the compiler."""
    here = Path(__file__).parent
    return _digest(*(here.parent / room for room in ("kernels", "scheduling", "frontend", "compiler")))


def _digest(*folders: Path) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
