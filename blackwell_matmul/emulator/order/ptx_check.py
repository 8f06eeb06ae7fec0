"""`check_ptx`: runs PTX in one or more orders of completion, and reports races, missing fences and deadlocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import EmulationError, InputError, UnsupportedError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.compiler.plan import TensorMap
from blackwell_matmul.emulator.arguments import is_torch_tensor
from blackwell_matmul.emulator.emulate import emulate, entry_of, is_folder, text_of
from blackwell_matmul.emulator.order.order_listener import OrderListener
from blackwell_matmul.emulator.order.ptx_findings import ERROR, PtxFinding, PtxReport
from blackwell_matmul.emulator.parser import parse
from blackwell_matmul.emulator.scheduler import ORDERS, Limit, Progress

DEFAULT_ORDERS = ("eager",)
"""Orders of completion that run by default. In "eager" an operation completes when it is issued: its values are right,
and one fault hides no other. The happens-before relation does not depend on the order of completion, except for the
paths that a program takes."""


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
) -> PtxReport:
    """Check the order of accesses in PTX of any compiler, or in a bundle of this project.

    The arguments are those of `emulate`. orders: orders of completion, with one run each. Each run begins with the
    tensors' first contents; the tensors keep the results of the last run. A fault that ends a run, such as a deadlock
    or an address outside of every tensor, is a finding. If a run ends for another reason, such as a limit, the report's
    `stopped` has the sentence.

    Raises InputError for arguments that do not fit.
    """
    if not isinstance(orders, (tuple, list)) or not orders or not {*map(plain_text, orders)} <= {*ORDERS}:
        raise InputError(f"orders is {shown(orders)}; it must be a list of orders, of {', '.join(ORDERS)}.")
    report = PtxReport("", "", tuple(orders))
    tensors = [each.pointer if isinstance(each, TensorMap) else each for each in args]
    before = [_copied(each) for each in tensors] if len(orders) > 1 else []
    for place, order in enumerate(orders):
        if place:
            for each, kept in zip(tensors, before):
                if kept is not None:
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
            report.kernel, report.target = _named(ptx, kernel)
            _add(report, listener)
            _stopped(report, str(error))
    return report


def _named(code: Bundle | str | Path, kernel: str | None) -> tuple[str, str]:
    """Return name and target of a kernel whose run stopped."""
    if isinstance(code, Bundle) or is_folder(code):
        bundle = code if isinstance(code, Bundle) else Bundle.load(code)
        return bundle.plan.kernel, bundle.target
    module = parse(text_of(code))
    return entry_of(module, kernel).name, module.target


def _copied(value: Any) -> Any:
    """Return a copy of an array or a torch tensor; None for other values, which a launch cannot write."""
    return value.copy() if isinstance(value, np.ndarray) else value.clone() if is_torch_tensor(value) else None


STOPS = (
    ("deadlock: ", "deadlock", "the arrivals or bytes that the sentence counts as missing, or a smaller count"),
    ("no mbarrier was initialised", "mbarrier-not-initialised", "mbarrier.init and a barrier before the use"),
    (" was invalidated at ", "mbarrier-not-initialised", "mbarrier.inval behind the last use"),
    (" arrive at an mbarrier that awaits ", "mbarrier-over-arrival", "fewer arrivals, or a larger count"),
    ("which can be 0 or 1", "mbarrier-parity", "a parity of 0 or 1"),
    ("an mbarrier counts 1 to ", "mbarrier-count", "a count in that range"),
    ("of tensor memory, not all allocated", "tensor-memory-not-allocated", "tcgen05.alloc before, dealloc behind"),
    ("; allocated are ", "tensor-memory-not-allocated", "each allocation given back once, whole"),
    ("columns of tensor memory that it has not given back", "tensor-memory-leak", "tcgen05.dealloc before the end"),
    ("after the CTA gave up its permit", "tensor-memory-permit", "tcgen05.relinquish_alloc_permit behind it"),
    (" global memory at 0x", "out-of-bounds", "an address inside of a tensor"),
    (", which has ", "out-of-bounds", "an address inside of it"),
    (": no multiple of ", "misaligned-address", "an address that is a multiple of the size"),
    ("an mbarrier of another CTA, ", "remote-mbarrier", "the form with .shared::cluster, without a result"),
    ("a CTA has barriers 0 to ", "no-such-barrier", "a number of a barrier, 0 to 15"),
    (" in a cluster of ", "no-such-cta", "a rank, or a mask, of CTAs that the cluster has"),
    (" again and again ", "livelock", "a store of the value that the load waits for, before that or by another warp"),
    ("endless: ", "livelock", "a condition that ends"),
)
"""Faults that stop a run: a text of the emulator's message, the finding's code, and the remedy."""


def _stopped(report: PtxReport, text: str) -> None:
    """Add the fault that ended a run as a finding; an unknown reason becomes the report's `stopped`."""
    for words, code, mend in STOPS:
        if words in text:
            found = PtxFinding(code, ERROR, text.removesuffix("."), mend=mend)
            if all(each.text != found.text for each in report.findings):
                report.findings.append(found)
            return
    report.stopped = text


def _add(report: PtxReport, listener: OrderListener) -> None:
    known = {_key(each) for each in report.findings}
    for each in listener.findings.values():
        if _key(each) not in known:
            known.add(_key(each))
            report.findings.append(each)


def _key(found: PtxFinding) -> object:
    lines = [None if at is None else at.line for at in (found.first, found.second)]
    return found.code, found.severity, *lines, found.text if found.first is None else ""
