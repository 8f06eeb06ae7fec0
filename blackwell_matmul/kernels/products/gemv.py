"""Products of a matrix with one to eight vectors (cuBLAS: gemv): C = A @ B.T where A, or B, has up to eight rows.

Memory bandwidth bounds the time: each element of the matrix is loaded once, 16 bytes at a time, into registers. An
mma.sync multiplies 16 rows by 8 columns. To use them all, its rows are few rows of the matrix in several stretches of
k, and its columns are the vectors in the same stretches. An example of two vectors:

                        columns: stretch 0    stretch 1    stretch 2    stretch 3    of both vectors
    4 rows, stretch 0            sums         .            .            .
    4 rows, stretch 1            .            sums         .            .
    4 rows, stretch 2            .            .            sums         .
    4 rows, stretch 3            .            .            .            sums         other products are not used

At the end the sums of all stretches, and of the warps that share k, are added in a fixed order: C has the same bits in
every run.
"""

from tilus import DataType, boolean, float32, int32, void_p
from tilus.ir.instructions.cuda.mma_dot import AtomicMmaConfig
from tilus.ir.layout.ops import permute, reduce, register_layout, reshape, spatial
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.host.gemv import (
    MMA_COLUMNS,
    MMA_ROWS,
    VECTOR,
    check_knobs,
    gemv_schedule,
    rows_of_mma,
    why_no_gemv,
)
from blackwell_matmul.kernels.parts.epilogue import EpilogueScript
from blackwell_matmul.kernels.parts.operand import strides
from blackwell_matmul.problem.form import PLAIN, Form


class Gemv(EpilogueScript):
    """C[m, n] = epilogue(A[m, k] @ B[n, k].T), for each batch. A, or with swap_ab B, has up to eight rows, the vectors.

    few: number of vectors. rows: rows of the matrix that a warp reads. warps: warps of a CTA. parts: number of warps
    that share rows, each with a part of k. unroll: steps along k whose loads a warp issues at a time. A and B are
    contiguous along k, in lines that are multiples of 16 bytes.
    """

    mma = "mma.sync"
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
        self.swap_ab = swap_ab == 1
        self.warps = warps
        of_mma = rows_of_mma(few)
        stretches = MMA_ROWS // of_mma
        self.few = MMA_COLUMNS // stretches  # of three vectors the fourth one is zeros
        groups, tiles = warps // parts, rows // of_mma
        self.block = rows * groups
        self.block_n = self.e_block_n = self.few if swap_ab else self.block
        self.step = parts * unroll * stretches * 8  # vectors of k: four threads load two each
        self.acc_rows = warps * tiles * MMA_ROWS

        # A thread loads operands of four mma.sync at once (PTX ISA, "Matrix Fragments for mma.m16n8k16"). The order of
        # k is free: in a line lie the vectors of four threads in each stretch. Rows of the MMA: (half, stretch, row).
        half = of_mma // 2
        self.load_layout = register_layout(
            shape=[self.block, self.step, VECTOR],
            mode_shape=[groups, tiles, 2, half, parts, unroll, 2, stretches, 4, VECTOR],
            spatial_modes=[0, 4, 7, 3, 8],
            local_modes=[1, 5, 6, 2, 9],
        )
        self.vector_layout = register_layout(
            shape=[self.few, self.step, VECTOR],
            mode_shape=[self.few, parts, unroll, 2, stretches, 4, VECTOR],
            spatial_modes=[-groups, 1, 4, 0, 5],
            local_modes=[2, 3, 6],
        )
        # The rows of A are those of all warps. B is that of each warp: its layout says "the same", its values differ.
        fragments = AtomicMmaConfig.m16n8k16_f16_f32(vec_k=4)
        self.a_layout = spatial(warps, 1).local(tiles, unroll) * fragments.la
        self.b_layout = spatial(warps, 1).reduce_to([1, 1]).local(unroll, 1) * fragments.lb
        self.acc_layout = spatial(warps, 1).local(tiles, 1) * fragments.lc

        # The epilogue: a lane for each row of each stretch adds what is on the diagonal.
        self.sums = [groups, parts, tiles, 2, stretches, half, stretches, self.few]
        self.diagonal = [1, 1, 1, 1, stretches, 1, stretches, 1]
        lanes = groups * tiles * MMA_ROWS
        self.adding_warps = cdiv(lanes, 32)
        same = [-2] if lanes == 16 else []  # lanes that add the same
        self.sums_layout = register_layout(
            shape=self.sums, mode_shape=self.sums, spatial_modes=[*same, 0, 2, 3, 4, 5], local_modes=[1, 6, 7]
        )
        self.added_layout = reduce(self.sums_layout, [1, 4, 6])
        rows_layout = reshape(self.added_layout, [self.block, self.few])
        self.sum_layout = rows_layout if swap_ab else permute(rows_layout, [1, 0])
        if self.columns_of_c == 2:
            self.pair_layout = reshape(self.sum_layout, [self.few, self.block // 2, 2])

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
        g_a = self.lines(a_ptr, self.form.a_batched, self.form.a_stride, self.form.a_batch_stride, batches, m, k)
        g_b = self.lines(b_ptr, self.form.b_batched, self.form.b_stride, self.form.b_batch_stride, batches, n, k)
        of_a = batch if self.form.a_batched else 0
        of_b = batch if self.form.b_batched else 0
        g_w, of_w, g_x, of_x = (g_a, of_a, g_b, of_b) if self.swap_ab else (g_b, of_b, g_a, of_a)
        columns = n // self.columns_of_c
        g_c = self.global_view(
            c_ptr,
            dtype=self.c_dtype,
            shape=[batches, m, columns],
            strides=strides(True, self.form.c_stride, 0, m, columns),
        )

        # Main loop over k. Elements outside of A and B are loaded as zeros, which add nothing.
        r_acc = self.register_tensor(dtype=float32, shape=[self.acc_rows, MMA_COLUMNS], init=0.0)
        self.annotate_layout(r_acc, self.acc_layout)
        for vector in self.range(0, k // VECTOR, self.step, unroll=1):
            shape_w, shape_x = [self.block, self.step, VECTOR], [self.few, self.step, VECTOR]
            r_w = self.load_global(g_w, offsets=[of_w, row, vector, 0], shape=shape_w, dims=[1, 2, 3])
            r_x = self.load_global(g_x, offsets=[of_x, 0, vector, 0], shape=shape_x, dims=[1, 2, 3])
            self.annotate_layout(r_w, self.load_layout)
            self.annotate_layout(r_x, self.vector_layout)
            self.dot(self.view(r_w, layout=self.a_layout), self.view(r_x, layout=self.b_layout), r_acc, out=r_acc)

        # Epilogue: registers -> shared memory -> one sum for each element of C -> global memory.
        s_acc = self.shared_tensor(dtype=float32, shape=[self.acc_rows, MMA_COLUMNS])
        self.store_shared(s_acc, r_acc)
        self.sync()
        with self.warp_group(0, self.adding_warps):
            r_all = self.load_shared(self.reshape_shared(s_acc, self.sums))
            self.annotate_layout(r_all, self.sums_layout)
            r_same = self.register_tensor(
                dtype=boolean, shape=self.diagonal, init=lambda a, b, c, d, of_row, e, of_vector, f: of_row == of_vector
            )
            r_zero = self.register_tensor(dtype=float32, shape=[1, 1, 1, 1, 1, 1, 1, 1], init=0.0)
            r_parts = self.sum(self.where(r_same, r_all, r_zero), dim=6)
            r_added = self.sum(self.sum(r_parts, dim=1), dim=3)
            self.annotate_layout(r_added, self.added_layout)
            r_sum = self.view(r_added, layout=self.sum_layout)
            at_m, at_n = (row, 0) if self.swap_ab else (0, row)
            r_c = self.finish(r_sum, batch, at_m, at_n)
            at = [batch, at_m, at_n // self.columns_of_c]
            self.store_global(g_c, r_c.to(self.c_dtype), offsets=at, dims=[1, 2])

    def lines(self, pointer: void_p, batched: bool, line: int, between: int, batches: int32, rows: int32, k: int32):
        """Return a view of A or B as [batch, row, k / 8, 8]."""
        apart = strides(True, line, between, rows, k)
        return self.global_view(
            pointer,
            dtype=self.dtype,
            shape=[batches if batched else 1, rows, k // VECTOR, VECTOR],
            strides=[apart[0], apart[1], VECTOR, 1],
        )

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """Return the arguments of `__init__` for a call; raise InputError for a call that the kernel cannot compute."""
        cls.check_arguments(*args)
        knobs = dict(pins)
        problem, of_call = cls.problem_of(knobs, *args)
        reason = why_no_gemv(args[3], args[4], problem.form)
        if reason:
            raise InputError(f"Gemv does not compute {problem}: {reason}.")
        chosen = gemv_schedule(problem, gpu or cls._gpu(target))
        chosen |= {name: knobs[name] for name in cls.knobs if name in knobs}
        check_knobs(chosen, problem)
        few, swap_ab = min(problem.m, problem.n), int(problem.n < problem.m)
        return {"dtype": cls.type_named(problem.dtype), "few": few, "swap_ab": swap_ab, **chosen, **of_call}
