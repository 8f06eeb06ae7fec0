"""A warpgroup stores into columns that alias what another one still loads."""

from zoo.bug import ALLOC, FREE, Bug, Ptx

BUG = Bug(
    title="Two buffers share columns of tensor memory, and a store to the one overtakes another warp's load of "
    "the other",
    sources=("https://github.com/facebookexperimental/triton/issues/1993",),
    says="The pass that inserts barriers knows shared memory alone. With storage aliases, a store to tensor "
    "memory raced a load of other warps in the same task, and gradients of a backward kernel were wrong.",
    guess="Which warps and columns: two warpgroups, one column.",
    section="tcgen05 Memory Consistency Model",
    ptx=Ptx(
        ALLOC
        + """
and.b32 %r10, %warp, 3; shl.b32 %r10, %r10, 21; add.s32 %lanes, %tmem, %r10;
setp.ge.u32 %p1, %t, 128; @%p1 bra SECOND;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%lanes], {%t}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r11}, [%lanes]; tcgen05.wait::ld.sync.aligned;
st.global.b32 [%out], %r11;
SECOND:
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; //+
@!%p1 bra END;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%lanes], {%t}; tcgen05.wait::st.sync.aligned;
END: """
        + FREE,
        "overwritten-in-flight",
        threads=256,
        target="sm_100a",
    ),
)
