"""S2 with a block-scaled C: the warps that store apply factor and bias, quantise, and store elements and scales.

New against S2: a thread that stores has a whole row of a strip, and so whole blocks. An example of nvfp4:

    sums of a strip    128 rows x 64      float32    from tensor memory
    elements           128 rows x 32      bytes      each thread stores 32 bytes of its row
    scales             128 rows x 4       bytes      each thread stores 4 of one atom

Strips are stored from registers, without shared memory: a row of a strip has 32 bytes, a whole sector.
"""

from tilus import DataType, RegisterTensor, float32, int32, void_p
from tilus.ir.layout.ops import spatial
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript, check_number, formats_of, the_one, types_of
from blackwell_matmul.kernels.host.forms import ABSENT, OUTPUTS
from blackwell_matmul.kernels.host.matmul import check_device, check_is_tensor, check_layout, check_shape, size
from blackwell_matmul.kernels.parts.block_quantizer import BlockQuantizer
from blackwell_matmul.kernels.parts.overlapping_sums import OverlappingSums
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.scale_atoms import ScaleAtoms
from blackwell_matmul.kernels.parts.tile_scheduler import ClcTileScheduler
from blackwell_matmul.lang import FORMATS, Rounded
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED, STEP_K
from blackwell_matmul.problem.problem import Problem

STRIP_N = 64
"""Columns of a strip: 4 blocks of nvfp4, or 2 blocks of mxfp8 or mxfp4, whose scales are in one atom."""


class BlackwellScaledQuantizer(ScaledMatmulScript):
    """C, scale_c = quantize(factor * (A scales) @ (B scales).T + bias). All but the sums is rounded as in torch.

    out: format of C. factor: True if there is a factor. two_levels: True if C has a second scale. bias: type of the
    bias; None without one."""

    features = ("tma", "ring", "specialised", "grouped", "clc", "pairs", "scaled")
    rounded = Rounded()

    def __init__(
        self, dtype: str, block_m: int, block_n: int, block_k: int, e_block_n: int, stages: int, group_m: int,
        out: str, factor: bool, two_levels: bool, bias: DataType = None, types: str = "",
    ):  # fmt: skip
        super().__init__()
        self.dtype = dtype
        self.format = FORMATS[dtype].of(types)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.group_m = group_m
        self.half_m = block_m // 2
        self.half_n = block_n // 2
        self.out = out
        self.c_format = FORMATS[out]
        self.blocks = e_block_n // self.c_format.block  # of a row of a strip
        self.factor = factor
        self.two_levels = two_levels
        self.bias = bias
        self.strip_layout = spatial(128, 1).local(1, e_block_n)

    def __call__(
        self, m: int32, n: int, k: int,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
        scale_c_ptr: void_p, factor_ptr: void_p, factor_c_ptr: void_p, bias_ptr: void_p,
    ):  # fmt: skip
        # The grid, memory, barriers and the warps that load and multiply are those of S2.
        tiles = GroupedTiles(cdiv(m, self.block_m), cdiv(n, self.block_n), self.group_m)
        self.attrs.blocks = 2 * cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 7
        rank = self.cluster.blockRank

        of_a, of_b, per_byte = self.format.element, self.format.element_b, self.format.per_byte
        g_a = self.global_view(a_ptr, dtype=of_a, shape=[m, k // per_byte])
        g_b = self.global_view(b_ptr, dtype=of_b, shape=[n, k // per_byte])
        self.open_output(m, n, c_ptr, scale_c_ptr, factor_ptr, factor_c_ptr, bias_ptr)

        s_a = self.shared_tensor(dtype=of_a, shape=[self.stages, self.half_m, self.block_k // per_byte])
        s_b = self.shared_tensor(dtype=of_b, shape=[self.stages, self.half_n, self.block_k // per_byte])
        scales = ScaleAtoms(
            self.dtype, m, n, k, scale_a_ptr, scale_b_ptr, self.half_m, self.block_n, self.block_k, self.stages, 2
        )
        ring = Ring(self.stages)
        sums = OverlappingSums(self.block_n, self.e_block_n, 2 * scales.columns)
        scheduler = ClcTileScheduler(warps=7, ctas=2)
        self.cluster.sync()  # every warp of both sees the initialised barriers

        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.half_m, sums.columns], cta_group=2)
        scales.t_all = t_acc
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        self.sync()  # every warp sees the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(4):
            tile_bytes = (self.block_m + self.block_n) * self.block_k // per_byte + 2 * scales.nbytes
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n + rank * self.half_n
                for offset_k in range(0, k, self.block_k):
                    ring.wait_empty()
                    full = ring.full()
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = ring.stage
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k // per_byte], mbarrier=full, cta_group=2
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k // per_byte], mbarrier=full, cta_group=2
                    )
                    scales.load(stage, offset_m, column * self.block_n, offset_k, full)
                    ring.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that multiplies, for both CTAs.
        with self.single_warp(5):
            tile: int32 = scheduler.first()
            while True:
                _, column = tiles.place(tile)
                if rank == 0:
                    sums.wait_empty()
                    for offset_k in range(0, k, self.block_k):
                        ring.wait_full()
                        stage = ring.stage
                        t_a, t_b = s_a[stage], s_b[stage].transpose()
                        t_sum = self.tcgen05.slice(t_acc, [0, sums.column()], [0, 1], [self.half_m, self.block_n])
                        scale_a, scale_b = scales.copy(ring, sums.behind)
                        self.tcgen05.mma_scaled(
                            t_a, t_b, t_sum, scale_a, scale_b, block=self.format.block, enable_input_d=offset_k != 0,
                            first_row=column * self.block_n % 128, cta_group=2,
                        )  # fmt: skip
                        self.tcgen05.commit(mbarrier=ring.empty(), cta_group=2, multicast_mask=0b11)
                        ring.advance()
                    self.tcgen05.commit(mbarrier=sums.full(), cta_group=2, multicast_mask=0b11)
                    sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that asks for the next tile, for both CTAs.
        with self.single_warp(6):
            scheduler.ask()

        # Epilogue: the warps that store, while the next tile is multiplied.
        with self.warp_group(0, 4):
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n
                sums.wait_full()
                # Tensor memory -> registers -> global memory, one strip of columns at a time.
                for e_offset_n in range(0, self.block_n, self.e_block_n):
                    strip, first = sums.strip(e_offset_n)
                    t_strip = self.tcgen05.slice(t_acc, [0, first], [0, 1], [self.half_m, self.e_block_n])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    sums.loaded(e_offset_n)
                    self.store(self.finish(r_strip, offset_n + strip), offset_m, offset_n + strip)
                sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Tensor memory must be freed by both CTAs before they exit ("tcgen05.dealloc"). A CTA must not exit while the
        # other one may still signal its barriers.
        self.cluster.sync()
        self.tcgen05.dealloc(t_acc)

    def open_output(
        self, m: int32, n: int, c_ptr: void_p, scale_c_ptr: void_p, factor_ptr: void_p, factor_c_ptr: void_p,
        bias_ptr: void_p,
    ):  # fmt: skip
        """Make views of C, its scales, the factor and the bias. The n columns of C are viewed in blocks."""
        block, per_byte = self.c_format.block, self.c_format.per_byte
        self.g_c = self.global_view(c_ptr, dtype=self.c_format.element, shape=[m, n // block, block // per_byte])
        self.quantizer = BlockQuantizer(
            self.out, "rceil", self.two_levels, 128, across=1, blocks=self.blocks,
            batches=1, m=m, k=n, scale_ptr=scale_c_ptr, factor_ptr=factor_c_ptr,
        )  # fmt: skip
        if self.factor:
            self.g_factor = self.global_view(factor_ptr, dtype=float32, shape=[1, 1])
        if self.bias is not None:
            self.g_bias = self.global_view(bias_ptr, dtype=self.bias, shape=[1, n])

    def finish(self, r_strip: RegisterTensor, column: int32):
        """Return a strip of sums times the factor plus the bias. column: first column of the strip."""
        if self.factor:
            r_strip = self.rounded.mul(r_strip, self.load_global(self.g_factor, offsets=[0, 0], shape=[1, 1]))
        if self.bias is not None:
            r_bias = self.load_global(self.g_bias, offsets=[0, column], shape=[1, self.e_block_n])
            r_strip = self.rounded.add(r_strip, r_bias.to(float32))
        return r_strip

    def store(self, r_strip: RegisterTensor, row: int32, column: int32):
        """Quantise and store the strip that begins at C[row, column]. Elements outside of C are not stored."""
        block: int32 = column // self.c_format.block
        self.annotate_layout(r_strip, self.strip_layout)
        r_data, r_scales = self.quantizer.quantize(self.view(r_strip, layout=self.quantizer.layout))
        self.store_global(self.g_c, r_data, offsets=[row, block, 0])
        self.quantizer.store_scales(r_scales, 0, row, block)

    @classmethod
    def check_arguments(
        cls, m, n, k, a, b, scale_a, scale_b, c, scale_c, factor=ABSENT, factor_c=ABSENT, bias=ABSENT
    ):  # fmt: skip
        """Raise InputError for arguments that no schedule can run. c, scale_c: tensors of bytes."""
        m, n, k = (size(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        given = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "c": c, "scale_c": scale_c}
        given |= {"factor": factor, "factor_c": factor_c, "bias": bias}
        tensors = {name: tensor for name, tensor in given.items() if tensor is not ABSENT}
        for name, tensor in tensors.items():
            check_is_tensor(name, tensor)
            check_layout(name, tensor)
        check_device(tensors)
        for name in tensors.keys() & {"factor", "factor_c"}:
            check_number(name, tensors[name])
        if bias is not ABSENT:
            check_bias(bias, n)
        formats_of(m, n, k, a, b, scale_a, scale_b, c)
        if n % STEP_K:
            raise InputError(f"n is {n}; it must be a multiple of {STEP_K}, as k of a product is.")

    @classmethod
    def problem_of(cls, knobs, *args):
        """Return the problem, whose C counts as bf16, and further arguments of `__init__`, removed from `knobs`."""
        m, n, k, a, b, scale_a, scale_b, c, scale_c, factor, factor_c, bias = args
        dtype = the_one(formats_of(m, n, k, a, b, scale_a, scale_b, c), knobs.pop("dtype", None))
        out = knobs.pop("out", None)
        if out not in BLOCK_SCALED:
            raise InputError(f"out is {shown(out)}; pin one of {', '.join(BLOCK_SCALED)}.")
        check_shape("c", c, "mc", {"m": m, "c": n // BLOCK_SCALED[out].per_byte})
        check_shape("scale_c", scale_c, "s", {"s": BLOCK_SCALED[out].scales(m, n)})
        if knobs.setdefault("e_block_n", STRIP_N) != STRIP_N:
            raise InputError(
                f"e_block_n is {shown(knobs['e_block_n'])}; a strip of a block-scaled C has {STRIP_N} columns."
            )
        of_outputs = {"out": out, "factor": factor is not ABSENT, "two_levels": factor_c is not ABSENT}
        of_bias = None if bias is ABSENT else cls.type_of(OUTPUTS[bias.dtype])
        types = types_of(dtype, a, b, knobs.pop("types", None))
        of_operands = {"types": types} if types else {}
        return Problem(int(m), int(n), int(k), dtype), {**of_outputs, "bias": of_bias, **of_operands}


def check_bias(bias, n):
    """Raise InputError unless a tensor can be a bias for n columns."""
    check_shape("bias", bias, "n", {"n": n})
    if bias.dtype not in OUTPUTS:
        raise InputError(f"bias is {bias.dtype}; it must be {', '.join(map(str, OUTPUTS))}.")
