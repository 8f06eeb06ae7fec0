"""Both CTAs of a pair issue the copy that is for both."""

from zoo.bug import PAIR, PAIR_COMMIT, PAIR_END, Bug, Ptx

BUG = Bug(
    title="Both CTAs of a pair issue the tcgen05.cp of cta_group::2 that copies for both",
    sources=("https://github.com/NVIDIA/cutlass/issues/3331",),
    says="The copy of scales from shared to tensor memory is executed by both SMs of a pair. It seems to work, "
    "and may race; the leader alone should issue it.",
    guess="That the copies of both write the same bytes.",
    section="tcgen05.cp (cta_group::2)",
    ptx=Ptx(
        "@%first mbarrier.init.shared::cta.b64 [%bar], 1;"
        + """
@%first mbarrier.init.shared::cta.b64 [%bar+8], 2; //-
@%first mbarrier.init.shared::cta.b64 [%bar+8], 1; //+
"""
        + PAIR
        + f"""
@!%first bra DONE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 8192;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 8192, [%bar];
wait [%bar], 0;
DONE: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
@!%first bra READ;
@%c1 bra READ; //+
tcgen05.cp.cta_group::2.128x128b [%tmem], %desc_a;
{PAIR_COMMIT} [%bar+8], %h1;
READ:
wait [%bar+8], 0;
"""
        + PAIR_END,
        "overwritten-in-flight",
        threads=128,
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
)
