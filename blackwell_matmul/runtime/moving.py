"""`Moving`: a launch that is repeated at other addresses.

Only the addresses are rewritten. So a call costs the same for new tensors as for known tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.packed import LAST_BITS, Moves, Word


class Moving:
    """Launches on one stream that differ only in addresses. Threads may share the object: each running launch has its
    own copy of the arguments. The driver has read the arguments when its call returns."""

    __slots__ = ("_first", "_free", "_last_bits", "_moves")

    def __init__(self, first: Prepared, moves: Moves, addresses: Sequence[int]) -> None:
        """first: a launch at these addresses. moves: places of each address in the arguments, by its index."""
        self._first, self._moves = first, moves
        self._last_bits = [each & LAST_BITS for each in addresses]
        self._free: list[tuple[Prepared, list[Word]]] = []

    def __call__(self, addresses: Sequence[int]) -> bool:
        """Queue the launch at these addresses and return True. Return False, without effect, if their last four bits
        differ from the first launch's."""
        if [each & LAST_BITS for each in addresses] != self._last_bits:
            return False
        try:
            mine = self._free.pop()
        except IndexError:
            mine = self._new()
        launch, words = mine
        for array, place, index in words:
            array[place] = addresses[index]
        launch()
        self._free.append(mine)
        return True

    def _new(self) -> tuple[Prepared, list[Word]]:
        made = self._first.copy()
        return made, made.packed.words(self._moves)
