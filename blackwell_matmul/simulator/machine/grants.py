"""Responses of clusterlaunchcontrol.try_cancel, the work of clusters that have not started, and their encoding in
shared memory (PTX ISA, "clusterlaunchcontrol.try_cancel")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.machine.grid import Position

RESPONSE_BYTES = 16  # PTX ISA, "clusterlaunchcontrol.try_cancel": a naturally aligned 16-byte response
UNGRANTED_COORDINATE = -0xCD
"""Coordinate in a refused response, an unlikely value; generated code does not change it."""

_RESPONSE = 0x434C4300


class Response(NamedTuple):
    """A CLC response. number: of the cluster's request. first: first CTA of the granted cluster; None: refused."""

    number: int
    first: Position | None

    @property
    def scalars(self) -> tuple[int, int, int, int]:
        """Return the scalars of a response: is_valid, and the three coordinates."""
        return (
            (0, UNGRANTED_COORDINATE, UNGRANTED_COORDINATE, UNGRANTED_COORDINATE)
            if self.first is None
            else (1, *self.first)
        )

    def encoded(self) -> np.ndarray:
        """Encode it as bytes, in an encoding of our own: PTX's is opaque."""
        valid, x, y, z = self.scalars
        return np.array([_RESPONSE | valid, self.number, x, y << 16 | z], np.int64).astype(np.uint32).view(np.uint8)


def decoded(cells: np.ndarray) -> Response:
    """Return the response in 16 bytes; bytes that are no response count as a refusal."""
    mark, number, x, yz = np.ascontiguousarray(cells).reshape(-1).view(np.uint32).tolist()
    if mark == _RESPONSE | 1:
        return Response(number, (x, yz >> 16, yz & 0xFFFF))
    return Response(number if mark == _RESPONSE else -1, None)


class Grants:
    """Responses to one cluster's requests, known ahead.

    firsts: the first CTA of each granted cluster, in order; later requests are refused. asked: number of requests.
    in_turn: each warp has read all responses so far once, in order. refused: by CTA, where it first read a refusal.
    """

    def __init__(self, firsts: Sequence[Position] = (), asked: int = 0) -> None:
        self.firsts, self.asked = firsts, asked
        self.in_turn = True
        self.refused: dict[Any, Any] = {}
        self._reads: Counter[Any] = Counter()

    @property
    def taken(self) -> int:
        """Return the number of granted clusters."""
        return min(self.asked, len(self.firsts))

    def ask(self) -> int:
        """Return the number of a new request."""
        self.asked += 1
        return self.asked - 1

    def response(self, number: int) -> Response:
        return Response(number, self.firsts[number] if number < len(self.firsts) else None)

    def read(self, warp: Any, response: Response) -> int:
        """Record a warp's read of a response, and return its number of earlier reads of that response."""
        self.in_turn &= response.number == self._reads[warp]
        self._reads[warp] += 1
        self._reads[warp, response.number] += 1
        return self._reads[warp, response.number] - 1

    def foreseen(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the values that a warp reads if it reads each response once, in order."""
        return (self.response(number).scalars for number in range(len(self.firsts) + 1))

    def close(self) -> None:
        """Release the readers after the run."""
        self.refused.clear()
        self._reads.clear()
