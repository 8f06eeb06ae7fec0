"""Where the 16-byte pieces of a tile lie in shared memory, read from the layout that tilus gives to V1's tile of A."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from blackwell_matmul import BlackwellMatmulV1
from blackwell_matmul.simulator.simulate import prepare

ROWS, PIECES = 8, 8
PIECE_BYTES = 16
BANKS, BANK_BYTES = 32, 4
ELEMENT_BYTES = 2
SCHEDULE = {"block_m": 128, "block_n": 64, "block_k": 64, "e_block_n": 32}


@cache
def layout() -> Any:
    """tilus's layout of s_a in V1: 128 rows of 64 elements of fp16, as TMA writes them and the MMA reads them."""
    a, b, c = (torch.empty(shape, dtype=torch.float16) for shape in ((128, 64), (64, 64), (128, 64)))
    _, lowered = prepare(BlackwellMatmulV1, (128, 64, 64, a, b, c), SCHEDULE, "sm_100a")
    program = lowered.program
    return next(tensor.layout for tensor in program.shared if program.name_of(tensor) == "s_a")


@cache
def offsets() -> Any:
    """The byte at which each element of the tile lies."""
    return layout().as_numpy_grid() * ELEMENT_BYTES


def piece_after(row: int, piece: int) -> int:
    """The place, among the 8 of its row, where TMA puts this piece."""
    return int(offsets()[row, piece * PIECE_BYTES // ELEMENT_BYTES]) % (PIECES * PIECE_BYTES) // PIECE_BYTES


def banks(place: int) -> range:
    """The banks under a place of a 128-byte row."""
    first = place * PIECE_BYTES // BANK_BYTES
    return range(first, first + PIECE_BYTES // BANK_BYTES)


def most_in_a_bank(piece: int, swizzled: bool) -> int:
    """How many of the 8 rows have their piece in the same banks."""
    places = [piece_after(row, piece) if swizzled else piece for row in range(ROWS)]
    return max(places.count(place) for place in places)
