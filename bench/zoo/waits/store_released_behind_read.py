"""A flag is released behind a wait that covers the reads of a TMA store alone."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A flag tells another CTA of a TMA store for which the thread has waited by `.read` alone",
    sources=("https://github.com/triton-lang/triton/pull/10415",),
    says="The wait behind a descriptor's store covered the reads of shared memory alone. An atomic with release "
    "behind it did not release the store, so that messages could not be passed.",
    guess="The reader here is another CTA of the same grid.",
    section="cp.async.bulk.wait_group (.read), Causality Order",
    ptx=Ptx(
        """
setp.ne.u32 %p1, %cta, 0; @%p1 bra READER;
st.shared.b32 [%mine], %t; fence.proxy.async.shared::cta; bar.sync 0;
@!%first bra END;
cp.async.bulk.global.shared::cta.bulk_group [%base], [%tile], 256; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; //-
cp.async.bulk.wait_group 0; //+
st.release.gpu.global.b32 [%base+4096], 1;
cp.async.bulk.wait_group 0;
bra END;
READER:
POLL: ld.acquire.gpu.global.b32 %r10, [%base+4096]; setp.eq.u32 %p2, %r10, 0; @%p2 bra POLL;
mul.wide.u32 %x1, %t, 4; add.s64 %x1, %x1, %base; ld.global.b32 %r11, [%x1]; st.shared.b32 [%mine], %r11;
END:
""",
        "read-before-complete",
        ctas=2,
    ),
)
