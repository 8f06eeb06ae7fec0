"""Events of a run of the emulator: the base class of listeners.

A listener has its own state and returns nothing to the emulator. `mask` has the lanes of `warp` that access, arrive or
wait. If warp is None, the event belongs to the asynchronous operation `grid.completing`.
"""

from __future__ import annotations

from typing import Any


class EmulationListener:
    """Base class of listeners. Its methods do nothing; a subclass overrides those of the events that it needs."""

    def began(self, grid: Any) -> None:
        """Called when a launch begins. grid: the `Execution`; its `current` is the instruction that runs."""

    def started(self, cluster: Any) -> None:
        """Called when a cluster starts."""

    def exited(self, warp: Any, mask: int) -> None:
        """Called when lanes exit."""

    def issued(self, operation: Any) -> None:
        """Called when lanes issue an asynchronous operation (its `warp` and `lanes`)."""

    def completed(self, operation: Any) -> None:
        """Called when an asynchronous operation has read, written and arrived."""

    def read(self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0) -> None:
        """Called when bytes are read. places: an address for each lane of the mask. nbytes: bytes at each address."""

    def written(
        self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0, values: Any = None
    ) -> None:
        """Called before bytes are written. places: an address for each lane. values: words, or None if unknown."""

    def touched(self, memory: Any, rows: Any, columns: Any, writes: bool, warp: Any = None) -> None:
        """Called when tensor memory is read, or before it is written. rows, columns: arrays of lanes and columns that
        broadcast."""

    def described(self, memory: Any, places: Any, warp: Any, mask: int) -> None:
        """Called when a lane issues a copy by the tensor map at places[0], or has executed a fence.proxy.tensormap with
        acquire on this map."""

    def unwritten(self, text: str) -> None:
        """Called when a tensor core reads unwritten memory. Without a listener the read stops the run."""

    def allocated(self, memory: Any, column: int, columns: int, warp: Any, gives_back: bool) -> None:
        """Called when columns of tensor memory are allocated, or freed if gives_back."""

    def initialised(self, barrier: Any, cta: Any, offset: int, warp: Any, lane: int, before: Any) -> None:
        """Called when an mbarrier is initialised. before: the mbarrier valid at this place until now, or None."""

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        """Called when an mbarrier is invalidated."""

    def arrived(self, barrier: Any, warp: Any = None, mask: int = 0, nbytes: int | None = None) -> None:
        """Called before threads or an operation arrive at an mbarrier. nbytes: not None if only bytes are counted."""

    def passed(self, barrier: Any, warp: Any, mask: int, phase: int) -> None:
        """Called when lanes have observed the completion of an mbarrier's phase. phase: its number; -1 before the first
        phase."""

    def waited(self, kind: str, operations: Any, warp: Any, mask: int) -> None:
        """Called when lanes have waited for asynchronous operations. kind: of their groups, such as "wgmma"."""

    def joined(self, barrier: Any, warp: Any, mask: int, waits: bool) -> None:
        """Called when lanes arrive at a barrier of threads. waits: True if they also wait at it."""

    def ended(self, barrier: Any) -> None:
        """Called when all threads have arrived at a barrier of threads, and the waiting lanes continue."""

    def fenced(self, warp: Any, mask: int) -> None:
        """Called when lanes have executed a fence, or another instruction that only orders accesses."""
