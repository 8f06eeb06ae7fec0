"""A slot of tensor memory is released while a load from it is under way."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import ALLOC, COMMIT, FILL, FREE, MMA, TCGEN05, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[128, 64]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))
        done = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=128)
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp(4):
            for i in range(2):
                self.mbarrier.wait(free, phase=1 - i)
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=False)
                self.tcgen05.commit(mbarrier=done)
        with self.thread_group(thread_begin=0, num_threads=128):
            for j in range(2):
                self.mbarrier.wait(done, phase=j)
                r_d = self.tcgen05.load(t_d)
                if self.repaired:
                    self.tcgen05.wait_load()
                self.mbarrier.arrive(free)
                if not self.repaired:
                    self.tcgen05.wait_load()
                self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


BUG = Bug(
    title="A slot of tensor memory is released before tcgen05.wait::ld, and the next MMA overwrites what is still read",
    sources=(
        "https://github.com/vllm-project/flash-attention/pull/182",
        "https://github.com/hao-ai-lab/FastVideo/pull/1819",
    ),
    says="tcgen05.ld is asynchronous; that its registers are used later orders nothing for others. Three "
    "releases of a forward kernel arrived without the wait. Another report saw in SASS that the arrival "
    "precedes the loads.",
    guess="Shapes are ours: one accumulator of 16 columns.",
    section="tcgen05 Memory Consistency Model (tcgen05.wait::ld before the arrival)",
    ptx=Ptx(
        "setp.ge.u32 %p1, %t, 128; @%p1 bra FILLED;"
        + FILL
        + "FILLED: @%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 128;"
        + "fence.proxy.async;"
        + ALLOC
        + TCGEN05
        + f"""
@!%p1 bra EPILOGUE; setp.ne.u32 %p2, %t, 128; @%p2 bra END;
{MMA} {COMMIT} [%bar];
wait [%bar+8], 0;
tcgen05.fence::after_thread_sync;
{MMA} {COMMIT} [%bar];
wait [%bar], 1;
bra END;
EPILOGUE:
wait [%bar], 0;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r10, %r11}}, [%lanes];
tcgen05.wait::ld.sync.aligned; //+
tcgen05.fence::before_thread_sync;
mbarrier.arrive.shared::cta.b64 _, [%bar+8];
tcgen05.wait::ld.sync.aligned; //-
st.global.b32 [%out], %r10;
wait [%bar], 1;
END: """
        + FREE,
        "overwritten-in-flight",
        threads=160,
        target="sm_100a",
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(128, 64).half(), torch.ones(32, 64).half(), torch.zeros(128, 32)),
        "overwritten-in-flight",
    ),
)
