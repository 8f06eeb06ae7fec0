"""Events of a run of the emulator: a base class for listeners, whose methods do nothing.

A listener has its own state, and the emulator never asks for an answer. `mask` has the lanes of `warp` that access,
arrive or wait. Without a warp the event belongs to the asynchronous operation `grid.completing`.
"""

from __future__ import annotations

from typing import Any


class EmulationListener:
    """Base class of listeners, whose methods do nothing. A subclass overrides the methods of the events that it
    needs."""

    def began(self, grid: Any) -> None:
        """Called when a launch begins. grid: the `Execution`; `grid.current` is the running instruction."""

    def started(self, cluster: Any) -> None:
        """Called when a cluster starts."""

    def exited(self, warp: Any, mask: int) -> None:
        """Called when lanes exit."""

    def issued(self, operation: Any) -> None:
        """Called when an asynchronous operation is issued, by its `warp` and `lanes`."""

    def completed(self, operation: Any) -> None:
        """Called when an asynchronous operation has read, written and arrived."""

    def read(self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0) -> None:
        """Called when bytes are read. places: an address for each lane of the mask. nbytes: bytes at each address."""

    def written(
        self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0, values: Any = None
    ) -> None:
        """Called before bytes are written. places: addresses. values: a word for each place, None if unknown."""

    def touched(self, memory: Any, rows: Any, columns: Any, writes: bool, warp: Any = None) -> None:
        """Called when words of tensor memory are read, or before they are written. rows, columns: arrays that
        broadcast."""

    def described(self, memory: Any, places: Any, warp: Any, mask: int) -> None:
        """Called when a lane issues a copy by the tensor map at places[0], or has executed a fence that acquires the
        map."""

    def unwritten(self, text: str) -> None:
        """Called when a tensor core reads unwritten memory; without a listener such a read stops the run."""

    def allocated(self, memory: Any, column: int, columns: int, warp: Any, gives_back: bool) -> None:
        """Called when columns of tensor memory are allocated, or freed if gives_back."""

    def initialised(self, barrier: Any, cta: Any, offset: int, warp: Any, lane: int, before: Any) -> None:
        """Called when an mbarrier is initialised. before: the valid mbarrier at the same place until now, or None."""

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        """Called when an mbarrier is invalidated."""

    def arrived(self, barrier: Any, warp: Any = None, mask: int = 0, nbytes: int | None = None) -> None:
        """Called before an arrival at an mbarrier; with nbytes, before bytes of an operation are counted."""

    def passed(self, barrier: Any, warp: Any, mask: int, phase: int) -> None:
        """Called when lanes have observed the completion of a phase of an mbarrier. phase: number; -1 for the phase
        before the first."""

    def waited(self, kind: str, operations: Any, warp: Any, mask: int) -> None:
        """Called when lanes have waited for operations of a kind of group."""

    def joined(self, barrier: Any, warp: Any, mask: int, waits: bool) -> None:
        """Called when lanes arrive at a barrier of threads. waits: True if they wait for its end."""

    def ended(self, barrier: Any) -> None:
        """Called when a round of a barrier of threads ends; the waiting lanes continue."""

    def fenced(self, warp: Any, mask: int) -> None:
        """Called when lanes have executed a fence, or another instruction that only orders accesses."""
