"""The lines of a kernel in the order of its text, and the roles of warps and mbarriers."""

from __future__ import annotations

import functools

from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.order.signallers import Signaller, Touch, lines_of

SIGNALS = frozenset(("arrive", "complete_tx"))
"""The kinds of signal that end a phase of an mbarrier."""


class Roles:
    """Lines of a program that use mbarriers, semaphores or on-chip memory, found at the first question."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @functools.cached_property
    def _found(self) -> tuple[list[Signaller], list[Touch]]:
        return lines_of(self.program)

    @property
    def lines(self) -> list[Signaller]:
        """Return the lines that signal mbarriers or wait for them, and syncs, in the order of the program."""
        return self._found[0]

    @property
    def touches(self) -> list[Touch]:
        """Return the lines that access on-chip tensors, in the order of the program."""
        return self._found[1]

    def waiting(self, barrier: Mbarrier) -> set[Warp]:
        """Return the warps that wait for the mbarrier at some line."""
        return {warp for line in self.signalling(barrier, "mbarrier") for warp in line.warps_for(barrier)}

    def arriving(self, barrier: Mbarrier) -> set[Warp]:
        """Return the warps that arrive on the mbarrier, or commit to it, at some line."""
        return {warp for line in self.signalling(barrier, "arrive") for warp in line.warps_for(barrier)}

    def signalling(self, barrier: Mbarrier, kind: str) -> list[Signaller]:
        """Return the lines with a signal or a wait of this kind on the mbarrier, in the order of the program."""
        return [line for line in self.lines if kind in line.kinds and line.warps_for(barrier)]

    def leaving_out(self, barrier: Mbarrier, kind: str) -> list[Signaller]:
        """Return lines that signal the same mbarrier of other CTAs, but not of this CTA."""
        return [line for line in self.lines if kind in line.kinds and line.leaves_out(barrier)]

    def semaphores(self, kind: str) -> list[Signaller]:
        """Return the lines that release or acquire a semaphore, in the order of the text."""
        lines = (line for line in self.lines if kind in line.kinds and line.location is not None)
        return sorted(lines, key=lambda line: line.location.line if line.location is not None else 0)

    def rank(self, barrier: Mbarrier, warp: Warp) -> int:
        """Return how unlikely a wait of the warp for the mbarrier is: 0 if no warp waits for it, 1 if this warp waits
        for it, 2 if only other warps do."""
        waiting = self.waiting(barrier)
        return 0 if not waiting else 1 if warp in waiting else 2

    def arrived_by_readers(self, barrier: Mbarrier, warp: Warp) -> list[Mbarrier]:
        """Return mbarriers on which the waiters for `barrier` arrive, and for which the warp may have to wait. Those
        of the same stage come first."""
        readers = self.waiting(barrier) - {warp}
        arrived = [each for each in barriers_of(warp.cta) if each is not barrier and self.arriving(each) & readers]
        meant = [each for each in arrived if self.rank(each, warp) < 2]
        return sorted(meant, key=lambda each: (place_of(each) != place_of(barrier), -self.rank(each, warp)))


def siblings(one: Mbarrier, other: Mbarrier) -> bool:
    """Return True if both are of one ring, or the same."""
    return ring_of(one) == ring_of(other)


def ring_of(barrier: Mbarrier) -> str:
    """Return the name of the mbarrier's ring; that of a single mbarrier is its own."""
    return barrier.name.partition("[")[0]


def place_of(barrier: Mbarrier) -> str:
    """Return the part of an mbarrier's name after the name of its ring, such as `1]`; "" for a single mbarrier."""
    return barrier.name.partition("[")[2]


def same_ring(one: Mbarrier, other: Mbarrier, place: Mbarrier) -> bool:
    """Return True if `other` is in the ring of `one`, at the stage that `place` has in its own ring."""
    return siblings(one, other) and place_of(other) == place_of(place)


def _inside(program: Program, *kinds: str) -> list[set[Location | None]]:
    """Return, for each statement of these kinds, the lines inside."""
    from blackwell_matmul.frontend.recording import walk

    outer = (node for node in walk(program.tile.body) if type(node).__name__ in kinds)
    return [{program.location_of(node) for node in walk(each)} for each in outer]


class ProgramLines:
    """Lines of a program, and the loops around them."""

    def __init__(self, program: Program) -> None:
        from blackwell_matmul.frontend.recording import walk

        self.program = program
        nodes = list(walk(program.tile.body))
        self.loops = _inside(program, "ForStmt", "WhileStmt")
        self.places = {program.location_of(node): place for place, node in reversed([*enumerate(nodes)])}

    @functools.cached_property
    def roles(self) -> Roles:
        """Return the roles of warps and mbarriers."""
        return Roles(self.program)

    @functools.cached_property
    def branches(self) -> list[set[Location | None]]:
        """Return the lines of each statement for some of the warps or threads."""
        return _inside(self.program, "ThreadGroupStmt")

    def apart(self, first: Location | None, then: Location | None) -> bool:
        """Return True if no sync can be common to both lines: each is in a loop without the other, or a sync between
        their branches would hang."""
        next_round = self.by_loop(first, then) and not self.in_step(first, then)
        return self._in_loops_apart(first, then) or (not next_round and self._waits_ahead(first, then))

    def _in_loops_apart(self, first: Location | None, then: Location | None) -> bool:
        only_first = any(first in loop and then not in loop for loop in self.loops)
        return only_first and any(then in loop and first not in loop for loop in self.loops)

    def _waits_ahead(self, first: Location | None, then: Location | None) -> bool:
        """Return True for lines in two branches of warps, if a sync between the branches would hang.

        It hangs if a wait above the lower branch is for a signal from that branch or from below. In a loop around both
        branches the signal may be of the preceding iteration, unless wait and signal are in inner loops.
        """
        first, then = sorted((first, then), key=lambda each: self.places.get(each, 0))
        lower = [branch for branch in self.branches if then in branch and first not in branch]
        if not lower or not any(first in branch and then not in branch for branch in self.branches):
            return False
        start = min(self.places[each] for each in max(lower, key=len) if each is not None)
        together = self.in_one_loop(first, then)
        above = [each for each in self.roles.lines if self.places[each.location] < start and "mbarrier" in each.kinds]
        below = [each for each in self.roles.lines if self.places[each.location] >= start and each.kinds & SIGNALS]
        pairs = [
            (wait.location, signal.location) for wait in above for signal in below if wait.barriers & signal.barriers
        ]
        return any(not together or self._in_loops_apart(wait, signal) for wait, signal in pairs)

    def in_one_loop(self, first: Location | None, then: Location | None) -> bool:
        """Return True if a loop is around both lines."""
        return any(first in loop and then in loop for loop in self.loops)

    def depth(self, location: Location | None) -> int:
        """Return the number of loops around a line."""
        return sum(location in loop for loop in self.loops)

    def round_of(self, location: Location | None) -> set[Location | None]:
        """Return the lines of the innermost loop around a line; all lines if there is no loop."""
        return min((loop for loop in self.loops if location in loop), key=len, default={*self.places})

    def leads_to(self, first: Location | None, then: Location | None) -> bool:
        """Return True if `then` follows `first` in the same iteration of the innermost loop around `first`."""
        return then in self.round_of(first) and self.places[first] < self.places[then]

    def in_turn(self, first: Location | None, then: Location | None, warp: Warp) -> bool:
        """Return True if the warp syncs, or waits for an mbarrier, between two lines of one round."""
        meets = [each for each in self.roles.lines if each.kinds & {"threads", "mbarrier"} and warp.index in each.warps]
        return any(self.leads_to(first, each.location) and self.leads_to(each.location, then) for each in meets)

    def follows(self, first: Location | None, then: Location | None) -> bool:
        """Return True if `then` comes after `first`, in the text or in the next round of a loop around both without a
        sync in between."""
        again = self.in_one_loop(first, then) and not self.in_step(first, then)
        return self.places[first] < self.places[then] or again

    def in_step(self, first: Location | None, then: Location | None) -> bool:
        """Return True if all warps sync between `first` and `then` of the next round of the loop around both."""
        loop = min((loop for loop in self.loops if first in loop and then in loop), key=len, default=None)
        syncs = [each.location for each in self.roles.lines if "threads" in each.kinds]
        return any(
            self.round_of(sync) == loop
            and not self.places[then] < self.places[sync] < self.places[first]
            and not any(sync in branch for branch in self.branches)
            for sync in syncs
        )

    def above(self, first: Location | None, then: Location | None) -> bool:
        """Return True if `then` is after `first` in the source."""
        return first in self.places and then in self.places and self.places[first] < self.places[then]

    def may_precede(self, first: Location | None, then: Location | None) -> bool:
        """Return True if `first` is a different line that is before `then` in the source, or in a loop around both."""
        return first != then and (self.in_one_loop(first, then) or self.above(first, then))

    def touched_by(self, warp: Warp) -> list[Touch]:
        """Return the accesses of a warp to on-chip tensors, in the order of the program."""
        return [each for each in self.roles.touches if warp.index in each.warps]

    def touched_next(self, warp: Warp, line: Location | None) -> list[Touch]:
        """Return the accesses of the first line below, in the text, at which the warp accesses on-chip tensors."""
        below = [each for each in self.touched_by(warp) if self.above(line, each.location)]
        return [each for each in below if each.location == below[0].location]

    def by_loop(self, first: Location | None, then: Location | None) -> bool:
        """Return True if `then` comes after `first` only in the next round of a loop."""
        return first is not None and then is not None and then.line <= first.line and self.in_one_loop(first, then)

    def between(self, first: Location | None, then: Location | None) -> str:
        """Return `34 and 24 of the next round` for two lines of one loop; else both lines, the smaller first."""
        if self.by_loop(first, then):
            return f"{first} and {then} of the next round"
        if first is not None and then is not None and not (self.in_loop(first) and self.in_loop(then)):
            first, then = sorted((first, then), key=lambda location: location.line)
        return f"{first} and {then}"

    def in_loop(self, location: Location | None) -> bool:
        """Return True if a line is in a loop."""
        return location is not None and any(location in loop for loop in self.loops)
