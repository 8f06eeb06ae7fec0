"""Names that `scan`, the control flow and scalars of a program alone, calls to log the steps of a warp."""

from __future__ import annotations

from typing import Any

MAX_LOG = 100_000
"""Most entries of a CTA's log, and iterations of a loop; a CTA with more runs in full."""


ACQUIRES = "acquires"
"""Entry for a wait for another CTA."""


class Unrepeatable(Exception):
    """Raised when the steps of a CTA are not known before it runs, or are too many."""


def _turns(log: list[Any], extent: int) -> range:
    """Log an extent and return its range."""
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
"""Names that the code of `scan` uses in addition to those of `main`."""
