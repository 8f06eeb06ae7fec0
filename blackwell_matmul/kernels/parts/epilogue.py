"""Epilogue: scales, residual, bias and activation, applied to a strip of sums in registers before the store.

A strip of [rows, columns] sums, the first of which belongs to C[row, column], is changed in this order:

    sums * scale_a[row:, 1] * scale_b[1, column:]       row-wise scales; or both are one number
         * alpha
         + beta * residual[row:, column:]
         + bias[1, column:]
    activation                                          swiglu: two columns of sums become one column of C
"""

from tilus import RegisterTensor, boolean, float32, int32, void_p

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import integer, shown
from blackwell_matmul.kernels.host.forms import check_call, pinned_form, problem_of
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES, MatmulScript
from blackwell_matmul.kernels.parts.column_vector import ColumnVector
from blackwell_matmul.kernels.parts.element_store import ElementStore
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

Weighted minimax fits on [0, 5.8]; for larger x, P decreases. Largest errors of Phi: 4.2e-5 and 2.3e-8. Relative errors
up to x = 3, 4, 5: 8e-5, 1e-4, 3e-3 for 2 bytes, and 2e-6, 5e-5, 7e-3 for 4 bytes. For comparison: rounding to fp16 has
a relative error of 5e-4, and 1 + erf(-x / sqrt(2)) in fp32 has 1e-5, 5e-4, 5e-2.
"""

LOG2_E = 1.4426950408889634
TANH_SCALE = 1.5957691216057308 * LOG2_E
TANH_CUBE = TANH_SCALE * 0.044715
"""Factors of x and of its cube in torch's tanh GELU, for exp2. 1 + tanh(y) = 2 / (1 + exp(-2 y)), so that the first is
2 sqrt(2 / pi) log2(e)."""


class EpilogueScript(MatmulScript):
    """Base class of kernels with a `form`. `__call__` calls `open_epilogue` once, and `finish` for each strip.

    A subclass that overrides `finish` has an epilogue of its own.
    """

    features = ()
    divisors = {"n": 8}
    """Divisors of sizes, by name. If a size is a multiple, the code is compiled for multiples: vector loads of a
    residual's rows, which are n elements apart, need addresses that are multiples of 16 bytes."""

    @classmethod
    def check_arguments(cls, m, n, k, a, b, c, bias=0, residual=0, scale_a=0, scale_b=0, batches=1):
        """Raise InputError for arguments that no schedule can run.

        A and B may be contiguous along k, m or n, and slices of larger matrices. With batches they are [batches, rows,
        k], or one matrix for all batches. 0 stands for an absent tensor.
        """
        check_call(m, n, k, a, b, c, bias, residual, scale_a, scale_b, batches)

    @classmethod
    def problem_of(cls, knobs, *args):
        """Return the problem of a call, and further arguments of `__init__`: the form, and by_element=1 if TMA cannot
        store the rows of C, or if it is pinned. Remove both from `knobs`."""
        problem = problem_of(pinned_form(knobs.pop("form", PLAIN)), args)
        of_call = {} if problem.form == PLAIN else {"form": problem.form}
        if "forms" not in cls.features:
            return problem, of_call
        row_bytes = problem.c_line * problem.c_bytes
        least = 1 if row_bytes % ALIGNMENT_BYTES else 0
        by_element = knobs.pop("by_element", least)
        if integer(by_element, least, 1) is None:
            able = f"1, as rows of c are {row_bytes} bytes apart" if least else "0 or 1"
            raise InputError(f"by_element is {shown(by_element)}; it must be {able}.")
        return problem, {**of_call, "by_element": 1} if by_element else of_call

    def take_form(self, form: Form):
        """Set the attributes that other methods use. `__init__` calls this method after it has set `dtype`."""
        self.form = form
        self.c_dtype = self.type_named(form.out) if form.out else self.type_of_c(self.dtype)
        self.gelu_tail = GELU_TAIL[self.c_dtype.nbytes]
        self.cta_group = 2 if "pairs" in self.features else 1  # CTAs that share the mbarriers of a stage
        self.columns_of_c = form.epilogue.columns_of_c
        self.a_k, self.b_k = form.a_major == "k", form.b_major == "k"

    def open_operands(self, batches: int32, m: int32, n: int32, k: int32, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        """Make views of A, B and C as attributes, with dimensions in the order of memory."""
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
        if self.by_element:
            self.elements = ElementStore(self.g_c, self.form.c_stride if self.form.c_stride else columns)

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
        """Make views of the epilogue's tensors as attributes. Batches share bias and scales."""
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
        """Allocate a warpgroup's shared memory for bias and column scales of a tile."""
        if self.form.epilogue.bias:
            self.bias = ColumnVector(self.g_bias, self.block_n, self.e_block_n, kept=True)
        if self.form.epilogue.scale == "rowwise":
            self.scale_b = ColumnVector(self.g_scale_b, self.block_n, self.e_block_n, kept=True)

    def load_columns(self, column: int32):
        """Load bias and column scales of the tile that begins at this column into registers."""
        if self.form.epilogue.bias:
            self.bias.load(column)
        if self.form.epilogue.scale == "rowwise":
            self.scale_b.load(column)

    def store_columns(self):
        """Store bias and column scales into shared memory, and synchronise the warpgroup."""
        if self.form.epilogue.bias:
            self.bias.store()
        if self.form.epilogue.scale == "rowwise":
            self.scale_b.store()
        if self.form.epilogue.bias or self.form.epilogue.scale == "rowwise":
            self.sync()

    def finish(self, r_sum: RegisterTensor, batch: int32, row: int32, column: int32):
        """Return the epilogue of a strip of sums, undefined outside of C. row, column: place of its first sum."""
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
        """Return the activation of each element, for all activations except swiglu."""
        activation = self.form.epilogue.activation
        if activation == "relu":  # max(NaN, 0) would be 0; torch's relu keeps NaN
            r = self.where(r < 0.0, self.register_tensor(dtype=float32, shape=[1, 1], init=0.0), r)
        if activation == "gelu":
            r = r * self.phi(r)
        if activation == "gelu_tanh":
            r = r * self.logistic(r * (r * r * TANH_CUBE + TANH_SCALE))
        if activation == "silu":
            r = r * self.logistic(r * LOG2_E)
        return r

    def phi(self, r: RegisterTensor):
        """Return the normal distribution function, with one ex2, and without division or cancellation."""
        r_tail = self.exp2(self.gelu_power(self.abs(r), 0))
        return self.where(r < 0.0, r_tail, 1.0 - r_tail)

    def gelu_power(self, r: RegisterTensor, first: int):
        """Return the polynomial of `GELU_TAIL` from term number `first` on, divided by r ** first."""
        term = self.gelu_tail[first]
        return term if first == len(self.gelu_tail) - 1 else self.gelu_power(r, first + 1) * r + term

    def logistic(self, r: RegisterTensor):
        """Return 1 / (1 + 2 ** -r), by a reciprocal: a division takes three more instructions."""
        return 1.0 / (self.exp2(-r) + 1.0)

    def gated(self, r: RegisterTensor):
        """Return swiglu: for each pair of columns, silu of the first column times the second column."""
        self.annotate_layout(r, self.sum_layout)
        r_pairs = self.view(r, layout=self.pair_layout)
        r_first = self.register_tensor(dtype=boolean, shape=[1, 1, 2], init=lambda row, pair, which: which == 0)
        r_zero = self.register_tensor(dtype=float32, shape=[1, 1, 1], init=0.0)
        r_gate = self.sum(self.where(r_first, r_pairs, r_zero), dim=2)
        r_up = self.sum(self.where(r_first, r_zero, r_pairs), dim=2)
        return r_gate * self.logistic(r_gate * LOG2_E) * r_up


FinishingScript = EpilogueScript  # former name, kept until 0.2.0
