"""End of a command: its result on stdout, as text or JSON, and its exit code."""

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


READER_LEFT_EXIT_CODE = 2
"""Exit code if the reader of the output has closed it."""


def stdout_is_there() -> bool:
    """Return True if stdout exists. Make stdout replace characters that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout is not None


def finish(as_json: bool, record: Record, lines: Lines, ok: bool = True) -> NoReturn:
    """Print a result and exit with 0, or with 1 if not ok."""
    if as_json:
        emit(as_text(record()))
    else:
        shown = lines()
        emit(shown if isinstance(shown, str) else terminal.rendered(shown))
    raise typer.Exit(0 if ok else 1)


def named(kernel: str, record: Mapping[str, object]) -> dict[str, object]:
    """Return a record with the class and the rung's name, null for a user's script."""
    from blackwell_matmul.harness.calls.user_kernel import names_a_file

    rung = None if names_a_file(kernel) else kernel.lower()
    return {"kernel": record["kernel"], "rung": rung, **record}


def complain(sentence: str, code: int, as_json: bool) -> int:
    """Print an error on stderr, and with --json also on stdout in place of the result."""
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
    """Print on stdout; InputError if the write fails, only an exit code if the reader has left."""
    try:
        print(text, flush=True)
    except OSError as error:
        leave_nothing_to_flush()
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(READER_LEFT_EXIT_CODE) from None
        raise InputError(f"cannot write the result to stdout: {error.strerror}; send it to another file.") from error


def leave_nothing_to_flush() -> None:
    """Flush the streams, and discard unwritable output, which would change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # of an object that is no file
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
