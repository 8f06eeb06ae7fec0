"""What a warp's own loads and stores ask of an SM, as far as only the tensor that they come to tells."""

from __future__ import annotations

import dataclasses
from typing import Any

from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.timing.work import MoveLines


class Lines:
    """One instruction of them. given: the tensors that the program only reads, whose loads may come from memory."""

    def __init__(self, work: MoveLines, given: frozenset[str]) -> None:
        self.work, self.given = work, given
        self._known: dict[Any, MoveLines] = {}

    def at(self, warp: Warp, operands: tuple[Any, ...]) -> MoveLines:
        segment = getattr(getattr(operands[0], "storage", None), "segment", None)  # none of a pointer
        name = "" if segment is None else segment.name
        if name not in self._known:
            self._known[name] = dataclasses.replace(self.work, own=segment is not None and name not in self.given)
        return self._known[name]


def given(lowered: Lowered) -> frozenset[str]:
    """The names of the tensors that a program only reads."""
    return frozenset(name for name, _ in lowered.program.params) - (lowered.written or frozenset())
