"""Gluon on Blackwell: tcgen05 with each operand, shape of load and copy; pairs of CTAs; work taken over (CLC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from case import Case, Constant, Descriptor, Tensor
from kernels.gluon_hopper import case, core_matrices, shared, widest
from kernels.triton_matmuls import SHORT, operand, out_type, output, product
from kernels.triton_scaled import PACKED, tensors
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    add2,
    allocate_tensor_memory,
    clc,
    fence_async_shared,
    fma2,
    mbarrier,
    mul2,
    tcgen05_commit,
    tcgen05_copy,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tcgen05_mma_scaled,
    tma,
)

# --- kernels


@gluon.jit
def one_tile(a, b, c, TA: gl.constexpr, TB: gl.constexpr, ACC: gl.constexpr, TMEM: gl.constexpr, VARIANT: gl.constexpr):
    """C = A B of one tile; TA, TB: the operand lies transposed in memory. VARIANT: the shape of tcgen05.ld."""
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    mbarrier.wait(full, 0)
    acc = allocate_tensor_memory(ACC, c.block_shape, TMEM)
    tcgen05_mma(left.permute((1, 0)) if TA else left, right.permute((1, 0)) if TB else right, acc, use_acc=False)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    LOAD: gl.constexpr = acc.get_reg_layout(instr_variant=VARIANT)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.load(LOAD).to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def from_threads(a, b, c, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr, TMEM: gl.constexpr):  # fmt: skip
    """C = A B^T; threads lay A and B out in shared memory, in core matrices without a swizzle."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, LOAD))
    inner = gl.arange(0, K, gl.SliceLayout(0, LOAD))
    columns = gl.arange(0, N, gl.SliceLayout(1, LOAD))
    left = gl.allocate_shared_memory(a.dtype.element_ty, [M, K], LEFT, gl.load(a + rows[:, None] * K + inner[None, :]))
    right = gl.allocate_shared_memory(
        b.dtype.element_ty, [N, K], RIGHT, gl.load(b + columns[:, None] * K + inner[None, :])
    )
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    fence_async_shared()
    acc = allocate_tensor_memory(gl.float32, [M, N], TMEM)
    tcgen05_mma(left, right.permute((1, 0)), acc, use_acc=False, mbarriers=[done])
    mbarrier.wait(done, 0)
    result = gl.convert_layout(acc.load(), LOAD)
    columns = gl.arange(0, N, gl.SliceLayout(0, LOAD))
    gl.store(c + rows[:, None] * N + columns[None, :], result)


@gluon.jit
def accumulated(a, b, c, d, TMEM: gl.constexpr, LEFT: gl.constexpr, COPY: gl.constexpr):
    """D = A B^T + C; C goes to tensor memory by tcgen05.cp or by registers, A may lie there too."""
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    before = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta + c.nbytes_per_cta)
    tma.async_load(a, [0, 0], full, left)
    tma.async_load(b, [0, 0], full, right)
    tma.async_load(c, [0, 0], full, before)
    mbarrier.wait(full, 0)
    acc = allocate_tensor_memory(gl.float32, d.block_shape, TMEM)
    if COPY:
        tcgen05_copy(before, acc)
    else:
        acc.store(before.load(acc.get_reg_layout()))
    if LEFT is not None:
        place = allocate_tensor_memory(a.dtype, a.block_shape, LEFT)
        place.store(left.load(place.get_reg_layout()))
        tcgen05_mma(place, right.permute((1, 0)), acc)
    else:
        tcgen05_mma(left, right.permute((1, 0)), acc)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    result = gl.allocate_shared_memory(d.dtype, d.block_shape, d.layout)
    result.store(acc.load())
    fence_async_shared()
    tma.async_store(d, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def through_tensor_memory(
    x, y, M: gl.constexpr, N: gl.constexpr, TMEM: gl.constexpr, IN: gl.constexpr, OUT: gl.constexpr
):
    """A copy by tcgen05.st and tcgen05.ld of two shapes."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, LOAD))
    columns = gl.arange(0, N, gl.SliceLayout(0, LOAD))
    at = rows[:, None] * N + columns[None, :]
    place = allocate_tensor_memory(x.dtype.element_ty, [M, N], TMEM)
    place.store(gl.convert_layout(gl.load(x + at), place.get_reg_layout(instr_variant=IN)))
    gl.store(y + at, gl.convert_layout(place.load(place.get_reg_layout(instr_variant=OUT)), LOAD))


@gluon.jit
def copied(x, y, M: gl.constexpr, N: gl.constexpr, SHARED: gl.constexpr, TMEM: gl.constexpr):
    """A copy by tcgen05.cp."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0])
    rows = gl.arange(0, M, gl.SliceLayout(1, LOAD))
    columns = gl.arange(0, N, gl.SliceLayout(0, LOAD))
    at = rows[:, None] * N + columns[None, :]
    values = gl.allocate_shared_memory(x.dtype.element_ty, [M, N], SHARED, gl.load(x + at))
    place = allocate_tensor_memory(x.dtype.element_ty, [M, N], TMEM)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(done, count=1)
    fence_async_shared()
    tcgen05_copy(values, place)
    tcgen05_commit(done)
    mbarrier.wait(done, 0)
    gl.store(y + at, gl.convert_layout(place.load(), LOAD))


@gluon.jit
def scaled(
    a, b, c, a_scale, b_scale, k,
    A: gl.constexpr, B: gl.constexpr, A_PACK: gl.constexpr, B_PACK: gl.constexpr, BLOCK: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """C = (A scale_A) (B scale_B)^T; scales arrive in blocks of 128 rows by 4 and go on by tcgen05.cp."""
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    BK: gl.constexpr = BLOCK * GROUPS
    row, column = gl.program_id(0) * BM, gl.program_id(1) * BN
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    left_scale = gl.allocate_shared_memory(a_scale.dtype, a_scale.block_shape, a_scale.layout)
    right_scale = gl.allocate_shared_memory(b_scale.dtype, b_scale.block_shape, b_scale.layout)
    acc = allocate_tensor_memory(gl.float32, [BM, BN], TensorMemoryLayout([BM, BN], col_stride=1))
    left_place = allocate_tensor_memory(a_scale.dtype, [BM, GROUPS], TensorMemoryScalesLayout())
    right_place = allocate_tensor_memory(b_scale.dtype, [BN, GROUPS], TensorMemoryScalesLayout())
    full = mbarrier.allocate_mbarrier()
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    phase = 0
    for step in range(0, k, BK):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta + a_scale.nbytes_per_cta + b_scale.nbytes_per_cta)
        tma.async_load(a, [row, step // A_PACK], full, left)
        tma.async_load(b, [column, step // B_PACK], full, right)
        tma.async_load(a_scale, [0, row // 128, step // BLOCK // 4, 0, 0], full, left_scale)
        tma.async_load(b_scale, [0, column // 128, step // BLOCK // 4, 0, 0], full, right_scale)
        mbarrier.wait(full, phase)
        tcgen05_copy(
            left_scale.reshape((BM // 128, GROUPS // 4, 32, 4, 4)).permute((0, 3, 2, 1, 4)).reshape((BM, GROUPS)),
            left_place,
        )
        tcgen05_copy(
            right_scale.reshape((BN // 128, GROUPS // 4, 32, 4, 4)).permute((0, 3, 2, 1, 4)).reshape((BN, GROUPS)),
            right_place,
        )
        tcgen05_mma_scaled(left, right.permute((1, 0)), acc, left_place, right_place, A, B, use_acc=step > 0)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.load())
    fence_async_shared()
    tma.async_store(c, [row, column], result)
    tma.store_wait(0)


@gluon.jit
def loading(a, b, left, right, full, empty, row, column, steps):
    BK: gl.constexpr = a.block_shape[1]
    STAGES: gl.constexpr = left.shape[0]
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [row, i * BK], full.index(slot), left.index(slot))
        tma.async_load(b, [column, i * BK], full.index(slot), right.index(slot))


@gluon.jit
def multiplying(left, right, full, empty, acc, done, steps):
    STAGES: gl.constexpr = left.shape[0]
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)
        tcgen05_mma(left.index(slot), right.index(slot).permute((1, 0)), acc, use_acc=i > 0)
        tcgen05_commit(empty.index(slot))
    tcgen05_commit(done)


@gluon.jit
def storing(c, acc, done, row, column):
    mbarrier.wait(done, 0)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.load().to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], result)
    tma.store_wait(0)


@gluon.jit
def specialized(a, b, c, k, STAGES: gl.constexpr, TMEM: gl.constexpr):
    """C = A B^T: a warp loads, a warp multiplies, four store."""
    row, column = gl.program_id(0) * c.block_shape[0], gl.program_id(1) * c.block_shape[1]
    left = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = mbarrier.allocate_mbarrier()
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    mbarrier.init(done, count=1)
    acc = allocate_tensor_memory(gl.float32, c.block_shape, TMEM)
    steps = gl.cdiv(k, a.block_shape[1])
    gl.warp_specialize(
        [
            (storing, (c, acc, done, row, column)),
            (loading, (a, b, left, right, full, empty, row, column, steps)),
            (multiplying, (left, right, full, empty, acc, done, steps)),
        ],
        [1, 1],
        [24, 24],
    )


@gluon.jit
def pair(a, b, c, STEPS: gl.constexpr, TMEM: gl.constexpr, MULTICAST: gl.constexpr, VARIANT: gl.constexpr):
    """C = A B by pairs of CTAs (cta_group::2), with loads that go to several of them where the layouts say so."""
    BK: gl.constexpr = a.block_shape[1]
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    acc = allocate_tensor_memory(gl.float32, c.block_shape, TMEM)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=tcgen05_mma_barrier_count([left, right], MULTICAST, True))
    phase = 0
    for i in range(STEPS):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, i * BK], full, left, multicast=MULTICAST)
        tma.async_load(b, [i * BK, 0], full, right, multicast=MULTICAST)
        mbarrier.wait(full, phase, deps=[left, right])
        tcgen05_mma(left, right, acc, use_acc=i != 0, multicast=MULTICAST, mbarriers=[done])
        mbarrier.wait(done, phase, deps=[left, right])
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    LOAD: gl.constexpr = acc.get_reg_layout(instr_variant=VARIANT)
    result.store(acc.load(LOAD).to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def scaled_pair(
    a, b, c, a_scale, b_scale, STEPS: gl.constexpr,
    A: gl.constexpr, B: gl.constexpr, A_PACK: gl.constexpr, B_PACK: gl.constexpr, BLOCK: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """C = (A scale_A) (B scale_B)^T of one tile by a pair of CTAs: each has its rows of A and all scales of B."""
    BM: gl.constexpr = c.block_shape[0]
    BN: gl.constexpr = c.block_shape[1]
    BK: gl.constexpr = BLOCK * GROUPS
    left = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    left_scale = gl.allocate_shared_memory(a_scale.dtype, a_scale.block_shape, a_scale.layout)
    right_scale = gl.allocate_shared_memory(b_scale.dtype, b_scale.block_shape, b_scale.layout)
    SPLIT: gl.constexpr = [[1, 0]]
    acc = allocate_tensor_memory(
        gl.float32, [BM, BN], TensorMemoryLayout([BM // 2, BN], col_stride=1, cga_layout=SPLIT, two_ctas=True)
    )
    left_place = allocate_tensor_memory(a_scale.dtype, [BM, GROUPS], TensorMemoryScalesLayout(cga_layout=SPLIT))
    right_place = allocate_tensor_memory(b_scale.dtype, [BN, GROUPS], TensorMemoryScalesLayout(cga_layout=[[0, 0]]))
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    phase = 0
    for i in range(STEPS):
        mbarrier.expect(full, a.nbytes_per_cta + b.nbytes_per_cta + a_scale.nbytes_per_cta + b_scale.nbytes_per_cta)
        tma.async_load(a, [0, i * BK // A_PACK], full, left)
        tma.async_load(b, [0, i * BK // B_PACK], full, right)
        tma.async_load(a_scale, [0, 0, i * GROUPS // 4, 0, 0], full, left_scale)
        tma.async_load(b_scale, [0, 0, i * GROUPS // 4, 0, 0], full, right_scale)
        mbarrier.wait(full, phase, deps=[left, right, left_scale, right_scale])
        tcgen05_copy(
            left_scale.reshape((BM // 128, GROUPS // 4, 32, 4, 4)).permute((0, 3, 2, 1, 4)).reshape((BM, GROUPS)),
            left_place,
        )
        tcgen05_copy(
            right_scale.reshape((BN // 128, GROUPS // 4, 32, 4, 4)).permute((0, 3, 2, 1, 4)).reshape((BN, GROUPS)),
            right_place,
        )
        tcgen05_mma_scaled(left, right.permute((1, 0)), acc, left_place, right_place, A, B, use_acc=i != 0)
        tcgen05_commit(done)
        mbarrier.wait(done, phase, deps=[left, right, left_scale, right_scale])
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    result = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    result.store(acc.load())
    fence_async_shared()
    tma.async_store(c, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def taken_over(x, y, columns, BM: gl.constexpr, BN: gl.constexpr):
    """y = 2 x, a tile at a time; who is done takes over the tile of a CTA that has not begun."""
    LOAD: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [gl.num_warps(), 1], [1, 0], [[0, 0]] * (gl.num_ctas() - 1))
    ready = mbarrier.allocate_mbarrier()
    answer = gl.allocate_shared_memory(gl.int64, [2], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    tile = gl.program_id(0)
    more = gl.to_tensor(True)
    phase = 0
    while more:
        mbarrier.expect(ready, 16)
        clc.try_cancel(answer, ready)
        rows = tile * BM + gl.arange(0, BM, gl.SliceLayout(1, LOAD))
        inner = gl.arange(0, BN, gl.SliceLayout(0, LOAD))
        at = rows[:, None] * columns + inner[None, :]
        gl.store(y + at, gl.load(x + at) * 2)
        mbarrier.wait(ready, phase)
        phase ^= 1
        found = clc.load_result(answer)
        more = found.is_canceled()
        if more:
            tile = found.program_id(0)


@gluon.jit
def moved_rows(x, index, y, BM: gl.constexpr, BN: gl.constexpr, GATHER: gl.constexpr):
    """Rows by an index: gathered from x into y, or scattered from x into y."""
    ROWS: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, gl.num_warps()], [1, 0]))
    rows = gl.load(index + gl.arange(0, BM, ROWS))
    values = gl.allocate_shared_memory(x.dtype, [BM, BN], x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, BM * BN * 2)
    if GATHER:
        tma.async_gather(x, rows, 0, full, values)
    else:
        tma.async_load(x, [0, 0], full, values)
    mbarrier.wait(full, 0)
    if GATHER:
        tma.async_store(y, [0, 0], values)
    else:
        tma.async_scatter(y, rows, 0, values)
    tma.store_wait(0)


@gluon.jit
def by_twos(x, y, z, BLOCK: gl.constexpr):
    """z = x y + (x + y), two lanes an instruction."""
    at = gl.arange(0, BLOCK, gl.BlockedLayout([4], [32], [gl.num_warps()], [0]))
    a, b = gl.load(x + at), gl.load(y + at)
    gl.store(z + at, fma2(a, b, add2(a, mul2(b, b))))


# --- cases


def tmem(m: int, n: int, stride: int = 1, **more: Any) -> TensorMemoryLayout:
    return TensorMemoryLayout([m, n], col_stride=stride, **more)


def of_tile(
    tile: tuple[int, int, int], dtype: str, widths: tuple[int, int], ta: bool = False, tb: bool = True,
    block: tuple[int, int] | None = None, variant: str = "32x32b", warps: int = 4,
) -> Case:  # fmt: skip
    bm, bn, bk = tile
    stored_a, stored_b, out = ((bk, bm) if ta else (bm, bk)), ((bn, bk) if tb else (bk, bn)), out_type(dtype)
    major = ("t" if ta else "n") + ("t" if tb else "n")
    block = block or (min(bm, 128), bn)
    return case(
        f"tcgen05_{SHORT[dtype]}_{major}_{bm}x{bn}x{bk}_swizzle{widths[0]}_{widths[1]}_{block[0]}x{block[1]}_{variant}_w{warps}",
        "gluon tcgen05",
        one_tile,
        {"a": operand(stored_a, dtype, 1), "b": operand(stored_b, dtype, 2), "c": output((bm, bn), out)},
        {
            "a": Descriptor("a", stored_a, shared(dtype, widths[0])),
            "b": Descriptor("b", stored_b, shared(dtype, widths[1])),
            "c": Descriptor("c", (bm, bn), shared(out, widest(out, (bm, bn)))),
            "TA": Constant(ta), "TB": Constant(tb), "ACC": Constant(gl.int32 if dtype == "int8" else gl.float32),
            "TMEM": Constant(tmem(*block)), "VARIANT": Constant(variant),
        },
        product(ta, tb, tf32=dtype == "float32"), warps=warps, targets=(100,),
    )  # fmt: skip


def of_tiles() -> Iterator[Case]:
    for width in (32, 64, 128):
        for ta, tb in ((False, True), (True, False)):
            yield of_tile((128, 64, 64), "float16", (width, width), ta, tb)
    for variant in ("16x64b", "16x128b", "16x256b", "32x32b"):
        yield of_tile((128, 64, 64), "float16", (128, 128), variant=variant)
        yield of_tile((64, 64, 64), "bfloat16", (64, 64), variant=variant)
    yield of_tile((128, 128, 64), "float16", (128, 32), warps=8)
    yield of_tile((64, 128, 64), "bfloat16", (64, 128), True, True)
    yield of_tile((256, 64, 64), "float16", (128, 128), block=(128, 64))
    yield of_tile((256, 128, 32), "float16", (64, 64), block=(128, 64), warps=8)
    yield of_tile((128, 256, 64), "float16", (128, 128))
    yield of_tile((128, 16, 32), "float16", (64, 64))
    for dtype in ("float32", "float8_e4m3fn", "float8_e5m2", "int8"):
        step = 32 if dtype == "float32" else 128
        yield of_tile((128, 64, step), dtype, (32, 128))
        yield of_tile((64, 64, step), dtype, (128, 64), variant="16x256b")
    yield of_tile((128, 64, 128), "float8_e4m3fn", (128, 64), True, False)
    yield of_tile((128, 64, 128), "int8", (64, 32), True, False)


def of_core_matrices() -> Iterator[Case]:
    for left, right, m in ((True, True, 128), (False, False, 128), (True, False, 64)):
        yield case(
            f"tcgen05_unswizzled_{'down' if left else 'across'}_{'down' if right else 'across'}", "gluon tcgen05", from_threads,
            {"a": operand((m, 64), "float16", 1), "b": operand((32, 64), "float16", 2), "c": output((m, 32), "float32")},
            {
                "a": "a", "b": "b", "c": "c", "M": Constant(m), "N": Constant(32), "K": Constant(64),
                "LEFT": Constant(core_matrices(m, 64, left)), "RIGHT": Constant(core_matrices(32, 64, right)),
                "TMEM": Constant(tmem(m, 32)),
            },
            product(), targets=(100,),
        )  # fmt: skip


def of_accumulators() -> Iterator[Case]:
    for name, dtype, (m, n, k), left, copy, width in (
        ("registers", "float16", (128, 64, 64), None, False, 128),
        ("cp", "float16", (128, 64, 64), None, True, 128),
        ("cp", "bfloat16", (128, 32, 64), None, True, 64),
        ("a_in_tmem", "float16", (128, 64, 64), tmem(128, 64), False, 128),
        ("a_in_tmem", "float8_e4m3fn", (128, 64, 128), tmem(128, 128), True, 32),
        ("a_in_tmem", "float32", (128, 64, 32), tmem(128, 32), True, 128),
        ("a_in_tmem", "bfloat16", (64, 64, 64), tmem(64, 64), False, 128),
    ):
        yield case(
            f"accumulated_{name}_{SHORT[dtype]}_{m}x{n}x{k}", "gluon tcgen05", accumulated,
            {
                "a": operand((m, k), dtype, 1), "b": operand((n, k), dtype, 2),
                "c": Tensor((m, n), "float32", {"integers": [-9, 9], "seed": 3}, {"normal": 1.0, "seed": 3}),
                "d": output((m, n), "float32"),
            },
            {
                "a": Descriptor("a", (m, k), shared(dtype, widest(dtype, (m, k)))),
                "b": Descriptor("b", (n, k), shared(dtype, widest(dtype, (n, k)))),
                "c": Descriptor("c", (m, n), shared("float32", width)), "d": Descriptor("d", (m, n), shared("float32", 128)),
                "TMEM": Constant(tmem(m, n)), "LEFT": Constant(left), "COPY": Constant(copy),
            },
            ("matmul", {"a": "a", "b": "b", "out": "d", "transposed_b": True, "addend": "c", "tf32": dtype == "float32"}), targets=(100,),
        )  # fmt: skip


def of_moves() -> Iterator[Case]:
    for m, n, block, into, out, warps in (
        (128, 64, (128, 64), "32x32b", "16x256b", 4), (128, 64, (128, 64), "16x64b", "16x128b", 4),
        (64, 64, (64, 64), "32x32b", "16x64b", 4), (64, 64, (64, 64), "16x128b", "16x256b", 4),
        (128, 128, (128, 128), "32x32b", "16x128b", 8), (256, 32, (128, 32), "32x32b", "32x32b", 8),
        (128, 128, (64, 64), "32x32b", "32x32b", 4),
    ):  # fmt: skip
        yield case(
            f"tmem_{m}x{n}_{block[0]}x{block[1]}_{into}_to_{out}_w{warps}", "gluon tcgen05 moves", through_tensor_memory,
            {"x": Tensor((m, n), "float32", {"normal": 1.0, "seed": 1}), "y": output((m, n), "float32")},
            {
                "x": "x", "y": "y", "M": Constant(m), "N": Constant(n), "TMEM": Constant(tmem(*block)),
                "IN": Constant(into), "OUT": Constant(out),
            },
            ("same", {"y": "x"}), targets=(100,), warps=warps,
        )  # fmt: skip
    for dtype, stride in (("float16", 1), ("float16", 2), ("int8", 4)):
        yield case(
            f"tmem_{dtype}_stride{stride}", "gluon tcgen05 moves", through_tensor_memory,
            {"x": Tensor((128, 64), dtype, {"integers": [-99, 99], "seed": 1}), "y": output((128, 64), dtype)},
            {
                "x": "x", "y": "y", "M": Constant(128), "N": Constant(64), "TMEM": Constant(tmem(128, 64, stride)),
                "IN": Constant("32x32b"), "OUT": Constant("32x32b"),
            },
            ("same", {"y": "x"}), targets=(100,),
        )  # fmt: skip
    for width, (m, n), columns in (
        (128, (128, 64), 64),
        (64, (128, 32), 32),
        (32, (128, 16), 16),
        (128, (256, 32), 32),
        (32, (128, 64), 4),
    ):
        yield case(
            f"tcgen05_cp_swizzle{width}_{m}x{n}_by{columns}", "gluon tcgen05 moves", copied,
            {"x": Tensor((m, n), "float32", {"normal": 1.0, "seed": 1}), "y": output((m, n), "float32")},
            {
                "x": "x", "y": "y", "M": Constant(m), "N": Constant(n), "SHARED": Constant(shared("float32", width)),
                "TMEM": Constant(tmem(128, columns)),
            },
            ("same", {"y": "x"}), targets=(100,),
        )  # fmt: skip


def of_scales() -> Iterator[Case]:
    for a, b, block, (m, n, k), (bn, bk) in (
        ("e4m3", "e4m3", 32, (128, 128, 256), (128, 128)), ("e2m1", "e2m1", 32, (128, 128, 512), (128, 256)),
        ("e2m1", "e2m1", 16, (128, 256, 256), (256, 128)), ("e4m3", "e2m1", 32, (128, 128, 256), (128, 128)),
        ("e5m2", "e4m3", 32, (256, 128, 256), (128, 256)),
    ):  # fmt: skip
        values = tensors((m, n, k), a, b, block)
        groups = bk // block
        mixed = a != b and "e2m1" in (a, b)

        def operand_of(name: str, kind: str, rows: int, mixed: bool = mixed, bk: int = bk) -> Descriptor:
            columns = bk // PACKED[kind]
            padded = mixed and kind == "e2m1"
            width = 128 if padded else widest("int8", (rows, columns))
            return Descriptor(name, (rows, columns), gl.NVMMASharedLayout(width, 8, 2, fp4_padded=padded))

        def packed(
            name: str, rows: int, block: int = block, groups: int = groups, k: int = k, values: Any = values
        ) -> Descriptor:
            whole = values[name].shape[0]
            shape = (1, whole // 128, k // block // 4, 2, 256)
            strides = (whole // 128 * (k // block // 4) * 512, k // block // 4 * 512, 512, 256, 1)
            return Descriptor(
                name, (1, rows // 128, groups // 4, 2, 256), gl.NVMMASharedLayout(0, 8, 5), shape=shape, strides=strides
            )

        yield case(
            f"scaled_cp_{a}_{b}_by{block}_{bn}x{bk}", "gluon scaled", scaled, values,
            {
                "a": operand_of("a", a, 128), "b": operand_of("b", b, bn), "c": Descriptor("c", (128, bn), shared("float32", 128)),
                "a_scale": packed("a_scale", 128), "b_scale": packed("b_scale", bn), "k": k, "A": Constant(a), "B": Constant(b),
                "A_PACK": Constant(PACKED[a]), "B_PACK": Constant(PACKED[b]), "BLOCK": Constant(block), "GROUPS": Constant(groups),
            },
            (
                "scaled_matmul",
                {
                    "a": "a", "b": "b", "a_scale": "a_scale", "b_scale": "b_scale", "out": "c", "a_type": a, "b_type": b,
                    "block": block, "packed": True,
                },
            ),
            grid=(m // 128, n // bn), targets=(100,),
        )  # fmt: skip


def of_rings() -> Iterator[Case]:
    for (m, n, k), (bm, bn, bk), dtype, stages in (
        ((256, 128, 320), (128, 128, 64), "float16", 3), ((200, 64, 512), (128, 64, 128), "float8_e4m3fn", 2),
    ):  # fmt: skip
        yield case(
            f"gluon_specialized_{SHORT[dtype]}_{bm}x{bn}x{bk}_s{stages}", "gluon tcgen05", specialized,
            {"a": operand((m, k), dtype, 1), "b": operand((n, k), dtype, 2), "c": output((m, n), out_type(dtype))},
            {
                "a": Descriptor("a", (bm, bk), shared(dtype, 128)), "b": Descriptor("b", (bn, bk), shared(dtype, 128)),
                "c": Descriptor("c", (bm, bn), shared("float16", 128)), "k": k, "STAGES": Constant(stages), "TMEM": Constant(tmem(bm, bn)),
            },
            product(), targets=(100,), grid=(-(-m // bm), -(-n // bn)),
        )  # fmt: skip


def of_pairs() -> Iterator[Case]:
    for m, n, dtype, ctas, multicast, variant in (
        (256, 128, "float16", 2, False, "32x32b"), (128, 64, "bfloat16", 2, False, "32x32b"), (256, 64, "float8_e4m3fn", 2, False, "16x256b"),
        (512, 128, "float16", 4, True, "32x32b"),
    ):  # fmt: skip
        split_a = [[1, 0], [2, 0]][: ctas.bit_length() - 1]
        split_b = [[0, 1], [0, 0]][: ctas.bit_length() - 1]
        step = 64
        yield case(
            f"pair_{SHORT[dtype]}_{m}x{n}_ctas{ctas}{'_multicast' if multicast else ''}", "gluon pairs", pair,
            {"a": operand((m, 2 * step), dtype, 1), "b": operand((2 * step, n), dtype, 2), "c": output((m, n), out_type(dtype))},
            {
                "a": Descriptor("a", (m, step), shared(dtype, widest(dtype, (m, step)), ctas=split_a)),
                "b": Descriptor("b", (step, n), shared(dtype, widest(dtype, (step, n // 2)), ctas=split_b)),
                "c": Descriptor("c", (m, n), shared("float16", 128, ctas=split_a)), "STEPS": Constant(2),
                "TMEM": Constant(tmem(m // ctas, n, cga_layout=split_a, two_ctas=True)), "MULTICAST": Constant(multicast),
                "VARIANT": Constant(variant),
            },
            product(tb=False), targets=(100,), ctas=ctas,
        )  # fmt: skip


def of_scaled_pairs() -> Iterator[Case]:
    for kind, block, n, bk in (("e2m1", 16, 128, 256), ("e2m1", 32, 256, 256), ("e4m3", 32, 128, 128)):
        m, k = 256, 2 * bk
        values, groups = tensors((m, n, k), kind, kind, block), bk // block
        columns, split, split_scales = bk // PACKED[kind], [[1, 0]], [[0, 1, 0, 0, 0]]

        def packed(
            name: str, ctas: Any, k: int = k, block: int = block, groups: int = groups, values: Any = values
        ) -> Descriptor:
            atoms = values[name].shape[0] // 128
            shape = (1, atoms, k // block // 4, 2, 256)
            strides = (atoms * (k // block // 4) * 512, k // block // 4 * 512, 512, 256, 1)
            layout = gl.NVMMASharedLayout(0, 8, 5, cga_layout=ctas)
            return Descriptor(name, (1, atoms, groups // 4, 2, 256), layout, shape=shape, strides=strides)

        def operand_of(name: str, rows: int, kind: str = kind, columns: int = columns) -> Descriptor:
            layout = gl.NVMMASharedLayout(widest("int8", (rows // 2, columns)), 8, 2, cga_layout=[[1, 0]])
            return Descriptor(name, (rows, columns), layout)

        yield case(
            f"scaled_pair_{kind}_by{block}_{n}x{bk}", "gluon scaled pairs", scaled_pair, values,
            {
                "a": operand_of("a", m), "b": operand_of("b", n),
                "c": Descriptor("c", (m, n), shared("float32", 128, ctas=split)),
                "a_scale": packed("a_scale", split_scales), "b_scale": packed("b_scale", [[0] * 5]),
                "STEPS": Constant(2), "A": Constant(kind), "B": Constant(kind), "A_PACK": Constant(PACKED[kind]),
                "B_PACK": Constant(PACKED[kind]), "BLOCK": Constant(block), "GROUPS": Constant(groups),
            },
            (
                "scaled_matmul",
                {
                    "a": "a", "b": "b", "a_scale": "a_scale", "b_scale": "b_scale", "out": "c", "a_type": kind,
                    "b_type": kind, "block": block, "packed": True,
                },
            ),
            targets=(100,), ctas=2,
        )  # fmt: skip


def of_takeovers() -> Iterator[Case]:
    yield case(
        "taken_over", "gluon CLC", taken_over,
        {"x": Tensor((6 * 8, 64), "float32", {"normal": 1.0, "seed": 1}), "y": output((6 * 8, 64), "float32")},
        {"x": "x", "y": "y", "columns": 64, "BM": Constant(8), "BN": Constant(64)},
        ("elementwise", {"source": "x", "out": "y", "function": "double"}), targets=(100,), grid=(6,),
    )  # fmt: skip


def of_rows() -> Iterator[Case]:
    layout = shared("float16", 128)
    index = Tensor((32,), "int32", {"permutation": True, "seed": 2})
    yield case(
        "gluon_gather", "gluon TMA", moved_rows,
        {"x": operand((48, 64), "float16", 1), "i": index, "y": output((32, 64), "float16")},
        {
            "x": Descriptor("x", (1, 64), layout), "index": "i", "y": Descriptor("y", (32, 64), layout), "BM": Constant(32),
            "BN": Constant(64), "GATHER": Constant(True),
        },
        ("gathered", {"source": "x", "index": "i", "out": "y"}), targets=(100,),
    )  # fmt: skip
    yield case(
        "gluon_scatter", "gluon TMA", moved_rows,
        {"x": operand((32, 64), "float16", 1), "i": index, "y": Tensor((48, 64), "float16", {"fill": 7})},
        {
            "x": Descriptor("x", (32, 64), layout), "index": "i", "y": Descriptor("y", (1, 64), layout), "BM": Constant(32),
            "BN": Constant(64), "GATHER": Constant(False),
        },
        ("scattered", {"source": "x", "index": "i", "out": "y"}), targets=(100,),
    )  # fmt: skip


def of_lanes() -> Iterator[Case]:
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(
            f"by_twos_{dtype}", "gluon arithmetic", by_twos,
            {**{name: Tensor((512,), dtype, {"integers": [-8, 8], "seed": seed}) for seed, name in enumerate("xy")}, "z": output((512,), dtype)},
            {"x": "x", "y": "y", "z": "z", "BLOCK": Constant(512)}, ("by_twos", {"a": "x", "b": "y", "out": "z"}), targets=(100,),
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case of this module."""
    yield from of_tiles()
    yield from of_core_matrices()
    yield from of_accumulators()
    yield from of_moves()
    yield from of_scales()
    yield from of_rings()
    yield from of_pairs()
    yield from of_scaled_pairs()
    yield from of_takeovers()
    yield from of_rows()
    yield from of_lanes()
