"""The memory of an mbarrier is written as data while the mbarrier is valid."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="Shared memory of an mbarrier is used for data while the mbarrier is still valid",
    sources=("https://github.com/triton-lang/triton/pull/3858",),
    says="The ISA asks for mbarrier.inval before the memory has another use, and Triton emitted none; it was "
    "suspected of sporadic corruption.",
    guess="What is written over it: a word of each thread.",
    section="mbarrier.inval",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 64; bar.sync 0;
mbarrier.arrive.shared::cta.b64 _, [%bar];
wait [%bar], 0;
bar.sync 0;
@%first mbarrier.inval.shared::cta.b64 [%bar]; bar.sync 0; //+
setp.lt.u32 %p1, %t, 2; mad.lo.s32 %r10, %t, 4, %bar;
@%p1 st.shared.b32 [%r10], %t;
""",
        "(mbarrier-as-data)",
    ),
)
