"""The local form of an arrival is given the address of another CTA's mbarrier."""

from zoo.bug import CLUSTER_SYNC, Bug, Ptx

BUG = Bug(
    title="An arrival for the other CTA's mbarrier takes the local form, with an address mapped by mapa",
    sources=("https://github.com/apache/tvm/pull/20074",),
    says="A view of a remote mbarrier kept the mapped pointer and used the arrival of the own CTA. That is no "
    "equal of the shared::cluster form; synccheck reports a local arrival on a remote address.",
    guess="",
    section="mbarrier.arrive (shared::cluster)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@%first mbarrier.arrive.shared::cta.b64 _, [%peer_bar]; //-
@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar]; //+
wait.acquire.cluster [%bar], 0;
{CLUSTER_SYNC}
""",
        "remote-mbarrier",
        ctas=2,
        cluster=2,
    ),
    sanitizer="synccheck reports it, as published",
)
