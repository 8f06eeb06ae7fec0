"""The command line. Results go to stdout. Errors and progress go to stderr, as sentences without a traceback.

Exit codes: 0, the result is right, or nothing was found; 1, the result is wrong, or the kernel has a fault; 2, bad
input or unsupported; 130, interrupted. Each subcommand has a file. Its function reads the options, calls another room,
shows the result by one of `views`, and raises errors of `base.errors`. The function's docstring is the help text, with
examples last. Slow imports are inside the function, so that `--help` is fast.

May import: __init__, base, compiler, emulator, frontend, hardware, harness, jobs, kernels, problem, runtime,
scheduling, simulator, simulator.timing, simulator.trace, tuner.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated

import typer

from blackwell_matmul.base import interrupts
from blackwell_matmul.base.errors import BlackwellMatmulError, EmulationError, SimulationError
from blackwell_matmul.base.validation import spelled
from blackwell_matmul.cli import (
    bench_command,
    check_command,
    compile_command,
    doctor_command,
    emulate_command,
    first_light_command,
    predict_command,
    run_command,
    schedules_command,
    trace_command,
    tune_command,
    verify_command,
)
from blackwell_matmul.cli.output import READER_LEFT_EXIT_CODE, as_text, complain, emit, stdout_is_there
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.plain_help import Command, Group

PROGRAM_NAME = "blackwell-matmul"
TRACEBACK_VARIABLE = "BLACKWELL_MATMUL_TRACEBACK"
USAGE_ERRORS: type[Exception] = typer.BadParameter.__mro__[2]
"""Base class of typer's errors for an invalid command line, which has no public name."""

app = typer.Typer(cls=Group, rich_markup_mode="markdown", pretty_exceptions_enable=False)


@contextmanager
def _as_before() -> Iterator[None]:
    """After the block, restore the exception hook, which typer replaces, and stdout's handling of encoding errors."""
    hook, out = sys.excepthook, sys.stdout
    errors = getattr(out, "errors", None)
    try:
        yield
    finally:
        sys.excepthook = hook
        if isinstance(out, io.TextIOWrapper):
            with suppress(OSError, ValueError):  # closed, or full
                out.reconfigure(errors=errors)


@_as_before()
def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, and return its exit code. argv: words after the program's name; None: this process's."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    if not stdout_is_there():
        return complain(
            "stdout is closed, and the result goes there; leave it open, or send it to a file.",
            READER_LEFT_EXIT_CODE,
            False,
        )
    try:
        say = partial(_complain_at_once, as_json)
        with interrupts.answered(say, last=argv is None) as came, terminal.plain_warnings():
            code = int(app(args=words, prog_name=PROGRAM_NAME, standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupts.EXIT_CODE
    except SystemExit:  # raised by typer if it prints help, and the reader of stdout has left
        code = READER_LEFT_EXIT_CODE
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        if not came.is_set():
            return complain(*_explained(error), as_json)
        code = interrupts.EXIT_CODE  # the error follows from the interrupt
    if code == interrupts.EXIT_CODE:
        complain(interrupts.sentence(), code, as_json)
        if argv is None:
            os._exit(code)  # a normal exit would first wait for threads and unload torch
    return code


def _explained(error: Exception) -> tuple[str, int]:
    """Return one sentence for an error, and its exit code."""
    if isinstance(error, USAGE_ERRORS):
        text = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        asked = getattr(getattr(error, "ctx", None), "command_path", PROGRAM_NAME)
        return f"{text}; see {asked} --help.", 2
    if isinstance(error, BlackwellMatmulError):
        return str(error), 1 if isinstance(error, (EmulationError, SimulationError)) else 2
    if isinstance(error, ImportError) and not (error.name or "").startswith("blackwell_matmul"):
        sentence = f"a package that this command needs does not import, {spelled(error)}"
        return f"{sentence}; `{PROGRAM_NAME} doctor` says what mends it.", 2
    if isinstance(error, MemoryError):
        return "this machine's memory is too small for it; choose a smaller size.", 2
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}.", 2
    kind, text = type(error).__name__, " ".join(str(error).split())
    more = f"set {TRACEBACK_VARIABLE}=1 to see where; `{PROGRAM_NAME} doctor` looks at what is installed"
    return f"a fault of {PROGRAM_NAME} itself, {kind}: {text} ({more}).", 2


def _complain_at_once(as_json: bool) -> None:
    """Report an interrupt at once. The main thread may be at any point, even in a spinner that hides the cursor."""
    sentence = interrupts.sentence()
    os.write(2, f"{SHOW_CURSOR if os.isatty(2) else ''}error: {sentence}\n".encode())
    if as_json:
        os.write(1, f"{as_text({'error': sentence})}\n".encode())


SHOW_CURSOR = "\r\x1b[K\x1b[?25h"


def _print_version(wanted: bool) -> None:
    if wanted:
        import blackwell_matmul

        emit(f"{PROGRAM_NAME} {blackwell_matmul.__version__}")
        raise typer.Exit


ROOT_EXAMPLES = """Examples:

- `blackwell-matmul run v1`
- `blackwell-matmul run my_kernel.py:MyScript`
- `blackwell-matmul check v1 --size 256 256 256`
- `blackwell-matmul schedules v2 --size 4096 4096 4096`
- `blackwell-matmul compile v2 --target sm_100a -o out/`
- `blackwell-matmul emulate -- python my_script.py`
- `blackwell-matmul doctor`
- `blackwell-matmul bench`
- `blackwell-matmul tune v2 --size 4096 4096 4096`
- `blackwell-matmul predict v0 v1 v2 --size 8192 8192 8192`
- `blackwell-matmul trace v2 -o v2.html`

`blackwell-matmul run --help`
"""


@app.callback(invoke_without_command=True, epilog=ROOT_EXAMPLES)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Blackwell matmul kernels, and kernels of your own, run and checked on this machine, with or without a GPU.

    Results go to stdout, as text or (with --json) as one JSON object; errors and progress to stderr. With --json an
    error is a JSON object on stdout, too: {"error": "..."}.
    """
    if context.invoked_subcommand is None:
        emit(context.get_help())


for _command in (
    run_command.run, check_command.check, schedules_command.schedules, compile_command.compile, bench_command.bench,
    tune_command.tune, predict_command.predict, trace_command.trace, doctor_command.doctor,
    verify_command.verify, first_light_command.first_light, emulate_command.emulate,
):  # fmt: skip
    _help, _, _examples = inspect.cleandoc(str(_command.__doc__)).partition("\n\nExamples:")
    _name = _command.__name__.replace("_", "-")
    app.command(_name, cls=Command, help=_help, epilog=f"Examples:{_examples}")(_command)
