"""Bytes are announced on an mbarrier that nobody initialised."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A function with `init` in its name announces bytes on an mbarrier that nobody has initialised",
    sources=("https://github.com/NVIDIA/cutlass/issues/2364",),
    says="mbarrier_init_tx_bytes does not initialise: it arrives and announces bytes. The kernel died of an "
    "unspecified launch failure. The right function sets the count of arrivals.",
    guess="",
    section="mbarrier.init, mbarrier.expect_tx",
    ptx=Ptx(
        """
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256; //-
@%first mbarrier.init.shared::cta.b64 [%bar], 1; //+
bar.sync 0;
""",
        "mbarrier-not-initialised",
    ),
    consan='tells "Barrier used before initialization or after invalidation" of this kind (its own messages)',
)
