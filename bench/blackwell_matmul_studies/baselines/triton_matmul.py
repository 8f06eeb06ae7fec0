"""C[m, n] = A[m, k] @ B[n, k].T by Triton (3.6), as well as it does it: persistent, TMA both ways, tuned for each size.

`make()` gives the call that `blackwell-matmul bench` times. One program per SM takes tiles in groups of rows, so that
neighbours share B in the L2; tensor descriptors are made by the host, which is cheapest for the kernel. Triton refuses
sizes whose rows are no multiple of 16 bytes: they cannot have a descriptor.

    TRITON_INTERPRET=1 python -m blackwell_matmul_studies.baselines.triton_matmul   # in the interpreter: is it right
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import torch

# By name: Triton is no dependency of this package, it comes with torch's CUDA builds or not at all.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")
TensorDescriptor: Any = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def configurations() -> list[triton.Config]:
    """(BLOCK_M, BLOCK_N, BLOCK_K, strips of C, stages, warps); a Config sets the descriptors' blocks before it runs."""
    tiles = [
        (128, 256, 64, 2, 3, 8),
        (128, 256, 64, 1, 3, 8),
        (128, 256, 64, 2, 4, 8),
        (256, 128, 64, 2, 3, 8),
        (128, 128, 64, 1, 4, 8),
        (128, 128, 64, 1, 4, 4),
        (64, 128, 64, 1, 4, 4),
        (64, 64, 128, 1, 4, 4),
    ]
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "STRIPS")
    return [
        triton.Config(dict(zip(names, tile)), num_stages=stages, num_warps=warps, pre_hook=set_blocks)
        for *tile, stages, warps in (tiles[4:5] if INTERPRETED else tiles)
    ]


def set_blocks(arguments: dict[str, Any]) -> None:
    block_m, block_n, block_k = (arguments[f"BLOCK_{axis}"] for axis in "MNK")
    arguments["a"].block_shape = [block_m, block_k]
    arguments["b"].block_shape = [block_n, block_k]
    arguments["c"].block_shape = [block_m, block_n // arguments["STRIPS"]]


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile, in groups of GROUP_M rows of tiles."""
    group = tile // (GROUP_M * tiles_n)
    rows = min(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return group * GROUP_M + within % rows, within // rows


@triton.autotune(configurations(), key=["M", "N", "K", "DTYPE"])
@triton.jit
def persistent_matmul(
    a, b, c, M, N, K, DTYPE: tl.constexpr, PROGRAMS: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STRIPS: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    stored = tl.program_id(0) - PROGRAMS  # a counter of its own: loads of the next tile then wait for no store
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, PROGRAMS, flatten=True):
        row, column = place(tile, tiles_m, tiles_n, GROUP_M)
        offset_m, offset_n = row * BLOCK_M, column * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            acc = tl.dot(a.load([offset_m, step * BLOCK_K]), b.load([offset_n, step * BLOCK_K]).T, acc)
        stored += PROGRAMS
        row, column = place(stored, tiles_m, tiles_n, GROUP_M)
        offset_m, offset_n = row * BLOCK_M, column * BLOCK_N
        if STRIPS == 1:
            c.store([offset_m, offset_n], acc.to(DTYPE))
        else:  # half a tile at a time takes half the shared memory, which another stage can have
            left, right = acc.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
            c.store([offset_m, offset_n], left.to(DTYPE))
            c.store([offset_m, offset_n + BLOCK_N // 2], right.to(DTYPE))


TRITON_DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
GROUP_M = 8


def make() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    programs = 4 if INTERPRETED else torch.cuda.get_device_properties().multi_processor_count

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        (m, k), n = a.shape, b.shape[0]
        described = [TensorDescriptor.from_tensor(tensor, [1, 8]) for tensor in (a, b, c)]  # see set_blocks
        persistent_matmul[(programs,)](*described, m, n, k, TRITON_DTYPES[a.dtype], programs, GROUP_M)

    return call


def main() -> int:
    device = "cpu" if INTERPRETED else "cuda"
    call, right = make(), True
    for m, n, k in ((64, 64, 64), (200, 264, 136), (1000, 136, 72)):
        a, b = (torch.randint(-3, 4, (rows, k), device=device).half() for rows in (m, n))
        c = torch.full((m, n), float("nan"), device=device, dtype=torch.float16)
        call(a, b, c)
        same = torch.equal(c.double(), a.double() @ b.double().T)
        right = right and same
        print(f"{'right' if same else 'WRONG'}  {m}x{n}x{k}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
