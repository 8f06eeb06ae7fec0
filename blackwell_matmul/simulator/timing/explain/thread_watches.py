"""Listeners that follow what threads do: which fences are needed, and who stores while others multiply."""

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
"""The name of an instruction, and where it is."""


class FenceWatch(Listener):
    """needed: fences of a warp that has written shared memory since its last one, or has met warps that have."""

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
    """With its own threads."""
    effects = instruction.description.effects
    return any(
        (each.space, each.access, each.proxy, each.when) == (Space.SHARED, Access.WRITE, Proxy.GENERIC, When.ISSUE)
        for each in effects
    )


class BesideWatch(Listener):
    """Whether the warps that execute these lines do so while others of their CTA multiply, which mbarriers they give
    back to these, and which of the lines are of warps that load."""

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
        """For most of what these lines take: a warp that loads executes them, and another one multiplies."""
        theirs = [cycles for cause, cycles in part.causes.items() if self.load & self.warps[cause.name, cause.location]]
        return self.beside and sum(theirs) > part.cycles / 2

    @property
    def beside(self) -> bool:
        return self._again and self.others.isdisjoint(self.multiply)

    @property
    def given_back(self) -> set[str]:
        """Each a place that is filled while another one is read, if there are several."""
        others = self.others
        by = {name for name, warp in self._arrived if warp in others}
        return {name for name, warp, _ in self._awaited if warp in self.multiply} & by - self.full

    @property
    def only_place(self) -> str:
        """If there is one."""
        return next(iter(self.given_back)) if len(self.given_back) == 1 else ""

    def times(self, place: str) -> int:
        """How often a CTA waits for it."""
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
    """Whether a CTA multiplies after it has stored: it has more than one tile."""

    def __init__(self) -> None:
        self.stays = False
        self._stored: set[Cta] = set()

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        if any((e.space, e.access) == (Space.GLOBAL, Access.WRITE) for e in instruction.description.effects):
            self._stored.add(warp.cta)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.stays |= op.name in MULTIPLY and warp.cta in self._stored
