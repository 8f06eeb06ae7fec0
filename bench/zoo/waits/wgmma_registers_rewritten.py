"""Registers of A are written again while the wgmma that reads them is in flight."""

from zoo.bug import DESCRIPTORS, FILL, Bug, Ptx

PRODUCT = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, %desc_b, 1, 1, 1, 0;"

BUG = Bug(
    title="The registers of A are written for the next wgmma while the last one, still in flight, reads them",
    sources=("https://github.com/triton-lang/triton/issues/9433", "https://github.com/triton-lang/triton/pull/9514"),
    says="With A in registers, the wait that pipelining inserts leaves wgmmas of the last iteration in flight, "
    "whose registers the next iteration writes: undefined by the ISA. The repair gives each wgmma fresh "
    "registers by mov.",
    guess="Whether ptxas mends this is not known to us. The repair here is a wait. tilus has no wgmma with A in "
    "registers that compiles.",
    section="wgmma.wait_group (registers of A)",
    ptx=Ptx(
        FILL
        + "fence.proxy.async; bar.sync 0;"
        + DESCRIPTORS
        + """
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
mov.b32 %r10, 0; mov.b32 %r11, 0; mov.b32 %r12, 0; mov.b32 %r13, 0;
wgmma.fence.sync.aligned;
PRODUCT
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0; //+
add.u32 %r10, %r10, %t; add.u32 %r11, %r11, %t;
wgmma.fence.sync.aligned;
PRODUCT
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
""".replace("PRODUCT", PRODUCT),
        "read-before-complete",
        threads=128,
    ),
)
