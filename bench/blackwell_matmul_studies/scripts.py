"""Entry point of scripts in `bench/`: typer's options, errors as one sentence, Ctrl-C as on the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from blackwell_matmul.base import interrupts
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.jobs.executors import EXECUTOR_NAMES
from blackwell_matmul.jobs.row_file import DIED, Row, RowFile

USAGE_ERRORS: type[Exception] = typer.BadParameter.__mro__[2]
"""typer's error for an invalid command line, which has no public name."""

ExecutorOption = Annotated[str, typer.Option("--executor", help=f"Who runs the trials: {EXECUTOR_NAMES}.")]
RowsOption = Annotated[
    str,
    typer.Option("--rows", help="Where rows are kept until all are there; runs may share it. Else build/NAME.jsonl."),
]


def rows_of(chosen: str, name: str) -> Path:
    """Return the file where an interrupted run of a script continues; make the folder of the usual one."""
    if not chosen:
        Path("build").mkdir(exist_ok=True)
    return Path(chosen or f"build/{name}.jsonl")


def died(rows: Sequence[Row]) -> list[Row]:
    """Return rows of trials that killed their workers; they have a name and no result."""
    return [row for row in rows if DIED in row]


def judged_rows(result: Path, fields: Sequence[str]) -> tuple[list[Row], bool]:
    """Sort a file of rows that have "ok", and print those that are wrong, or whose trial killed its worker. Return the
    rows, without those of killed workers, and true if all are right.
    """
    file = RowFile(result, fields)
    file.sort(file.name_of)
    every = sorted(file, key=file.name_of)
    lost = died(every)
    rows = [row for row in every if row not in lost]
    wrong = [*lost, *(row for row in rows if not row["ok"])]
    for row in wrong:
        Console().print(f"[red]wrong[/red] {json.dumps(row)}")
    return rows, not wrong


def script(main: Callable[..., Any] | typer.Typer) -> NoReturn:
    """Run a script's main function, or its commands, with this process's arguments, and exit."""
    app = main if isinstance(main, typer.Typer) else _app(main)
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # it removes what Ctrl-C leaves, and warns
    try:
        with interrupts.answered(_say_interrupted, last=True) as came:
            code = int(app(standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupts.EXIT_CODE
    except Exception as error:
        code = interrupts.EXIT_CODE if came.is_set() else _told(error)  # which may follow from the interrupt
    if code == interrupts.EXIT_CODE:
        _say_interrupted()
        os._exit(code)  # the interpreter would wait for threads
    sys.exit(code)


def _app(main: Callable[..., Any]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(main)
    return app


def _told(error: Exception) -> int:
    """Print a user's error and return the exit code; faults of the script keep their traceback."""
    if not isinstance(error, (BlackwellMatmulError, USAGE_ERRORS)):
        raise error
    text = error.format_message() if isinstance(error, USAGE_ERRORS) else str(error)  # type: ignore[attr-defined]
    print(f"error: {' '.join(text.split())}", file=sys.stderr)
    return 2


def _say_interrupted() -> None:
    os.write(2, f"error: {interrupts.sentence()}\n".encode())
