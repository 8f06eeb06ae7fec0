"""Columns that an MMA reads are written for the next block before its commit is waited for."""

from zoo.bug import ALLOC, COMMIT, FILL, FREE, TCGEN05, Bug, Ptx

PRODUCT = "tcgen05.mma.cta_group::1.kind::f16 [%tmem], [%r20], %desc_b, %r4, %p9;"

BUG = Bug(
    title="Columns that the last block's MMA reads are written for the next block without a wait for its commit",
    sources=("https://github.com/mlc-ai/TIRx-kernels/pull/7",),
    says="The kernel wrote the scales of the next query block over columns that the last committed tcgen05 work "
    "of the block before reads. The repair waits for that work. A native racecheck showed it.",
    guess="The columns hold A here, as scales take more lines; who writes is a tcgen05.st.",
    section="tcgen05.commit",
    sanitizer="a native racecheck reported it, as published",
    ptx=Ptx(
        FILL
        + "@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.proxy.async;"
        + ALLOC
        + TCGEN05
        + f"""
add.s32 %r20, %tmem, 32; add.s32 %r21, %lanes, 32;
mov.b32 %r10, 0;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r21], {{%r10, %r10, %r10, %r10, %r10, %r10, %r10, %r10}};
tcgen05.wait::st.sync.aligned;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
@%first {PRODUCT}
@%first {COMMIT} [%bar];
wait [%bar], 0; //+
tcgen05.fence::after_thread_sync;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r21], {{%r10, %r10, %r10, %r10, %r10, %r10, %r10, %r10}};
tcgen05.wait::st.sync.aligned;
wait [%bar], 0;
"""
        + FREE,
        "overwritten-in-flight",
        threads=128,
        target="sm_100a",
    ),
)
