"""A CTA polls a flag, and TMA then loads what the flag tells of."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A thread learns by a flag that data are in global memory, and TMA loads them without a proxy fence",
    sources=(
        "https://github.com/deepseek-ai/DeepEP/pull/632",
        "https://github.com/deepseek-ai/DeepEP/issues/621",
        "https://github.com/deepseek-ai/DeepEP/pull/642",
    ),
    says="The receiver polls through the generic proxy and loads by TMA, which may see stale data; results of an"
    " NVL72 were wrong, and right with ordinary loads or with fence.proxy.async. A maintainer writes that "
    "the code does not strictly conform to the memory model.",
    guess="The sender is another CTA of the grid here, and another GPU in the source.",
    section="Proxies, fence.proxy.async",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0;
setp.ne.u32 %p1, %cta, 0; @%p1 bra RECEIVER;
mul.wide.u32 %x1, %t, 4; add.s64 %x1, %x1, %base; st.global.b32 [%x1], %t; bar.sync 0;
@%first st.release.gpu.global.b32 [%base+4096], 1;
bra END;
RECEIVER: @!%first bra END;
POLL: ld.acquire.gpu.global.b32 %r10, [%base+4096]; setp.eq.u32 %p2, %r10, 0; @%p2 bra POLL;
fence.proxy.async.global; //+
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 0;
END:
""",
        "missing-proxy-fence",
        ctas=2,
    ),
)
