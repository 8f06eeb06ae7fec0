"""Products of a matrix with one to four vectors (cuBLAS: gemv): C = A @ B.T where A, or B, has as many rows.

Memory bounds the time: each element of the matrix is read once and multiplied few times. So no shared memory lies in
between. Each thread has several loads of 16 bytes in flight, and multiplies from registers, in fp32. An example of
parts = 2, unroll = 1:

    warp                            0                             1
    lane              0        1     ...     31     0        1     ...     31
    elements of k   0..7     8..15        248..255  256..263             504..511     then on by 512
    rows            the same `rows` of the matrix, and all vectors

At the end the sums of all lanes of these warps are added, in one order, so that C has the same bits every time.
"""

from tilus import DataType, boolean, float32, int32, void_p
from tilus.ir.layout.ops import local, reduce, reshape, spatial
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.host.gemv import VECTOR, check_knobs, gemv_schedule, why_no_gemv
from blackwell_matmul.kernels.parts.epilogue import EpilogueScript
from blackwell_matmul.kernels.parts.operand import strides
from blackwell_matmul.problem.form import PLAIN, Form


class Gemv(EpilogueScript):
    """C[m, n] = epilogue(A[m, k] @ B[n, k].T), for each batch; A has up to four rows or, with swap_ab, B.

    few: those rows, the vectors. rows: rows of the matrix that a warp reads. warps: those of a CTA. parts: warps that
    share their rows, each with a part of k. unroll: loads of a row that a thread issues at a time. A and B are
    contiguous along k, in lines of multiples of 16 bytes.
    """

    mma = "mma.sync"  # which every GPU has; the kernel needs no MMA
    target = "sm_90a"
    knobs = ("rows", "warps", "parts", "unroll")
    divisors = {"n": 8, "k": VECTOR}

    def __init__(
        self,
        dtype: DataType,
        rows: int,
        warps: int,
        parts: int,
        unroll: int,
        few: int,
        swap_ab: int,
        form: Form = PLAIN,
    ):
        super().__init__()
        self.dtype = dtype
        self.take_form(form)
        self.few = few
        self.swap_ab = swap_ab == 1
        self.warps = warps
        groups = warps // parts  # that have rows of their own
        lanes = 32 * parts  # that share them
        self.block = rows * groups
        self.lanes = lanes
        self.step = unroll * lanes  # of the main loop, in vectors of k
        self.block_n = self.e_block_n = few if swap_ab else self.block

        # A load has the elements [row, vector of k, 8]; a product and a sum [vector, row, lane, those of a lane].
        loads = spatial(1, groups, 1, 1).local(few, rows, unroll, 1).spatial(1, 1, lanes, 1).local(1, 1, 1, VECTOR)
        self.load_layout, self.vector_layout = reduce(loads, [0]), reduce(loads, [1])
        self.lane_layout = spatial(1, groups, 1).local(few, rows, 1).spatial(1, 1, lanes)
        lane = spatial(1, groups, 1, 1).local(few, rows, 1, 1).spatial(1, 1, lanes, 1).local(1, 1, 1, unroll * VECTOR)
        self.row_layout, self.x_layout = reduce(lane, [0]), reduce(lane, [1], keepdims=True)
        # At the end each sum of a row is left to a few lanes of the first warps, which load up to 16 bytes at a time.
        adders = max(32 // self.block, min(8, 32 * warps // self.block))
        width = min(4, lanes // adders)
        self.adding_warps = adders * self.block // 32
        self.adding_layout = local(few, 1, lanes // adders // width).spatial(1, self.block, adders).local(1, 1, width)
        if self.columns_of_c == 2:
            self.sum_layout = reduce(self.adding_layout, [2])
            self.pair_layout = reshape(self.sum_layout, [few, self.block // 2, 2])

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
        # The grid: a CTA for each `block` rows of the matrix, in each batch.
        rows = m if self.swap_ab else n
        self.attrs.blocks = [cdiv(rows, self.block), batches]
        self.attrs.warps = self.warps
        row: int32 = self.blockIdx.x * self.block
        batch: int32 = self.blockIdx.y

        self.open_epilogue(batches, m, n, bias_ptr, residual_ptr, scale_a_ptr, scale_b_ptr)
        g_a = self.open(a_ptr, self.form.a_batched, self.form.a_stride, self.form.a_batch_stride, batches, m, k)
        g_b = self.open(b_ptr, self.form.b_batched, self.form.b_stride, self.form.b_batch_stride, batches, n, k)
        columns = n // self.columns_of_c
        g_c = self.global_view(
            c_ptr,
            dtype=self.c_dtype,
            shape=[batches, m, columns],
            strides=strides(True, self.form.c_stride, 0, m, columns),
        )
        g_x, g_w = (g_b, g_a) if self.swap_ab else (g_a, g_b)
        of_x = batch if (self.form.b_batched if self.swap_ab else self.form.a_batched) else 0
        of_w = batch if (self.form.a_batched if self.swap_ab else self.form.b_batched) else 0

        # Main loop over k. Elements outside of A and B are loaded as zeros, which add nothing.
        r_sums = self.register_tensor(dtype=float32, shape=[self.few, self.block, self.lanes], init=0.0)
        self.annotate_layout(r_sums, self.lane_layout)
        for vector in self.range(0, k // VECTOR, self.step, unroll=1):
            r_w = self.load_global(
                g_w, offsets=[of_w, row, vector, 0], shape=[self.block, self.step, VECTOR], dims=[1, 2, 3]
            )
            r_x = self.load_global(
                g_x, offsets=[of_x, 0, vector, 0], shape=[self.few, self.step, VECTOR], dims=[1, 2, 3]
            )
            self.annotate_layout(r_w, self.load_layout)
            self.annotate_layout(r_x, self.vector_layout)
            r_matrix = self.view(r_w, layout=self.row_layout).to(float32)
            r_vectors = self.view(r_x, layout=self.x_layout).to(float32)
            for i in self.range(0, self.few, 1, unroll="all"):
                r_more = r_sums + self.sum(r_matrix * r_vectors[i], dim=2)
                r_this = self.register_tensor(dtype=boolean, shape=[self.few, 1, 1], init=lambda v, row, lane: v == i)
                r_sums = self.where(r_this, r_more, r_sums)

        # Epilogue: the sums of the lanes -> shared memory -> one sum for each element of C -> global memory.
        s_sums = self.shared_tensor(dtype=float32, shape=[self.few, self.block, self.lanes])
        self.store_shared(s_sums, r_sums)
        self.sync()
        with self.warp_group(0, self.adding_warps):
            r_lanes = self.load_shared(s_sums)
            self.annotate_layout(r_lanes, self.adding_layout)
            r_sum = self.sum(r_lanes, dim=2)
            at_m, at_n = (row, 0) if self.swap_ab else (0, row)
            r_c = self.finish(self.transpose(r_sum) if self.swap_ab else r_sum, batch, at_m, at_n)
            at = [batch, at_m, at_n // self.columns_of_c]
            self.store_global(g_c, r_c.to(self.c_dtype), offsets=at, dims=[1, 2])

    def open(self, pointer: void_p, batched: bool, line: int, between: int, batches: int32, rows: int32, k: int32):
        """Return a view of A or B as [batch, row, vector of k, 8]."""
        apart = strides(True, line, between, rows, k)  # of batches and rows
        return self.global_view(
            pointer,
            dtype=self.dtype,
            shape=[batches if batched else 1, rows, k // VECTOR, VECTOR],
            strides=[apart[0], apart[1], VECTOR, 1],
        )

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """Return the arguments of `__init__` for this call; InputError for a call that the kernel does not compute."""
        cls.check_arguments(*args)
        knobs = dict(pins)
        problem, told = cls.problem_of(knobs, *args)
        reason = why_no_gemv(args[3], args[4], problem.form)
        if reason:
            raise InputError(f"Gemv does not compute {problem}: {reason}.")
        chosen = gemv_schedule(problem, gpu or cls._gpu(target)) | {
            name: knobs[name] for name in cls.knobs if name in knobs
        }
        check_knobs(chosen, problem)
        few, swap_ab = min(problem.m, problem.n), int(problem.n < problem.m)
        return {"dtype": cls.type_named(problem.dtype), "few": few, "swap_ab": swap_ab, **chosen, **told}
