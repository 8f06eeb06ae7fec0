"""End of a command and its processes within two seconds of Ctrl-C; finished results are kept.

`answered` wraps a command: Ctrl-C raises one KeyboardInterrupt in the command. A long library call may delay the
exception, and a destructor may swallow the exception; then a thread ends the process. So no result may depend on
cleanup at the end. Commands write each result at once and report progress by `keeping`. Worker processes end with their
parent: use `Pool`, or call `leave_with_parent` in a process started inside `held`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

EXIT_CODE = 130
GRACE_S = 1.2
"""Seconds for an orderly end."""

P = ParamSpec("P")
T = TypeVar("T")

_kept: Callable[[], str] | None = None


# --- progress


@contextmanager
def keeping(what: Callable[[], str]) -> Iterator[None]:
    """Add the finished work to the message after Ctrl-C. what: returns the words, such as "3 of 12 kernels are compiled
    and kept"."""
    global _kept
    before, _kept = _kept, what
    yield  # after an exception `_kept` stays, for the message after the block
    _kept = before


def sentence() -> str:
    return f"interrupted; {_kept()}." if _kept else "interrupted."


# --- end of a command


@contextmanager
def answered(say: Callable[[], None], last: bool = False) -> Iterator[threading.Event]:
    """Handle Ctrl-C around a command; yield an event that Ctrl-C sets.

    say: reports Ctrl-C from another thread, if the command does not end by itself. last: the process exits after this
    block and ignores further interrupts.
    """
    global _kept
    _kept, came, over = None, threading.Event(), threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    watch = threading.Thread(target=_watch, args=(reader, say, over), daemon=True)
    watch.start()
    handler = signal.signal(signal.SIGINT, lambda number, frame: _once(came, frame))
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # gets a byte at once, even inside a long call
    try:
        yield came
    finally:
        over.set()
        signal.set_wakeup_fd(wakeup)
        os.close(writer)
        watch.join()
        if not (last and came.is_set()):
            signal.signal(signal.SIGINT, handler)


def _once(came: threading.Event, frame: FrameType | None) -> None:
    """Ignore further Ctrl-C, which would interrupt the cleanup, and raise KeyboardInterrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    came.set()
    raise KeyboardInterrupt


def _watch(reader: int, say: Callable[[], None], over: threading.Event) -> None:
    with open(reader, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] != signal.SIGINT:
                continue
            if not over.wait(GRACE_S):
                say()
                os._exit(EXIT_CODE)
            return


# --- processes


@contextmanager
def held() -> Iterator[None]:
    """Block SIGINT inside the block, so that processes started there ignore Ctrl-C. A terminal sends Ctrl-C to all
    processes; only the parent handles the signal."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_with_parent() -> None:
    """End this process of a multiprocessing pool as soon as its parent process has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _begun(begin: Callable[[], None] | None) -> None:
    leave_with_parent()
    if begin is not None:
        begin()


class Pool(ProcessPoolExecutor):
    """A process pool; its processes are killed if an exception leaves its block. begin: initialiser of each process."""

    def __init__(self, processes: int | None, context: BaseContext, begin: Callable[[], None] | None = None) -> None:
        super().__init__(processes, context, initializer=_begun, initargs=(begin,))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with held():  # may start a process
            return super().submit(fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        processes = list((self._processes or {}).values())
        if kind is not None:
            # The pool's thread sets an exception for each lost process; futures that `map` has cancelled refuse one.
            for item in list(self._pending_work_items.values()):
                vars(item.future)["set_exception"] = lambda error: None
            thread: Any = self._executor_manager_thread  # `shutdown` forgets the pool's thread
            self.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            if thread is not None:  # else Python's exit may write to a pipe that this thread closes
                thread.join(GRACE_S)
        super().__exit__(kind, error, at)
