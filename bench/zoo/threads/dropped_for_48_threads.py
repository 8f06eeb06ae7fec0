"""A compiler drops a barrier that it needs, as its threads are no multiple of a warp."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A barrier of 48 threads is dropped without a word, as a named barrier takes whole warps alone",
    sources=("https://github.com/tile-ai/tilelang/issues/2556", "https://github.com/tile-ai/tilelang/pull/2679"),
    says="The pass finds that a barrier is needed under `if tx < 48`, sees that 48 is no multiple of 32, and "
    "emits none: silently wrong results on an H100. The repair refuses such a program.",
    guess="The repair here is a barrier of all 64 threads.",
    section="bar (thread count), Causality Order",
    ptx=Ptx(
        """
setp.lt.u32 %p1, %t, 48;
@%p1 st.shared.b32 [%mine], %t;
bar.sync 0; //+
sub.u32 %r10, 47, %t; mad.lo.s32 %r10, %r10, 4, %tile;
@%p1 ld.shared.b32 %r11, [%r10];
@%p1 st.global.b32 [%out], %r11;
""",
        "data-race",
    ),
)
