"""Threads arrive at a named barrier a second time before the others have met the first."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[4, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=32)
        read = self.mbarrier.alloc(counts=32)
        self.sync()
        with self.single_warp(0):
            for i in range(4):
                if self.repaired:
                    self.mbarrier.wait(read, phase=(i + 1) % 2)
                self.store_shared(s, self.load_global(g_x, offsets=[i, 0], shape=[1, 32]))
                self.mbarrier.arrive(full)
        with self.single_warp(1):
            for j in range(4):
                self.mbarrier.wait(full, phase=j % 2)
                self.store_global(g_y, self.load_shared(s), offsets=[j, 0])
                self.mbarrier.arrive(read)


BUG = Bug(
    title="Threads that only arrive at a named barrier run ahead and arrive again before the others have met the first",
    sources=(
        "https://github.com/flashinfer-ai/flashinfer/pull/4732",
        "https://github.com/vllm-project/vllm/pull/26026",
    ),
    says="256 threads arrive without waiting, 128 wait. The arriving ones can do the next tile and arrive again;"
    " the phase ends without a waiter, and a later one starves. The repair alternates two barriers. In the "
    "second source a path without work arrives and goes round.",
    guess="Two warps here, one on each side. The script has an mbarrier in place of the named barrier.",
    section="bar.arrive (no second bar.arrive before the barrier is reset)",
    ptx=Ptx(
        """
mov.u32 %r10, 0; @%w1 bra WAITER;
TILE: st.shared.b32 [%mine], %r10;
bar.arrive 1, 64; //-
and.b32 %r11, %r10, 1; add.u32 %r11, %r11, 1; bar.arrive %r11, 64; //+
bar.sync 4, 64; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 4; @%p1 bra TILE; bra END;
WAITER:
bar.sync 1, 64; //-
and.b32 %r11, %r10, 1; add.u32 %r11, %r11, 1; bar.sync %r11, 64; //+
ld.shared.b32 %r12, [%other];
bar.sync 4, 64; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 4; @%p1 bra WAITER;
END:
""",
        "deadlock",
    ),
    script=Script(Kernel, lambda: (torch.ones(4, 32), torch.zeros(4, 32)), "deadlock"),
)
