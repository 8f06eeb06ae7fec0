"""What a tile costs on its way into shared memory: an estimate, the compiled code, and the simulator's own count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import torch

from blackwell_matmul import Script, simulate
from blackwell_matmul.compiler import Bundle, compile
from tma.copies import CopyByCpAsync, CopyByLoads, CopyByTma

TARGET = "sm_100a"
TILES = ((8, 64), (16, 64), (64, 64), (128, 64), (256, 64))
ELEMENT_BYTES = 2
WARP_COPY_BYTES = 32 * 16
"""What one cp.async of a warp moves at best: 16 bytes a lane (PTX, "cp.async")."""

PTX = {
    CopyByLoads: r"ld\.global|st\.shared",
    CopyByCpAsync: r"cp\.async\.c[ag]\.",
    CopyByTma: r"cp\.async\.bulk\.tensor",
}
COUNTED = {
    CopyByLoads: ("load_global", "store_shared"),
    CopyByCpAsync: ("cp.async",),
    CopyByTma: ("cp.async.bulk.tensor (load)",),
}
"""The names under which the simulator counts them in `Run.counts`."""


@dataclass(frozen=True)
class Cost:
    """The instructions that move one tile: each counts once for every warp that executes it.

    compiled: in the PTX, which is unrolled. simulated: statements of the script.
    """

    compiled: int
    simulated: int


def one_tile(rows: int, columns: int) -> tuple[int, int, torch.Tensor, torch.Tensor]:
    """The arguments of a copy of one tile."""
    x = torch.ones(rows, columns, dtype=torch.float16)
    return rows, columns, x, torch.zeros_like(x)


@cache
def compiled(way: type[Script], rows: int, columns: int, n: int | None = None) -> Bundle:
    """The code of a copy for tiles of this size, in a matrix of n columns."""
    m, n = rows, n or columns
    x = torch.ones(m, n, dtype=torch.float16)
    return compile(way, m, n, x, x.clone(), schedule={"rows": rows, "columns": columns}, target=TARGET)


def instructions(way: type[Script], rows: int, columns: int, n: int | None = None) -> int:
    """In the PTX of one thread, times the warps that run it: four, or for TMA one."""
    bundle = compiled(way, rows, columns, n)
    return len(re.findall(PTX[way], bundle.ptx)) * (1 if way is CopyByTma else 4)


def cost(way: type[Script], rows: int, columns: int) -> Cost:
    run = simulate(way, *one_tile(rows, columns), schedule={"rows": rows, "columns": columns})
    return Cost(instructions(way, rows, columns), sum(run.counts[name] for name in COUNTED[way]))


def estimate(rows: int, columns: int) -> int:
    """Warp instructions that one TMA instruction saves, if all lanes copy 16 bytes each time."""
    return -(-rows * columns * ELEMENT_BYTES // WARP_COPY_BYTES)


def table(tiles: tuple[tuple[int, int], ...] = TILES) -> None:
    """By tile size: instructions that move the tile, and how many of cp.async one of TMA stands for."""
    print("                     compiled code               benefit, cp.async : TMA")
    print("   tile   bytes   loads  cp.async   TMA    estimate   compiled   simulator*")
    for rows, columns in tiles:
        loads, copies, tma = (cost(way, rows, columns) for way in (CopyByLoads, CopyByCpAsync, CopyByTma))
        print(
            f"{rows:4}x{columns:<3} {rows * columns * ELEMENT_BYTES:6} {loads.compiled:7} {copies.compiled:9} "
            f"{tma.compiled:5} {estimate(rows, columns):9} : 1 {copies.compiled / tma.compiled:6.0f} : 1 "
            f"{copies.simulated / tma.simulated:7.0f} : 1"
        )
    print("* provisional: statements a warp executes, not time; the simulator's timing is not calibrated")
