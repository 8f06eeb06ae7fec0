"""The lines of a kernel in the order of its text, which is not the order in which the simulator came to them."""

from __future__ import annotations

import functools

from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.order.roles import Roles


class Lines:
    """The lines of a program, by the loops that they are in."""

    def __init__(self, program: Program) -> None:
        from blackwell_matmul.frontend.recording import walk

        self.program = program
        nodes = list(walk(program.tile.body))
        loops = [node for node in nodes if type(node).__name__ in ("ForStmt", "WhileStmt")]
        self.loops = [{program.location_of(node) for node in walk(loop)} for loop in loops]
        self.places = {program.location_of(node): place for place, node in reversed([*enumerate(nodes)])}

    @functools.cached_property
    def roles(self) -> Roles:
        """Return what the lines say about mbarriers and memory on the chip."""
        return Roles(self.program)

    def apart(self, first: Location | None, then: Location | None) -> bool:
        """Return whether each is in a loop that the other is not in: no sync stands between the two rounds."""
        only_first = any(first in loop and then not in loop for loop in self.loops)
        return only_first and any(then in loop and first not in loop for loop in self.loops)

    def depth(self, location: Location | None) -> int:
        """Return the number of loops around a line."""
        return sum(location in loop for loop in self.loops)

    def round_of(self, location: Location | None) -> set[Location | None]:
        """Return the lines of the innermost loop around a line; all lines where there is none."""
        return min((loop for loop in self.loops if location in loop), key=len, default={*self.places})

    def leads_to(self, first: Location | None, then: Location | None) -> bool:
        """Return whether `then` comes after `first` in the same round of the innermost loop around `first`."""
        return then in self.round_of(first) and self.places[first] < self.places[then]

    def by_loop(self, first: Location | None, then: Location | None) -> bool:
        """Return whether `then` comes after `first` in the next round of a loop alone."""
        if first is None or then is None or then.line > first.line:
            return False
        return any(first in loop and then in loop for loop in self.loops)

    def between(self, first: Location | None, then: Location | None) -> str:
        """Return `34 and 24 of the next round`, where a loop has both; else the smaller first, but for lines of two
        loops, which go round by themselves."""
        if self.by_loop(first, then):
            return f"{first} and {then} of the next round"
        if first is None or then is None or (self.in_loop(first) and self.in_loop(then)):
            return f"{first} and {then}"
        first, then = sorted((first, then), key=lambda location: location.line)
        return f"{first} and {then}"

    def in_loop(self, location: Location | None) -> bool:
        """Return whether a line is in a loop."""
        return location is not None and any(location in loop for loop in self.loops)
