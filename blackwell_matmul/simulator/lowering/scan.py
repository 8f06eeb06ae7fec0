"""What `scan`, the control flow and scalars of a program alone, calls: the steps that a warp takes go to a log."""

from __future__ import annotations

from typing import Any

MAX_LOG = 100_000
"""Entries of the log of a CTA's steps, and turns of a loop; one with more runs in full."""


ACQUIRES = "acquires"
"""What the log has where a warp waits for another CTA."""


class Unrepeatable(Exception):
    """The steps of this CTA are not known before it runs, or are too many."""


def _turns(log: list[Any], extent: int) -> range:
    """range(extent), written to the log."""
    log.append(extent)
    if max(len(log), extent) > MAX_LOG:
        raise Unrepeatable
    return range(extent)


def _taken(log: list[Any], condition: Any) -> bool:
    log.append(bool(condition))
    if len(log) > MAX_LOG:
        raise Unrepeatable
    return bool(condition)


SCAN_NAMESPACE: dict[str, Any] = {"_turns": _turns, "_taken": _taken}
"""What `scan` has beyond the names of `main`."""
