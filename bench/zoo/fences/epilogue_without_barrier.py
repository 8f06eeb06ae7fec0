"""TMA stores a tile that the other threads of the warpgroup may not have written yet."""

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
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 128])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 128])
        s = self.shared_tensor(dtype=float32, shape=[1, 128])
        self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[1, 128]))
        if self.repaired:
            self.fence.proxy_async(space="shared")
            self.sync()
        with self.single_warp(0):
            self.tma.shared_to_global(s, g_y, offsets=[0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0)
        self.sync()


BUG = Bug(
    title="One thread stores an epilogue's tile by TMA with nothing between that and the writes of the other threads",
    sources=("https://github.com/tile-ai/TileOPs/pull/1574",),
    says="128 threads write the tile, and a TMA store reads it at once: some 3 % of the calls were wrong. An "
    "earlier barrier guards the next use of the tile alone. The repair: a proxy fence and a named barrier "
    "of the warpgroup.",
    guess="",
    section="Causality Order, fence.proxy.async",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t;
fence.proxy.async.shared::cta; bar.sync 1, 128; //+
@%first cp.async.bulk.global.shared::cta.bulk_group [%base], [%tile], 512; @%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group.read 0; bar.sync 2, 128;
@%first cp.async.bulk.wait_group 0;
""",
        "race-with-operation",
        threads=128,
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 128), torch.zeros(1, 128)), "data-race"),
)
