"""A CTA relies on the response of cluster launch control for the order of its readers."""

from zoo.bug import CLUSTER_SYNC, Bug, Ptx

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"

BUG = Bug(
    title="A CTA overwrites a slot because a multicast CLC response came, which is no news of its own readers",
    sources=("https://github.com/triton-lang/triton/pull/10926", "https://github.com/triton-lang/triton/pull/10863"),
    says="The readers of both CTAs arrive at CTA 0, which asks by try_cancel and multicasts the response. The "
    "wait for the response does not make the readers' loads visible to CTA 1, although nothing else could "
    "have come first.",
    guess="",
    section="clusterlaunchcontrol.try_cancel (weak writes of the async proxy), Causality Order",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 64;
@%first mbarrier.init.shared::cta.b64 [%bar+16], 32;
st.shared.b32 [%mine], %t; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@!%w1 bra SCHEDULER;
ld.shared.b32 %r10, [%mine]; st.global.b32 [%out], %r10;
mapa.shared::cluster.u32 %r11, %bar, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11+8];
mbarrier.arrive.shared::cta.b64 _, [%bar+16]; //+
bra END;
SCHEDULER:
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
@%c1 bra ASKED;
wait.acquire.cluster [%bar+8], 0;
add.s32 %r12, %bar, 64;
@%first {ASK} [%r12], [%bar];
ASKED:
wait [%bar], 0;
wait [%bar+16], 0; //+
st.shared.b32 [%other], %lane;
END: {CLUSTER_SYNC}
""",
        "data-race",
        ctas=4,
        cluster=2,
        target="sm_100a",
    ),
    consan="reports the write as a race, as published",
)
