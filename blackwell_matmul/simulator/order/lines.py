"""Two lines of a kernel in the order of its text, which is not the order in which the simulator came to them."""

from __future__ import annotations

import functools

from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.order.roles import Roles


class Lines:
    """The lines of a program, by the loops that they are in."""

    def __init__(self, program: Program) -> None:
        from blackwell_matmul.frontend.recording import walk

        self.program = program
        loops = [node for node in walk(program.tile.body) if type(node).__name__ in ("ForStmt", "WhileStmt")]
        self.loops = [{program.location_of(node) for node in walk(loop)} for loop in loops]

    @functools.cached_property
    def roles(self) -> Roles:
        return Roles(self.program)

    def apart(self, first: Location | None, then: Location | None) -> bool:
        """Each is in a loop that the other is not in: no sync stands between the two rounds."""
        only_first = any(first in loop and then not in loop for loop in self.loops)
        return only_first and any(then in loop and first not in loop for loop in self.loops)

    def by_loop(self, first: Location | None, then: Location | None) -> bool:
        """`then` comes after `first` in the next round of a loop alone."""
        if first is None or then is None or then.line > first.line:
            return False
        return any(first in loop and then in loop for loop in self.loops)

    def between(self, first: Location | None, then: Location | None) -> str:
        """`34 and 24 of the next round`, where a loop has both; else the smaller first, but for lines of two loops,
        which go round by themselves."""
        if self.by_loop(first, then):
            return f"{first} and {then} of the next round"
        if first is None or then is None or (self.in_loop(first) and self.in_loop(then)):
            return f"{first} and {then}"
        first, then = sorted((first, then), key=lambda location: location.line)
        return f"{first} and {then}"

    def in_loop(self, location: Location | None) -> bool:
        return location is not None and any(location in loop for loop in self.loops)
