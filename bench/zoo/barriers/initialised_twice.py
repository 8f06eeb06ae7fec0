"""Two mbarriers get the same address, as one of them is never used."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="An unused mbarrier and a used one get the same place, which is initialised twice",
    sources=("https://github.com/facebookexperimental/triton/pull/462",),
    says="The allocator takes the first mbarrier as dead when the second is placed. So mbarrier.init runs twice "
    "on one place without mbarrier.inval, which is undefined. The repair invalidates at the end of the "
    "function.",
    guess="",
    section="mbarrier.init",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0; //-
@%first mbarrier.init.shared::cta.b64 [%bar+8], 1; bar.sync 0; //+
@%first mbarrier.init.shared::cta.b64 [%bar], 64; bar.sync 0;
mbarrier.arrive.shared::cta.b64 _, [%bar];
wait [%bar], 0;
""",
        "mbarrier-initialised-twice",
    ),
    consan='tells "Barrier re-initialized without prior invalidation" of this kind (its own messages)',
)
