"""What a cluster gets from clusterlaunchcontrol.try_cancel: the work of clusters that have not started (PTX ISA,
"clusterlaunchcontrol.try_cancel"), and how shared memory holds the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.machine.grid import Position

RESPONSE_BYTES = 16  # PTX ISA, "clusterlaunchcontrol.try_cancel": a naturally aligned 16-byte response
NOWHERE = -0xCD
"""A coordinate that code generation leaves as it was, because nothing was granted: one that nobody expects."""

_MARK = 0x434C4300


class Response(NamedTuple):
    """An answer. number: which one of its cluster it is; first: the first CTA of the cluster that was granted."""

    number: int
    first: Position | None

    @property
    def scalars(self) -> tuple[int, int, int, int]:
        """is_valid, and the coordinates."""
        return (0, NOWHERE, NOWHERE, NOWHERE) if self.first is None else (1, *self.first)

    def encoded(self) -> np.ndarray:
        """As bytes, of an encoding of our own: PTX's is opaque."""
        valid, x, y, z = self.scalars
        return np.array([_MARK | valid, self.number, x, y << 16 | z], np.int64).astype(np.uint32).view(np.uint8)


def decoded(cells: np.ndarray) -> Response:
    """What these 16 bytes answer; where they are no response, that nothing is granted."""
    mark, number, x, yz = np.ascontiguousarray(cells).reshape(-1).view(np.uint32).tolist()
    if mark == _MARK | 1:
        return Response(number, (x, yz >> 16, yz & 0xFFFF))
    return Response(number if mark == _MARK else -1, None)


class Grants:
    """What the requests of one cluster are answered with, known ahead.

    firsts: the first CTA of each cluster that it is granted, in order; after these, it is refused. asked: how many
    requests it has made. in_turn: each warp has read all responses so far once, in order. refused: by CTA, where it
    first read that there is nothing left.
    """

    def __init__(self, firsts: Sequence[Position] = (), asked: int = 0) -> None:
        self.firsts, self.asked = firsts, asked
        self.in_turn = True
        self.refused: dict[Any, Any] = {}
        self._reads: Counter[Any] = Counter()

    @property
    def taken(self) -> int:
        """How many clusters it was granted."""
        return min(self.asked, len(self.firsts))

    def ask(self) -> int:
        """The number of a new request."""
        self.asked += 1
        return self.asked - 1

    def response(self, number: int) -> Response:
        return Response(number, self.firsts[number] if number < len(self.firsts) else None)

    def read(self, warp: Any, response: Response) -> int:
        """A warp reads it; how often it had done so before."""
        self.in_turn &= response.number == self._reads[warp]
        self._reads[warp] += 1
        self._reads[warp, response.number] += 1
        return self._reads[warp, response.number] - 1

    def foreseen(self) -> Iterator[tuple[int, int, int, int]]:
        """What a warp reads that reads each response once, in order."""
        return (self.response(number).scalars for number in range(len(self.firsts) + 1))

    def close(self) -> None:
        """The run is over: let go of who read."""
        self.refused.clear()
        self._reads.clear()
