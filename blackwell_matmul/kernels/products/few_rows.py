"""Matmul of few rows of A, such as those of a decoding model: the lanes of tensor memory hold rows of B.

The kernel computes C.T = B @ A.T. A tile has 128 rows of B. Rows of A are the columns of the MMA, so that TMA loads few
rows outside of A. If there are few tiles, the CTAs of a cluster share K. Each multiplies a part of K and stores its
sums into a workspace, which stays in the L2. The first CTA adds all sums in a fixed order, so that C has the same bits
in every run.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.parts.ring import Ring


class BlackwellFewRows(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    features = ("tma", "ring", "specialised", "split_k", "gathered", "swap")
    knobs = ("block_m", "block_n", "block_k", "stages", "split_k", "swap_ab")

    def __init__(
        self, dtype: DataType, block_m: int, block_n: int, block_k: int, stages: int, split_k: int, swap_ab: int = 1
    ):
        super().__init__()
        self.dtype = dtype
        self.c_dtype = self.type_of_c(dtype)
        self.lanes = block_m  # of tensor memory: rows of B
        self.columns = block_n  # of tensor memory: rows of A
        self.block_k = block_k
        self.stages = stages
        self.split_k = split_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: a CTA for each part of each tile. The CTAs of a tile are a cluster: they run at the same time, and
        # can wait for each other.
        tiles_m: int32 = cdiv(m, self.columns)
        self.attrs.blocks = cdiv(m, self.columns) * cdiv(n, self.lanes) * self.split_k
        self.attrs.cluster_blocks = self.split_k
        self.attrs.warps = 4
        part: int32 = self.cluster.blockRank
        tile: int32 = self.blockIdx.x // self.split_k
        offset_n: int32 = tile // tiles_m * self.lanes
        offset_m: int32 = tile % tiles_m * self.columns
        first: int32 = cdiv(k, self.block_k) * part // self.split_k * self.block_k
        last: int32 = cdiv(k, self.block_k) * (part + 1) // self.split_k * self.block_k

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B, tensor memory for the accumulator.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.columns, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.lanes, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.lanes, self.columns])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after one, by
        # tcgen05.commit; another one says that the accumulator is complete. The parts are there after an arrival of
        # each CTA but the first.
        ring = Ring(self.stages)
        complete = self.mbarrier.alloc(counts=1)
        if self.split_k > 1:
            given = self.mbarrier.alloc(counts=self.split_k - 1)
            shape = [cdiv(m, self.columns) * cdiv(n, self.lanes) * self.split_k, self.columns, self.lanes]
            g_parts = self.global_tensor(dtype=float32, shape=shape, requires_clean=False)
            self.cluster.sync()  # every warp of every CTA sees the initialised barriers
        self.sync()  # every warp sees the initialised barriers and the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(0):
            tile_bytes = (self.lanes + self.columns) * self.block_k * self.dtype.nbytes
            # Elements outside of A and B arrive as zeros, which add nothing.
            for offset_k in range(first, last, self.block_k):
                ring.wait_empty()
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(ring.full(), transaction_bytes=tile_bytes)
                stage = ring.stage
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=ring.full())
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=ring.full())
                ring.advance()

        # Main loop of the warp that multiplies.
        with self.single_warp(1):
            for offset_k in range(first, last, self.block_k):
                # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                ring.wait_full()
                # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit makes
                # the barrier track the MMAs of this thread so far ("tcgen05.commit").
                stage = ring.stage
                self.tcgen05.mma(s_b[stage], s_a[stage].transpose(), t_acc, enable_input_d=offset_k != first)
                self.tcgen05.commit(mbarrier=ring.empty())
                ring.advance()
            self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)

        # Epilogue: tensor memory -> registers -> global memory; elements outside of C are not stored. Loads are
        # asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
        r_acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        r_sum = self.transpose(r_acc)  # rows of A are rows again; each thread keeps what it has
        if self.split_k > 1:
            if part == 0:
                self.mbarrier.wait(given, phase=0, scope="cluster")
                for other in self.range(1, self.split_k, 1, unroll="all"):
                    offsets = [self.blockIdx.x + other, 0, 0]
                    r_sum += self.load_global(g_parts, offsets=offsets, shape=[self.columns, self.lanes], dims=[1, 2])
            else:
                self.store_global(g_parts, r_sum, offsets=[self.blockIdx.x, 0, 0], dims=[1, 2])
                self.sync()
                with self.single_thread(0):
                    self.mbarrier.arrive_and_expect_tx_remote(
                        given, transaction_bytes=0, target_rank=0, scope="cluster"
                    )
        if part == 0:
            self.store_global(g_c, r_sum.to(self.c_dtype), offsets=[offset_m, offset_n])

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.sync()
        self.tcgen05.dealloc(t_acc)
