"""An MMA accumulates in tensor memory that was never allocated."""

from zoo.bug import COMMIT, FILL, MMA, TCGEN05, Bug, Ptx

BUG = Bug(
    title="An MMA accumulates in tensor memory that the kernel never allocates",
    sources=("https://github.com/NVIDIA/cutlass/issues/2230",),
    says="Tutorial kernels use tensor memory from column 0 without tcgen05.alloc; two CTAs of one SM may share "
    "it. Runs showed no error. ptxas can add checks at run time (-g-tensor-memory-access-check).",
    guess="",
    section="tcgen05.alloc",
    ptx=Ptx(
        FILL
        + "@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.proxy.async; bar.sync 0; mov.u32 %tmem, 0;"
        + """
@%w0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+96], 64; bar.sync 0; //+
"""
        + TCGEN05
        + f"""
@%first {MMA}
@%first {COMMIT} [%bar];
wait [%bar], 0;
tcgen05.fence::after_thread_sync;
@%w0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64; //+
""",
        "tensor-memory-not-allocated",
        threads=128,
        target="sm_100a",
    ),
)
