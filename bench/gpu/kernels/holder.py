"""A kernel that holds SMs."""

from tilus import bfloat16, int32, void_p

from blackwell_matmul.runtime.script import Script

TILE = 4096
"""Elements that a CTA copies at a time."""


class Holder(Script):
    """y = x, in part: each CTA copies `tiles` tiles, and its shared memory leaves no room for other CTAs on its SM.
    NCCL's kernels do the same."""

    target = "sm_90a"

    def __call__(self, ctas: int32, tiles: int32, elements: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 16
        g_x = self.global_view(x_ptr, dtype=bfloat16, shape=[elements])
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[elements])
        s_held = self.shared_tensor(dtype=bfloat16, shape=[16, TILE])
        at: int32 = self.blockIdx.x * TILE
        for _ in range(tiles):
            r = self.load_global(g_x, offsets=[at], shape=[TILE])
            self.store_global(g_y, r, offsets=[at])
            self.store_shared(s_held[0], r)
            at = (at + ctas * TILE) % elements
