"""Ctrl-C ends a command within two seconds, wherever it is, with its processes, and keeps what is done.

`answered`, around a command, lets one KeyboardInterrupt through. Where that does not end it, since the main thread is
inside a library's long call or a destructor swallowed the exception, a thread ends the process. So nothing may depend
on an orderly end: whoever keeps results writes each as it comes, and says by `keeping` what there is; a process that
shares the work ends by itself when this one has ended. `Pool` has such processes, and any other calls
`leave_with_parent` and is started inside `held`.
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
from typing import ParamSpec, TypeVar

EXIT_CODE = 130
GRACE_S = 1.2
"""For an orderly end."""

P = ParamSpec("P")
T = TypeVar("T")

_kept: Callable[[], str] | None = None


# --- what is told


@contextmanager
def keeping(what: Callable[[], str]) -> Iterator[None]:
    """what: "3 of 12 kernels are compiled and kept", asked when an interrupt comes."""
    global _kept
    before, _kept = _kept, what
    yield  # an exception leaves it: the sentence comes after the block
    _kept = before


def sentence() -> str:
    return f"interrupted; {_kept()}." if _kept else "interrupted."


# --- the end of a command


@contextmanager
def answered(say: Callable[[], None], last: bool = False) -> Iterator[threading.Event]:
    """Around a command; the event is whether Ctrl-C came. say: tells it where there is no orderly end, from another
    thread. last: the process leaves after it, and hears no further one."""
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
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)  # written to at once, also inside a long call
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
    """A second Ctrl-C would break off what ends things."""
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
    """Processes that are started here never see Ctrl-C, which a terminal sends to all; the parent answers it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_with_parent() -> None:
    """In a process of multiprocessing: end when the parent has ended, however that was."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _nothing() -> None:
    """Of a pool whose processes have nothing to prepare."""


def _begun(begin: Callable[[], None]) -> None:
    leave_with_parent()
    begin()


def _forget(error: BaseException) -> None:
    """For a future that nobody waits for."""


class Pool(ProcessPoolExecutor):
    """Processes that end at once where the block around them is broken off. begin: what each of them does first."""

    def __init__(self, processes: int | None, context: BaseContext, begin: Callable[[], None] = _nothing) -> None:
        super().__init__(processes, context, initializer=_begun, initargs=(begin,))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with held():  # which may start a process
            return super().submit(fn, *args, **kwargs)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        processes = list((self._processes or {}).values())
        if kind is not None:
            # The pool's thread tells each of these that its process is gone, and fails where `map` has cancelled it.
            for item in list(self._pending_work_items.values()):
                vars(item.future)["set_exception"] = _forget
            self.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
        super().__exit__(kind, error, at)
