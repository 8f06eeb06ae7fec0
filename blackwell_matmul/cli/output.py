"""Output of a command: its result on stdout, as text or JSON, its errors, and its exit code."""

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
"""Exit code if the reader of stdout has closed the pipe."""


def stdout_is_there() -> bool:
    """Return True if stdout is open. stdout then replaces characters that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return sys.stdout is not None


def finish(as_json: bool, record: Record, lines: Lines, ok: bool = True) -> NoReturn:
    """Print a result, and exit with the code 0, or 1 if not ok. record: the result for JSON. lines: as text."""
    if as_json:
        emit(as_text(record()))
    else:
        shown = lines()
        emit(shown if isinstance(shown, str) else terminal.rendered(shown))
    raise typer.Exit(0 if ok else 1)


def named(kernel: str, record: Mapping[str, object]) -> dict[str, object]:
    """Return a record with the kernel's name as `rung`, None for a user's script."""
    from blackwell_matmul.harness.calls.user_kernel import names_a_file

    rung = None if names_a_file(kernel) else kernel.lower()
    return {"kernel": record["kernel"], "rung": rung, **record}


def complain(sentence: str, code: int, as_json: bool) -> int:
    """Print an error on stderr, with --json also on stdout in place of the result; return the exit code."""
    with suppress(OSError):  # stderr may be full or closed; the exit code remains
        terminal.complain(sentence)
    if as_json:
        with suppress(typer.Exit, InputError):
            emit(as_text({"error": sentence}))
    leave_nothing_to_flush()
    return code


def as_text(record: Mapping[str, object]) -> str:
    return json.dumps(record, allow_nan=False)


def emit(text: str) -> None:
    """Print on stdout. Raises InputError if the write fails, typer.Exit if the reader has closed the pipe."""
    try:
        print(text, flush=True)
    except OSError as error:
        leave_nothing_to_flush()
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(READER_LEFT_EXIT_CODE) from None
        raise InputError(f"cannot write the result to stdout: {error.strerror}; send it to another file.") from error


def leave_nothing_to_flush() -> None:
    """Flush stdout and stderr. Output that cannot be written is discarded, as it would change the exit code."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # the stream may be no file
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
