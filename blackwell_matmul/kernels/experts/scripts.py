"""Base classes of the grouped GEMM of a mixture of experts and of its gradient, for Blackwell and Hopper.

offs, int32 on the device, has the end of the rows of each group; the host does not read offs.
"""

from tilus import SharedTensor, boolean, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.host.grouped import (
    check_knobs,
    check_product,
    check_sums,
    chosen,
    form_of_product,
    form_of_sums,
)
from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.parts.operand import Operand, lines, strides
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH
from blackwell_matmul.scheduling import rules
from blackwell_matmul.scheduling.mma import MMA_SPECS


class GroupedScript(MatmulScript):
    """C[rows of group g] = x[rows of group g, k] @ w[g, k, n], called with (m, n, k, groups, x, w, offs, c).

    Rows of C after the last group are zeros. sizes: values of each knob, ascending.
    """

    features = ("tma", "ring", "specialised", "persistent")
    sizes = {}
    knobs = ()

    def __init_subclass__(cls, **kwargs):
        cls.knobs = (*cls.sizes, "sm_count")
        super().__init_subclass__(**kwargs)

    @classmethod
    def check_arguments(cls, m, n, k, groups, x, w, offs, c):
        """Raise InputError for arguments that no schedule can run. x is contiguous along k, w along k or n."""
        check_product(m, n, k, groups, x, w, offs, c)

    @classmethod
    def form_and_extents(cls, m, n, k, groups, x, w, offs, c):
        """Return the form of the tensors, and the average rows and columns of a group's product."""
        return form_of_product(x, w), m // groups, n

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """Return the arguments of `__init__` for a call, with the pinned values."""
        cls.check_arguments(*args)
        check_knobs(cls.sizes, pins)
        gpu = gpu or cls._gpu(target)
        reason = rules.why_no_mma(MMA_SPECS[cls.mma], gpu)
        if reason:
            raise InputError(reason)
        form, rows, columns = cls.form_and_extents(*args)
        of_call = {"dtype": cls.type_named(DTYPE_OF_TORCH[str(args[4].dtype)]), "form": form}
        return {**chosen(cls.sizes, gpu, rows, columns), **pins, **of_call}

    def take_form(self, form: Form):
        """Set the attributes that other methods use. `__init__` calls this method."""
        self.form = form
        self.w_k = form.b_major == "k"

    def open_operands(self, m: int32, n: int, k: int, groups: int32, x_ptr: void_p, w_ptr: void_p):
        """Return a view of x, and w as an `Operand`, with dimensions in the order of memory."""
        line_x = self.form.a_stride if self.form.a_stride else k
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, k], strides=[line_x, 1])
        g_w = self.global_view(
            w_ptr,
            dtype=self.dtype,
            shape=lines(self.w_k, [groups], n, k),
            strides=strides(self.w_k, self.form.b_stride, self.form.b_batch_stride, n, k),
        )
        return g_x, Operand(g_w, self.w_k, batched=True, cta_group=1)


class GroupedGradientScript(GroupedScript):
    """C[g, k, n] = x[rows of group g, k].T @ y[rows of group g, n], called with (m, n, k, groups, x, y, offs, c)."""

    @classmethod
    def check_arguments(cls, m, n, k, groups, x, y, offs, c):
        """Raise InputError for arguments that no schedule can run."""
        check_sums(m, n, k, groups, x, y, offs, c)

    @classmethod
    def form_and_extents(cls, m, n, k, groups, x, y, offs, c):
        """Return the form of the tensors, and the rows and columns of a group's product."""
        return form_of_sums(x, y, c), k, n

    def open_tensors(
        self, m: int32, n: int, k: int, groups: int32, x_ptr: void_p, y_ptr: void_p, offs_ptr: void_p, c_ptr: void_p
    ):
        """Make views of all tensors, as attributes."""
        line_x = self.form.a_stride if self.form.a_stride else k
        line_y = self.form.b_stride if self.form.b_stride else n
        line_c = self.form.c_stride
        self.g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, k], strides=[line_x, 1])
        self.g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[m, n], strides=[line_y, 1])
        self.g_offs = self.global_view(offs_ptr, dtype=int32, shape=[groups])
        self.g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[groups, k, n], strides=[k * line_c, line_c, 1])

    def place(self, tile: int32, n: int, k: int):
        """Return the group of a tile, and the tile's first row and first column."""
        tiles_m, tiles_n = cdiv(k, self.block_m), cdiv(n, self.block_n)
        group: int32 = tile // (tiles_m * tiles_n)
        row: int32 = tile % tiles_m * self.block_m
        column: int32 = tile // tiles_m % tiles_n * self.block_n
        return group, row, column

    def rows(self, group: int32, m: int32):
        """Return the first row of a group, and the row after its last."""
        begin: int32 = 0
        if group > 0:
            begin = max(0, min(self.g_offs[group - 1].item(), m))
        end: int32 = max(begin, min(self.g_offs[group].item(), m))
        return begin, end

    def clear(self, s_tile: SharedTensor, left: int32):
        """Store zeros into all rows of a tile except the first `left`.

        The rows are cleared in groups of eight, because the swizzle repeats after eight rows. With left = 11:

            rows  0 to  7    kept
            rows  8 to 15    loaded, rows 11 to 15 set to zero, stored
            rows 16 to ...   zeros
        """
        rows, columns = s_tile.shape
        s_eights = self.reshape_shared(s_tile, [rows // 8, 8, columns])
        r_zeros = self.register_tensor(dtype=self.dtype, shape=[8, columns], init=0.0)
        kept: int32 = left % 8
        if kept > 0:
            r_rows = self.load_shared(s_eights[left // 8])
            r_kept = self.register_tensor(dtype=boolean, shape=[8, 1], init=lambda row, column: row < kept)
            self.store_shared(s_eights[left // 8], self.where(r_kept, r_rows, r_zeros))
        for eight in range((left + 7) // 8, rows // 8, 1):
            self.store_shared(s_eights[eight], r_zeros)
