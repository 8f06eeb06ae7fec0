"""A warp writes a tile, and its elected lane alone arrives."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.count = 32 if repaired else 1

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=self.count)
        self.sync()
        with self.single_warp(0):
            self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[1, 32]))
            if self.repaired:
                self.mbarrier.arrive(full)
            else:
                with self.single_thread():
                    self.mbarrier.arrive(full)
        with self.single_warp(1):
            self.mbarrier.wait(full, phase=0)
            self.store_global(g_y, self.load_shared(s), offsets=[0, 0])


BUG = Bug(
    title="32 lanes write to shared memory, and the elected lane alone arrives at the mbarrier",
    sources=("https://github.com/NVIDIA/cudnn-frontend/pull/426",),
    says="mbarrier.arrive releases the accesses of its own thread. The loader warp wrote with all lanes, and "
    "lane 0 arrived. The repair counts 32 arrivals.",
    guess="",
    section="mbarrier.arrive, Causality Order",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; //-
@%first mbarrier.init.shared::cta.b64 [%bar], 32; //+
bar.sync 0;
@%w1 bra READER;
st.shared.b32 [%mine], %t;
@%lead mbarrier.arrive.shared::cta.b64 _, [%bar]; //-
mbarrier.arrive.shared::cta.b64 _, [%bar]; //+
bra END;
READER:
wait [%bar], 0;
ld.shared.b32 %r10, [%other]; st.global.b32 [%out], %r10;
END:
""",
        "data-race",
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 32), torch.zeros(1, 32)), "data-race"),
    sanitizer="racecheck: 620 hazards of bytes, none with the repair, as published",
)
