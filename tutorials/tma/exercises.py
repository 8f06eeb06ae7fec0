"""What checks the answers of the lesson's exercises: by running them. Each prints one sentence, whatever comes in."""

from __future__ import annotations

from collections.abc import Callable

import torch

from blackwell_matmul import BlackwellMatmulError, Script, check, simulate
from blackwell_matmul.base.validation import accepts, integer, shown
from blackwell_matmul.kernels.primitives import TmaCopy
from tma.copies import CopyByTma
from tma.swizzle import PIECES, ROWS, piece_after

COLUMNS = 264
TILE = (64, 128)
"""Where the tile of the first exercise starts: row and column."""

MOST_BYTES = 2**20 - 1
"""The largest tx-count of an mbarrier (PTX ISA, "mbarrier object": 2^20 - 1)."""


def address(where: Callable[[int, int], int]) -> None:
    """where(row, piece): the byte offset in x of 16 bytes of a 64 x 64 tile of fp16 that starts at `TILE`."""
    if not accepts(where, 2):
        return _refuse("a function of (row, piece)", where)
    x = torch.empty(200, COLUMNS, dtype=torch.float16)
    for row in range(64):
        for piece in range(8):
            start = x[TILE[0] + row, TILE[1] + 8 * piece].data_ptr() - x.data_ptr()
            if where(row, piece) != start:
                print(f"not yet: row {row}, piece {piece} starts at byte {start}, and you say {where(row, piece)}")
                return
    print("right: 512 addresses")


def announce(nbytes: int) -> None:
    """Copy 100 x 64 elements by tiles of 64 x 64, announcing this many bytes for each."""
    if integer(nbytes, 0, MOST_BYTES) is None:
        return _refuse(f"an integer from 0 to {MOST_BYTES}, which is what a barrier can count", nbytes)
    from edited import edited

    kernel = edited(CopyByTma, "transaction_bytes=tile.nbytes", f"transaction_bytes={int(nbytes)}")
    x, y = _operands(100, 64)
    report = check(kernel, 100, 64, x, y)
    if report.ok:
        print("right: clean, and y is x" if torch.equal(x, y) else "not yet: y is not x")
    else:
        print(f"not yet: {report.findings[0].code}")


def boxes(box: tuple[int, int]) -> None:
    """Copy 300 x 200 elements of fp16 by boxes of this shape, which may take 32 KiB; four boxes are enough."""
    if not isinstance(box, (tuple, list)) or len(box) != 2 or any(integer(each, 1, 2**31) is None for each in box):
        return _refuse("a box of (rows, columns), such as (64, 64)", box)
    x, y = _operands(300, 200)
    if box[0] * box[1] * x.element_size() > 32 * 1024:
        print(f"not yet: a box takes {box[0] * box[1] * x.element_size()} bytes, more than {32 * 1024}")
        return
    try:
        run = simulate(TmaCopy, x, y, schedule={"box": box})
    except BlackwellMatmulError as error:
        print(f"not yet: {error}")
        return
    loads = run.counts["cp.async.bulk.tensor (load)"]
    right = run.ok and torch.equal(x, y) and loads == 4
    print(f"{'right' if right else 'not yet'}: {loads} boxes")


def swizzle(where: Callable[[int, int], int]) -> None:
    """where(row, piece): which of the 8 pieces of a 128-byte row in shared memory holds this one."""
    if not accepts(where, 2):
        return _refuse("a function of (row, piece)", where)
    for row in range(ROWS):
        for piece in range(PIECES):
            if where(row, piece) != piece_after(row, piece):
                told = f"row {row}, piece {piece} lies at {piece_after(row, piece)}, and you say {where(row, piece)}"
                print(f"not yet: {told}")
                return
    print(f"right: all {ROWS * PIECES} pieces")


def repair(kernel: type[Script]) -> None:
    """A kernel that copies strips of 64 x 256 elements right, in any of four orders."""
    x, y = _operands(128, 256)
    try:
        report = check(kernel, 128, 256, x, y, orders=4)
    except BlackwellMatmulError as error:
        print(f"not yet: {error}")
        return
    if report.ok:
        print("right: clean in 4 orders, and y is x" if torch.equal(x, y) else "not yet: clean, and y is not x")
    else:
        print(f"not yet: {', '.join(dict.fromkeys(finding.code for finding in report.findings))}")


def _refuse(wanted: str, given: object) -> None:
    print(f"not yet: the answer is {wanted}, and you say {shown(given)}")


def _operands(m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(m, n, generator=torch.Generator().manual_seed(0)).half()
    return x, torch.full_like(x, float("nan"))
