"""Records: JSON files that may have been truncated or changed. A record is read exactly as written, or rejected.

Size, nesting and numbers are limited. A sealed record has a digest of its content. Every error message is one sentence.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import accumulate
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from blackwell_matmul.base.digests import digest
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import is_text, shown

MOST_RECORD_BYTES = 2**22
"""Maximum bytes of a sealed record."""

MOST_DEPTH = 200
"""Maximum nesting of brackets; Python compiles a launch plan up to this depth."""

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file. Raise OSError for any other file, as opening a FIFO blocks."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0), 0o666)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(None, "it is no regular file", str(path))


def content_of(path: Path, most_bytes: int | None = None) -> bytes:
    """Return a regular file's content; raise InputError if the file is unreadable or longer than most_bytes."""
    try:
        with open(open_regular(path), "rb") as file:
            content = file.read() if most_bytes is None else file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # a path with a null character
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}.") from error
    if most_bytes is not None and len(content) > most_bytes:
        raise InputError(f"{path} is damaged: it has more than {most_bytes:,} bytes.")
    return content


def parsed(content: bytes) -> Any:
    """Return parsed JSON; raise ValueError if malformed, deeper than `MOST_DEPTH`, or with NaN or an infinity."""
    text = content.decode()
    if _depth(content) > MOST_DEPTH:
        raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("there is no room to read it") from None


def _depth(content: bytes) -> int:
    """Return the maximum nesting of brackets outside of strings."""
    outside = b"".join(content.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    return max(accumulate(1 if each in b"[{" else -1 for each in outside.translate(None, _ALL_BUT_BRACKETS)), default=0)


def _finite(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    raise ValueError(f"{text} is no number of JSON")


def sealed(body: Mapping[str, Any], form: int) -> bytes:
    """Return the bytes of a record file: the format's number, the body, and the body's digest. Raise ValueError or
    TypeError if the body is not JSON."""
    record = {"format": form, **body, "digest": digest(canonical(body))}
    return json.dumps(record, indent=1, allow_nan=False).encode()


def unsealed(path: Path, form: int, what: str) -> dict[str, Any]:
    """Return the body of a record file; raise InputError if the file has changed since `sealed`. what: noun for the
    message, such as "bundle"."""
    content = content_of(path, MOST_RECORD_BYTES)
    try:
        record = parsed(content)
    except ValueError as error:
        raise InputError(f"{path} is damaged: it is no JSON that was written here.") from error
    if not isinstance(record, dict) or record.pop("format", None) != form:
        raise InputError(f"{path} is no {what} of format {form}; compile the kernel again.")
    if record.pop("digest", None) != digest(canonical(record)):
        raise InputError(f"{path} is damaged: its content is not what was saved.")
    return record


def canonical(body: Mapping[str, Any]) -> bytes:
    """Return the bytes that a record's digest covers."""
    return json.dumps(body, sort_keys=True, allow_nan=False).encode()


_Part = TypeVar("_Part")


def whole(part: _Part) -> _Part:
    """Return the dataclass if its fields have their annotated types; else raise TypeError."""
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        fits = _FITS.get(str(field.type))
        if fits is not None and not fits(value):
            raise TypeError(f"{field.name} is {shown(value)}")
    return part


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "str": is_text,
    "str | None": lambda value: value is None or is_text(value),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int),
    "int | None": lambda value: isinstance(value, (int, NoneType)),
    "int | float | None": lambda value: isinstance(value, (int, float, NoneType)),
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "dict[str, str]": lambda value: isinstance(value, dict) and all(map(is_text, value.values())),
    "tuple[tuple[str, str, str], ...]": lambda value: all(len(each) == 3 and all(map(is_text, each)) for each in value),
    "tuple[tuple[int, str], ...]": lambda value: all(isinstance(at, int) and is_text(name) for at, name in value),
}
"""Test of a JSON value for each annotation of a field; fields of other types are not tested."""
