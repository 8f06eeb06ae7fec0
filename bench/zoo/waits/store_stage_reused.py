"""A stage is refilled by TMA while the store of its last tile may still read it."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.pending = 0 if repaired else 1

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        for i in range(2):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[i, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=i)
            self.tma.shared_to_global(s, g_y, offsets=[i, 0])
            self.tma.commit_group()
            self.tma.wait_group(self.pending, read=True)
        self.tma.wait_group(0)


BUG = Bug(
    title="A stage is refilled while its TMA store still reads it: with two stages, the wait leaves one group pending",
    sources=("https://github.com/deepseek-ai/DeepEP/issues/657", "https://github.com/deepseek-ai/DeepEP/pull/660"),
    says="With two stages the prefetch waits until at most one store group is pending, which is true at once, "
    "and loads into the stage that this very group reads. The repair waits for all groups.",
    guess="The published repair waits for the writes, too; that of the reads (`.read`) is enough for the stage.",
    section="cp.async.bulk.wait_group",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0;
@!%first bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 0;
add.s64 %x1, %base, 4096;
cp.async.bulk.global.shared::cta.bulk_group [%x1], [%tile], 256; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 1; //-
cp.async.bulk.wait_group.read 0; //+
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 1;
cp.async.bulk.wait_group 0;
END:
""",
        "overwritten-in-flight",
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 32), torch.zeros(2, 32)), "overwritten-in-flight"),
)
