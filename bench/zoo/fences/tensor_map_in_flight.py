"""A tensor map in global memory is changed while a load that uses it may be in flight."""

from zoo.bug import Bug, Ptx

MAKE = """
@%first tensormap.replace.tile.global_address.global.b1024.b64 [%x12], %base;
@%first tensormap.replace.tile.rank.global.b1024.b32 [%x12], 1;
@%first tensormap.replace.tile.elemtype.global.b1024.b32 [%x12], 2;
@%first tensormap.replace.tile.interleave_layout.global.b1024.b32 [%x12], 0;
@%first tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%x12], 0;
@%first tensormap.replace.tile.fill_mode.global.b1024.b32 [%x12], 0;
@%first tensormap.replace.tile.box_dim.global.b1024.b32 [%x12], 0, 16;
@%first tensormap.replace.tile.box_dim.global.b1024.b32 [%x12], 1, 4;
@%first tensormap.replace.tile.global_dim.global.b1024.b32 [%x12], 0, 16;
@%first tensormap.replace.tile.global_dim.global.b1024.b32 [%x12], 1, 32;
@%first tensormap.replace.tile.element_stride.global.b1024.b32 [%x12], 0, 1;
@%first tensormap.replace.tile.element_stride.global.b1024.b32 [%x12], 1, 1;
@%first tensormap.replace.tile.global_stride.global.b1024.b64 [%x12], 0, 64;
"""
"""A map of 32 x 16 words, in boxes of 4 x 16."""

FENCES = """
@%first fence.proxy.tensormap::generic.release.gpu; @%first fence.proxy.tensormap::generic.acquire.gpu [%x12], 128;
"""
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"

BUG = Bug(
    title="A tensor map in global memory is changed for the next group while a TMA load of the last one may still"
    " read it",
    sources=(
        "https://github.com/deepseek-ai/DeepGEMM/pull/343",
        "https://github.com/deepseek-ai/DeepGEMM/issues/430",
        "https://github.com/facebookexperimental/triton/pull/680",
    ),
    says="A weight-gradient kernel changes the maps of A and B in place when its scheduler goes to another "
    "group. It does not wait for the loads that use them. The output is wrong, most with many small groups. The "
    "same in a copy of the kernel for another GPU, and in a grouped product of another project.",
    guess="The change is of the address alone; the wait here is the load's own mbarrier.",
    section="tensormap.replace, Proxies (tensormap proxy)",
    ptx=Ptx(
        "@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 1; bar.sync 0;"
        + "add.s64 %x12, %base, 16384; add.s64 %x13, %base, 4096;"
        + MAKE
        + FENCES
        + f"""
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%first {LOAD} [%tile], [%x12, {{0, 0}}], [%bar];
wait [%bar], 0; //+
bar.sync 0; //+
@%first tensormap.replace.tile.global_address.global.b1024.b64 [%x12], %x13;
"""
        + FENCES
        + f"""
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+8], 256;
@%first {LOAD} [%tile+1024], [%x12, {{0, 0}}], [%bar+8];
wait [%bar], 0;
wait [%bar+8], 0;
""",
        "overwritten-in-flight",
    ),
)
