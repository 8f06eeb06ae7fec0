"""Columns of a CTA's tensor memory, and their owners (PTX ISA, "Tensor Memory Allocation and Management")."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.deferred import TensorStorage
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.types import element_by_name

TENSOR_MEMORY_LANES, TENSOR_MEMORY_COLUMNS = 128, 512  # PTX ISA, "Tensor Memory": 128 lanes x 512 columns of 32 bits


@dataclass
class Allocation:
    """Columns between tcgen05.alloc and tcgen05.dealloc; `freed` is the line of the latter. peer: the same columns of
    the other CTA, if a pair allocated them."""

    name: str
    begin: int
    columns: int
    location: Location | None
    freed: Location | None = None
    alive: bool = True
    peer: Allocation | None = field(default=None, repr=False)

    def end(self, location: Location | None) -> None:
        """End the allocation: no access may use its columns afterwards."""
        self.alive, self.freed = False, location


class Columns:
    """A CTA's columns. allocations: all so far. allocated: the live ones, by first column. relinquished: the line at
    which the CTA gave up the right to allocate."""

    def __init__(self) -> None:
        self.free_spans = [(0, TENSOR_MEMORY_COLUMNS)]
        self.allocated: dict[int, Allocation] = {}
        self.allocations: list[Allocation] = []
        self.relinquished: Location | None = None

    @property
    def left(self) -> int:
        return sum(end - begin for begin, end in self.free_spans)

    def allocate(self, columns: int, name: str, location: Location | None) -> Allocation | None:
        """Allocate columns by first fit; return None if there is no room."""
        for i, (begin, end) in enumerate(self.free_spans):
            if end - begin >= columns:
                self.free_spans[i] = (begin + columns, end)
                made = self.allocated[begin] = Allocation(name, begin, columns, location)
                self.allocations.append(made)
                return made
        return None

    def has(self, allocation: Allocation) -> bool:
        """Return True if the allocation is live."""
        return self.allocated.get(allocation.begin) is allocation

    def free(self, allocation: Allocation, location: Location | None) -> None:
        allocation.end(location)
        del self.allocated[allocation.begin]
        mine = (allocation.begin, allocation.begin + allocation.columns)
        self.free_spans = _join(sorted([*self.free_spans, mine]))

    def revive(self) -> None:
        """Revive freed allocations for a replay."""
        for allocation in self.allocations:
            allocation.alive = True


def columns_region(storage: TensorStorage, allocation: Allocation) -> Region:
    """Return the region of all lanes of the allocated columns."""
    span = (allocation.begin, allocation.begin + allocation.columns)
    return Region(storage, ((0, TENSOR_MEMORY_LANES), span), owner=(allocation.name, (0, allocation.begin)))


def tensor_memory() -> TensorStorage:
    cells = np.full((TENSOR_MEMORY_LANES, TENSOR_MEMORY_COLUMNS), np.nan, np.float32)
    return TensorStorage(element_by_name("float32", 32), cells)


def _join(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined = [spans[0]]
    for begin, end in spans[1:]:
        if begin == joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
