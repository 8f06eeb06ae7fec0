"""A relaxed cluster barrier alone stands between mbarrier.init and the other CTA's use of the mbarrier."""

from zoo.bug import CLUSTER_SYNC, Bug, Ptx

BUG = Bug(
    title="mbarriers are used by the other CTA behind a relaxed cluster barrier, without fence.mbarrier_init",
    sources=(
        "https://github.com/facebookexperimental/triton/pull/1240",
        "https://github.com/mlc-ai/TIRx-kernels/pull/9",
    ),
    says="An mbarrier of another CTA needs a fence between its init and the cluster barrier; it was missing. In "
    "the second source another thread than the one that initialises issued the fence.",
    guess="That the cluster barrier is relaxed, as it is in Triton's code elsewhere.",
    section="fence.mbarrier_init, barrier.cluster (.relaxed)",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 64;
@%first fence.mbarrier_init.release.cluster; //+
barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar];
wait.acquire.cluster [%bar], 0;
SYNC
""".replace("SYNC", CLUSTER_SYNC),
        "(relaxed-order)",
        ctas=2,
        cluster=2,
    ),
)
