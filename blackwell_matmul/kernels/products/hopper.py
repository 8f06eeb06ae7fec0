"""Matmul for Hopper and every `Form`: layouts of A and B, batches, scales, bias, residual, activation.

The kernel is H7, the last rung of the ladder, with the knobs and parts that make it fast on every shape:

- cluster_n: a cluster computes a rectangle of tiles and shares loads of A, too (`parts.multicast`).
- neighbours: 2 puts CTAs without shared loads into clusters of two, since two SMs share a path to the L2. 1 uses no
  cluster: the hardware then starts CTAs in order, and consecutive CTAs share a GPC.
- block_k: a k-tile can be wider than TMA's swizzle. It is loaded in several boxes, with half as many waits.
- consumers: a single warpgroup issues the next wgmma before the last one is complete (`in_flight`). Three warpgroups
  have tiles of 192 rows, and registers that the warpgroup of the loading warp gives up.
- block_m: for tiles of 16 or 32 rows, only these rows are loaded (`parts.zero_padding`).
- swap_ab: 1 computes C transposed, B @ A.T. A wgmma then has 64 rows of N, and as columns any multiple of 8 of M: tiles
  fit any number of rows. Only the store differs (`parts.output_tile`).
- e_block_n: a tile can be stored as one strip, without a swizzle.
- queue: 1 lets CTAs take tiles as they come, for a GPU whose SMs other streams hold, too (`parts.tile_order`).
- The last tiles of C begin where nearly all their rows and columns exist (`parts.output_tile`).
- Sums of 8-bit products are added in fp32 every few k-tiles (`sum_tiles`). A single warpgroup has two such sums in
  turn (`add_in_turn`). If blocks of A and B have scales, the sums are first multiplied by the scales
  (`parts.block_scales`).
- n and k are arguments of the launch, as m is: one compilation serves all layers of a model (`parts.raster`).
- A and B have any layout, with batches, and strips have an epilogue (`parts.operand`, `parts.epilogue`).

`scheduling/space.py` chooses among these knobs; docs/measured.md has measurements.
"""

from tilus import DataType, RegisterTensor, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import integer, shown
from blackwell_matmul.kernels.parts.block_scales import BlockScales, StagedScales
from blackwell_matmul.kernels.parts.epilogue import EpilogueScript
from blackwell_matmul.kernels.parts.multicast import ClusterOfTiles
from blackwell_matmul.kernels.parts.operand import lines
from blackwell_matmul.kernels.parts.output_tile import OutputTile
from blackwell_matmul.kernels.parts.raster import DynamicGroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.tile_order import FixedOrder, TileQueue
from blackwell_matmul.kernels.parts.zero_padding import ZeroPadding
from blackwell_matmul.lang import MaxRegisters
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import SWIZZLE_BYTES
from blackwell_matmul.scheduling.wgmma_fragments import (
    MMA_ROWS,
    accumulator_layout,
    pair_layout,
    strip_layout,
)


class HopperMatmul(EpilogueScript):
    """C[m, n] = epilogue(A[m, k] @ B[n, k].T), for each batch. Lines of A and B begin at multiples of 16 bytes, as TMA
    requires.

    by_element: 1 stores C element by element, for rows that TMA cannot store.
    """

    target = "sm_90a"
    mma = "wgmma"
    setmaxnreg = MaxRegisters()
    features = (
        "tma", "ring", "specialised", "grouped", "persistent", "clusters", "rectangles", "neighbours", "split_k",
        "any_size", "boxes", "swap", "queue", "forms",
    )  # fmt: skip

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
        e_block_n: int,
        stages: int,
        consumers: int,
        group_m: int,
        cluster_m: int,
        cluster_n: int,
        split_k: int,
        neighbours: int,
        swap_ab: int,
        sm_count: int,
        queue: int = 0,
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
        self.box_k = min(block_k, SWIZZLE_BYTES[0] // dtype.nbytes)  # as wide as TMA swizzles
        self.boxes = block_k // self.box_k  # of a k-tile
        self.e_block_n = e_block_n
        self.stages = stages
        self.consumers = consumers
        self.gives_registers = Wgmma.gives_registers(consumers)
        self.cluster_m = cluster_m
        self.cluster_n = cluster_n
        self.group_m = cdiv(group_m, cluster_m)  # in rows of clusters
        self.split_k = split_k
        self.team_ctas = cluster_m * cluster_n * split_k  # that compute together
        self.cluster_ctas = max(neighbours, self.team_ctas)
        self.teams = max(1, sm_count // self.cluster_ctas * (self.cluster_ctas // self.team_ctas))
        self.queue = queue == 1
        self.in_flight = Wgmma.in_flight(block_n, consumers)
        self.strips = block_n // e_block_n
        self.buffers = min(2, self.strips)
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)
        self.swap_ab = swap_ab == 1
        self.sum_layout = accumulator_layout(MMA_ROWS, e_block_n)
        self.pair_layout = pair_layout(MMA_ROWS, e_block_n)
        self.sum_tiles = Wgmma.sum_tiles(dtype.nbytes, block_k, form)
        self.two_sums = Wgmma.two_sums(form, consumers, block_n) and self.sum_tiles > 0
        self.of_blocks = Wgmma.of_blocks(form, self.swap_ab)  # if blocks of rows share a scale, or each row has one
        self.scale_bytes = sum(map(Wgmma.scale_bytes, self.of_blocks, (max(block_m, MMA_ROWS), block_n)))
        self.scaled_n = Wgmma.scaled_columns(form, block_n, e_block_n, self.swap_ab)

    @classmethod
    def leaves_zeros(cls):
        """Return True: the counter of a queue is 0 again at the end of each launch, and its memory is kept."""
        return True

    @classmethod
    def problem_of(cls, knobs, *args):
        """Return the problem of a call, and the form and the queue as arguments of `__init__`; remove these from
        `knobs`."""
        problem, of_call = super().problem_of(knobs, *args)
        if "queue" not in knobs:
            return problem, of_call
        queue = knobs.pop("queue")
        if integer(queue, 0, 1) is None:
            raise InputError(f"queue is {shown(queue)}; it must be 0, or 1 for tiles as they come.")
        return problem, {**of_call, "queue": queue}

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
        rows, columns = (n, m) if self.swap_ab else (m, n)  # of the result: C, or C.T = B @ A.T

        # The grid: a CTA for an SM, in clusters, but no more than the rounds need. 512 tiles take 132 SMs four rounds,
        # and 128 as well: these stay in step, and the idle SMs save power. `consumers` warpgroups multiply, 64 rows of
        # the tile each; one more warp loads, and one asks for tiles if there is a queue.
        tiles_m, tiles_n = cdiv(rows, self.cluster_m * self.block_m), cdiv(columns, self.cluster_n * self.block_n)
        self.of_a_batch: int32 = tiles_m * tiles_n
        count = batches * self.of_a_batch
        rounds = 1 if self.form.divides_k else (count - 1) // self.teams + 1  # at least one
        self.attrs.blocks = cdiv(cdiv(count, rounds) * self.team_ctas, self.cluster_ctas) * self.cluster_ctas
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 4 * self.consumers + (4 if self.gives_registers else 1 + self.queue)
        self.mine = ClusterOfTiles(self.cluster_m, self.cluster_n, self.block_m, self.block_n)
        self.part = self.cluster.blockRank // self.mine.tiles % self.split_k  # number of the CTA's part of K
        of_k = self.blockIdx.x // self.team_ctas // self.of_a_batch if self.form.divides_k else self.part
        parts = batches if self.form.divides_k else self.split_k
        first_k: int32 = cdiv(k, self.block_k) * of_k // parts
        k_tiles: int32 = cdiv(k, self.block_k) * (of_k + 1) // parts - first_k
        tiles = DynamicGroupedTiles(tiles_m, tiles_n, self.group_m)

        self.open_operands(batches, m, n, k, a_ptr, b_ptr, c_ptr)
        self.out = OutputTile(
            self.g_c, rows, columns, self.block_m, self.block_n, self.e_block_n, self.columns_of_c, self.swap_ab
        )
        self.a, self.b = (self.b, self.a) if self.swap_ab else (self.a, self.b)
        self.open_epilogue(batches, m, n, bias_ptr, residual_ptr, scale_a_ptr, scale_b_ptr)
        if self.split_k > 1:  # the sums that CTAs exchange, in two buffers that take turns
            shape = [2, self.teams * self.team_ctas, self.consumers, self.strips, MMA_ROWS, self.e_block_n]
            self.g_parts = self.global_tensor(dtype=float32, shape=shape, requires_clean=False)

        # On-chip memory: shared memory for `stages` k-tiles of A and B and, for each warpgroup, up to two strips of C.
        share_m, share_n = self.block_m // self.cluster_n, self.block_n // self.cluster_m
        piece_m = share_m if self.a_k else MMA_ROWS  # of a share of A: rows that follow each other in shared memory
        pieces = share_m // piece_m
        held = self.stages * self.boxes  # boxes of A, and as many of B
        held_m = max(self.block_m, MMA_ROWS)
        shape_a = [held, held_m, self.box_k] if self.a_k else [held, self.consumers, self.box_k, MMA_ROWS]
        s_a = self.shared_tensor(dtype=self.dtype, shape=shape_a)
        s_b = self.shared_tensor(dtype=self.dtype, shape=lines(self.b_k, [held], self.block_n, self.box_k))
        s_c = self.out.buffers(self.consumers, self.buffers)
        s_a_rows = self.reshape_shared(s_a, lines(self.a_k, [held, self.consumers], MMA_ROWS, self.box_k))
        s_a_shares = self.reshape_shared(s_a, lines(self.a_k, [held, held_m // piece_m], piece_m, self.box_k))
        s_b_shares = self.reshape_shared(s_b, lines(self.b_k, [held], [self.cluster_m, share_n], self.box_k))

        if self.of_blocks:
            of_rows, of_columns = (scale_b_ptr, scale_a_ptr) if self.swap_ab else (scale_a_ptr, scale_b_ptr)
            self.first_k, self.last_k = first_k, first_k + k_tiles - 1
            self.of_rows = StagedScales(of_rows, rows, k, self.of_blocks[0], held_m, self.stages)
            self.of_columns = StagedScales(of_columns, columns, k, self.of_blocks[1], self.block_n, self.stages)

        # Of a tile of few rows only those are loaded, and the others are zeros. A is K-major there.
        if self.block_m < MMA_ROWS:
            few = ZeroPadding(s_a, held, self.block_m, self.box_k)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival of
        # each warpgroup that reads it. Parts are there after an arrival of each CTA that computes the tile.
        ring = Ring(self.stages, empties=self.mine.writers * self.consumers)
        readers = self.consumers + 1  # of a tile's number
        order = TileQueue(self.team_ctas, self.teams, readers) if self.queue else FixedOrder(self.team_ctas)
        self.given = self.mbarrier.alloc(counts=[self.split_k for _ in range(self.consumers)])
        self.cluster.sync()  # every warp of every CTA sees the initialised barriers

        # The loading warp needs few registers. The three warps beside it only give theirs, as a warpgroup has to do so.
        if self.gives_registers:
            with self.warp_group(4 * self.consumers, 4):
                self.setmaxnreg.dec(Wgmma.loading_registers)

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes + self.scale_bytes
            tile: int32 = order.first_tile()
            while tile < count:
                batch, tile_of_batch = self.fast_divmod(tile, self.of_a_batch)
                row, column = tiles.place(tile_of_batch)
                tile_m, tile_n = self.mine.tile_at(row, column)
                offset_m, offset_n = self.out.begin(tile_m, tile_n)
                # Every second tile begins with the k-tile that the one before ended with.
                back = order.round_of(tile) % 2
                step_k = self.box_k - back * 2 * self.box_k
                offset_k: int32 = first_k * self.block_k + back * (k_tiles * self.block_k - self.box_k)
                # Elements outside of A and B arrive as zeros, which add nothing.
                for _ in range(k_tiles):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    if self.of_blocks:
                        self.of_rows.load(stage, offset_m, offset_k // self.block_k, full)
                        self.of_columns.load(stage, offset_n, offset_k // self.block_k, full)
                    for part in self.range(0, self.boxes, 1, unroll="all"):
                        box = stage * self.boxes + part
                        for piece in self.range(0, pieces, 1, unroll="all"):
                            at = self.mine.place_n * pieces + piece
                            row = offset_m + at * piece_m
                            if self.cluster_n == 1:
                                self.a.load(s_a_shares[box, at], batch, row, offset_k, full)
                            else:  # into every CTA at the same place; each CTA's barrier counts the bytes that it gets
                                self.a.multicast(s_a_shares[box, at], batch, row, offset_k, full, self.mine.mask_a)
                        if self.cluster_m == 1:
                            self.b.load(s_b[box], batch, offset_n, offset_k, full)
                        else:
                            at = self.mine.place_m
                            share = s_b_shares[box, at] if self.b_k else s_b_shares[box, :, at]
                            self.b.multicast(share, batch, offset_n + at * share_n, offset_k, full, self.mine.mask_b)
                        offset_k += step_k
                    ring.advance()
                tile = order.next_tile(tile)
            # No CTA may exit while another one still signals its barriers. Once all its stages are empty, none does.
            for _ in range(self.stages):
                ring.wait_empty()
                ring.advance()

        if self.queue:
            with self.single_warp(4 * self.consumers + 1):
                order.ask(count)

        # The warpgroups that multiply. wgmma needs its warps at compile time: hence one call for each.
        self.s_a, self.s_b, self.s_c = s_a_rows, s_b, s_c
        with self.warp_group(0, 4):
            if self.block_m < MMA_ROWS:
                few.clear()  # while the first k-tiles are on their way
            self.consume(0, ring, order, tiles, count, k_tiles)
        if self.consumers > 1:
            with self.warp_group(4, 4):
                self.consume(1, ring, order, tiles, count, k_tiles)
        if self.consumers > 2:
            with self.warp_group(8, 4):
                self.consume(2, ring, order, tiles, count, k_tiles)

    def multiply(self, ring: Ring, which: int, r_sum: RegisterTensor):
        """Wait for a k-tile, and issue its MMAs, as a group, of the rows of warpgroup number `which`."""
        # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
        ring.wait_full()
        stage = ring.stage
        # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"), and no
        # thread may touch the accumulator before the wait ("wgmma.wait_group").
        self.wgmma.fence()
        for part in self.range(0, self.boxes, 1, unroll="all"):
            box = stage * self.boxes + part
            t_a = self.s_a[box, which] if self.a_k else self.s_a[box, which].transpose()
            t_b = self.s_b[box].transpose() if self.b_k else self.s_b[box]
            self.wgmma.mma(t_a, t_b, r_sum)
        self.wgmma.commit_group()

    def add_in_turn(self, ring: Ring, which: int, r_acc: RegisterTensor, k_tiles: int32) -> int32:
        """Add pairs of sums of `sum_tiles` k-tiles each to r_acc; return the number of k-tiles that they hold.

        A single warpgroup would leave the tensor cores idle while it adds a sum. Here the MMAs of one sum run while the
        other one is added. Each has its own code: ptxas serialises MMAs whose accumulator depends on a branch (C7514).
        """
        r_even = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
        r_odd = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
        pairs: int32 = k_tiles // (2 * self.sum_tiles)
        for pair in self.range(0, pairs, 1, unroll=1):
            self.sum_and_add(ring, which, r_even, r_odd, r_acc, pair)  # at first r_odd is 0
            self.sum_and_add(ring, which, r_odd, r_even, r_acc, 1)
        self.wgmma.wait_group(0)
        if pairs > 0:
            self.mine.release(ring.empty(1))
        r_acc += r_odd
        return pairs * 2 * self.sum_tiles

    def sum_and_add(
        self,
        ring: Ring,
        which: int,
        r_sum: RegisterTensor,
        r_other: RegisterTensor,
        r_acc: RegisterTensor,
        earlier: int32,
    ):
        """Multiply `sum_tiles` k-tiles into r_sum; meanwhile add r_other to r_acc, and set r_other to 0.

        earlier: 0 for the first sum of a tile, when no MMA of r_other is in flight.
        """
        for k_tile in self.range(0, self.sum_tiles, 1, unroll="all"):
            self.multiply(ring, which, r_sum)
            self.wgmma.wait_group(1)
            if k_tile > 0 or earlier > 0:
                self.mine.release(ring.empty(1))
            ring.advance()
            if k_tile == 0:
                r_acc += r_other
                self.assign(r_other, self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0))

    def consume(
        self, which: int, ring: Ring, order: FixedOrder, tiles: DynamicGroupedTiles, count: int32, k_tiles: int32
    ):
        """Compute and store 64 rows of each tile: the code of warpgroup number `which`."""
        if self.gives_registers:
            self.setmaxnreg.inc(Wgmma.registers_of_three)
        # Set once more, so that the compiler knows: all threads here have the same stage, and share one address.
        ring.stage, ring.phase = 0, 0
        self.keep_columns()
        if self.of_blocks:
            self.scales = BlockScales(self.of_rows, self.of_columns, which, self.block_n, self.scaled_n)
        turn: uint32 = 0  # number of the buffer for parts, and the parity of their phase
        tile: int32 = order.first_tile()
        while tile < count:
            batch, tile_of_batch = self.fast_divmod(tile, self.of_a_batch)
            row, column = tiles.place(tile_of_batch)
            tile_m, tile_n = self.mine.tile_at(row, column)
            offset_m, offset_n = self.out.begin(tile_m, tile_n)
            self.load_columns(offset_n)
            if self.of_blocks:
                back = order.round_of(tile) % 2
                self.scales.begin(offset_m, offset_n, self.last_k if back else self.first_k, 1 - 2 * back)
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            # With 8-bit operands wgmma keeps about 13 bits of a sum, so that fp32 adds the sums of a few k-tiles each.
            rest = k_tiles - self.add_in_turn(ring, which, r_acc, k_tiles) if self.two_sums else k_tiles
            sums = cdiv(rest, self.sum_tiles) if self.sum_tiles else 1
            for each in self.range(0, sums, 1, unroll=1 if self.sum_tiles else "all"):
                shape = [MMA_ROWS, self.block_n]
                r_some = self.register_tensor(dtype=float32, shape=shape, init=0.0) if self.sum_tiles else r_acc
                most = min(self.sum_tiles, rest - each * self.sum_tiles) if self.sum_tiles > 1 else 1
                length = most if self.sum_tiles else rest
                for k_tile in self.range(0, length, 1, unroll=1):  # four a round would compile for twice as long
                    self.multiply(ring, which, r_some)
                    if self.of_blocks:
                        self.scales.read(ring.stage)  # while the MMAs run
                    # A warpgroup that waits for what it has just issued leaves the tensor cores to the other; one that
                    # is alone leaves them idle, so that it waits for the k-tile before.
                    self.wgmma.wait_group(self.in_flight)
                    if k_tile >= self.in_flight:
                        self.mine.release(ring.empty(self.in_flight))
                    ring.advance()
                if self.in_flight:
                    self.wgmma.wait_group(0)
                    if length > 0:
                        self.mine.release(ring.empty(1))
                if self.sum_tiles:
                    r_acc += self.scales.scaled(r_some) if self.of_blocks else r_some

            self.store_columns()

            # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time; if several CTAs
            # compute a tile, each finishes every split_k-th strip. First it stores its sums of the others.
            self.annotate_layout(r_acc, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            if self.split_k > 1:
                for strip in self.range(0, self.strips, 1, unroll="all"):
                    if strip % self.split_k != self.part:
                        offsets = [turn, self.blockIdx.x, which, strip, 0, 0]
                        self.store_global(self.g_parts, r_strips[0, strip], offsets=offsets, dims=[4, 5])
                self.sync()
                with self.single_thread(0):
                    # The CTA arrives at its own barrier without a release to the cluster, which would take longer.
                    self.mbarrier.arrive(self.given[which])
                    for other in range(1, self.split_k, 1):
                        rank = (self.cluster.blockRank + other * self.mine.tiles) % self.cluster_ctas
                        self.mbarrier.arrive_and_expect_tx_remote(
                            self.given[which], transaction_bytes=0, target_rank=rank
                        )
                # After this wait every CTA has read the parts of the tile before: their buffer is free again.
                self.mbarrier.wait(self.given[which], phase=turn, scope="cluster")
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last one
            for strip in self.range(0, self.strips, 1, unroll="all"):
                if strip % self.split_k == self.part:
                    r_sum = r_strips[0, strip]
                    if self.split_k > 1:
                        for other in self.range(1, self.split_k, 1, unroll="all"):
                            rank = self.cluster.blockRank
                            giver = self.blockIdx.x - rank + (rank + other * self.mine.tiles) % self.cluster_ctas
                            offsets = [turn, giver, which, strip, 0, 0]
                            r_sum += self.load_global(
                                self.g_parts, offsets=offsets, shape=[MMA_ROWS, self.e_block_n], dims=[4, 5]
                            )
                    # The loads of the epilogue overlap the wait for a buffer.
                    at_m, at_n = offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n
                    r_c = self.finish(r_sum, batch, at_m, at_n)
                    # Two buffers take turns: this one is free when TMA still reads at most the other. Only the thread
                    # that issued the stores can wait ("cp.async.bulk.wait_group"): the others sync.
                    with self.single_warp():
                        self.tma.wait_group(n=self.buffers - 1, read=True)
                    self.sync()
                    # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences,
                    # then sync.
                    s_strip = self.s_c[which, strip // self.split_k % self.buffers]
                    self.out.put(s_strip, r_c.to(self.c_dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    # Elements outside of C are not stored, nor those that the tiles before store.
                    if self.by_element:
                        self.out.store_elements(self.elements, s_strip, batch, at_m, at_n, tile_m, tile_n)
                    else:
                        with self.single_warp():
                            self.out.store(s_strip, batch, at_m, at_n, tile_m, tile_n)
                            self.tma.commit_group()
            turn ^= 1
            tile = order.next_tile(tile)

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)
