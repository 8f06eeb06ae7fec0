"""Two consumer warps release a stage whose barrier counts one."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.count = 2 if repaired else 1

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=float32, shape=[3, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[6, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=self.count)
        self.sync()
        with self.single_warp(0):
            for i in range(3):
                self.mbarrier.wait(free, phase=(i + 1) % 2)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[i, 0], mbarrier=full)
        with self.single_warp(1):
            for j in range(3):
                self.mbarrier.wait(full, phase=j % 2)
                self.store_global(g_y, self.load_shared(s), offsets=[j, 0])
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_thread():
                    self.mbarrier.arrive(free)
        with self.single_warp(2):
            for k in range(3):
                self.mbarrier.wait(full, phase=k % 2)
                self.store_global(g_y, self.load_shared(s), offsets=[3 + k, 0])
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_thread():
                    self.mbarrier.arrive(free)


BUG = Bug(
    title="Two consumers release a stage whose mbarrier counts one arrival, so the producer refills what one "
    "still reads",
    sources=("https://github.com/NVIDIA/cutlass/issues/2418", "https://github.com/NVIDIA/cutlass/issues/2404"),
    says="The pipeline supports a count of one arrival alone, signalled by thread 0. With two groups of "
    "consumers, a count of 2 hangs, and with 1 a group seems not to wait for its tile.",
    guess="Here each of two warps arrives, and the barrier counts one.",
    section="Phase of the mbarrier object",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 1; //-
@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 2; //+
bar.sync 0;
mov.u32 %r10, 0;
@!%w0 bra CONSUMER;
TILE: and.b32 %r11, %r10, 1; xor.b32 %r12, %r11, 1;
@!%first bra LOADED;
wait [%bar+8], %r12;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
LOADED: add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra TILE; bra END;
CONSUMER: and.b32 %r11, %r10, 1;
wait [%bar], %r11;
ld.shared.b32 %r12, [%next]; fence.proxy.async.shared::cta; bar.warp.sync -1;
@%lead mbarrier.arrive.shared::cta.b64 _, [%bar+8];
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra CONSUMER;
END:
""",
        "deadlock",
        threads=96,
    ),
    script=Script(Kernel, lambda: (torch.ones(3, 32), torch.zeros(6, 32)), "mbarrier-over-arrival"),
)
