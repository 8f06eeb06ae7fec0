"""How a command ends: its result on stdout, as text or as JSON, and its exit code."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli.views import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

Lines = Callable[[], "str | Iterable[RenderableType]"]
Record = Callable[[], Mapping[str, object]]


LEFT = 2
"""The exit code where nobody reads the result."""


def stdout_is_there() -> bool:
    """And says what it can: a character that its encoding lacks is a question mark, as stderr shows an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout is not None


def finish(as_json: bool, record: Record, lines: Lines, ok: bool = True) -> NoReturn:
    """Print a result and leave with 0, or with 1 where it is not ok."""
    if as_json:
        emit(as_text(record()))
    else:
        shown = lines()
        emit(shown if isinstance(shown, str) else terminal.rendered(shown))
    raise typer.Exit(0 if ok else 1)


def named(kernel: str, record: Mapping[str, object]) -> dict[str, object]:
    """A record with the rung beside the class: its name on the ladder, null for a script of the user's."""
    from blackwell_matmul.harness.calls.user_kernel import names_a_file

    rung = None if names_a_file(kernel) else kernel.lower()
    return {"kernel": record["kernel"], "rung": rung, **record}


def complain(sentence: str, code: int, as_json: bool) -> int:
    """On stderr for people; with --json also on stdout, in place of the result."""
    with suppress(OSError):  # full as well: the exit code says it
        terminal.complain(sentence)
    if as_json:
        with suppress(typer.Exit, InputError):
            emit(as_text({"error": sentence}))
    leave_nothing_to_flush()
    return code


def as_text(record: Mapping[str, object]) -> str:
    return json.dumps(record, allow_nan=False)


def emit(text: str) -> None:
    """On stdout; InputError where it takes no more, and nothing but an exit code where the reader has left."""
    try:
        print(text, flush=True)
    except OSError as error:
        leave_nothing_to_flush()
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(LEFT) from None
        raise InputError(f"cannot write the result to stdout: {error.strerror}; send it to another file.") from error


def leave_nothing_to_flush() -> None:
    """What a stream does not take would fail again at the end of the process, and change its exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # of an object that is no file
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
