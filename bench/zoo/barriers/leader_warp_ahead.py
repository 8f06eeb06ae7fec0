"""A warp tells for all that a stage is used while others still wait for it."""

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
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            for i in range(6):
                self.mbarrier.wait(free, phase=(i + 1) % 2)
                with self.single_thread():
                    self.mbarrier.arrive(full)
        with self.warp_group(1, 2):
            for j in range(6):
                self.mbarrier.wait(full, phase=j % 2)
                if self.repaired:
                    self.sync()
                with self.single_thread():
                    self.mbarrier.arrive(free)


BUG = Bug(
    title="One warp arrives for all of its partition before the others have left the wait, which then is for "
    "another phase",
    sources=("https://github.com/triton-lang/triton/pull/10035",),
    says="The leader warp leaves the wait and arrives. The producer goes on and ends the next phase. The other "
    "warps, still in the loop, wait for a parity that has come round: deadlock. The repair: a barrier "
    "before each arrival.",
    guess="",
    section="mbarrier.try_wait (one of two phases is told apart)",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 1; bar.sync 0;
mov.u32 %r10, 0; @!%w0 bra CONSUMER;
PRODUCE: and.b32 %r11, %r10, 1; xor.b32 %r12, %r11, 1;
wait [%bar+8], %r12;
bar.warp.sync -1;
@%lead mbarrier.arrive.shared::cta.b64 _, [%bar];
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 6; @%p1 bra PRODUCE; bra END;
CONSUMER: and.b32 %r11, %r10, 1;
wait [%bar], %r11;
bar.sync 1, 64; //+
setp.eq.u32 %p2, %t, 32; @%p2 mbarrier.arrive.shared::cta.b64 _, [%bar+8];
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 6; @%p1 bra CONSUMER;
END:
""",
        "deadlock",
        threads=96,
        orders=("eager", "random"),
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 32), torch.zeros(1, 32)), "phase-overrun"),
)
