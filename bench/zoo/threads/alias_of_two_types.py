"""Two buffers of different types share memory, and no barrier orders the write of one behind the read of the other."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, h_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 64])
        g_h = self.global_view(h_ptr, dtype=float16, shape=[1, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 64])
        s_wide = self.shared_tensor(dtype=float32, shape=[1, 64])
        self.store_shared(s_wide, self.load_global(g_x, offsets=[0, 0], shape=[1, 64]))
        self.sync()
        with self.single_warp(1):
            self.store_global(g_y, self.load_shared(s_wide), offsets=[0, 0])
        self.free_shared(s_wide)
        if self.repaired:
            self.sync()
        s_narrow = self.shared_tensor(dtype=float16, shape=[1, 64])
        with self.single_warp(0):
            self.store_shared(s_narrow, self.load_global(g_h, offsets=[0, 0], shape=[1, 64]))
        self.sync()
        self.free_shared(s_narrow)


BUG = Bug(
    title="Buffers of float32 and of fp8 share bytes, and the analysis that compares indices finds no conflict "
    "between them",
    sources=("https://github.com/tile-ai/tilelang/pull/2293",),
    says="Reused shared memory is seen as two buffers with elements of different sizes. Equal indices were taken"
    " for equal addresses, so a barrier between a read of the one and a write of the other was left out.",
    guess="The script has halves in place of fp8.",
    section="Causality Order",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t; bar.sync 0;
ld.shared.b32 %r10, [%mine]; st.global.b32 [%out], %r10;
bar.sync 0; //+
add.s32 %r11, %tile, %t; st.shared.b8 [%r11], %r10;
""",
        "data-race",
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 64), torch.ones(1, 64).half(), torch.zeros(1, 64)), "data-race"),
)
