"""The command line. Results go to stdout, everything else to stderr, one sentence each and never a traceback.

Exit codes: 0 the result is right; 1 it was computed and is wrong, or the kernel is at fault; 2 it could not be
computed: bad input, or something that this version does not do; 130 interrupted. A subcommand is a function under
`@app.command()` that raises the errors of `blackwell_matmul.errors`; it imports what it needs when it runs, so that
`--help` is instant.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from blackwell_matmul.errors import BlackwellMatmulError, InputError, SimulationError

if TYPE_CHECKING:
    from rich.console import Console

    from blackwell_matmul.harness import Result

PROGRAM = "blackwell-matmul"
INTERRUPTED = 130
PROGRESS_AFTER_SECONDS = 2.0
TRACEBACK_VARIABLE = "BLACKWELL_MATMUL_TRACEBACK"
USAGE_ERRORS: type[Exception] = typer.BadParameter.__mro__[2]
"""What typer raises for a command line that it cannot read; the class itself has no public name."""

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    try:
        code = app(args=list(sys.argv[1:] if argv is None else argv), prog_name=PROGRAM, standalone_mode=False)
        return _complain("interrupted.", code) if code == INTERRUPTED else int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted.", INTERRUPTED)
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    """One sentence for what went wrong, and its exit code."""
    if isinstance(error, USAGE_ERRORS):
        text = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        return _complain(f"{text}; see {PROGRAM} --help.", 2)
    if isinstance(error, BlackwellMatmulError):
        return _complain(str(error), 1 if isinstance(error, SimulationError) else 2)
    if isinstance(error, MemoryError):
        return _complain("this machine's memory is too small for it; choose a smaller size.", 2)
    if isinstance(error, OSError) and error.strerror:
        return _complain(f"{error.strerror}{f': {error.filename}' if error.filename else ''}.", 2)
    kind, text = type(error).__name__, " ".join(str(error).split())
    return _complain(f"a fault of {PROGRAM} itself, {kind}: {text} (set {TRACEBACK_VARIABLE}=1 to see where).", 2)


def _complain(sentence: str, code: int) -> int:
    from rich.text import Text

    _console(stderr=True).print(Text.assemble(("error: ", "bold red"), _printable(sentence)), soft_wrap=True)
    return code


def _printable(text: str) -> str:
    """One line that any terminal can show: line ends, control characters and broken encodings become escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[None]:
    """A spinner with the time elapsed, on stderr, from the third second on; none when nobody is watching."""
    console = _console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    bar.add_task(what, total=None)
    timer = threading.Timer(PROGRESS_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


def _print_version(wanted: bool) -> None:
    if wanted:
        import blackwell_matmul

        print(f"{PROGRAM} {blackwell_matmul.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Blackwell matmul kernels, run and checked on this machine, with or without a GPU.

    Start with `blackwell-matmul run v1`.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


RUN_EXAMPLES = """Examples:

`blackwell-matmul run v1`

`blackwell-matmul run v2 --size 512 768 1000 --dtype bf16`

`blackwell-matmul run v1 --schedule block_m=128,block_n=64 --json`
"""


@app.command(epilog=RUN_EXAMPLES)
def run(
    rung: Annotated[str, typer.Argument(help="The kernel: a rung of the ladder, such as v0, v1 or v2.")],
    size: Annotated[
        tuple[str, str, str],
        typer.Option(metavar="M N K", help="C[M, N] = A[M, K] @ B[N, K].T, in elements."),
    ] = ("1024", "1024", "1024"),
    dtype: Annotated[str, typer.Option(help="Element type of A, B and C: fp16 or bf16.")] = "fp16",
    schedule: Annotated[
        str, typer.Option(metavar="KNOB=VALUE,...", help="Knobs to pin; the rung chooses the others.")
    ] = "",
    seed: Annotated[
        str, typer.Option(metavar="INTEGER", help="Gives the inputs and the simulator's order of events.")
    ] = "0",
    target: Annotated[str, typer.Option(help="The GPU to simulate, as the compiler calls it.")] = "sm_100a",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Run one kernel on made-up inputs and check the product against float64.

    Exit code 0: right. 1: wrong, or the kernel is at fault. 2: could not run.
    """
    from blackwell_matmul.problem import Problem, Schedule

    m, n, k = (_integer(f"{name} of --size", text) for name, text in zip("mnk", size))
    problem, pins, seed_value = Problem(m, n, k, dtype), Schedule.parse(schedule), _integer("--seed", seed)
    prints_to = sys.stderr if as_json else sys.stdout  # what the kernel itself prints is no JSON
    with progress(f"{rung} {problem}: simulating and checking", quiet=as_json), redirect_stdout(prints_to):
        from blackwell_matmul.harness import run_matmul

        result = run_matmul(rung, problem, pins, seed=seed_value, target=target)
    _show(result, as_json)
    raise typer.Exit(0 if result.ok else 1)


def _integer(name: str, text: str) -> int:
    """Read an integer; typer's own message names neither the value nor which of three it was."""
    if not re.fullmatch(r"[+-]?[0-9]{1,100}", text):
        raise InputError(f"{name} is {text[:100]!r}; it must be an integer.")
    return int(text)


def _show(result: Result, as_json: bool) -> None:
    text = json.dumps(result.as_dict(), allow_nan=False) if as_json else _lines(result)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader left: nobody to tell, and nothing may be left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(2) from None


def _lines(result: Result) -> str:
    """The result's line and one for each finding, with colours where stdout is a terminal."""
    from rich.text import Text

    line, console = Text(str(result)), _console()
    line.highlight_words(["correct"], "bold green")
    line.highlight_words(["wrong", "errors found", "error found"], "bold red")
    with console.capture() as captured:
        console.print(line, *(f"  {finding}" for finding in result.findings), sep="\n", soft_wrap=True)
    return captured.get().rstrip("\n")


if __name__ == "__main__":
    sys.exit(main())
