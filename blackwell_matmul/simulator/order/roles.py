"""Who tells an mbarrier and who waits for it, by the lines of the program: what its author meant it for."""

from __future__ import annotations

import functools

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.order.deadlock import Signaller, signallers


class Roles:
    """The lines of a program that are about mbarriers and semaphores; read when somebody asks."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @functools.cached_property
    def lines(self) -> list[Signaller]:
        return signallers(self.program)

    def waiting(self, barrier: Mbarrier) -> set[Warp]:
        return self._executing(barrier, "mbarrier")

    def arriving(self, barrier: Mbarrier) -> set[Warp]:
        return self._executing(barrier, "arrive")

    def semaphores(self, kind: str) -> list[Signaller]:
        """The lines that release or acquire one, in the order of the text."""
        lines = (line for line in self.lines if kind in line.kinds and line.location is not None)
        return sorted(lines, key=lambda line: line.location.line if line.location is not None else 0)

    def _executing(self, barrier: Mbarrier, kind: str) -> set[Warp]:
        return {warp for line in self.lines if kind in line.kinds for warp in line.who_tells(barrier)}

    def rank(self, barrier: Mbarrier, warp: Warp) -> int:
        """How likely it is that the warp has to wait for it: nobody else does, it does elsewhere, or others alone."""
        waiting = self.waiting(barrier)
        return 0 if not waiting else 1 if warp in waiting else 2

    def told_by_readers(self, barrier: Mbarrier, warp: Warp) -> list[Mbarrier]:
        """The mbarriers that those tell who wait for this one, and that the warp may have to wait for; those at the
        same place of a ring first."""
        readers = self.waiting(barrier) - {warp}
        told = [each for each in barriers_of(warp.cta) if each is not barrier and self.arriving(each) & readers]
        meant = [each for each in told if self.rank(each, warp) < 2]
        return sorted(meant, key=lambda each: (_place(each) != _place(barrier), -self.rank(each, warp)))


def siblings(one: Mbarrier, other: Mbarrier) -> bool:
    """Are they of one ring, or the same?"""
    return one.name.partition("[")[0] == other.name.partition("[")[0]


def _place(barrier: Mbarrier) -> str:
    return barrier.name.partition("[")[2]
