"""What a colleague would say of a predicted time, in a few sentences; each can be tried."""

from __future__ import annotations

import os
from collections.abc import Iterator

from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.timing.one_sm import SmTime
from blackwell_matmul.simulator.timing.timed_engine import Stand

BUSY = 0.8
"""Of the time, from which on a part is what holds the others."""

SHARE = 0.05
"""Of the time, from which on a wait is worth a sentence."""

RELINQUISH = "tcgen05.relinquish_alloc_permit"


def explain(lowered: Lowered, took: SmTime, resident: int) -> tuple[str, ...]:
    """took: the time of an SM that holds so many CTAs at once."""
    return (*_waits(took), *_permit(lowered, took, resident))


def _waits(took: SmTime) -> Iterator[str]:
    """Where the warps that issue the products stand longest, if the tensor core has time left."""
    if not took.stood:
        return
    stand, share = max(took.stood.items(), key=lambda each: each[1])
    used = took.busy_cycles["tensor core"] / took.cycles
    if used < BUSY and share > SHARE:
        yield (
            f"the tensor core multiplies for {used:.0%} of the time; the warp that tells it to stands for {share:.0%}"
            f" of its own at {_place(stand)}."
        )


def _place(stand: Stand) -> str:
    line = stand.location
    where = "a wait" if line is None else f"{os.path.basename(line.file)}:{line.line}"
    if not stand.barrier:
        return f"{where}, where it waits for its {stand.teller}" if stand.teller else where
    told = f", which {stand.teller} tells" if stand.teller else ""
    return f"{where}, where it waits for {stand.barrier}{told}"


def _permit(lowered: Lowered, took: SmTime, resident: int) -> Iterator[str]:
    """PTX ISA, "tcgen05.relinquish_alloc_permit"."""
    names = {instruction.name for _, instruction in lowered.calls.values()}
    if took.waited and took.working == 1 < resident and RELINQUISH not in names:
        yield (
            f"an SM has room for {resident} CTAs and one works at a time: it keeps the right to allocate tensor memory,"
            f" and {took.waited} others waited for it; {RELINQUISH} after the allocation lets them work side by side."
        )
