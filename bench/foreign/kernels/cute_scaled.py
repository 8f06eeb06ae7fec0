"""A block-scaled matmul of CuTe DSL: nvfp4 by TMA, scales into tensor memory by tcgen05.cp, one CTA a tile."""

import functools
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

os.environ.update(
    CUTE_DSL_ARCH="sm_100a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DUMP_DIR=tempfile.gettempdir()
)  # before the import

import cutlass
import cutlass.utils.blackwell_helpers as layouts
import cutlass.utils.blockscaled_layout as scale_layouts
from case import Case, Launch
from cutlass import cute
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.cute.runtime import make_ptr
from cutlass.experimental.primitives import tcgen05_fence
from kernels.triton_scaled import tensors

ELEMENT, SCALE, BLOCK = cutlass.Float4E2M1FN, cutlass.Float8E4M3FN, 16
TILE, MMA_K = (128, 128, 256), 64
STAGES = 2
SCALE_COLUMNS = TILE[2] // BLOCK
"""Columns of tensor memory for the scales of 128 rows and one step of k: 4 for each atom of 4 blocks."""
THREADS, LOADER, MULTIPLIER = 128, 0, 1
SHARED_BYTES = 1024 + STAGES * 36864
"""Bytes of shared memory: barriers, and stages of two tiles of 16 KiB and two of 2 KiB of scales."""


@cute.struct
class Shared:
    """Barriers of the ring, of the end, and the address of tensor memory."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    empty: cute.struct.MemRange[cutlass.Int64, STAGES]
    done: cute.struct.MemRange[cutlass.Int64, 1]
    columns: cutlass.Int32


@cute.jit
def parts_of_load(load, tensor, shared, tile, at, cut):
    """Return the boxes of one operand in global memory, one for each step of k, and its stages."""
    boxes = cut(cute.local_tile(tensor, tile, (at, None, 0)))
    to, of = cpasync.tma_partition(
        load, 0, cute.make_layout(1), cute.group_modes(shared, 0, 3), cute.group_modes(boxes, 0, 3)
    )
    return cute.filter_zeros(of), cute.filter_zeros(to)


@cute.jit
def copy_scales(shared, columns, stage):
    """Copy the scales of one operand and stage into tensor memory."""
    atom = cute.make_copy_atom(tcgen05.Cp4x32x128bOp(tcgen05.CtaGroup.ONE), SCALE)
    source, target = cute.filter_zeros(shared), cute.filter_zeros(columns)
    copy = tcgen05.make_s2t_copy(atom, target)
    mine = copy.get_slice(0)
    boxes = tcgen05.get_s2t_smem_desc_tensor(copy, mine.partition_S(source))
    cute.copy(copy, boxes[None, None, None, None, stage], mine.partition_D(target))


@cute.kernel
def multiply(mma, loads, tensors, c, of_a, of_b, of_sfa, of_sfb):
    """One warp loads a ring of stages, one copies scales and multiplies, all four store. A stage has scales of its own
    in tensor memory, so that no copy follows an MMA that reads the same columns."""
    thread, _, _ = cute.arch.thread_idx()
    row, column, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    memory = cutlass.memory.SmemAllocator()
    shared = memory.allocate(Shared)
    full, empty, done = shared.full.data_ptr(), shared.empty.data_ptr(), shared.done.data_ptr()
    s_a = memory.allocate_tensor(ELEMENT, of_a.outer, byte_alignment=1024, swizzle=of_a.inner)
    s_b = memory.allocate_tensor(ELEMENT, of_b.outer, byte_alignment=1024, swizzle=of_b.inner)
    s_sfa = memory.allocate_tensor(SCALE, of_sfa, byte_alignment=128)
    s_sfb = memory.allocate_tensor(SCALE, of_sfb, byte_alignment=128)

    if warp == LOADER:
        cute.arch.alloc_tmem(512, shared.columns)
        with cute.arch.elect_one():
            for stage in cutlass.range_constexpr(STAGES):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(empty + stage, 1)
            cute.arch.mbarrier_init(done, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()

    start = cute.arch.retrieve_tmem_ptr(cutlass.Float32, 16, shared.columns)
    acc = cute.make_tensor(start, mma.make_fragment_C(mma.partition_shape_C(TILE[:2])).layout)
    stage_of = (None, None, None, 0)
    part = mma.get_slice(0)
    rows, columns = (TILE[0], TILE[2]), (TILE[1], TILE[2])
    pairs = (
        parts_of_load(loads[0], tensors[0], s_a, rows, row, part.partition_A),
        parts_of_load(loads[1], tensors[1], s_b, columns, column, part.partition_B),
        parts_of_load(loads[2], tensors[2], s_sfa, rows, row, part.partition_A),
        parts_of_load(loads[3], tensors[3], s_sfb, columns, column, part.partition_B),
    )
    steps = cute.size(pairs[0][0], mode=[1])

    if warp == LOADER:
        each = (
            cute.size_in_bytes(ELEMENT, cute.slice_(of_a, stage_of))
            + cute.size_in_bytes(ELEMENT, cute.slice_(of_b, stage_of))
            + cute.size_in_bytes(SCALE, cute.slice_(of_sfa, stage_of))
            + cute.size_in_bytes(SCALE, cute.slice_(of_sfb, stage_of))
        )
        for step in cutlass.range(steps, unroll=1):
            stage = step % STAGES
            cute.arch.mbarrier_wait(empty + stage, 1 - step // STAGES % 2)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + stage, each)
            for operand in cutlass.range_constexpr(4):
                of, to = pairs[operand]
                cute.copy(loads[operand], of[None, step], to[None, stage], tma_bar_ptr=full + stage)

    if warp == MULTIPLIER:
        of_tsfa = scale_layouts.make_tmem_layout_sfa(mma, TILE, BLOCK, cute.slice_(of_sfa, stage_of))
        of_tsfb = scale_layouts.make_tmem_layout_sfb(mma, TILE, BLOCK, cute.slice_(of_sfb, stage_of))
        first = start + tcgen05.find_tmem_tensor_col_offset(acc)
        a, b = mma.make_fragment_A(s_a), mma.make_fragment_B(s_b)
        mma.set(tcgen05.Field.ACCUMULATE, False)
        for step in cutlass.range(steps, unroll=1):
            stage = step % STAGES
            cute.arch.mbarrier_wait(full + stage, step // STAGES % 2)
            t_sfa = cute.make_tensor(cute.recast_ptr(first + stage * SCALE_COLUMNS, dtype=SCALE), of_tsfa)
            t_sfb = cute.make_tensor(cute.recast_ptr(first + (STAGES + stage) * SCALE_COLUMNS, dtype=SCALE), of_tsfb)
            copy_scales(s_sfa, t_sfa, stage)
            copy_scales(s_sfb, t_sfb, stage)
            for inner in cutlass.range_constexpr(TILE[2] // MMA_K):
                mma.set(tcgen05.Field.SFA, t_sfa[None, None, inner].iterator)
                mma.set(tcgen05.Field.SFB, t_sfb[None, None, inner].iterator)
                cute.gemm(mma, acc, a[None, None, inner, stage], b[None, None, inner, stage], acc)
                mma.set(tcgen05.Field.ACCUMULATE, True)
            with cute.arch.elect_one():
                tcgen05.commit(empty + stage)
        with cute.arch.elect_one():
            tcgen05.commit(done)

    cute.arch.mbarrier_wait(done, 0)
    tcgen05_fence("after_thread_sync")
    strip = cute.make_copy_atom(tcgen05.Ld32x32bOp(tcgen05.Repetition.x32), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(strip, acc)
    mine = copy.get_slice(thread)
    g_c = mine.partition_D(part.partition_C(cute.local_tile(c, TILE[:2], (row, column))))
    result = cute.make_rmem_tensor(g_c.shape, cutlass.Float32)
    cute.copy(copy, mine.partition_S(acc), result)
    cute.arch.fence_view_async_tmem_load()
    cute.copy(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32), result, g_c)
    cute.arch.sync_threads()
    if warp == LOADER:
        cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.dealloc_tmem(start, 512)


@cute.jit
def launch(
    a: cute.Pointer, b: cute.Pointer, sfa: cute.Pointer, sfb: cute.Pointer, c: cute.Pointer, sizes: cutlass.Constexpr
):
    m, n, k = sizes
    mma = cute.make_tiled_mma(
        tcgen05.MmaMXF4NVF4Op(SCALE, (*TILE[:2], MMA_K), tcgen05.CtaGroup.ONE, tcgen05.OperandSource.SMEM)
    )
    of_a = layouts.make_smem_layout_a(mma, TILE, ELEMENT, STAGES)
    of_b = layouts.make_smem_layout_b(mma, TILE, ELEMENT, STAGES)
    of_sfa = scale_layouts.make_smem_layout_sfa(mma, TILE, BLOCK, STAGES)
    of_sfb = scale_layouts.make_smem_layout_sfb(mma, TILE, BLOCK, STAGES)
    op = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
    whole = [
        cute.make_tensor(x, cute.make_layout((rows, k, 1), stride=(k, 1, rows * k))) for x, rows in ((a, m), (b, n))
    ]
    scales = [
        cute.make_tensor(x, scale_layouts.tile_atom_to_shape_SF((rows, k, 1), BLOCK))
        for x, rows in ((sfa, m), (sfb, n))
    ]
    of_stage = [cute.slice_(each, (None, None, None, 0)) for each in (of_a, of_b, of_sfa, of_sfb)]
    makers = cute.nvgpu.make_tiled_tma_atom_A, cute.nvgpu.make_tiled_tma_atom_B
    one = (1, 1, 1, 1)
    loads = [make(op, x, lay, TILE, mma, one) for make, x, lay in zip(makers, whole, of_stage)]
    loads += [
        make(op, x, lay, TILE, mma, one, internal_type=cutlass.Int16)
        for make, x, lay in zip(makers, scales, of_stage[2:])
    ]
    result = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))
    multiply(
        mma, tuple(each[0] for each in loads), tuple(each[1] for each in loads), result, of_a, of_b, of_sfa, of_sfb
    ).launch(grid=(m // TILE[0], n // TILE[1], 1), block=(THREADS, 1, 1))


# --- cases


def made(sizes: tuple[int, int, int]) -> tuple[str, Launch]:
    """Return PTX and launch."""
    m, n, k = sizes
    types = ELEMENT, ELEMENT, SCALE, SCALE, cutlass.Float32
    pointers = [make_ptr(each, 0, cute.AddressSpace.gmem, assumed_align=32) for each in types]
    ptx = cute.compile(launch, *pointers, sizes).__ptx__
    name = re.search(r"\.entry (\w+)", ptx)[1]
    maps = [of_elements("a", m, k), of_elements("b", n, k), of_scales("a_scale", m, k), of_scales("b_scale", n, k)]
    return ptx, Launch(name, THREADS, SHARED_BYTES, [{"zeros": 12}, *({"map": each} for each in maps), {"tensor": "c"}])


def map_of(
    tensor: str, dtype: str, dims: list[int], strides: list[int], box: list[int], swizzle: str
) -> dict[str, Any]:
    steps, plain = [1] * len(dims), {"interleave": "NONE", "l2_promotion": "NONE", "oob_fill": "NONE"}
    about = {"tensor": tensor, "dtype": dtype, "dims": dims, "strides_bytes": strides, "box": box}
    return {**about, "element_strides": steps, "swizzle": swizzle, **plain}


def of_elements(tensor: str, rows: int, k: int) -> dict[str, Any]:
    return map_of(tensor, "16U4_ALIGN8B", [k, rows], [k // 2], [TILE[2], 128], "128B")


def of_scales(tensor: str, rows: int, k: int) -> dict[str, Any]:
    """Atoms of 512 bytes along k, and rows of 128; one row of them has no third dimension."""
    dims, strides, box = [256, k // 64, rows // 128], [512, 8 * k], [256, TILE[2] // 64, 1]
    rank = 3 if rows > 128 else 2
    return map_of(tensor, "UINT16", dims[:rank], strides[: rank - 1], box[:rank], "NONE")


def cases() -> Iterator[Case]:
    sizes = m, n, _ = 256, 128, 1024
    yield Case(
        name="cute_nvfp4_" + "x".join(map(str, TILE)) + f"_s{STAGES}",
        family="cute block-scaled",
        kernel=None,
        grid=(m // TILE[0], n // TILE[1]),
        tensors=tensors(sizes, "e2m1", "e2m1", BLOCK),
        arguments={},
        reference=(
            "scaled_matmul",
            {
                "a": "a",
                "b": "b",
                "a_scale": "a_scale",
                "b_scale": "b_scale",
                "out": "c",
                "a_type": "e2m1",
                "b_type": "e2m1",
                "block": BLOCK,
                "packed": True,
            },
        ),
        targets=(100,),
        compile=functools.partial(made, sizes),
    )
