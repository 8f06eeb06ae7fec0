"""What content is known by: a change of a file makes void what was compiled, measured or tuned with it."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache
def kernels_digest() -> str:
    """Of every file of the rungs, of what they share and of how their schedules are chosen."""
    return _of_rooms("kernels", "scheduling")


@functools.cache
def compiler_digest() -> str:
    """Of the frontend and the compiler: a change there makes other code also between two releases."""
    return _of_rooms("compiler", "frontend")


def code_digest() -> str:
    """Of all that decides how compiled kernels look."""
    return digest((kernels_digest() + compiler_digest()).encode())[:16]


@functools.cache
def package_digest() -> str:
    """Of every file of this package: what is found by all of it belongs to that."""
    return _of_rooms(".")


def _of_rooms(*rooms: str) -> str:
    package = Path(__file__).parent
    found = [file for room in rooms for file in sorted((package / room).rglob("*.py"))]
    named = (f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes() for file in found)
    return digest(b"\0".join(named))[:16]
