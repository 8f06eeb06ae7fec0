"""`check_ptx`: run PTX in some orders, and report races, missing fences and deadlocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blackwell_matmul.base.errors import EmulationError, InputError, UnsupportedError
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.emulator.emulate import emulate
from blackwell_matmul.emulator.order.findings import ERROR, Finding, Report
from blackwell_matmul.emulator.order.order_listener import OrderListener
from blackwell_matmul.emulator.scheduler import Limit, Progress

DEFAULT_ORDERS = ("eager",)
"""Orders that are run. In "eager" each operation completes when it is issued: its values are right, and nothing hides
behind a fault. What happens before what does not depend on the order, but for the paths that a program takes.
"""


def check_ptx(
    ptx: Bundle | str | Path,
    *args: object,
    grid: Sequence[int] | int | None = None,
    block: Sequence[int] | int | None = None,
    cluster: Sequence[int] | int | None = None,
    shared_bytes: int = 0,
    kernel: str | None = None,
    orders: Sequence[str] = DEFAULT_ORDERS,
    seed: int = 0,
    progress: Progress | None = None,
    limit: Limit | None = None,
) -> Report:
    """Check the order of compiled code's accesses: of PTX of any compiler, or of a bundle of this project.

    The arguments are those of `emulate`. orders: of completion, each a run; tensors are written by the last one, and
    each begins with their contents before the first. A deadlock is a finding. Another stop, such as an address outside
    of every tensor, ends the run: `stopped` of the report has the sentence.

    Raises InputError for arguments that do not fit.
    """
    if not orders:
        raise InputError("orders is empty; name at least one, such as eager.")
    report = Report("", "", tuple(orders))
    before = [each.copy() if isinstance(each, np.ndarray) else _cloned(each) for each in args]
    for place, order in enumerate(orders):
        if place:
            for each, kept in zip(args, before):
                if kept is not None and not np.isscalar(kept):
                    each[...] = kept  # type: ignore[index]
        listener = OrderListener()
        try:
            took = emulate(
                ptx, *args, grid=grid, block=block, cluster=cluster, shared_bytes=shared_bytes, kernel=kernel,
                order=order, seed=seed, progress=progress, limit=limit, listener=listener,
            )  # fmt: skip
            report.kernel, report.target, report.not_run = took.kernel, took.target, took.never_run
            report.instructions += took.instructions
            report.ctas += took.ctas
            _add(report, listener)
        except (EmulationError, UnsupportedError) as error:
            _add(report, listener)
            _stopped(report, str(error))
    return report


def _cloned(value: object) -> object:
    """Return a copy of a torch tensor; None for what a launch cannot write."""
    return value.clone() if hasattr(value, "clone") and hasattr(value, "data_ptr") else None


def _stopped(report: Report, told: str) -> None:
    if told.startswith("deadlock"):
        mend = "the arrivals or bytes that the sentence counts as missing, or a smaller count"
        found = Finding("deadlock", ERROR, told.removesuffix("."), mend=mend, rule="mbarrier")
        if all(each.text != found.text for each in report.findings):
            report.findings.append(found)
    else:
        report.stopped = told


def _add(report: Report, listener: OrderListener) -> None:
    known = {_key(each) for each in report.findings}
    for each in listener.findings.values():
        if _key(each) not in known:
            known.add(_key(each))
            report.findings.append(each)


def _key(found: Finding) -> object:
    lines = [None if at is None else at.line for at in (found.first, found.second)]
    return found.code, found.severity, *lines, found.text if found.first is None else ""
