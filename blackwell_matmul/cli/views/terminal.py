"""Output on a terminal or pipe: errors, warnings, progress, and lines of `rich` as text.

On a terminal, output has colours and wraps at the terminal's width. In a file or pipe, each sentence is a plain line.
"""

from __future__ import annotations

import functools
import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.validation import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PROGRESS_AFTER_SECONDS = 2.0
LINE_AFTER_SECONDS = 15.0
"""Seconds after which progress is shown: on a terminal, and without a terminal as one line."""

PIPE_COLUMNS = 100_000
"""Width of output without a terminal, at which no line breaks."""

Tell = Callable[[int, int], None]
"""Callback that takes the number of finished CTAs, and their total."""


def console(stderr: bool = False) -> Console:
    """Return a console of `rich` that escapes unprintable characters."""
    made = _console_class()(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPE_COLUMNS
    return made


@functools.cache
def _console_class() -> type[Console]:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class Safe(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                shown = text if control else "\n".join(map(printable, text.split("\n")))
                yield Segment(shown, style, control)

    return Safe


def complain(sentence: str) -> None:
    """Print an error on stderr, on one line."""
    _on_stderr("error: ", "bold red", printable(sentence))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print Python's warnings inside the block on stderr, each as one sentence without its line of code."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _on_stderr("warning: ", "bold yellow", printable(" ".join(str(message).split())))

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def _on_stderr(label: str, style: str, sentence: str) -> None:
    try:
        from rich.text import Text
    except ImportError:  # rich is missing, and the sentence is about that
        print(f"{label}{sentence}", file=sys.stderr)
        return
    console(stderr=True).print(Text.assemble((label, style), sentence), soft_wrap=True)


def rendered(lines: Iterable[RenderableType]) -> str:
    """Return lines of `rich` as text for stdout, without trailing spaces."""
    out = console()
    with out.capture() as captured:
        for line in lines:
            out.print(line)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(printable(text), style)


def broken(line: str) -> str:
    """Return a line broken at the terminal's width, at spaces or after commas such as in `block_m=128,block_n=64`."""
    return "\n".join(_AtCommas(width=console().width, replace_whitespace=False).wrap(line))


class _AtCommas(textwrap.TextWrapper):
    wordsep_re = re.compile(r"(\s+|(?<=,)(?=\w))")


# --- progress


@contextmanager
def progress(what: str, quiet: bool, prints: bool = False) -> Iterator[Tell | None]:
    """Show progress on stderr after `PROGRESS_AFTER_SECONDS`: stage, finished CTAs of all CTAs, elapsed time.

    Yields a `Tell`, or None without a terminal, where one line is printed after `LINE_AFTER_SECONDS`. Prints inside the
    block go to stderr. prints: True lets them go to stdout, for prints of a kernel, unless quiet.
    """
    watched = console(stderr=True)
    with redirect_stdout(sys.stdout if prints and not quiet else sys.stderr):
        if quiet or not watched.is_terminal:
            with _later(LINE_AFTER_SECONDS, _still_at_work(what)) if not quiet else nullcontext():
                yield None
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        bar = Progress(*columns, console=watched, transient=True, redirect_stdout=False)
        task = bar.add_task(f"{what}: compiling", total=None)

        def tell(done: int, total: int) -> None:
            state = f"{done} of {total} CTAs simulated" if done < total else "checking"
            bar.update(task, description=f"{what}: {state}")

        try:
            with _later(PROGRESS_AFTER_SECONDS, bar.start):
                yield tell
        finally:
            if bar.live.is_started:
                bar.stop()


@contextmanager
def _later(seconds: float, do: Callable[[], None]) -> Iterator[None]:
    """Call a function after some seconds, unless the block has ended before."""
    timer = threading.Timer(seconds, do)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _still_at_work(what: str) -> Callable[[], None]:
    """Return a function that prints a line on the present stderr."""
    line = printable(f"{what}: at work for {LINE_AFTER_SECONDS:.0f} s, and not done yet")
    return functools.partial(print, line, file=sys.stderr, flush=True)


@contextmanager
def telling(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step on stderr: in one changing line on a terminal, else in a new line.

    Prints inside the block go to stderr, too.
    """
    watched = console(stderr=True)
    with redirect_stdout(sys.stderr):
        if quiet:
            yield lambda what: None
        elif watched.is_terminal:
            with watched.status("starting") as status:
                yield lambda what: status.update(printable(what))
        else:
            yield lambda what: watched.print(printable(what), soft_wrap=True)


def duration(time_us: float) -> str:
    return f"{time_us:.2f} µs" if time_us < 1000 else f"{time_us / 1000:.3f} ms"
