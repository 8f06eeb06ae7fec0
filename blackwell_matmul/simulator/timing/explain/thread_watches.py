"""Listeners that observe threads: needless fences, and warps that store while others multiply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Access, Instruction, Proxy, Space, When
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.timing.explain.what_if import MULTIPLY, PathPart

Line = tuple[str, Location | None]
"""An instruction's name and location."""


class FenceWatch(Listener):
    """Finds needed fences: of warps that wrote shared memory since their last fence, or met warps that did."""

    def __init__(self) -> None:
        self.needed: set[Location] = set()
        self._wrote: set[Warp] = set()

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        if instruction.name.startswith("fence.proxy.async"):
            self._fenced(warp, instruction)
        elif _writes_shared(instruction):
            self._wrote.add(warp)

    def _fenced(self, warp: Warp, instruction: Instruction) -> None:
        if warp in self._wrote and instruction.location is not None:
            self.needed.add(instruction.location)
        self._wrote.discard(warp)

    def met(self, warps: Sequence[Warp], last: Warp, instruction: Instruction | None) -> None:
        if not self._wrote.isdisjoint(warps):
            self._wrote.update(warps)


def _writes_shared(instruction: Instruction) -> bool:
    """Return True if threads themselves write shared memory."""
    effects = instruction.description.effects
    return any(
        (each.space, each.access, each.proxy, each.when) == (Space.SHARED, Access.WRITE, Proxy.GENERIC, When.ISSUE)
        for each in effects
    )


class BesideWatch(Listener):
    """Listener that finds whether warps of these lines overlap MMAs of their CTA, the mbarriers that they signal to
    these MMAs, and the loading warps."""

    def __init__(self, lines: set[Line]) -> None:
        self.warps: dict[Line, set[int]] = {line: set() for line in lines}
        self.multiply, self.load, self.full = set[int](), set[int](), set[str]()
        self._begun: set[Cta] = set()
        self._again = False
        self._arrived: set[tuple[str, int]] = set()
        self._awaited: Counter[tuple[str, int, Cta]] = Counter()

    @property
    def others(self) -> set[int]:
        return set[int]().union(*self.warps.values())

    def loads_wait(self, part: PathPart) -> bool:
        """Return True if loads wait for most of these lines: a loading warp executes them, and another warp
        multiplies."""
        theirs = [cycles for cause, cycles in part.causes.items() if self.load & self.warps[cause.name, cause.location]]
        return self.beside and sum(theirs) > part.cycles / 2

    @property
    def beside(self) -> bool:
        return self._again and self.others.isdisjoint(self.multiply)

    @property
    def given_back(self) -> set[str]:
        """Return mbarriers that the lines signal to MMAs, of buffers of which one is filled while another is read."""
        others = self.others
        by = {name for name, warp in self._arrived if warp in others}
        return {name for name, warp, _ in self._awaited if warp in self.multiply} & by - self.full

    @property
    def only_place(self) -> str:
        """Return the mbarrier of the only buffer, or an empty name."""
        return next(iter(self.given_back)) if len(self.given_back) == 1 else ""

    def times(self, place: str) -> int:
        """Return how often a CTA waits for this mbarrier."""
        return max(count for (name, _, _), count in self._awaited.items() if name == place)

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        line = instruction.name, instruction.location
        if line in self.warps:
            self.warps[line].add(warp.index)
            self._begun.add(warp.cta)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if op.name in MULTIPLY:
            self.multiply.add(warp.index)
            self._again |= warp.cta in self._begun
        elif op.barrier is not None and "src" in regions and "dst" in regions:
            self.load.add(warp.index)
            self.full.add(op.barrier.name)

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        self._arrived.add((barrier.name, warp.index))

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        self._awaited[barrier.name, warp.index, warp.cta] += 1


class StayWatch(Listener):
    """Listener that records whether a CTA multiplies after a store, which shows that it has more than one tile."""

    def __init__(self) -> None:
        self.stays = False
        self._stored: set[Cta] = set()

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        if any((e.space, e.access) == (Space.GLOBAL, Access.WRITE) for e in instruction.description.effects):
            self._stored.add(warp.cta)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.stays |= op.name in MULTIPLY and warp.cta in self._stored
