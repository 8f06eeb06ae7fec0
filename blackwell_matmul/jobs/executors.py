"""Executors of trials: processes of this machine, a Dask cluster, or any `concurrent.futures` executor.

A worker runs one trial at a time in its own process, as a process has one compilation target.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context, resource_tracker
from typing import Any

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.interrupts import Pool, held
from blackwell_matmul.base.validation import plain_text, shown

PROCESSES = "processes"
EXECUTOR_NAMES = "processes, processes:4, dask, dask:tcp://HOST:8786, or package.module:EXECUTOR"
MOST_PROCESSES = 1024
CONNECT_LIMIT_S = 20
ALLOWED_FAILURES = 3
"""Number of workers that may die in one trial, in a Dask cluster that is started here."""


@dataclass(frozen=True)
class ExecutorPool:
    """An executor, and a function that returns its current number of parallel trials.

    The function raises CancelledError if the executor has ended.
    """

    executor: Executor
    parallel_trials: Callable[[], int]


OpenExecutor = Callable[[], AbstractContextManager[ExecutorPool]]


def open_executor(spec: str) -> AbstractContextManager[ExecutorPool]:
    """Return the named executor as a context manager. Raise InputError or UnsupportedError at once for a wrong name or
    a missing package."""
    kind, colon, detail = (plain_text(spec) or "").partition(":")
    if kind == PROCESSES and bool(colon) == bool(detail):
        return _processes(_count(spec, detail) if colon else os.cpu_count() or 1)
    if kind == "dask" and bool(colon) == bool(detail):
        return _dask(spec, detail)
    if detail:
        return _other(spec, _found(spec, kind, detail))
    raise InputError(f"executor is {shown(spec)}; it must be {EXECUTOR_NAMES}.")


def known(spec: str) -> str:
    """Return an executor's name if it is valid, else raise as `open_executor`; nothing is started."""
    open_executor(spec)
    return spec


def _count(spec: str, text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MOST_PROCESSES:
        return int(text[:9])
    raise InputError(f"executor is {shown(spec)}; the number of processes must be from 1 to {MOST_PROCESSES}.")


@contextmanager
def _processes(count: int) -> Iterator[ExecutorPool]:
    with Pool(count, get_context("spawn")) as pool:
        yield ExecutorPool(pool, lambda: count)


# --- Dask


def _dask(spec: str, address: str) -> AbstractContextManager[ExecutorPool]:
    needed = {"distributed": "Dask"} if address else {"distributed": "Dask", "cryptography": "cryptography"}
    for package, name in needed.items():
        if find_spec(package) is None:
            what = f"executor is {shown(spec)} and {name} is not installed"
            raise UnsupportedError(f"{what}; install blackwell-matmul[dask], or take processes.")
    return _dask_at(spec, address) if address else _dask_here()


@contextmanager
def _dask_here() -> Iterator[ExecutorPool]:
    """Start a cluster on this machine's cores for the block. The cluster listens on 127.0.0.1 only and requires a key,
    held in memory. Otherwise other users could run code."""
    distributed = import_module("distributed")  # imported first, as the import fills Dask's configuration
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}  # Dask logs tracebacks after Ctrl-C
    ours = {"host": "127.0.0.1", "security": distributed.Security.temporary()}
    one_each = {"threads_per_worker": 1, "n_workers": os.cpu_count() or 1, **ours, **quiet}
    allowed = {"distributed.scheduler.allowed-failures": ALLOWED_FAILURES}
    _start_tracker()
    with import_module("dask").config.set(allowed), held():
        cluster = distributed.LocalCluster(**one_each)
    with cluster, _dask_at("dask", cluster) as found:
        yield found


def _start_tracker() -> None:
    """Start multiprocessing's resource tracker now, without its warning. A later start would unblock SIGINT for the
    processes started after it."""
    before = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ["PYTHONWARNINGS"] = f"{before},{quiet}" if before else quiet
    try:
        resource_tracker.ensure_running()
    finally:
        os.environ.pop("PYTHONWARNINGS")
        os.environ.update({} if before is None else {"PYTHONWARNINGS": before})


@contextmanager
def _dask_at(spec: str, address: Any) -> Iterator[ExecutorPool]:
    """Connect to a Dask scheduler by its address, or to a local cluster."""
    try:
        with held():  # the client's threads must not get Ctrl-C either
            client = import_module("distributed").Client(address, timeout=CONNECT_LIMIT_S)
    except (OSError, ValueError) as error:  # ValueError: not an address
        raise InputError(
            f"executor is {shown(spec)} and no Dask scheduler answers there; `dask scheduler` starts one, and tells "
            "its address."
        ) from error
    with client:
        yield ExecutorPool(client.get_executor(pure=False), partial(_dask_width, client, spec))


def _dask_width(client: Any, spec: str) -> int:
    """Return the current number of workers; 1 if no worker has come yet. Raise CancelledError if the scheduler has
    ended."""
    try:
        threads = client.nthreads()
    except OSError as error:  # Dask's CommClosedError
        raise CancelledError from error
    if any(count != 1 for count in threads.values()):
        raise InputError(
            f"executor is {shown(spec)} and a worker there has {max(threads.values())} threads; start each by "
            "`dask worker ADDRESS --nthreads 1`, with --nworkers for several."
        )
    return max(1, len(threads))


# --- others


def _found(spec: str, module: str, name: str) -> Callable[[], Executor]:
    try:
        made = getattr(import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"executor is {shown(spec)}, which does not import; it must be {EXECUTOR_NAMES}.") from error
    if not callable(made):
        raise InputError(f"executor is {shown(spec)}, which cannot be called; it must be {EXECUTOR_NAMES}.")
    return made


@contextmanager
def _other(spec: str, make: Callable[[], Executor]) -> Iterator[ExecutorPool]:
    with held():
        executor = make()
    if not isinstance(executor, Executor):
        raise InputError(
            f"executor is {shown(spec)}, which makes no concurrent.futures.Executor; it must be {EXECUTOR_NAMES}."
        )
    with executor:
        yield ExecutorPool(executor, partial(_other_width, executor))


def _other_width(executor: Executor) -> int:
    """Return the executor's number of workers, from the attribute of the standard library's pools or of mpi4py's."""
    told = getattr(executor, "_max_workers", None) or getattr(executor, "num_workers", None)
    return told if isinstance(told, int) and told > 0 else os.cpu_count() or 1
