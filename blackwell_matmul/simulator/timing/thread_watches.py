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
from blackwell_matmul.simulator.timing.what_if import MULTIPLY

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
    """Whether the warps that execute these lines do so while others of their CTA multiply, and which mbarriers they
    give back to these."""

    def __init__(self, lines: set[Line]) -> None:
        self.lines, self.others, self.multiply = lines, set[int](), set[int]()
        self._begun: set[Cta] = set()
        self._again = False
        self._arrived: set[tuple[str, int]] = set()
        self._awaited: Counter[tuple[str, int, Cta]] = Counter()

    @property
    def beside(self) -> bool:
        return self._again and self.others.isdisjoint(self.multiply)

    @property
    def given_back(self) -> set[str]:
        """Each a place that is filled while another one is read, if there are several."""
        by = {name for name, warp in self._arrived if warp in self.others}
        return {name for name, warp, _ in self._awaited if warp in self.multiply} & by

    def times(self, place: str) -> int:
        """How often a CTA waits for it."""
        return max(count for (name, _, _), count in self._awaited.items() if name == place)

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        if (instruction.name, instruction.location) in self.lines:
            self.others.add(warp.index)
            self._begun.add(warp.cta)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if op.name in MULTIPLY:
            self.multiply.add(warp.index)
            self._again |= warp.cta in self._begun

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
