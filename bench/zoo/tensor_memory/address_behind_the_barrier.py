"""Warps read the address that tcgen05.alloc writes, with no barrier behind the allocation."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A warp reads the address of its tensor memory, which tcgen05.alloc writes behind the only barrier",
    sources=("https://github.com/mlc-ai/TIRx-kernels/pull/7", "https://github.com/pytorch/FBGEMM/pull/5022"),
    says="The store of the address is weak, and came behind the one cluster barrier of the kernel; another warp "
    "read it with nothing in between. In the second source the same happens when a CTA gets no work.",
    guess="",
    section="tcgen05.alloc (the address is a weak write)",
    ptx=Ptx(
        """
bar.sync 0; //-
@%w0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+96], 64;
bar.sync 0; //+
ld.shared.b32 %tmem, [%bar+96];
bar.sync 0;
@%w0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64;
""",
        "data-race",
        target="sm_100a",
    ),
    sanitizer="a native racecheck reported it, as published",
)
