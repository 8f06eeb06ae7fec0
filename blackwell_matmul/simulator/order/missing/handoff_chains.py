"""Chains of handoffs by mbarriers, as the lines of a program make them.

A handoff is a signal of one warp and a wait of another one. A chain of handoffs orders two accesses if each warp in the
chain signals after its own access or wait in the text. All is read from the lines of the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Cluster, Warp
from blackwell_matmul.simulator.order.lines import SIGNALS, ProgramLines
from blackwell_matmul.simulator.order.signallers import Touch


class WarpLine(NamedTuple):
    """A line as a warp executes it."""

    warp: Warp
    line: Location | None


class MissingWait(NamedTuple):
    """A wait for an mbarrier that the warp of the step makes nowhere, or only below the step, and that should be before
    the step.

    reads: the step only reads what another warp writes before it signals the mbarrier. far: number of handoffs before
    this one.
    """

    step: WarpLine
    barrier: Mbarrier
    reads: bool
    far: int


class Handoffs:
    """Signals, waits and accesses of the lines of a program, as the warps of a cluster execute them."""

    def __init__(self, lines: ProgramLines, cluster: Cluster) -> None:
        self.lines, self.roles = lines, lines.roles
        barriers = [barrier for cta in cluster.ctas for barrier in barriers_of(cta)]
        self._carriers: dict[tuple[WarpLine, Warp | None], dict[Mbarrier, int]] = {}
        self.signals = {each: self._steps(each, SIGNALS) for each in barriers}
        self.waits = {each: self._steps(each, {"mbarrier"}) for each in barriers}

    def _steps(self, barrier: Mbarrier, kinds: set[str] | frozenset[str]) -> list[WarpLine]:
        lines = (each for each in self.roles.lines if each.kinds & kinds)
        return [WarpLine(warp, each.location) for each in lines for warp in each.warps_for(barrier)]

    def _follows(self, first: WarpLine, then: WarpLine) -> bool:
        return first.warp is then.warp and self.lines.above(first.line, then.line)

    def _signalled(self, step: WarpLine) -> list[Mbarrier]:
        """Return the mbarriers that the warp signals after the step; for a copy that brings bytes, only the copy's
        own."""
        itself = [barrier for barrier, steps in self.signals.items() if step in steps]
        return itself or [each for each, steps in self.signals.items() if any(self._follows(step, s) for s in steps)]

    def carriers(self, step: WarpLine, past: Warp | None = None) -> dict[Mbarrier, int]:
        """Return the mbarriers that carry the step on, nearest first, with the number of handoffs before each.

        past: a warp whose signals end the chain, because its next iteration comes after them.
        """
        if (step, past) not in self._carriers:
            self._carriers[step, past] = self._carried(step, past)
        return self._carriers[step, past]

    def _carried(self, step: WarpLine, past: Warp | None) -> dict[Mbarrier, int]:
        found = dict.fromkeys(self._signalled(step), 0)
        for barrier in (queue := [*found]):
            for wait in self.waits[barrier]:
                new = [each for each in self._signalled(wait) if each not in found and past not in self._by(each)]
                found |= dict.fromkeys(new, found[barrier] + 1)
                queue += new
        return found

    def _by(self, barrier: Mbarrier) -> set[Warp]:
        return {signal.warp for signal in self.signals[barrier]}

    def chained(self, first: WarpLine, then: WarpLine) -> bool:
        """Return True if a chain of handoffs orders the two steps."""
        carriers = self.carriers(first, then.warp)
        return any(self._follows(wait, then) for barrier in carriers for wait in self.waits[barrier])

    def lacks(self, first: WarpLine, then: WarpLine) -> Iterator[MissingWait]:
        """Yield waits, each of which would close the chain between the two steps; nothing if there is a chain."""
        for step in [then, *self._elsewhere(then)] if not self.chained(first, then) else ():
            for barrier, far in self.carriers(first, step.warp).items():
                busy = step.warp in self._by(barrier) or self._waits_around(barrier, step)
                reads = None if busy or barrier.cta is not step.warp.cta else self._meets(barrier, step)
                if reads is not None:
                    yield MissingWait(step, barrier, reads, far)

    def _waits_around(self, barrier: Mbarrier, step: WarpLine) -> bool:
        """Return True if the warp of the step waits for the mbarrier above the step, or in a loop around the step."""
        mine = (each.line for each in self.waits[barrier] if each.warp is step.warp)
        return any(self.lines.above(each, step.line) or self.lines.in_one_loop(each, step.line) for each in mine)

    def _elsewhere(self, then: WarpLine) -> Iterator[WarpLine]:
        """Return accesses of other warps that a chain orders before the step."""
        for touch in self.roles.touches:
            step = WarpLine(then.warp.cta.warps[touch.warps[0]], touch.location)
            if step.warp is not then.warp and self.chained(step, then):
                yield step

    def _meets(self, barrier: Mbarrier, step: WarpLine) -> bool | None:
        """Return True if the step only reads what a warp writes before it signals the mbarrier; False for another
        conflict with such an access.

        None without a conflict, or if all conflicts are in a chain with the step.
        """
        mine = {each.tensor: each.write for each in self.roles.touches if each.location == step.line}
        found = [
            touch.write and not mine[touch.tensor]
            for warp, touch in self._announced(barrier)
            if touch.tensor in mine and (touch.write or mine[touch.tensor]) and warp is not step.warp
            and not self.chained(WarpLine(warp, touch.location), step)
        ]  # fmt: skip
        return max(found, default=None)

    def _announced(self, barrier: Mbarrier) -> Iterator[tuple[Warp, Touch]]:
        """Yield the accesses that a warp makes before its signal of the mbarrier, or that signal the mbarrier
        themselves."""
        for signal in self.signals[barrier]:
            for touch in self.lines.touched_by(signal.warp):
                if not self.lines.above(signal.line, touch.location):
                    yield signal.warp, touch

    def brings(self, barrier: Mbarrier, wait: WarpLine) -> bool:
        """Return True if the warp next reads data that the mbarrier's signal announces: of a copy, or of other warps.
        Memory that the warp writes itself counts only for a copy."""
        mine = {each.tensor for each in self.lines.touched_by(wait.warp) if each.write}
        read = {each.tensor for each in self.lines.touched_next(wait.warp, wait.line) if not each.write}
        written = [(warp, each) for warp, each in self._announced(barrier) if each.write and each.tensor in read]
        copied = any(WarpLine(warp, each.location) in self.signals[barrier] for warp, each in written)
        return copied or any(each.tensor not in mine for _, each in written)
