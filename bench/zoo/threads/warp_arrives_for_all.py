"""One warp tells of what four warps wrote, with a barrier of the warp alone."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="Threads of a warpgroup write a tile, meet within their warps, and one of them arrives for all",
    sources=("https://github.com/Dao-AILab/flash-attention/pull/2033",),
    says="Before buffers of LSE, of sums and of dS are released or committed, the compute warpgroup has to meet,"
    " and not each warp by itself. Races in a backward kernel, mended with the deterministic mode.",
    guess="The tile is read by threads of another warp here.",
    section="bar.warp.sync, Causality Order",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0;
setp.ge.u32 %p1, %t, 128; @%p1 bra READER;
st.shared.b32 [%mine], %t;
bar.warp.sync -1; //-
bar.sync 1, 128; //+
@%first mbarrier.arrive.shared::cta.b64 _, [%bar];
bra END;
READER:
wait [%bar], 0;
sub.u32 %r10, %t, 64; mad.lo.s32 %r10, %r10, 4, %tile; ld.shared.b32 %r11, [%r10]; st.global.b32 [%out], %r11;
END:
""",
        "data-race",
        threads=160,
    ),
)
