"""Matmul for data-center Blackwell and every `Form`: layouts of A and B, batches, scales, bias, residual, activation.

The kernel is V6, the last rung of the ladder, with these differences:

- A and B are contiguous along k, or along m or n, as a transposed view is (`parts.operand`).
- Each batch has its own matrix, or all batches share one.
- The epilogue is applied to each strip of C before the store (`parts.epilogue`).
- n and k are arguments of the launch, as m is: one compilation serves all layers of a model (`parts.raster`).

`form` is constant at compile time.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.epilogue import EpilogueScript
from blackwell_matmul.kernels.parts.operand import lines
from blackwell_matmul.kernels.parts.raster import DynamicGroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.tile_scheduler import ClcTileScheduler
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.scheduling.tcgen05_strips import pair_layout, strip_layout


class BlackwellMatmul(EpilogueScript):
    """C[m, n] = epilogue(A[m, k] @ B[n, k].T), for each batch. Lines of A and B begin at multiples of 16 bytes, as TMA
    requires.

    by_element: 1 stores C element by element, for rows that TMA cannot store.
    """

    features = ("tma", "ring", "specialised", "grouped", "clc", "pairs", "forms")

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
        e_block_n: int,
        stages: int,
        group_m: int,
        by_element: int = 0,
        form: Form = PLAIN,
    ):
        super().__init__()
        self.dtype = dtype
        self.by_element = by_element == 1
        self.take_form(form)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.group_m = group_m
        self.half_m = block_m // 2
        self.half_n = block_n // 2
        self.sum_layout = strip_layout(self.half_m, e_block_n)
        self.pair_layout = pair_layout(self.half_m, e_block_n)

    def __call__(
        self,
        m: int32,
        n: int32,
        k: int32,
        a_ptr: void_p,
        b_ptr: void_p,
        c_ptr: void_p,
        bias_ptr: void_p = 0,
        residual_ptr: void_p = 0,
        scale_a_ptr: void_p = 0,
        scale_b_ptr: void_p = 0,
        batches: int32 = 1,
    ):
        # The grid: two CTAs for each tile of C. Those that fit onto the SMs start, and compute the tiles of the
        # others. Tensor memory has 128 lanes, a row of the CTA's half of the tile in each, and a warp can load 32 of
        # them: hence four warps that store. Of three more one loads, one multiplies, and one asks for the next tile.
        tiles = DynamicGroupedTiles(cdiv(m, self.block_m), cdiv(n, self.block_n), self.group_m)
        self.of_a_batch: int32 = cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.blocks = 2 * batches * self.of_a_batch
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 7
        rank = self.cluster.blockRank

        self.open_operands(batches, m, n, k, a_ptr, b_ptr, c_ptr)
        self.open_epilogue(batches, m, n, bias_ptr, residual_ptr, scale_a_ptr, scale_b_ptr)

        # On-chip memory: shared memory for this CTA's halves of `stages` k-tiles of A and B, and a strip of C.
        s_a = self.shared_tensor(dtype=self.dtype, shape=lines(self.a_k, [self.stages], self.half_m, self.block_k))
        s_b = self.shared_tensor(dtype=self.dtype, shape=lines(self.b_k, [self.stages], self.half_n, self.block_k))
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.half_m, self.e_block_n // self.columns_of_c])

        # Barriers: a stage is full, at the leader, after one arrival and all the bytes of both CTAs that it announces,
        # and empty after one, by tcgen05.commit; an accumulator is full after one, by tcgen05.commit, and empty, at the
        # leader, after one of each thread of both CTAs that stores. `ring` signals accesses of TMA and of the tensor
        # core, not of threads: its waits need no acquire for the cluster.
        ring = Ring(self.stages)
        sums = Ring(2, empties=2 * 128, scope="cluster")
        scheduler = ClcTileScheduler(warps=7, ctas=2)
        self.cluster.sync()  # every warp of both sees the initialised barriers

        # Two accumulators in tensor memory, of both CTAs at once: both have started.
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, self.half_m, self.block_n], cta_group=2)
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        self.sync()  # every warp sees the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(4):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            tile: int32 = scheduler.first()
            while True:
                batch, tile_of_batch = self.fast_divmod(tile, self.of_a_batch)
                row, column = tiles.place(tile_of_batch)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n + rank * self.half_n
                # Elements outside of A and B arrive as zeros, which add nothing.
                for offset_k in range(0, k, self.block_k):
                    ring.wait_empty()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    full = ring.full()
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = ring.stage
                    self.a.load(s_a[stage], batch, offset_m, offset_k, full)
                    self.b.load(s_b[stage], batch, offset_n, offset_k, full)
                    ring.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that multiplies, for both CTAs.
        with self.single_warp(5):
            while True:
                if rank == 0:
                    sums.wait_empty()
                    for offset_k in range(0, k, self.block_k):
                        # TMA writes and the tensor cores read through the async proxy: a wait is enough, no fence.
                        ring.wait_full()
                        # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous:
                        # commit makes the barriers of both CTAs track the MMAs of this thread so far
                        # ("tcgen05.commit").
                        stage = ring.stage
                        t_a = s_a[stage] if self.a_k else s_a[stage].transpose()
                        t_b = s_b[stage].transpose() if self.b_k else s_b[stage]
                        self.tcgen05.mma(t_a, t_b, t_acc[sums.stage], enable_input_d=offset_k != 0, cta_group=2)
                        self.tcgen05.commit(mbarrier=ring.empty(), cta_group=2, multicast_mask=0b11)
                        ring.advance()
                    self.tcgen05.commit(mbarrier=sums.full(), cta_group=2, multicast_mask=0b11)
                    sums.advance()
                another, _ = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that asks for the next tile, for both CTAs.
        with self.single_warp(6):
            scheduler.ask()

        # Epilogue: the warps that store, while the next tile is multiplied.
        with self.warp_group(0, 4):
            tile: int32 = scheduler.first()
            while True:
                batch, tile_of_batch = self.fast_divmod(tile, self.of_a_batch)
                row, column = tiles.place(tile_of_batch)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n
                sums.wait_full()
                # Tensor memory -> registers -> shared memory -> global memory, one strip of columns at a time.
                for e_offset_n in range(0, self.block_n, self.e_block_n):
                    # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
                    t_strip = self.tcgen05.slice(
                        t_acc[sums.stage], [0, e_offset_n], [0, 1], [self.half_m, self.e_block_n]
                    )
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences,
                    # then sync.
                    r_c = self.finish(r_strip, batch, offset_m, offset_n + e_offset_n)
                    self.store_shared(s_c, r_c.to(self.c_dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    columns = (offset_n + e_offset_n) // self.columns_of_c
                    # Elements outside of C are not stored.
                    if self.by_element:
                        self.elements.store(s_c, batch, offset_m, columns, offset_m)
                    else:
                        with self.single_warp():
                            self.tma.shared_to_global(s_c, self.g_c, offsets=[batch, offset_m, columns], dims=[1, 2])
                            # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for
                            # that alone. Only the thread that issued the store can wait ("cp.async.bulk.wait_group"):
                            # the others sync.
                            self.tma.commit_group()
                            self.tma.wait_group(n=0, read=True)
                    self.sync()
                self.mbarrier.arrive_and_expect_tx_remote(
                    sums.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
                )
                sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Tensor memory must be freed by both CTAs before they exit ("tcgen05.dealloc"). A CTA must not exit while the
        # other one may still read its shared memory or signal its barriers.
        self.cluster.sync()
        self.tcgen05.dealloc(t_acc)
