"""Epilogue: scales, residual, bias and activation, applied to a strip of sums in registers before it is stored.

A strip of [rows, columns] sums whose first one is C[row, column] reads, and becomes, in this order:

    sums * scale_a[row:, 1] * scale_b[1, column:]       row-wise scales; or both are one number
         * alpha
         + beta * residual[row:, column:]
         + bias[1, column:]
    activation                                          swiglu makes one column of C of two columns of sums
"""

from tilus import RegisterTensor, boolean, float32, int32, void_p

from blackwell_matmul.kernels.host.forms import check_call, pinned_form, problem_of
from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.parts.column_vector import ColumnVector
from blackwell_matmul.kernels.parts.operand import Operand, lines, strides
from blackwell_matmul.problem.form import PLAIN, Form

GELU_TAIL = {
    2: (-1.00012028, -1.14917707, -0.464125812, -0.0482274666, 0.0058222292, -0.000319735438),
    4: (
        *(-0.99999994, -1.15110803, -0.459185302, -0.0525659658, 0.00716560008),
        *(-0.000216135042, -0.00015306058, 3.23532149e-05, -2.24509517e-06),
    ),
}
"""Coefficients of P in Phi(-x) = 2 ** P(x) for x >= 0, by the bytes of an element of C.

Weighted minimax fits on [0, 5.8]; beyond, P falls. Largest errors of Phi: 4.2e-5 and 2.3e-8. Relative errors up to
x = 3, 4, 5: 8e-5, 1e-4, 3e-3, and 2e-6, 5e-5, 7e-3. For comparison: half a step of fp16 is 5e-4, and
1 + erf(-x / sqrt(2)) in fp32 has errors of 1e-5, 5e-4, 5e-2.
"""

LOG2_E = 1.4426950408889634
TANH_SCALE = 1.5957691216057308 * LOG2_E
TANH_CUBE = TANH_SCALE * 0.044715
"""Factors of torch's GELU by tanh, in powers of two: 2 sqrt(2 / pi), because 1 + tanh(y) = 2 / (1 + exp(-2 y)), and the
factor of the cube."""


class EpilogueScript(MatmulScript):
    """Kernel with a `form`. Its `__call__` calls `open_epilogue` once, and `finish` with each strip.

    Override `finish` for an epilogue of your own.
    """

    features = ()
    divisors = {"n": 8}
    """Divisor of a size, by name, which the compiled kernel relies on where the size is a multiple. Rows of a residual
    are n elements apart, and loads of several elements need addresses that are multiples of 16 bytes."""

    @classmethod
    def check_arguments(cls, m, n, k, a, b, c, bias=0, residual=0, scale_a=0, scale_b=0, batches=1):
        """Raise InputError, one sentence, for arguments that no schedule could run.

        A and B may be contiguous along their rows, or slices of larger matrices. With batches they are [batches, rows,
        k], or one matrix for all. 0: no such tensor.
        """
        check_call(m, n, k, a, b, c, bias, residual, scale_a, scale_b, batches)

    @classmethod
    def problem_of(cls, knobs, *args):
        """Return the problem, and the form as an argument of `__init__`; takes `form` out of the knobs."""
        problem = problem_of(pinned_form(knobs.pop("form", PLAIN)), args)
        return problem, {} if problem.form == PLAIN else {"form": problem.form}

    def take_form(self, form: Form):
        """Set the attributes that the methods here use. `__init__` calls this after it has set `dtype`."""
        self.form = form
        self.c_dtype = self.type_named(form.out) if form.out else self.type_of_c(self.dtype)
        self.gelu_tail = GELU_TAIL[self.c_dtype.nbytes]
        self.cta_group = 2 if "pairs" in self.features else 1  # CTAs that share the mbarriers of a stage
        self.columns_of_c = form.epilogue.columns_of_c
        self.a_k, self.b_k = form.a_major == "k", form.b_major == "k"

    def open_operands(self, batches: int32, m: int32, n: int32, k: int32, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        """Make views of A, B and C, with their dimensions in the order of memory."""
        g_a = self.global_view(
            a_ptr,
            dtype=self.dtype,
            shape=lines(self.a_k, [batches if self.form.a_batched else 1], m, k),
            strides=strides(self.a_k, self.form.a_stride, self.form.a_batch_stride, m, k),
        )
        g_b = self.global_view(
            b_ptr,
            dtype=self.dtype,
            shape=lines(self.b_k, [batches if self.form.b_batched else 1], n, k),
            strides=strides(self.b_k, self.form.b_stride, self.form.b_batch_stride, n, k),
        )
        self.a = Operand(g_a, self.a_k, self.form.a_batched, self.cta_group)
        self.b = Operand(g_b, self.b_k, self.form.b_batched, self.cta_group)
        columns = n // self.columns_of_c
        self.g_c = self.global_view(
            c_ptr,
            dtype=self.c_dtype,
            shape=[batches, m, columns],
            strides=strides(True, self.form.c_stride, 0, m, columns),
        )

    def open_epilogue(
        self,
        batches: int32,
        m: int32,
        n: int32,
        bias_ptr: void_p,
        residual_ptr: void_p,
        scale_a_ptr: void_p,
        scale_b_ptr: void_p,
    ):
        """Make views of the tensors that the epilogue reads. Batches share bias and scales."""
        if self.form.epilogue.bias:
            self.g_bias = self.global_view(bias_ptr, dtype=self.c_dtype, shape=[1, n])
            self.bias = ColumnVector(self.g_bias, self.block_n, self.e_block_n, kept=False)
        if self.form.epilogue.residual:
            self.g_residual = self.global_view(residual_ptr, dtype=self.c_dtype, shape=[batches, m, n])
        if self.form.epilogue.scale == "rowwise":
            self.g_scale_a = self.global_view(scale_a_ptr, dtype=float32, shape=[m, 1])
            self.g_scale_b = self.global_view(scale_b_ptr, dtype=float32, shape=[1, n])
            self.scale_b = ColumnVector(self.g_scale_b, self.block_n, self.e_block_n, kept=False)
        if self.form.epilogue.scale == "tensor":
            self.g_scale_a = self.global_view(scale_a_ptr, dtype=float32, shape=[1, 1])
            self.g_scale_b = self.global_view(scale_b_ptr, dtype=float32, shape=[1, 1])

    def keep_columns(self):
        """Allocate shared memory of a warpgroup for the column vectors of a tile."""
        if self.form.epilogue.bias:
            self.bias = ColumnVector(self.g_bias, self.block_n, self.e_block_n, kept=True)
        if self.form.epilogue.scale == "rowwise":
            self.scale_b = ColumnVector(self.g_scale_b, self.block_n, self.e_block_n, kept=True)

    def load_columns(self, column: int32):
        """Load the column vectors of the tile that begins at this column, into registers."""
        if self.form.epilogue.bias:
            self.bias.load(column)
        if self.form.epilogue.scale == "rowwise":
            self.scale_b.load(column)

    def store_columns(self):
        """Store the column vectors into shared memory, and synchronise the warpgroup."""
        if self.form.epilogue.bias:
            self.bias.store()
        if self.form.epilogue.scale == "rowwise":
            self.scale_b.store()
        if self.form.epilogue.bias or self.form.epilogue.scale == "rowwise":
            self.sync()

    def finish(self, r_sum: RegisterTensor, batch: int32, row: int32, column: int32):
        """Return a strip of sums as C stores it. [row, column]: its first sum. Elements beyond C are undefined."""
        rows, columns = r_sum.shape
        if self.form.epilogue.scale == "rowwise":
            r_sum *= self.load_global(self.g_scale_a, offsets=[row, 0], shape=[rows, 1])
            r_sum *= self.scale_b.strip(column, columns)
        if self.form.epilogue.scale == "tensor":
            r_sum *= self.load_global(self.g_scale_a, offsets=[0, 0], shape=[1, 1])
            r_sum *= self.load_global(self.g_scale_b, offsets=[0, 0], shape=[1, 1])
        if self.form.epilogue.alpha != 1:
            r_sum *= self.form.epilogue.alpha
        if self.form.epilogue.residual and self.form.epilogue.beta != 0:  # 0 times NaN would be NaN
            r_residual = self.load_global(
                self.g_residual, offsets=[batch, row, column], shape=[rows, columns], dims=[1, 2]
            )
            r_sum += r_residual.to(float32) * self.form.epilogue.beta
        if self.form.epilogue.bias:
            r_sum += self.bias.strip(column, columns).to(float32)
        return self.gated(r_sum) if self.columns_of_c == 2 else self.activated(r_sum)

    def activated(self, r: RegisterTensor):
        """Return the activation of each element; `gated` is swiglu."""
        activation = self.form.epilogue.activation
        if activation == "relu":  # the larger of NaN and 0 would be 0
            r = self.where(r < 0.0, self.register_tensor(dtype=float32, shape=[1, 1], init=0.0), r)
        if activation == "gelu":
            r = r * self.phi(r)
        if activation == "gelu_tanh":
            r = r * self.logistic(r * (r * r * TANH_CUBE + TANH_SCALE))
        if activation == "silu":
            r = r * self.logistic(r * LOG2_E)
        return r

    def phi(self, r: RegisterTensor):
        """Return the distribution function of the normal distribution: one ex2, no division and no cancellation."""
        r_tail = self.exp2(self.gelu_power(self.abs(r), 0))
        return self.where(r < 0.0, r_tail, 1.0 - r_tail)

    def gelu_power(self, r: RegisterTensor, first: int):
        """Return the polynomial of `GELU_TAIL` from this term on, divided by r to the power of this term."""
        term = self.gelu_tail[first]
        return term if first == len(self.gelu_tail) - 1 else self.gelu_power(r, first + 1) * r + term

    def logistic(self, r: RegisterTensor):
        """Return 1 / (1 + 2 ** -r), by a reciprocal: a division takes three instructions more."""
        return 1.0 / (self.exp2(-r) + 1.0)

    def gated(self, r: RegisterTensor):
        """Return silu of the first column of each pair, times the second column."""
        self.annotate_layout(r, self.sum_layout)
        r_pairs = self.view(r, layout=self.pair_layout)
        r_first = self.register_tensor(dtype=boolean, shape=[1, 1, 2], init=lambda row, pair, which: which == 0)
        r_zero = self.register_tensor(dtype=float32, shape=[1, 1, 1], init=0.0)
        r_gate = self.sum(self.where(r_first, r_pairs, r_zero), dim=2)
        r_up = self.sum(self.where(r_first, r_zero, r_pairs), dim=2)
        return r_gate * self.logistic(r_gate * LOG2_E) * r_up


FinishingScript = EpilogueScript  # the name before 0.1.0, until 0.2.0
