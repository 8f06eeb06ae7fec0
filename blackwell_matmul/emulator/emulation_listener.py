"""What the emulator tells of a run: a base class whose methods do nothing, for those that listen.

A listener keeps state of its own, and the emulator never asks for an answer. An access, an arrival or a wait is of the
lanes `mask` of `warp`; without a warp it is of the asynchronous operation that `grid.completing` names.
"""

from __future__ import annotations

from typing import Any


class EmulationListener:
    """A listener to which nothing matters. A subclass overrides the methods that matter to it."""

    def began(self, grid: Any) -> None:
        """A launch begins. grid: the `Execution`; its `current` is the instruction that runs."""

    def started(self, cluster: Any) -> None:
        """A cluster has started."""

    def exited(self, warp: Any, mask: int) -> None:
        """Lanes have ended."""

    def issued(self, operation: Any) -> None:
        """An asynchronous operation is under way; its `warp` and `lanes` have issued it."""

    def completed(self, operation: Any) -> None:
        """An asynchronous operation has read, written and arrived."""

    def read(self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0) -> None:
        """Bytes are read. places: addresses, one for each lane of the mask; nbytes: from each on."""

    def written(
        self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0, values: Any = None
    ) -> None:
        """Bytes will be written. values: a word for each place, None if unknown."""

    def touched(self, memory: Any, rows: Any, columns: Any, writes: bool, warp: Any = None) -> None:
        """Words of tensor memory are read or will be written. rows, columns: arrays that broadcast."""

    def described(self, memory: Any, places: Any, warp: Any, mask: int) -> None:
        """A lane issues a copy by the tensor map at places[0], or has executed a fence that acquires the map."""

    def unwritten(self, text: str) -> None:
        """A tensor core reads what nothing has written, which stops a run to which nobody listens."""

    def allocated(self, memory: Any, column: int, columns: int, warp: Any, gives_back: bool) -> None:
        """Columns of tensor memory are allocated or given back."""

    def initialised(self, barrier: Any, cta: Any, offset: int, warp: Any, lane: int, before: Any) -> None:
        """An mbarrier is there. before: the one that was valid at this place, None if there was none."""

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        """An mbarrier is no more."""

    def arrived(self, barrier: Any, warp: Any = None, mask: int = 0, nbytes: int | None = None) -> None:
        """An mbarrier will get an arrival, or bytes of an operation if nbytes says so."""

    def passed(self, barrier: Any, warp: Any, mask: int, phase: int) -> None:
        """Lanes have seen that a phase of an mbarrier is complete. phase: its number, -1 for the one before all."""

    def waited(self, kind: str, operations: Any, warp: Any, mask: int) -> None:
        """Lanes have waited for operations of a kind of group."""

    def joined(self, barrier: Any, warp: Any, mask: int, waits: bool) -> None:
        """Lanes are at a barrier of threads. waits: they go on when it ends."""

    def ended(self, barrier: Any) -> None:
        """A round of a barrier of threads ends: those who wait at it go on."""

    def fenced(self, warp: Any, mask: int) -> None:
        """Lanes have executed a fence, or an instruction that does nothing else but order."""
