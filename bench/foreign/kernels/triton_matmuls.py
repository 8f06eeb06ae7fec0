"""Matmuls of Triton by `tl.dot`: types, tiles, ways to load, order in memory, schedules and epilogues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import triton
import triton.language as tl
from case import TRITON_TYPES, Argument, Case, Constant, Descriptor, Tensor

# --- kernels


@triton.jit
def by_pointers(
    a, b, c, m, n, k, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, MASK: tl.constexpr
):  # fmt: skip
    """C = A B from pointers, copied to shared memory with cp.async."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), ACC)
    for step in range(0, k, BK):
        a_at = a + rows[:, None] * am + (step + inner)[None, :] * ak
        b_at = b + (step + inner)[:, None] * bk + columns[None, :] * bn
        if MASK:
            left = tl.load(a_at, mask=(rows[:, None] < m) & ((step + inner)[None, :] < k), other=0)
            right = tl.load(b_at, mask=((step + inner)[:, None] < k) & (columns[None, :] < n), other=0)
        else:
            left, right = tl.load(a_at), tl.load(b_at)
        acc = tl.dot(left, right, acc, out_dtype=ACC)
    at = c + rows[:, None] * n + columns[None, :]
    if MASK:
        tl.store(at, acc.to(c.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))
    else:
        tl.store(at, acc.to(c.dtype.element_ty))


@triton.jit
def by_host_maps(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, TA: tl.constexpr, TB: tl.constexpr):  # fmt: skip
    """C = A B by tensor maps of the host; TA, TB: the operand lies transposed in memory."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), ACC)
    for step in range(0, k, BK):
        left = a.load([step, row]).T if TA else a.load([row, step])
        right = b.load([column, step]).T if TB else b.load([step, column])
        acc = tl.dot(left, right, acc, out_dtype=ACC)
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def by_device_maps(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T by tensor maps that the kernel makes."""
    a_map = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    b_map = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    c_map = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        acc = tl.dot(a_map.load([row, step]), b_map.load([column, step]).T, acc)
    c_map.store([row, column], acc.to(c.dtype.element_ty))


@triton.jit
def persistent(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr
):  # fmt: skip
    """C = A B^T, one program for several tiles; by tensor maps of the host."""
    columns = tl.cdiv(n, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(m, BM) * columns, PROGRAMS, flatten=FLATTEN, warp_specialize=SPECIALIZE
    ):
        row, column = tile // columns * BM, tile % columns * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(0, k, BK):
            acc = tl.dot(a.load([row, step]), b.load([column, step]).T, acc)
        c.store([row, column], acc.to(c.dtype))


@triton.jit
def specialized(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T with loads and products in warps of their own."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(0, k, BK, warp_specialize=True):
        acc = tl.dot(a.load([row, step]), b.load([column, step]).T, acc)
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def batched(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C[i] = A[i] B[i], by maps of three dimensions."""
    row, column, batch = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        left = a.load([batch, row, step]).reshape(BM, BK)
        right = b.load([batch, step, column]).reshape(BK, BN)
        acc = tl.dot(left, right, acc)
    c.store([batch, row, column], acc.to(c.dtype).reshape(1, BM, BN))


@triton.jit
def fused(a, b, bias, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr):
    """C = activation(A B^T + bias)."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        acc = tl.dot(a.load([row, step]), b.load([column, step]).T, acc)
    acc += tl.load(bias + column + tl.arange(0, BN)).to(tl.float32)[None, :]
    if ACTIVATION == "relu":
        acc = tl.maximum(acc, 0.0)
    elif ACTIVATION == "silu":
        acc = acc / (1.0 + tl.exp(-acc))
    elif ACTIVATION == "gelu":
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def split_k(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """C += A B^T, each program a share of k, summed with atomics."""
    rows, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.program_id(2) * BK, k, BK * SPLIT):
        acc = tl.dot(a.load([rows, step]), b.load([columns, step]).T, acc)
    at = c + (rows + tl.arange(0, BM))[:, None] * n + (columns + tl.arange(0, BN))[None, :]
    tl.atomic_add(at, acc, sem="relaxed")


@triton.jit
def split_k_by_map(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """C += A B^T, each program a share of k, summed by TMA reductions."""
    rows, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.program_id(2) * BK, k, BK * SPLIT):
        acc = tl.dot(a.load([rows, step]), b.load([columns, step]).T, acc)
    c.atomic_add([rows, columns], acc)


@triton.jit
def dequantized(a, b, scale, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A (B scale)^T, B of int8 with a scale for each column of C."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    columns = column + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        at = b + columns[None, :] * k + (step + tl.arange(0, BK))[:, None]
        acc = tl.dot(a.load([row, step]), tl.load(at).to(tl.float16), acc)
    acc *= tl.load(scale + columns)[None, :]
    c.store([row, column], acc.to(c.dtype))


@triton.jit
def chained(a, b, c, d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr):
    """D = (A B^T) C: the second product reads its left operand from registers or tensor memory."""
    row = tl.program_id(0) * BM
    first = tl.dot(a.load([row, 0]), b.load([0, 0]).T)
    d.store([row, 0], tl.dot(first.to(a.dtype), c.load([0, 0])).to(d.dtype))


# --- cases

EXACT = {
    "float16": {"integers": [-3, 3]},
    "bfloat16": {"integers": [-3, 3]},
    "float32": {"integers": [-3, 3]},
    "float8_e4m3fn": {"integers": [-4, 4]},
    "float8_e5m2": {"integers": [-4, 4]},
    "int8": {"integers": [-128, 127]},
}
RANDOM = {"int8": {"integers": [-128, 127]}}
SHORT = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "i8",
}


def operand(shape: tuple[int, ...], dtype: str, seed: int) -> Tensor:
    random = RANDOM.get(dtype, {"normal": 1.0})
    return Tensor(shape, dtype, {**EXACT[dtype], "seed": seed}, {**random, "seed": seed})


def output(shape: tuple[int, ...], dtype: str) -> Tensor:
    return Tensor(shape, dtype, {"poison": True})


def problem(mnk: tuple[int, int, int], dtype: str, out: str, ta: bool = False, tb: bool = True) -> dict[str, Tensor]:
    m, n, k = mnk
    return {
        "a": operand((k, m) if ta else (m, k), dtype, 1),
        "b": operand((n, k) if tb else (k, n), dtype, 2),
        "c": output((m, n), out),
    }


def grid(mnk: tuple[int, int, int], tile: tuple[int, int, int]) -> tuple[int, int]:
    return -(-mnk[0] // tile[0]), -(-mnk[1] // tile[1])


def sizes(mnk: tuple[int, int, int]) -> dict[str, Argument]:
    return dict(zip("mnk", mnk))


def blocks(tile: tuple[int, int, int]) -> dict[str, Argument]:
    return {name: Constant(extent) for name, extent in zip(("BM", "BN", "BK"), tile)}


def product(ta: bool = False, tb: bool = True, **options: Any) -> tuple[str, dict[str, Any]]:
    return "matmul", {"a": "a", "b": "b", "out": "c", "transposed_a": ta, "transposed_b": tb, **options}


def accumulator(dtype: str) -> Constant:
    return Constant(tl.int32 if dtype == "int8" else tl.float32)


def out_type(dtype: str) -> str:
    return {"int8": "int32", "float32": "float32", "float8_e4m3fn": "float16", "float8_e5m2": "float32"}.get(
        dtype, dtype
    )


def schedule(stages: int, warps: int, **more: Any) -> dict[str, Any]:
    return {"num_stages": stages, "num_warps": warps, **more}


def tag(tile: tuple[int, int, int]) -> str:
    return "x".join(map(str, tile))


def of_pointers(
    mnk: tuple[int, int, int], tile: tuple[int, int, int], dtype: str = "float16", stages: int = 3, warps: int = 4,
    ta: bool = False, tb: bool = False, targets: tuple[int, ...] = (90, 100),
) -> Case:  # fmt: skip
    mask = any(extent % block for extent, block in zip(mnk, tile))
    m, n, k = mnk
    strides = {"am": 1 if ta else k, "ak": m if ta else 1, "bk": 1 if tb else n, "bn": k if tb else 1}
    major = ("t" if ta else "n") + ("t" if tb else "n")
    return Case(
        name=f"pointers_{SHORT[dtype]}_{major}_{tag(tile)}_s{stages}_w{warps}{'_masked' if mask else ''}",
        family="dot by pointers",
        kernel=by_pointers,
        grid=grid(mnk, tile),
        tensors=problem(mnk, dtype, out_type(dtype), ta, tb),
        arguments={
            "a": "a", "b": "b", "c": "c", **sizes(mnk), **strides, **blocks(tile),
            "ACC": accumulator(dtype), "MASK": Constant(mask),
        },
        reference=product(ta, tb, tf32=dtype == "float32"),
        targets=targets,
        options=schedule(stages, warps),
    )  # fmt: skip


def of_host_maps(
    mnk: tuple[int, int, int], tile: tuple[int, int, int], dtype: str = "float16", stages: int = 3, warps: int = 4,
    ta: bool = False, tb: bool = True, targets: tuple[int, ...] = (90, 100),
) -> Case:  # fmt: skip
    bm, bn, bk = tile
    odd = any(extent % block for extent, block in zip(mnk, tile))
    major = ("t" if ta else "n") + ("t" if tb else "n")
    return Case(
        name=f"maps_{SHORT[dtype]}_{major}_{tag(tile)}_s{stages}_w{warps}{'_odd' if odd else ''}",
        family="dot by host maps",
        kernel=by_host_maps,
        grid=grid(mnk, tile),
        tensors=problem(mnk, dtype, out_type(dtype), ta, tb),
        arguments={
            "a": Descriptor("a", (bk, bm) if ta else (bm, bk)),
            "b": Descriptor("b", (bn, bk) if tb else (bk, bn)),
            "c": Descriptor("c", (bm, bn)),
            "k": mnk[2], **blocks(tile), "ACC": accumulator(dtype), "TA": Constant(ta), "TB": Constant(tb),
        },
        reference=product(ta, tb, tf32=dtype == "float32"),
        targets=targets,
        options=schedule(stages, warps),
    )  # fmt: skip


def maps(tile: tuple[int, int, int]) -> dict[str, Argument]:
    bm, bn, bk = tile
    return {"a": Descriptor("a", (bm, bk)), "b": Descriptor("b", (bn, bk)), "c": Descriptor("c", (bm, bn))}


def of_device_maps(
    mnk: tuple[int, int, int], tile: tuple[int, int, int], dtype: str, stages: int, warps: int = 4
) -> Case:
    odd = "_odd" if any(extent % block for extent, block in zip(mnk, tile)) else ""
    return Case(
        name=f"device_maps_{SHORT[dtype]}_{tag(tile)}_s{stages}_w{warps}{odd}",
        family="dot by device maps",
        kernel=by_device_maps,
        grid=grid(mnk, tile),
        tensors=problem(mnk, dtype, out_type(dtype)),
        arguments={"a": "a", "b": "b", "c": "c", **sizes(mnk), **blocks(tile)},
        reference=product(),
        options=schedule(stages, warps),
    )


def of_persistent(
    mnk: tuple[int, int, int], tile: tuple[int, int, int], programs: int, flatten: bool, apart: bool, **more: Any
) -> Case:
    how = "flat" if flatten else "nested"
    return Case(
        name=f"persistent_{how}{'_specialized' if apart else ''}_{tag(tile)}_s{more.get('stages', 3)}_w{more.get('warps', 4)}",
        family="persistent",
        kernel=persistent,
        grid=(programs,),
        tensors=problem(mnk, "float16", "float16"),
        arguments={
            **maps(tile), **sizes(mnk), **blocks(tile), "PROGRAMS": Constant(programs),
            "FLATTEN": Constant(flatten), "SPECIALIZE": Constant(apart),
        },
        reference=product(),
        options=schedule(more.get("stages", 3), more.get("warps", 4)),
        targets=more.get("targets", (90, 100)),
    )  # fmt: skip


def of_specialized(mnk: tuple[int, int, int], tile: tuple[int, int, int], dtype: str, stages: int, warps: int) -> Case:
    return Case(
        name=f"specialized_{SHORT[dtype]}_{tag(tile)}_s{stages}_w{warps}",
        family="warp specialized",
        kernel=specialized,
        grid=grid(mnk, tile),
        tensors=problem(mnk, dtype, out_type(dtype)),
        arguments={**maps(tile), "k": mnk[2], **blocks(tile)},
        reference=product(),
        targets=(100,),
        options=schedule(stages, warps),
    )


def of_batches() -> Case:
    count, mnk, tile = 3, (64, 96, 80), (64, 64, 32)
    (m, n, k), (bm, bn, bk) = mnk, tile
    return Case(
        name="batched_f16_64x64x32_odd",
        family="batched",
        kernel=batched,
        grid=(*grid(mnk, tile), count),
        tensors={
            "a": operand((count, m, k), "float16", 1),
            "b": operand((count, k, n), "float16", 2),
            "c": output((count, m, n), "float16"),
        },
        arguments={
            "a": Descriptor("a", (1, bm, bk)), "b": Descriptor("b", (1, bk, bn)), "c": Descriptor("c", (1, bm, bn)),
            **sizes(mnk), **blocks(tile),
        },
        reference=product(tb=False),
        options=schedule(2, 4),
    )  # fmt: skip


def of_epilogues() -> Iterator[Case]:
    mnk, tile = (128, 128, 128), (128, 64, 64)
    for activation in ("relu", "silu", "gelu"):
        yield Case(
            name=f"fused_{activation}",
            family="epilogues",
            kernel=fused,
            grid=grid(mnk, tile),
            tensors={
                "a": operand((mnk[0], mnk[2]), "float16", 1),
                "b": Tensor((mnk[1], mnk[2]), "float16", {"integers": [-1, 1], "seed": 2}, {"normal": 0.1, "seed": 2}),
                "bias": operand((mnk[1],), "float16", 3),
                "c": output(mnk[:2], "float16"),
            },
            arguments={
                **maps(tile),
                "bias": "bias",
                "n": mnk[1],
                "k": mnk[2],
                **blocks(tile),
                "ACTIVATION": Constant(activation),
            },
            reference=product(bias="bias", activation=activation),
            exact=activation == "relu",
            options=schedule(2, 4),
        )


def of_splits() -> Iterator[Case]:
    mnk, tile, split = (64, 128, 256), (64, 64, 64), 2
    for name, kernel in (("atomics", split_k), ("map", split_k_by_map)):
        at: dict[str, Argument] = {"c": "c", "n": mnk[1]} if kernel is split_k else {}
        yield Case(
            name=f"split_k_{name}",
            family="split k",
            kernel=kernel,
            grid=(*grid(mnk, tile), split),
            tensors={**problem(mnk, "float16", "float32"), "c": Tensor(mnk[:2], "float32", {"fill": 0})},
            arguments={**maps(tile), **at, "k": mnk[2], **blocks(tile), "SPLIT": Constant(split)},
            reference=product(),
            options=schedule(2, 4),
        )


def of_dequantization() -> Case:
    mnk, tile = (128, 128, 128), (128, 64, 64)
    return Case(
        name="dequantized_i8_f16",
        family="dequantized",
        kernel=dequantized,
        grid=grid(mnk, tile),
        tensors={
            "a": operand((mnk[0], mnk[2]), "float16", 1),
            "b": Tensor(
                (mnk[1], mnk[2]), "int8", {"integers": [-8, 8], "seed": 2}, {"integers": [-128, 127], "seed": 2}
            ),
            "scale": Tensor(
                (mnk[1],), "float32", {"powers": [-2, 2], "seed": 3}, {"uniform": [0.001, 0.01], "seed": 3}
            ),
            "c": output(mnk[:2], "float16"),
        },
        arguments={**maps(tile), "b": "b", "scale": "scale", "n": mnk[1], "k": mnk[2], **blocks(tile)},
        reference=product(column_scale="scale"),
        options=schedule(2, 4),
    )


def of_chains(dtype: str, tile: tuple[int, int, int], d: int) -> Case:
    bm, bn, bk = tile
    m = 2 * bm
    return Case(
        name=f"chained_{SHORT[dtype]}_{tag(tile)}x{d}",
        family="chained",
        kernel=chained,
        grid=(2,),
        tensors={
            "a": Tensor((m, bk), dtype, {"integers": [-1, 1], "seed": 1}, {"normal": 1.0, "seed": 1}),
            "b": Tensor((bn, bk), dtype, {"integers": [-1, 1], "seed": 2}, {"normal": 1.0, "seed": 2}),
            "c": Tensor((bn, d), dtype, {"integers": [-1, 1], "seed": 3}, {"normal": 1.0, "seed": 3}),
            "d": output((m, d), "float32"),
        },
        arguments={
            "a": Descriptor("a", (bm, bk)), "b": Descriptor("b", (bn, bk)), "c": Descriptor("c", (bn, d)),
            "d": Descriptor("d", (bm, d)), **blocks(tile), "BD": Constant(d),
        },
        reference=("chained", {"a": "a", "b": "b", "c": "c", "out": "d"}),
        options=schedule(1, 4),
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case of this module."""
    assert set(SHORT) <= set(TRITON_TYPES)
    square, wide = (128, 128, 128), (256, 256, 128)
    # large enough to be timed
    large, tile = (1024, 1024, 1024), (128, 128, 64)
    yield replace(of_host_maps(large, tile), name="large_maps_f16")
    yield replace(of_device_maps(large, tile, "float16", 3), name="large_device_maps_f16", targets=(100,))
    yield replace(of_pointers(large, tile, targets=(80, 100)), name="large_pointers_f16")
    # types, each way
    for dtype in SHORT:
        step = 32 if dtype == "float32" else 64 if dtype in ("float16", "bfloat16") else 128
        yield of_host_maps((128, 128, 2 * step), (128, 128, step), dtype, stages=2)
        if dtype != "int8":  # of 8-bit and 32-bit types, wgmma takes operands with k innermost alone
            yield of_pointers((128, 64, 2 * step), (64, 64, step), dtype, stages=2, tb=True, targets=(90, 100, 120))
    yield of_pointers((128, 64, 128), (64, 64, 64), "int8", stages=2, tb=True, targets=(90, 100, 120))
    # order in memory
    for ta in (False, True):
        for tb in (False, True):
            yield of_host_maps((256, 128, 96), (128, 128, 32), ta=ta, tb=tb, stages=2)
            yield of_pointers(square, (128, 64, 32), ta=ta, tb=tb, stages=2, targets=(90, 100, 120))
    yield of_host_maps(square, (128, 64, 64), "bfloat16", ta=True, tb=False)
    yield of_host_maps(square, (128, 64, 64), "float8_e4m3fn", ta=True, tb=False, targets=(100,))
    yield of_host_maps(square, (64, 64, 32), "float32", ta=True, tb=False, stages=1, targets=(100,))
    unordered = "operands transposed by the threads go where the product before still reads"
    yield replace(of_host_maps(square, (64, 64, 32), "float32", ta=True, tb=False, targets=(100,)), races=unordered)
    # tiles, stages, warps
    for tile, stages, warps in (
        ((64, 64, 64), 1, 4), ((64, 128, 32), 2, 4), ((64, 256, 64), 3, 4), ((128, 64, 128), 2, 8),
        ((128, 256, 64), 3, 8), ((256, 64, 64), 3, 8), ((256, 128, 64), 4, 8), ((128, 32, 64), 4, 4), ((128, 16, 32), 2, 4),
    ):  # fmt: skip
        m, n, k = tile
        yield of_host_maps((m, n, 3 * k), tile, stages=stages, warps=warps)
    yield of_host_maps(wide, (256, 256, 64), stages=2, warps=8)
    # odd sizes
    yield of_host_maps((200, 136, 104), (128, 64, 64))
    yield of_host_maps((200, 136, 104), (64, 128, 32), ta=True, tb=False)
    yield of_host_maps((72, 80, 48), (128, 128, 128), "float8_e4m3fn", stages=2)
    yield of_pointers((100, 75, 93), (64, 64, 32), stages=2, targets=(90, 100, 120))
    yield of_pointers((33, 17, 5), (64, 32, 32), "bfloat16", tb=True, stages=2)
    yield of_device_maps((128, 128, 192), (128, 64, 64), "float16", 3)
    yield of_device_maps((200, 136, 104), (128, 128, 64), "bfloat16", 2)
    yield of_device_maps((64, 64, 160), (64, 64, 64), "float8_e4m3fn", 1)
    # schedules
    yield of_persistent((256, 192, 128), (128, 64, 64), 2, flatten=False, apart=False)
    yield of_persistent((256, 192, 128), (128, 64, 64), 2, flatten=True, apart=False)
    yield of_persistent((256, 256, 128), (128, 128, 64), 2, flatten=False, apart=True, targets=(100,))
    yield of_persistent((256, 256, 128), (128, 128, 64), 2, flatten=True, apart=True, targets=(100,))
    yield of_persistent((200, 200, 96), (128, 128, 32), 1, flatten=True, apart=True, stages=2, targets=(100,))
    yield of_specialized((128, 128, 256), (128, 128, 64), "float16", 3, 4)
    yield of_specialized((128, 128, 512), (128, 128, 128), "float8_e4m3fn", 2, 4)
    yield of_specialized((256, 64, 256), (128, 64, 64), "bfloat16", 2, 8)
    # shapes of use
    yield of_batches()
    yield from of_epilogues()
    yield from of_splits()
    yield of_dequantization()
    yield of_chains("float16", (128, 64, 64), 64)
    yield of_chains("bfloat16", (64, 64, 32), 128)
