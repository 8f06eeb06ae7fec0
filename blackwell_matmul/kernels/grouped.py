"""draft"""

import tilus
from tilus import int32, void_p

from blackwell_matmul.script import Script
from blackwell_matmul.kernels.operands import Operand, lines


class GroupedScript(Script):
    def take_form(self, form):
        self.form = form
        self.w_k = form.b_major == "k"

    def open_operands(self, m: int32, n: int, k: int, groups: int32, x_ptr: void_p, w_ptr: void_p):
        """Views of x and w, as they lie in memory."""
        line_x = self.form.a_stride if self.form.a_stride else k
        line_w = self.form.b_stride if self.form.b_stride else k if self.w_k else n
        of_w = self.form.b_batch_stride if self.form.b_batch_stride else line_w * (n if self.w_k else k)
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[1, m, k], strides=[m * line_x, line_x, 1])
        g_w = self.global_view(w_ptr, dtype=self.dtype, shape=lines(self.w_k, [groups], n, k), strides=[of_w, line_w, 1])
        return Operand(g_x, True, False, 1), Operand(g_w, self.w_k, True, 1)
