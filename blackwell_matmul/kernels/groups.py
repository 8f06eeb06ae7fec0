"""What kernels for groups of rows share: `GroupedScript`, `GroupSumsScript`, and `Groups`, the way through the tiles.

How many rows a group has only the device knows: offs, int32, says where the rows of each group end.
"""

import tilus
from tilus import GlobalTensor, SharedTensor, boolean, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.group_calls import (
    check_knobs,
    check_product,
    check_sums,
    chosen,
    form_of_product,
    form_of_sums,
)
from blackwell_matmul.kernels.matmul import MatmulScript
from blackwell_matmul.kernels.operands import Operand, lines, strides
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH
from blackwell_matmul.scheduling import rules
from blackwell_matmul.scheduling.mma import MMA_SPECS


class GroupedScript(MatmulScript):
    """C[rows of group g] = x[rows of group g, k] @ w[g, k, n], called with (m, n, k, groups, x, w, offs, c). Rows after
    the last group are zeros in C."""

    features = ("tma", "ring", "specialised", "persistent")
    sizes = {}
    knobs = ()

    def __init_subclass__(cls, **kwargs):
        cls.knobs = (*cls.sizes, "sm_count")
        super().__init_subclass__(**kwargs)

    @classmethod
    def check_arguments(cls, m, n, k, groups, x, w, offs, c):
        """x is contiguous along k, each matrix of w along k or n; their lines begin at multiples of 16 bytes."""
        check_product(m, n, k, groups, x, w, offs, c)

    @classmethod
    def form_and_extents(cls, m, n, k, groups, x, w, offs, c):
        """How the tensors lie in memory, and the rows and columns that a tile had better hold."""
        return form_of_product(x, w), m // groups, n

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """The arguments of `__init__`, with the pins."""
        cls.check_arguments(*args)
        check_knobs(cls.sizes, pins)
        gpu = gpu or cls._gpu(target)
        reason = rules.why_no_mma(MMA_SPECS[cls.mma], gpu)
        if reason:
            raise InputError(reason)
        form, rows, columns = cls.form_and_extents(*args)
        told = {"dtype": cls.type_named(DTYPE_OF_TORCH[str(args[4].dtype)]), "form": form}
        return {**chosen(cls.sizes, gpu, rows, columns), **pins, **told}

    def take_form(self, form: Form):
        """Of `__init__`: what the methods here use."""
        self.form = form
        self.w_k = form.b_major == "k"

    def open_operands(self, m: int32, n: int, k: int, groups: int32, x_ptr: void_p, w_ptr: void_p):
        """x and w, as they lie in memory."""
        line_x = self.form.a_stride if self.form.a_stride else k
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, k], strides=[line_x, 1])
        g_w = self.global_view(
            w_ptr,
            dtype=self.dtype,
            shape=lines(self.w_k, [groups], n, k),
            strides=strides(self.w_k, self.form.b_stride, self.form.b_batch_stride, n, k),
        )
        return g_x, Operand(g_w, self.w_k, batched=True, cta_group=1)


class Groups(tilus.Class):
    """Where the calling warp is among the groups; each warp goes through them by itself, once, a tile after the other.

    Group i has the rows from the end of the one before it up to ends[i]. One group more has the rows after the last
    end. Ends that decrease, or lie outside of the m rows, count as the nearest that do not.
    """

    def __init__(self, ends: GlobalTensor, count: int32, m: int32, block_m: int, tiles_n: int):
        self.ends = ends
        self.count: int32 = count
        self.m: int32 = m
        self.block_m = block_m
        self.tiles_n = tiles_n
        self.group: int32 = -1
        self.begin: int32 = 0
        self.end: int32 = 0
        self.tiles_m: int32 = 0
        self.first: int32 = 0  # of its tiles, counted through all groups

    def find(self, tile: int32):
        """Go on to the group of a tile; False: there is no such tile."""
        while self.group <= self.count and tile >= self.first + self.tiles_m * self.tiles_n:
            self.first = self.first + self.tiles_m * self.tiles_n
            self.begin = self.end
            self.group = self.group + 1
            self.end = self.m
            if self.group < self.count:
                self.end = max(self.begin, min(self.ends[self.group].item(), self.m))
            self.tiles_m = cdiv(self.end - self.begin, self.block_m)
        return self.group <= self.count

    def place(self, tile: int32):
        """The first row of a tile, and its column in tiles. Tiles follow each other down the rows: they share w."""
        row: int32 = self.begin + (tile - self.first) % self.tiles_m * self.block_m
        column: int32 = (tile - self.first) // self.tiles_m
        return row, column

    def depth(self, k: int, block_k: int):
        """From where to where along k a tile is summed; after the last group over one k-tile of zeros, beyond k."""
        beyond: int32 = cdiv(k, block_k) * block_k
        k_begin: int32 = beyond if self.group == self.count else 0
        k_end: int32 = k_begin + 1 if self.group == self.count else k
        return k_begin, k_end


class GroupSumsScript(GroupedScript):
    """C[g, k, n] = x[rows of group g, k].T @ y[rows of group g, n], called with (m, n, k, groups, x, y, offs, c)."""

    @classmethod
    def check_arguments(cls, m, n, k, groups, x, y, offs, c):
        """All but offs have rows that begin at multiples of 16 bytes."""
        check_sums(m, n, k, groups, x, y, offs, c)

    @classmethod
    def form_and_extents(cls, m, n, k, groups, x, y, offs, c):
        return form_of_sums(x, y, c), k, n

    def open_tensors(
        self, m: int32, n: int, k: int, groups: int32, x_ptr: void_p, y_ptr: void_p, offs_ptr: void_p, c_ptr: void_p
    ):
        """Views of all of them."""
        line_x = self.form.a_stride if self.form.a_stride else k
        line_y = self.form.b_stride if self.form.b_stride else n
        line_c = self.form.c_stride
        self.g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, k], strides=[line_x, 1])
        self.g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[m, n], strides=[line_y, 1])
        self.g_offs = self.global_view(offs_ptr, dtype=int32, shape=[groups])
        self.g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[groups, k, n], strides=[k * line_c, line_c, 1])

    def place(self, tile: int32, n: int, k: int):
        """The group of a tile, its first row and its first column."""
        tiles_m, tiles_n = cdiv(k, self.block_m), cdiv(n, self.block_n)
        group: int32 = tile // (tiles_m * tiles_n)
        row: int32 = tile % tiles_m * self.block_m
        column: int32 = tile // tiles_m % tiles_n * self.block_n
        return group, row, column

    def rows(self, group: int32, m: int32):
        """Where the rows of a group begin, and end."""
        begin: int32 = 0
        if group > 0:
            begin = max(0, min(self.g_offs[group - 1].item(), m))
        end: int32 = max(begin, min(self.g_offs[group].item(), m))
        return begin, end

    def clear(self, s_tile: SharedTensor, left: int32):
        """Zeros in all rows of a tile but the first `left`, eight rows at a time: then a swizzle begins anew."""
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
