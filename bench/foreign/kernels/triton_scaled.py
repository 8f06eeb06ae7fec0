"""Block-scaled matmuls of Triton by `tl.dot_scaled`: mxfp8, mxfp4, nvfp4 and mixed."""

from __future__ import annotations

from collections.abc import Iterator

import triton
import triton.language as tl
from case import Case, Constant, Descriptor, Tensor
from kernels.triton_matmuls import blocks, grid, output, schedule, tag

# --- kernels


@triton.jit
def scaled(
    a, b, a_scale, b_scale, c, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    A_PACK: tl.constexpr, B_PACK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C = (A scale_A) (B scale_B)^T by maps of the host; scales [rows, k / BLOCK] by pointers."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_rows, b_rows, group = row + tl.arange(0, BM), column + tl.arange(0, BN), tl.arange(0, BK // BLOCK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        left, right = a.load([row, step // A_PACK]), b.load([column, step // B_PACK])
        left_scale = tl.load(a_scale + a_rows[:, None] * (k // BLOCK) + (step // BLOCK + group)[None, :])
        right_scale = tl.load(b_scale + b_rows[:, None] * (k // BLOCK) + (step // BLOCK + group)[None, :])
        acc = tl.dot_scaled(left, left_scale, A, right.T, right_scale, B, acc)
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def scaled_by_pointers(
    a, b, a_scale, b_scale, c, n, k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    A_PACK: tl.constexpr, B_PACK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The same, all by pointers."""
    a_rows, b_rows = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    group = tl.arange(0, BK // BLOCK)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        a_inner, b_inner = step // A_PACK + tl.arange(0, BK // A_PACK), step // B_PACK + tl.arange(0, BK // B_PACK)
        left = tl.load(a + a_rows[:, None] * (k // A_PACK) + a_inner[None, :])
        right = tl.load(b + b_rows[None, :] * (k // B_PACK) + b_inner[:, None])
        left_scale = tl.load(a_scale + a_rows[:, None] * (k // BLOCK) + (step // BLOCK + group)[None, :])
        right_scale = tl.load(b_scale + b_rows[:, None] * (k // BLOCK) + (step // BLOCK + group)[None, :])
        acc = tl.dot_scaled(left, left_scale, A, right, right_scale, B, acc)
    tl.store(c + a_rows[:, None] * n + b_rows[None, :], acc.to(c.dtype.element_ty))


# --- cases

PACKED = {"e2m1": 2, "e4m3": 1, "e5m2": 1}
STORED = {"e2m1": "uint8", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def values(rows: int, k: int, kind: str, seed: int) -> Tensor:
    if kind == "e2m1":
        return Tensor((rows, k // 2), "uint8", {"bytes": True, "seed": seed})
    return Tensor((rows, k), STORED[kind], {"integers": [-4, 4], "seed": seed}, {"normal": 1.0, "seed": seed})


def scales(rows: int, k: int, block: int, seed: int) -> Tensor:
    """E8M0 by 32 of one power of two to the fourth; by 16, e4m3 that are short integers."""
    if block == 32:
        return Tensor(
            (rows, k // 32), "uint8", {"integers": [125, 129], "seed": seed}, {"integers": [117, 137], "seed": seed}
        )
    return Tensor(
        (rows, k // 16), "float8_e4m3fn", {"integers": [1, 4], "seed": seed}, {"uniform": [0.1, 4.0], "seed": seed}
    )


def tensors(mnk: tuple[int, int, int], a: str, b: str, block: int, out: str = "float32") -> dict[str, Tensor]:
    m, n, k = mnk
    return {
        "a": values(m, k, a, 1),
        "b": values(n, k, b, 2),
        "a_scale": scales(m, k, block, 3),
        "b_scale": scales(n, k, block, 4),
        "c": output((m, n), out),
    }


def of(
    mnk: tuple[int, int, int], tile: tuple[int, int, int], a: str, b: str, block: int,
    stages: int = 2, warps: int = 4, pointers: bool = False, targets: tuple[int, ...] = (100,),
) -> Case:  # fmt: skip
    (_, n, k), (bm, bn, bk) = mnk, tile
    ways = {
        "a": Descriptor("a", (bm, bk // PACKED[a])),
        "b": Descriptor("b", (bn, bk // PACKED[b])),
        "c": Descriptor("c", (bm, bn)),
    }
    return Case(
        name=f"scaled_{a}_{b}_by{block}_{tag(tile)}_s{stages}_w{warps}{'_pointers' if pointers else ''}",
        family="dot_scaled",
        kernel=scaled_by_pointers if pointers else scaled,
        grid=grid(mnk, tile),
        tensors=tensors(mnk, a, b, block),
        arguments={
            **({"a": "a", "b": "b", "c": "c", "n": n} if pointers else ways),
            "a_scale": "a_scale", "b_scale": "b_scale", "k": k, **blocks(tile),
            "A": Constant(a), "B": Constant(b), "A_PACK": Constant(PACKED[a]), "B_PACK": Constant(PACKED[b]),
            "BLOCK": Constant(block),
        },
        reference=(
            "scaled_matmul",
            {"a": "a", "b": "b", "a_scale": "a_scale", "b_scale": "b_scale", "out": "c", "a_type": a, "b_type": b, "block": block},
        ),
        targets=targets,
        options=schedule(stages, warps),
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case of this module. sm_90 has no such instruction: Triton widens to bf16 there."""
    square = (128, 128, 256)
    yield of(square, (128, 128, 128), "e4m3", "e4m3", 32, targets=(90, 100))
    yield of(square, (128, 64, 128), "e5m2", "e4m3", 32)
    yield of(square, (128, 128, 128), "e4m3", "e4m3", 32, pointers=True, targets=(100, 120))
    yield of((256, 256, 256), (128, 256, 128), "e4m3", "e5m2", 32, stages=3, warps=8)
    yield of(square, (128, 128, 64), "e4m3", "e4m3", 32, stages=1)
    yield of(square, (128, 128, 32), "e4m3", "e4m3", 32, stages=3)
    yield of(square, (128, 128, 256), "e4m3", "e4m3", 32, stages=1, warps=8)
    yield of((128, 128, 512), (128, 128, 256), "e2m1", "e2m1", 32, targets=(90, 100))
    yield of((256, 64, 256), (128, 64, 128), "e2m1", "e2m1", 32, stages=3)
    yield of((128, 128, 256), (128, 128, 128), "e2m1", "e2m1", 32, pointers=True, targets=(100, 120))
    yield of((128, 128, 512), (128, 128, 256), "e2m1", "e2m1", 16)
    yield of((128, 256, 256), (128, 256, 128), "e2m1", "e2m1", 16, stages=3, warps=8)
    yield of((128, 64, 256), (128, 64, 64), "e2m1", "e2m1", 16, stages=1)
    yield of((128, 128, 256), (128, 128, 128), "e2m1", "e2m1", 16, pointers=True, targets=(100, 120))
    yield of((128, 128, 256), (128, 128, 128), "e4m3", "e2m1", 32)
    yield of((128, 64, 256), (128, 64, 128), "e2m1", "e5m2", 32)
    yield of((256, 128, 256), (256, 128, 128), "e4m3", "e4m3", 32, warps=8)
