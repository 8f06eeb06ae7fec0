"""Explanations of a wrong block-scaled product by mistakes with scales or with nibbles.

Each candidate is a mistake: a sentence, and the operands as a kernel with the mistake reads them. A sample of the wrong
elements of C is compared with the float64 product of these operands.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from blackwell_matmul.ops.block_scaled.formats import unpacked
from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS, ATOM_BYTES, ATOM_ROWS

SAMPLE = 64
"""Maximum number of compared rows and columns of C."""

EXPLAINED = 0.9
"""Fraction of the wrong elements that a mistake must explain. Elements that depend on unknown bytes do not count."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows of A or of B as a kernel reads them.

    elements: rows x k in float64. rows: indices of the rows whose scales are read. count: number of rows of the
    operand. scales: all bytes of the scales. type: type of a scale. block: elements that share a scale. shift: blocks
    along k by which the read scale lies behind the right one. plain: True reads scales as row-major, not in atoms.
    """

    elements: torch.Tensor
    rows: torch.Tensor
    count: int
    scales: torch.Tensor
    type: torch.dtype
    block: int
    shift: int = 0
    plain: bool = False

    @property
    def known(self) -> torch.Tensor:
        """Return a bool for each row: True if its scales are bytes of the operand."""
        inside = (self.rows >= 0) & (self.rows < self.count)
        return inside & (self._places() < self.scales.numel()).all(dim=1)

    @property
    def values(self) -> torch.Tensor:
        found = self.scales[self._places().clamp(0, self.scales.numel() - 1)]
        return self.elements * found.view(self.type).double()

    def _places(self) -> torch.Tensor:
        """Return the index of the byte with the scale of each element."""
        extent = self.elements.shape[1]
        along = -(-extent // (ATOM_BLOCKS * self.block))
        row, column = self.rows[:, None], torch.arange(extent) // self.block + self.shift
        column = column.clamp(0, ATOM_BLOCKS * along - 1)
        if self.plain:
            return row * ATOM_BLOCKS * along + column
        inside = row % 32 * 16 + row % ATOM_ROWS // 32 * 4 + column % ATOM_BLOCKS
        return (row // ATOM_ROWS * along + column // ATOM_BLOCKS) * ATOM_BYTES + inside

    def moved(self, by: int | torch.Tensor) -> Scaled:
        """Return the operand with the scales of the rows `by` rows below."""
        return replace(self, rows=self.rows + by)

    def nibbles_swapped(self) -> Scaled:
        pairs = self.elements.unflatten(1, (-1, 2)).flip(2).flatten(1)
        return replace(self, elements=pairs)

    def unscaled(self) -> Scaled:
        ones = torch.ones(self.scales.numel(), dtype=torch.float64).to(self.type).view(torch.uint8)
        return replace(self, scales=ones)


def _of_one(name: str, right: Scaled) -> Iterator[tuple[str, Scaled]]:
    """Yield each mistake with one operand: a sentence, and the operand as read. right: the operand without mistake."""
    yield f"the scales of {name} are read row by row, not in atoms of 128 rows and 4 blocks", replace(right, plain=True)
    for rows in (32, -32, 64, -64, 96, -96):
        yield f"the scales of {name} are those of {abs(rows)} rows {_further(rows)}", right.moved(rows)
    for half in (64, 128):
        place = right.rows // half % 2
        tile = f"of each {2 * half} rows of {name}"
        yield f"the two halves {tile} have each other's scales", right.moved(half * (1 - 2 * place))
        yield f"both halves {tile} have the scales of the first one", right.moved(-half * place)
        yield f"both halves {tile} have the scales of the second one", right.moved(half * (1 - place))
    for blocks in (1, -1):
        yield f"the scales of {name} are those of one block {_further(blocks)} along k", replace(right, shift=blocks)
    yield f"{name} is multiplied without its scales", right.unscaled()


def _further(by: int) -> str:
    return "further on" if by > 0 else "before"


def candidates(a: Scaled, b: Scaled, packed: bool) -> Iterator[tuple[str, Scaled, Scaled]]:
    """Yield each likely mistake: a sentence, and A and B as read. packed: True if a byte has two elements."""
    of_a, of_b = list(_of_one("A", a)), list(_of_one("B", b))
    yield from ((what, wrong, b) for what, wrong in of_a)
    yield from ((what, a, wrong) for what, wrong in of_b)
    if packed:
        yield "the two nibbles of each byte of A, or of B, are exchanged", a, b.nibbles_swapped()
    borrowed = replace(a, scales=b.scales, count=b.count), replace(b, scales=a.scales, count=a.count)
    yield "B has the scales of A", a, borrowed[1]
    yield "A has the scales of B", borrowed[0], b
    yield "A and B have each other's scales", *borrowed
    yield "the scales are read row by row, not in atoms of 128 rows and 4 blocks", of_a[0][1], of_b[0][1]
    other = 48 - a.block
    sizes = f"scales of blocks of {a.block} are read as of blocks of {other}"
    yield sizes, replace(a, block=other), replace(b, block=other)


def likely_mistake(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    c: torch.Tensor,
    *,
    block: int,
    scale: torch.dtype,
    rows: torch.Tensor | None = None,
    columns: torch.Tensor | None = None,
) -> str:
    """Return a sentence about the mistake that explains C in place of (A scales) @ (B scales).T; "": none does.

    a, b: e4m3 or e5m2, or two e2m1 in a byte. scale_a, scale_b: scales in atoms, of type `scale`, for blocks of `block`
    elements. c: m x n. rows, columns: indices of rows and columns with wrong elements; None: all.
    """
    rows, columns = (
        _sample(torch.arange(extent) if each is None else each) for each, extent in zip((rows, columns), c.shape)
    )
    left, right = _operand(a, scale_a, rows, block, scale), _operand(b, scale_b, columns, block, scale)
    c = c[rows][:, columns]
    bad = _wrong(c, left, right)
    for what, read_a, read_b in candidates(left, right, _is_packed(a)):
        known = bad & read_a.known[:, None] & read_b.known
        if 2 * known.sum() >= bad.sum() > 0 and (known & ~_wrong(c, read_a, read_b)).sum() >= EXPLAINED * known.sum():
            return what
    return ""


def _is_packed(data: torch.Tensor) -> bool:
    """Return True for two e2m1 in a byte."""
    return data.dtype in (torch.uint8, torch.float4_e2m1fn_x2)


def _operand(data: torch.Tensor, scales: torch.Tensor, rows: torch.Tensor, block: int, type: torch.dtype) -> Scaled:
    elements = unpacked(data.view(torch.uint8)[rows], torch.float64) if _is_packed(data) else data[rows].double()
    return Scaled(elements, rows, len(data), scales.reshape(-1).view(torch.uint8), type, block)


def _wrong(c: torch.Tensor, a: Scaled, b: Scaled) -> torch.Tensor:
    """Return a mask of the elements of C that differ from the product of these operands. Differences by rounding, of
    fp32 sums and of C's type, do not count."""
    left, right = a.values, b.values
    exact, size = left @ right.T, left.abs() @ right.abs().T
    apart = (c.double() - exact).abs()
    return ~(apart <= torch.finfo(c.dtype).eps * exact.abs() + 2.0**-19 * size)


def _sample(indices: torch.Tensor) -> torch.Tensor:
    """Return at most `SAMPLE` of the indices, evenly spaced."""
    return indices[torch.linspace(0, len(indices) - 1, min(SAMPLE, len(indices))).long()]
