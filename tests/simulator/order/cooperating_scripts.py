"""Kernels whose CTAs work together in other ways than the rungs do, and what goes wrong when one line is."""

import tilus
from tilus import float16, float32, int32, uint32, void_p

COLUMNS = 64


class RelayedRows(tilus.Script):
    """y = 3 * x, a row for each CTA of a pair. Warp 0 of the first CTA asks for both; warp 0 of each reads the answer
    and passes its row on, as a number in shared memory, to warp 1, which loads, and to warps 2 and 3, which store.

    fault: the line that is left out, or wrong.
    """

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.takers = 32 if fault == "the storing warps do not take" else 96
        self.hearers = 32 if fault == "the second CTA is not heard" else 64
        self.posters = 1 if fault == "one lane posts for all" else 32
        self.lanes = tilus.ir.layout.ops.spatial(32)
        self.told = "relaxed" if fault == "a relaxed arrival" else "release"

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = (rows + 1) // 2 * 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=int32, shape=[rows, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, COLUMNS])
        s_row = self.shared_tensor(dtype=int32, shape=[2, 1, COLUMNS])
        s_next = self.shared_tensor(dtype=int32, shape=[2, 32])
        s_answer = self.shared_tensor(dtype=int32, shape=[4])
        answered = self.mbarrier.alloc(counts=1)
        heard = self.mbarrier.alloc(counts=self.hearers)
        posted = self.mbarrier.alloc(counts=[self.posters, self.posters])
        taken = self.mbarrier.alloc(counts=[self.takers, self.takers])
        full = self.mbarrier.alloc(counts=[1, 1])
        room = self.mbarrier.alloc(counts=[64, 64])
        self.cluster.sync()
        if self.fault == "a CTA without a row returns":
            if self.blockIdx.x >= rows:
                return
        with self.single_warp(0):
            turn: uint32 = 0
            place: int32 = 0
            lap: uint32 = 0
            while True:
                if rank == 0:
                    if self.fault != "announces too early":
                        self.mbarrier.wait(heard, phase=turn ^ 1, scope="cluster")  # all heard
                    self.mbarrier.arrive_and_expect_tx_multicast(  # announce
                        answered, 16, multicast_mask=3, scope="cluster"
                    )
                    if self.fault == "announces too early":
                        self.mbarrier.wait(heard, phase=turn ^ 1, scope="cluster")
                    self.clc.try_cancel(s_answer, mbarrier=answered, multicast=True)  # ask
                self.mbarrier.wait(answered, phase=turn)
                another, first = self.clc.query_response(s_answer)  # hear
                if self.fault != "no fence after the answer":
                    self.fence.proxy_async(space="shared")
                if self.fault != "the second CTA is not heard" or rank == 0:
                    self.mbarrier.arrive_and_expect_tx_remote(  # tell
                        heard, 0, target_rank=0, sem=self.told, scope="cluster"
                    )
                turn ^= 1
                row: int32 = -1
                if another:
                    row = first.x + rank
                if self.fault != "does not wait for the takers":
                    self.mbarrier.wait(taken[place], phase=lap ^ 1)  # room to post
                numbers = self.register_tensor(dtype=int32, shape=[32], init=0) + row
                self.annotate_layout(numbers, self.lanes)
                if self.fault == "posts too early":
                    self.mbarrier.arrive(posted[place])
                self.store_shared(s_next[place], numbers)  # post
                if self.fault == "one lane posts for all":
                    with self.single_thread():
                        self.mbarrier.arrive(posted[place])  # posted
                elif self.fault != "posts too early":
                    self.mbarrier.arrive(posted[place])
                place = 1 - place
                lap ^= place == 0
                if not another:
                    break
        with self.single_warp(1):
            load_row: int32 = self.blockIdx.x
            load_place: int32 = 0
            load_lap: uint32 = 0
            while load_row >= 0:
                self.mbarrier.wait(room[load_place], phase=load_lap ^ 1)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[load_place], transaction_bytes=4 * COLUMNS)
                self.tma.global_to_shared(  # load
                    src=g_x, dst=s_row[load_place], offsets=[load_row, 0], mbarrier=full[load_place]
                )
                self.mbarrier.wait(posted[load_place], phase=load_lap)
                load_row = s_next[load_place, 31].item()  # take to load
                self.mbarrier.arrive(taken[load_place])
                load_place = 1 - load_place
                load_lap ^= load_place == 0
        with self.warp_group(2, 2):
            store_row: int32 = self.blockIdx.x
            store_place: int32 = 0
            store_lap: uint32 = 0
            while store_row >= 0:
                self.mbarrier.wait(full[store_place], phase=store_lap)
                if self.fault == "frees a row before it is read":
                    self.mbarrier.arrive(room[store_place])
                values = self.load_shared(s_row[store_place])  # read
                if self.fault != "no fence for the next row":
                    self.fence.proxy_async(space="shared")
                if self.fault != "frees a row before it is read":
                    self.mbarrier.arrive(room[store_place])
                self.store_global(g_y, values * 3, offsets=[store_row, 0])
                self.mbarrier.wait(posted[store_place], phase=store_lap)
                store_row = s_next[store_place, 31].item()  # take to store
                if self.fault != "the storing warps do not take":
                    self.mbarrier.arrive(taken[store_place])
                store_place = 1 - store_place
                store_lap ^= store_place == 0
        if self.fault != "no sync at the end":
            self.cluster.sync()


class ResidentOperand(tilus.Script):
    """C[256, 32 * tiles] = A[256, 96] @ B[32 * tiles, 96].T by one pair. A stays in shared memory; B comes in k-tiles;
    each tile of C is summed in the same columns of tensor memory.

    relay: each CTA waits for its own part of A and tells the even one, which TMA does not. fault: the line that is left
    out, or wrong.
    """

    def __init__(self, fault: str = "", relay: bool = False):
        super().__init__()
        self.fault, self.relay = fault, relay
        self.drains = 128 if fault == "one CTA drains" else 256
        self.parts = 2 if relay else 1

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 7
        rank: int32 = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, 96])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32 * tiles, 96])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[256, 32 * tiles])
        s_a = self.shared_tensor(dtype=float16, shape=[3, 128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 16, 32])
        mine = self.mbarrier.alloc(counts=1)
        whole = self.mbarrier.alloc(counts=self.parts)
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=1)
        drained = self.mbarrier.alloc(counts=self.drains)
        self.cluster.sync()
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)  # alloc
        self.sync()
        with self.single_warp(6):
            if self.relay or self.fault == "A of the even CTA alone":
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(mine, transaction_bytes=s_a.nbytes)
                for i in range(3):
                    self.tma.global_to_shared(  # load own a
                        src=g_a, dst=s_a[i], offsets=[128 * rank, 32 * i], mbarrier=mine, cta_group=2
                    )
                if self.fault != "a relay that does not wait":
                    self.mbarrier.wait(mine, phase=0)
                if self.relay:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx_remote(whole, 0, target_rank=0, scope="cluster")
                elif rank == 0:
                    with self.single_thread():
                        self.mbarrier.arrive(whole)
            else:
                at = self.cluster.map_shared_addr(whole, target_rank=0)
                if rank == 0:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(whole, transaction_bytes=2 * s_a.nbytes)
                for i in range(3):
                    self.tma.global_to_shared(  # load a
                        src=g_a, dst=s_a[i], offsets=[128 * rank, 32 * i], mbarrier=at, cta_group=2
                    )
        with self.single_warp(4):
            load_stage: int32 = 0
            room: uint32 = 1
            for i in range(tiles):
                for j in range(3):
                    self.mbarrier.wait(empty[load_stage], phase=room)
                    barrier = full[load_stage]
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=2 * 16 * 32 * 2)
                    else:
                        barrier = self.cluster.map_shared_addr(barrier, target_rank=0)
                    self.tma.global_to_shared(  # load b
                        src=g_b,
                        dst=s_b[load_stage],
                        offsets=[32 * i + 16 * rank, 32 * j],
                        mbarrier=barrier,
                        cta_group=2,
                    )
                    load_stage = 1 - load_stage
                    room ^= load_stage == 0
        if rank == 0:
            with self.single_warp(5):
                stage: int32 = 0
                turn: uint32 = 0
                clear: uint32 = 1
                if self.fault != "no wait for A":
                    self.mbarrier.wait(whole, phase=0, scope="cluster")  # all of a
                for _ in range(tiles):
                    if self.fault != "nobody waits for the epilogue":
                        self.mbarrier.wait(drained, phase=clear, scope="cluster")  # clear
                    for j in range(3):
                        self.mbarrier.wait(full[stage], phase=turn)
                        if self.fault == "commits before the last mma" and j == 2:
                            self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
                        self.tcgen05.mma(  # mma
                            s_a[j], s_b[stage].transpose(), t_acc, enable_input_d=j != 0, cta_group=2
                        )
                        self.tcgen05.commit(empty[stage], cta_group=2, multicast_mask=3)
                        stage = 1 - stage
                        turn ^= stage == 0
                    if self.fault != "commits before the last mma":
                        self.tcgen05.commit(done, cta_group=2, multicast_mask=3)  # sum
                    clear ^= 1
        with self.warp_group(0, 4):
            ready: uint32 = 0
            for i in range(tiles):
                self.mbarrier.wait(done, phase=ready)  # finished
                if self.fault == "drains before it has loaded":
                    self.mbarrier.arrive_and_expect_tx_remote(drained, 0, target_rank=0, scope="cluster")
                r = self.tcgen05.load(t_acc)  # drain
                if self.fault == "drains while it loads":
                    self.mbarrier.arrive_and_expect_tx_remote(drained, 0, target_rank=0, scope="cluster")
                self.tcgen05.wait_load()
                if self.fault == "one CTA drains":
                    if rank == 0:
                        self.mbarrier.arrive(drained)
                elif self.fault != "drains before it has loaded" and self.fault != "drains while it loads":
                    self.mbarrier.arrive_and_expect_tx_remote(drained, 0, target_rank=0, scope="cluster")  # drained
                self.store_global(g_c, r, offsets=[128 * rank, 32 * i])
                if self.fault != "waits for the first sum again":
                    ready ^= 1
        if self.fault == "frees when its own CTA is done":
            self.sync()
        else:
            self.cluster.sync()
        self.tcgen05.dealloc(t_acc)  # free


class RowsInTurn(tilus.Script):
    """CTA i stores row i of y, in turn by a semaphore."""

    def __call__(self, ctas: int32, turn_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        turns = self.global_view(turn_ptr, dtype=int32, shape=[1])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[4, 32])
        self.lock_semaphore(turns[0].item_ptr(), value=self.blockIdx.x)
        row = self.register_tensor(dtype=int32, shape=[1, 32], init=7)
        self.store_global(g_y, row, offsets=[self.blockIdx.x, 0])
        self.sync()
        self.release_semaphore(turns[0].item_ptr(), value=(self.blockIdx.x + 1) % ctas)
