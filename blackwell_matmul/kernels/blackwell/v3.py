"""V3: warp specialisation: one warp loads, one multiplies.

New against V2: loading and multiplying are separate loops in different warps. The loops signal full and empty stages by
mbarriers. Neither loop waits for an operation that it has just issued, and the other warps wait only once, for the
complete accumulator.
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript


class BlackwellMatmulV3(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    features = ("tma", "ring", "specialised")

    def __init__(self, dtype: DataType, block_m: int, block_n: int, block_k: int, e_block_n: int, stages: int):
        super().__init__()
        self.dtype = dtype
        self.c_dtype = self.type_of_c(dtype)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: one CTA for each tile of C. Tensor memory has 128 lanes, a row of the tile in each, and a warp
        # can load 32 of them: hence four warps.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B and a strip of C, tensor memory for the
        # accumulator.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.block_m, self.e_block_n])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after one, by
        # tcgen05.commit; another one says that the accumulator is complete. A wait names the parity of the phase it is
        # for.
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        complete = self.mbarrier.alloc(counts=1)
        self.sync()  # every warp sees the initialised barriers and the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(0):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase  # the stages of the first lap are empty
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            # Elements outside of A and B arrive as zeros, which add nothing.
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empty[stage], phase=phase)
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=tile_bytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full[stage])
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0  # each lap around the ring is one phase of every barrier

        # Main loop of the warp that multiplies.
        with self.single_warp(1):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for offset_k in range(0, k, self.block_k):
                # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                self.mbarrier.wait(full[stage], phase=phase)
                # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit makes
                # the barrier track the MMAs of this thread so far ("tcgen05.commit").
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=empty[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)

        # Epilogue: tensor memory -> registers -> shared memory -> global memory, one strip of columns at a time.
        for e_offset_n in range(0, self.block_n, self.e_block_n):
            # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
            t_strip = self.tcgen05.slice(t_acc, [0, e_offset_n], [0, 1], [self.block_m, self.e_block_n])
            r_strip = self.tcgen05.load(t_strip)
            self.tcgen05.wait_load()
            # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then sync.
            self.store_shared(s_c, r_strip.to(self.c_dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # Elements outside of C are not stored.
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + e_offset_n])
                # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that alone.
                # Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others sync.
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.tcgen05.dealloc(t_acc)
