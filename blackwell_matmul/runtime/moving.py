"""`Moving`: a launch of one kind of call, made again at any addresses.

Only the addresses are written anew, so that a call costs the same whether its tensors have been seen or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.packed import LAST_BITS, Moves


class Moving:
    """Launches on one stream that differ in addresses alone. Each launch under way has arguments of its own, so that
    threads may share it; the driver has read them when it returns.
    """

    __slots__ = ("_first", "_free", "_last_bits", "_moves")

    def __init__(self, first: Prepared, moves: Moves, addresses: Sequence[int]) -> None:
        """Take a launch at these addresses. moves: the places of each, by its index among them."""
        self._first, self._moves = first, moves
        self._last_bits = [each & LAST_BITS for each in addresses]
        self._free: list[tuple[Prepared, Sequence[int]]] = []

    def __call__(self, addresses: Sequence[int]) -> bool:
        """Queue the launch at these addresses; False, without effect, for addresses that need other arguments."""
        try:
            mine, last = self._free.pop()
        except IndexError:
            mine, last = self._first.copy(), ()
        if addresses != last and not self._moved(mine, addresses):
            return False
        mine()
        self._free.append((mine, addresses))
        return True

    def _moved(self, mine: Prepared, addresses: Sequence[int]) -> bool:
        same = [each & LAST_BITS for each in addresses] == self._last_bits
        return same and mine.packed.move(self._moves, addresses)
