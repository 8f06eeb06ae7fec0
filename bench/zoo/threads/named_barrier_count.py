"""A named barrier in the branch of one warpgroup counts the threads of two."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A named barrier that one warpgroup alone reaches counts the threads of two",
    sources=("https://github.com/deepseek-ai/FlashMLA/pull/57",),
    says="Arrivals in a branch of 128 threads name 256, so the barrier waits for threads that never come. The "
    "change was closed without merging.",
    guess="That the other warpgroup never arrives holds here; in the source it may.",
    section="bar (thread count)",
    ptx=Ptx(
        """
setp.ge.u32 %p1, %t, 64; @%p1 bra END;
st.shared.b32 [%mine], %t;
bar.sync 1, 128; //-
bar.sync 1, 64; //+
xor.b32 %r10, %t, 32; mad.lo.s32 %r10, %r10, 4, %tile; ld.shared.b32 %r11, [%r10];
END:
""",
        "deadlock",
        threads=128,
    ),
)
