"""Gluon on Hopper: wgmma with each swizzle and order in memory, TMA in every direction, clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from case import Argument, Case, Constant, Descriptor, Tensor
from kernels.triton_matmuls import SHORT, operand, out_type, output, product
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    async_store,
    cluster,
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

# --- kernels


@gluon.jit
def one_tile(a, b, c, TA: gl.constexpr, TB: gl.constexpr, LAYOUT: gl.constexpr, ACC: gl.constexpr):
    """C = A B of one tile; TA, TB: the operand lies transposed in memory."""
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    mbarrier.wait(full, 0)
    mbarrier.invalidate(full)
    acc = gl.zeros(c.block_shape, ACC, LAYOUT)
    acc = warpgroup_mma(
        left.permute((1, 0)) if TA else left, right.permute((1, 0)) if TB else right, acc, is_async=True
    )
    acc = warpgroup_mma_wait(0, deps=(acc,))
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def from_threads(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    """C = A B^T; threads lay A and B out in shared memory, in core matrices without a swizzle."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, LOAD))
    inner = gl.arange(0, K, gl.SliceLayout(0, LOAD))
    columns = gl.arange(0, N, gl.SliceLayout(1, LOAD))
    left = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], LEFT, gl.load(a + rows[:, None] * K + inner[None, :]))
    right = gl.allocate_shared_memory(
        b.dtype.element_ty, [N, K], RIGHT, gl.load(b + columns[:, None] * K + inner[None, :])
    )
    fence_async_shared()
    acc = warpgroup_mma(left, right.permute((1, 0)), gl.zeros([M, N], gl.float32, LAYOUT))
    acc = gl.convert_layout(acc, LOAD)
    columns = gl.arange(0, N, gl.SliceLayout(0, LOAD))
    gl.store(c + rows[:, None] * N + columns[None, :], acc)


@gluon.jit
def left_in_registers(a, b, c, LAYOUT: gl.constexpr, LEFT: gl.constexpr):
    """C = A B^T, A in registers."""
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    mbarrier.wait(full, 0)
    acc = gl.zeros(c.block_shape, gl.float32, LAYOUT)
    acc = warpgroup_mma(left.load(LEFT), right.permute((1, 0)), acc)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def ring(a, b, c, k, STAGES: gl.constexpr, LAYOUT: gl.constexpr):
    """C = A B^T with a ring of stages; one product is always in flight."""
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    BK: gl.constexpr = a.block_shape[1]
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, [STAGES, BM, BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES, BN, BK], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    steps = gl.cdiv(k, BK)
    for i in gl.static_range(STAGES - 1):
        mbarrier.expect(full.index(i), a.nbytes_per_cta + b.nbytes_per_cta, pred=i < steps)
        tma.async_load(a, [row, i * BK], full.index(i), left.index(i), pred=i < steps)
        tma.async_load(b, [column, i * BK], full.index(i), right.index(i), pred=i < steps)
    acc = warpgroup_mma_init(gl.zeros((BM, BN), gl.float32, LAYOUT))
    for i in range(steps):
        mbarrier.wait(full.index(i % STAGES), (i // STAGES) & 1)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        ahead = i + STAGES - 1
        slot = ahead % STAGES
        mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta, pred=ahead < steps)
        tma.async_load(a, [row, ahead * BK], full.index(slot), left.index(slot), pred=ahead < steps)
        tma.async_load(b, [column, ahead * BK], full.index(slot), right.index(slot), pred=ahead < steps)
        acc = warpgroup_mma(left.index(i % STAGES), right.index(i % STAGES).permute((1, 0)), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], result)
    tma.store_wait(0)


@gluon.jit
def producer(a, b, left, right, full, empty, row, column, steps):
    BK: gl.constexpr = a.block_shape[1]
    STAGES: gl.constexpr = left.shape[0]
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, i * BK], full.index(slot), left.index(slot))
        tma.async_load(b, [column, i * BK], full.index(slot), right.index(slot))


@gluon.jit
def consumer(c, left, right, full, empty, row, column, steps, LAYOUT: gl.constexpr):
    STAGES: gl.constexpr = left.shape[0]
    acc = gl.zeros(c.block_shape, gl.float32, LAYOUT)
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)
        acc = warpgroup_mma(left.index(slot), right.index(slot).permute((1, 0)), acc)
        mbarrier.arrive(empty.index(slot), count=1)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], result)
    tma.store_wait(0)


@gluon.jit
def specialized(a, b, c, k, STAGES: gl.constexpr, LAYOUT: gl.constexpr):
    """C = A B^T, one warp loads and four multiply."""
    row, column = gl.program_id(0) * c.block_shape[0], gl.program_id(1) * c.block_shape[1]
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    steps = gl.cdiv(k, a.block_shape[1])
    gl.warp_specialize(
        [
            (consumer, (c, left, right, full, empty, row, column, steps, LAYOUT)),
            (producer, (a, b, left, right, full, empty, row, column, steps)),
        ],
        [1],
        [24],
    )


@gluon.jit
def reduced_into(x, y, HOW: gl.constexpr):
    """y = HOW(y, x) by a TMA reduction."""
    values = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], full, values)
    mbarrier.wait(full, 0)
    if HOW == "add":
        tma.async_atomic_add(y, [0, 0], values)
    elif HOW == "min":
        tma.async_atomic_min(y, [0, 0], values)
    elif HOW == "max":
        tma.async_atomic_max(y, [0, 0], values)
    elif HOW == "and":
        tma.async_atomic_and(y, [0, 0], values)
    elif HOW == "or":
        tma.async_atomic_or(y, [0, 0], values)
    else:
        tma.async_atomic_xor(y, [0, 0], values)
    tma.store_wait(0)


@gluon.jit
def through_shared(x, y, LAYOUT: gl.constexpr):
    """A copy whose values pass registers: what a swizzle does to loads and stores of threads."""
    values = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [0] * len(x.block_shape), full, values)
    mbarrier.wait(full, 0)
    registers = values.load(LAYOUT)
    after = gl.allocate_shared_memory(y.dtype, y.block_shape, y.layout)
    after.store(registers)
    fence_async_shared()
    tma.async_store(y, [0] * len(x.block_shape), after)
    tma.store_wait(0)


@gluon.jit
def multicast_tile(a, b, c, LAYOUT: gl.constexpr):
    """C = A B^T by a cluster of two; B goes to both by multicast."""
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right, multicast=True)
    mbarrier.wait(full, 0, deps=[left, right])
    acc = gl.zeros(c.block_shape, gl.float32, LAYOUT)
    acc = warpgroup_mma(left, right.permute((1, 0)), acc)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def multicast_copy(x, y):
    """One CTA of two asks for the tile, both get it, each writes its copy."""
    values = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], full, values, multicast=True)
    mbarrier.wait(full, 0, deps=[values])
    tma.async_store(y, [0, 0], values)
    tma.store_wait(0)


@gluon.jit
def across_ctas(x, y, BM: gl.constexpr, BN: gl.constexpr, FROM: gl.constexpr, TO: gl.constexpr):
    """A copy that changes which CTA of the cluster holds what."""
    rows = gl.arange(0, BM, gl.SliceLayout(1, FROM))
    columns = gl.arange(0, BN, gl.SliceLayout(0, FROM))
    values = gl.convert_layout(gl.load(x + rows[:, None] * BN + columns[None, :]), TO)
    rows = gl.arange(0, BM, gl.SliceLayout(1, TO))
    columns = gl.arange(0, BN, gl.SliceLayout(0, TO))
    gl.store(y + rows[:, None] * BN + columns[None, :], values)


@gluon.jit
def cluster_softmax(x, y, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """A row spread over the CTAs of a cluster."""
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, LAYOUT)
    values = gl.load(x + at).to(gl.float32)
    powers = gl.exp(values - gl.max(values, 0))
    gl.store(y + at, (powers / gl.sum(powers, 0)).to(y.dtype.element_ty))


@gluon.jit
def copied_by_threads(x, y, BM: gl.constexpr, BN: gl.constexpr, LAYOUT: gl.constexpr, SHARED: gl.constexpr):
    """cp.async into shared memory of Ampere's swizzles, told by groups."""
    rows = gl.arange(0, BM, gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, BN, gl.SliceLayout(0, LAYOUT))
    at = rows[:, None] * BN + columns[None, :]
    values = gl.allocate_shared_memory(x.dtype.element_ty, [2, BM, BN], SHARED)
    async_copy.async_load(values.index(0), x + at)
    async_copy.commit_group()
    async_copy.async_load(values.index(1), x + BM * BN + at, mask=columns[None, :] < BN - 8)
    async_copy.commit_group()
    async_copy.wait_group(1)
    gl.barrier()
    gl.store(y + at, values.index(0).load(LAYOUT))
    async_copy.wait_group(0)
    gl.barrier()
    gl.store(y + BM * BN + at, values.index(1).load(LAYOUT))


@gluon.jit
def copied_with_mbarrier(x, y, BLOCK: gl.constexpr, LAYOUT: gl.constexpr):
    """cp.async that arrives on an mbarrier."""
    at = gl.arange(0, BLOCK, LAYOUT)
    values = gl.allocate_shared_memory(x.dtype.element_ty, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=gl.num_warps() * 32)
    async_copy.async_load(values, x + at)
    async_copy.mbarrier_arrive(full, increment_count=False)
    mbarrier.wait(full, 0)
    gl.store(y + at, values.load(LAYOUT))


@gluon.jit
def fragments(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, ACC: gl.constexpr, SHARED: gl.constexpr, TARGET: gl.constexpr):  # fmt: skip
    """C = A B with mma.sync and ldmatrix, K in one piece."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, LOAD))
    inner = gl.arange(0, K, gl.SliceLayout(0, LOAD))
    left = gl.allocate_shared_memory(
        a.dtype.element_ty, [M, K], SHARED, gl.load(a + rows[:, None] * K + inner[None, :])
    )
    inner = gl.arange(0, K, gl.SliceLayout(1, LOAD))
    columns = gl.arange(0, N, gl.SliceLayout(0, LOAD))
    right = gl.allocate_shared_memory(
        b.dtype.element_ty, [K, N], SHARED, gl.load(b + inner[:, None] * N + columns[None, :])
    )
    acc = mma_v2(
        left.load(gl.DotOperandLayout(0, ACC, 2)),
        right.load(gl.DotOperandLayout(1, ACC, 2)),
        gl.zeros([M, N], gl.float32, ACC),
    )
    acc = gl.convert_layout(acc, TARGET)
    rows = gl.arange(0, M, gl.SliceLayout(1, TARGET))
    columns = gl.arange(0, N, gl.SliceLayout(0, TARGET))
    gl.store(c + rows[:, None] * N + columns[None, :], acc)


@gluon.jit
def handed_over(x, y, BLOCK: gl.constexpr, LAYOUT: gl.constexpr, SHARED: gl.constexpr):
    """Stores into the shared memory of a cluster, which tell a barrier of their bytes."""
    at = gl.arange(0, BLOCK, LAYOUT)
    values = gl.allocate_shared_memory(x.dtype.element_ty, [BLOCK], SHARED)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, BLOCK // gl.num_ctas() * 4)
    cluster.barrier()
    async_store(values, gl.load(x + at), full)
    mbarrier.wait(full, 0, deps=[values])
    gl.store(y + at, values.load(LAYOUT))
    cluster.barrier()


# --- cases

BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float8_e4m3fn": 8, "float8_e5m2": 8, "int8": 8, "int32": 32}


def shared(dtype: str, width: int, rank: int = 2, ctas: Any = None) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout(width, BITS[dtype], rank, cga_layout=ctas)


def widest(dtype: str, block: tuple[int, ...]) -> int:
    """The swizzle that `get_default_for` takes."""
    row = block[-1] * BITS[dtype] // 8
    return next((width for width in (128, 64, 32) if row % width == 0), 0)


def wgmma(n: int, dtype: str, warps: int = 4, ctas: Any = None) -> gl.NVMMADistributedLayout:
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, n, 256 // BITS[dtype]], cga_layout=ctas or [])


def blocked(
    size: tuple[int, int] = (1, 8), lanes: tuple[int, int] = (8, 4), warps: int = 4, ctas: Any = None
) -> gl.BlockedLayout:
    return gl.BlockedLayout(list(size), list(lanes), [warps, 1], [1, 0], cga_layout=ctas or [])


def case(
    name: str,
    family: str,
    kernel: Any,
    tensors: dict[str, Tensor],
    arguments: dict[str, Argument],
    reference: Any,
    **more: Any,
) -> Case:
    options = {"num_warps": more.pop("warps", 4), "num_ctas": more.pop("ctas", 1)}
    grid, targets = more.pop("grid", (1,)), more.pop("targets", (90,))
    return Case(name, family, kernel, grid, tensors, arguments, reference, targets, options, gluon=True, **more)


def of_tile(
    tile: tuple[int, int, int],
    dtype: str,
    widths: tuple[int, int],
    ta: bool = False,
    tb: bool = True,
    n: int = 0,
    warps: int = 4,
) -> Case:
    bm, bn, bk = tile
    stored_a, stored_b, out = ((bk, bm) if ta else (bm, bk)), ((bn, bk) if tb else (bk, bn)), out_type(dtype)
    major = ("t" if ta else "n") + ("t" if tb else "n")
    return case(
        f"wgmma_{SHORT[dtype]}_{major}_{bm}x{bn}x{bk}_swizzle{widths[0]}_{widths[1]}_n{n or bn}_w{warps}",
        "gluon wgmma",
        one_tile,
        {"a": operand(stored_a, dtype, 1), "b": operand(stored_b, dtype, 2), "c": output((bm, bn), out)},
        {
            "a": Descriptor("a", stored_a, shared(dtype, widths[0])),
            "b": Descriptor("b", stored_b, shared(dtype, widths[1])),
            "c": Descriptor("c", (bm, bn), shared(out, widest(out, (bm, bn)))),
            "TA": Constant(ta), "TB": Constant(tb), "LAYOUT": Constant(wgmma(n or bn, dtype, warps)),
            "ACC": Constant(gl.int32 if dtype == "int8" else gl.float32),
        },
        product(ta, tb, tf32=dtype == "float32"),
        warps=warps,
    )  # fmt: skip


def of_tiles() -> Iterator[Case]:
    for width in (32, 64, 128):
        for ta, tb in ((False, True), (True, False)):
            yield of_tile((64, 64, 64), "float16", (width, width), ta, tb)
    yield of_tile((64, 128, 64), "float16", (128, 32))
    yield of_tile((64, 128, 64), "bfloat16", (64, 128), True, True)
    yield of_tile((64, 64, 64), "float16", (32, 64), False, False)
    yield of_tile((128, 64, 128), "float16", (64, 128), True, False, warps=4)
    yield of_tile((128, 128, 64), "float16", (128, 128), n=64, warps=8)
    for columns, n in ((16, 8), (256, 128), (256, 256)):
        yield of_tile((64, columns, 32), "float16", (64, 64), n=n)
    for dtype in ("float32", "float8_e4m3fn", "float8_e5m2", "int8"):
        step = 32 if dtype == "float32" else 128
        for width in (32, 128):
            yield of_tile((64, 64, step), dtype, (width, width))


def core_matrices(rows: int, columns: int, rows_first: bool) -> gl.SharedLinearLayout:
    """Blocks of 8 rows of 16 bytes (8 elements of 16 bits), one after the other down or across."""
    down = [[1 << bit, 0] for bit in range(3, (rows - 1).bit_length())]
    across = [[0, 1 << bit] for bit in range(3, (columns - 1).bit_length())]
    inside = [[0, 1], [0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    return gl.SharedLinearLayout([*inside, *(down + across if rows_first else across + down)])


def of_core_matrices() -> Iterator[Case]:
    """What swizzled operands leave open: the leading and the stride offset without a swizzle, each way."""
    for left, right in ((True, True), (False, False), (True, False)):
        yield case(
            f"wgmma_unswizzled_{'down' if left else 'across'}_{'down' if right else 'across'}", "gluon wgmma", from_threads,
            {"a": operand((64, 64), "float16", 1), "b": operand((32, 64), "float16", 2), "c": output((64, 32), "float32")},
            {
                "a": "a", "b": "b", "c": "c", "M": Constant(64), "N": Constant(32), "K": Constant(64),
                "LEFT": Constant(core_matrices(64, 64, left)), "RIGHT": Constant(core_matrices(32, 64, right)),
                "LAYOUT": Constant(wgmma(32, "float16")),
            },
            product(),
        )  # fmt: skip


def of_rings() -> Iterator[Case]:
    for name, kernel, mnk, tile, dtype, stages, warps in (
        ("ring", ring, (128, 128, 320), (64, 64, 64), "float16", 3, 4),
        ("ring", ring, (200, 72, 136), (128, 64, 32), "bfloat16", 2, 4),
        ("ring", ring, (128, 256, 256), (128, 256, 64), "float16", 2, 8),
        ("specialized", specialized, (128, 64, 320), (64, 64, 64), "float16", 2, 4),
        ("specialized", specialized, (100, 64, 260), (64, 64, 128), "float8_e4m3fn", 2, 4),
    ):
        (m, n, k), (bm, bn, bk) = mnk, tile
        k = k // 16 * 16
        yield case(
            f"gluon_{name}_{SHORT[dtype]}_{bm}x{bn}x{bk}_s{stages}_w{warps}", "gluon wgmma", kernel,
            {"a": operand((m, k), dtype, 1), "b": operand((n, k), dtype, 2), "c": output((m, n), out_type(dtype))},
            {
                "a": Descriptor("a", (bm, bk), shared(dtype, widest(dtype, (bm, bk)))),
                "b": Descriptor("b", (bn, bk), shared(dtype, widest(dtype, (bn, bk)))),
                "c": Descriptor("c", (bm, bn), shared(out_type(dtype), widest(out_type(dtype), (bm, bn)))),
                "k": k, "STAGES": Constant(stages), "LAYOUT": Constant(wgmma(bn, dtype, warps)),
            },
            product(), warps=warps, grid=(-(-m // bm), -(-n // bn)),
        )  # fmt: skip


def of_registers() -> Iterator[Case]:
    for dtype, k in (("float16", 64), ("float8_e4m3fn", 64), ("float32", 32)):
        layout = wgmma(64, dtype)
        yield case(
            f"wgmma_registers_{SHORT[dtype]}", "gluon wgmma", left_in_registers,
            {"a": operand((64, k), dtype, 1), "b": operand((64, k), dtype, 2), "c": output((64, 64), out_type(dtype))},
            {
                "a": Descriptor("a", (64, k), shared(dtype, 64)), "b": Descriptor("b", (64, k), shared(dtype, 64)),
                "c": Descriptor("c", (64, 64), shared(out_type(dtype), 128)), "LAYOUT": Constant(layout),
                "LEFT": Constant(gl.DotOperandLayout(0, layout, 32 // BITS[dtype])),
            },
            product(tf32=dtype == "float32"),
        )  # fmt: skip


def of_reductions() -> Iterator[Case]:
    for how, dtype in (
        ("add", "float32"), ("add", "float16"), ("add", "bfloat16"), ("add", "int32"), ("min", "int32"), ("max", "int32"),
        ("max", "float16"), ("and", "int32"), ("or", "int32"), ("xor", "int32"),
    ):  # fmt: skip
        kind = {"bytes": True} if how in ("and", "or", "xor") else {"integers": [-100, 100]}
        block = Descriptor("x", (16, 32), shared(dtype, 64))
        yield case(
            f"tma_reduce_{how}_{dtype}", "gluon TMA", reduced_into,
            {"x": Tensor((13, 24), dtype, {**kind, "seed": 1}), "y": Tensor((13, 24), dtype, {**kind, "seed": 2})},
            {"x": block, "y": Descriptor("y", block.block, block.layout), "HOW": Constant(how)},
            ("reduced", {"source": "x", "out": "y", "function": how}),
        )  # fmt: skip


def of_copies() -> Iterator[Case]:
    for dtype, before, after, block in (
        ("float16", 128, 0, (16, 64)), ("float16", 64, 32, (16, 64)), ("float16", 32, 128, (32, 64)), ("float32", 128, 64, (8, 64)),
        ("int8", 32, 64, (16, 128)), ("int8", 0, 128, (8, 128)),
    ):  # fmt: skip
        kind = {"bytes": True, "seed": 1} if dtype == "int8" else {"normal": 1.0, "seed": 1}
        yield case(
            f"swizzle_{dtype}_{before}_to_{after}", "gluon TMA", through_shared,
            {"x": Tensor((block[0], block[1] - 16), dtype, kind), "y": output((block[0], block[1] - 16), dtype)},
            {"x": Descriptor("x", block, shared(dtype, before)), "y": Descriptor("y", block, shared(dtype, after)), "LAYOUT": Constant(blocked())},
            ("same", {"y": "x"}),
        )  # fmt: skip
    for dtype, vec in (("float16", 8), ("float16", 4), ("float32", 1), ("float32", 4)):
        yield case(
            f"cp_async_{dtype}_swizzle{vec}", "gluon cp.async", copied_by_threads,
            {"x": Tensor((2, 16, 64), dtype, {"normal": 1.0, "seed": 1}), "y": output((2, 16, 64), dtype)},
            {
                "x": "x", "y": "y", "BM": Constant(16), "BN": Constant(64), "LAYOUT": Constant(blocked((1, vec), (4, 8))),
                "SHARED": Constant(gl.SwizzledSharedLayout(vec, 1, 8 if vec > 1 else 1, [1, 0])),
            },
            ("cut", {"source": "x", "out": "y", "index": 1, "columns": 56}),
        )  # fmt: skip
    yield case(
        "cp_async_mbarrier", "gluon cp.async", copied_with_mbarrier,
        {"x": Tensor((512,), "float32", {"normal": 1.0, "seed": 1}), "y": output((512,), "float32")},
        {"x": "x", "y": "y", "BLOCK": Constant(512), "LAYOUT": Constant(gl.BlockedLayout([4], [32], [4], [0]))},
        ("same", {"y": "x"}),
    )  # fmt: skip


def of_clusters() -> Iterator[Case]:
    split, whole = [[1, 0]], [[0, 0]]
    yield case(
        "cluster_multicast_wgmma", "gluon clusters", multicast_tile,
        {"a": operand((128, 64), "float16", 1), "b": operand((64, 64), "float16", 2), "c": output((128, 64), "float16")},
        {
            "a": Descriptor("a", (128, 64), shared("float16", 128, ctas=split)),
            "b": Descriptor("b", (64, 64), shared("float16", 128, ctas=whole)),
            "c": Descriptor("c", (128, 64), shared("float16", 128, ctas=split)), "LAYOUT": Constant(wgmma(64, "float16", ctas=split)),
        },
        product(), ctas=2,
    )  # fmt: skip
    both = shared("float16", 128, ctas=whole)
    yield case(
        "cluster_multicast_copy", "gluon clusters", multicast_copy,
        {"x": operand((64, 64), "float16", 1), "y": output((64, 64), "float16")},
        {"x": Descriptor("x", (64, 64), both), "y": Descriptor("y", (64, 64), both)}, ("same", {"y": "x"}), ctas=2, targets=(90, 100),
    )  # fmt: skip
    for name, ctas, before, after in (
        ("rows_to_columns", 2, [[1, 0]], [[0, 1]]), ("four", 4, [[1, 0], [0, 1]], [[0, 1], [1, 0]]),
    ):  # fmt: skip
        yield case(
            f"cluster_{name}", "gluon clusters", across_ctas,
            {"x": Tensor((32, 64), "float32", {"normal": 1.0, "seed": 1}), "y": output((32, 64), "float32")},
            {
                "x": "x", "y": "y", "BM": Constant(32), "BN": Constant(64),
                "FROM": Constant(blocked((1, 4), (4, 8), ctas=before)), "TO": Constant(blocked((1, 2), (1, 32), ctas=after)),
            },
            ("same", {"y": "x"}), ctas=ctas, targets=(90, 100),
        )  # fmt: skip
    for ctas, bases in ((2, [[1]]), (4, [[1], [2]])):
        yield case(
            f"cluster_softmax_{ctas}", "gluon clusters", cluster_softmax,
            {"x": Tensor((3, 1024), "float16", {"normal": 1.0, "seed": 1}), "y": output((3, 1024), "float16")},
            {"x": "x", "y": "y", "BLOCK": Constant(1024), "LAYOUT": Constant(gl.BlockedLayout([2], [32], [4], [0], cga_layout=bases))},
            ("rowwise", {"source": "x", "out": "y", "function": "softmax"}), grid=(3,), ctas=ctas, exact=False, targets=(90, 100),
        )  # fmt: skip
    line = gl.BlockedLayout([4], [32], [4], [0], cga_layout=[[1]])
    yield case(
        "cluster_async_store", "gluon clusters", handed_over,
        {"x": Tensor((1024,), "float32", {"normal": 1.0, "seed": 1}), "y": output((1024,), "float32")},
        {
            "x": "x", "y": "y", "BLOCK": Constant(1024), "LAYOUT": Constant(line),
            "SHARED": Constant(gl.SwizzledSharedLayout(1, 1, 1, [0], cga_layout=[[1]])),
        },
        ("same", {"y": "x"}), ctas=2,
    )  # fmt: skip


def of_fragments() -> Iterator[Case]:
    for vec, phase in ((8, 8), (1, 1)):
        yield case(
            f"mma_sync_swizzle{vec}", "gluon mma.sync", fragments,
            {"a": operand((32, 64), "float16", 1), "b": operand((64, 32), "float16", 2), "c": output((32, 32), "float32")},
            {
                "a": "a", "b": "b", "c": "c", "M": Constant(32), "N": Constant(32), "K": Constant(64),
                "ACC": Constant(gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8])),
                "SHARED": Constant(gl.SwizzledSharedLayout(vec, 1, phase, [1, 0])), "TARGET": Constant(blocked((1, 4), (4, 8))),
            },
            product(tb=False), targets=(90, 100, 120),
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from of_tiles()
    yield from of_core_matrices()
    yield from of_registers()
    yield from of_rings()
    yield from of_reductions()
    yield from of_copies()
    yield from of_clusters()
    yield from of_fragments()
