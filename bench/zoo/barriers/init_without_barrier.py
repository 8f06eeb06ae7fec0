"""Threads arrive at an mbarrier that thread 0 may not have initialised yet."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="All threads use an mbarrier with no barrier of the CTA behind its initialisation by thread 0",
    sources=(
        "https://github.com/NVIDIA/Fuser/pull/1769",
        "https://github.com/NVIDIA/Fuser/issues/1552",
        "https://github.com/triton-lang/triton/pull/2040",
    ),
    says="A test hung on an H100 from time to time; __syncthreads behind mbarrier.init was missing. Triton had "
    "added the same barrier half a year before.",
    guess="A script cannot have this bug: tilus meets the CTA behind each mbarrier.alloc.",
    section="mbarrier.init",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 64;
bar.sync 0; //+
mbarrier.arrive.shared::cta.b64 _, [%bar];
wait [%bar], 0;
""",
        "data-race",
    ),
)
