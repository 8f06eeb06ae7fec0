"""A CTA returns while another one of its cluster still reads its shared memory."""

from zoo.bug import CLUSTER_SYNC, Bug, Ptx

BUG = Bug(
    title="The first CTA returns while the others of its cluster still read its shared memory",
    sources=(
        "https://github.com/triton-lang/triton/issues/11730",
        "https://github.com/triton-lang/triton/pull/10656",
        "https://github.com/triton-lang/triton/pull/11731",
    ),
    says="The result of an atomic is read from CTA 0 by mapa and ld.shared::cluster, with no cluster barrier "
    "before ret: an unspecified launch failure on sm_120. The repair: a cluster barrier before each return.",
    guess="",
    section="mapa, distributed shared memory (the CTA must exist)",
    ptx=Ptx(
        f"""
st.shared.b32 [%mine], %t;
{CLUSTER_SYNC}
mapa.shared::cluster.u32 %r10, %mine, 0; ld.shared::cluster.b32 %r11, [%r10]; st.global.b32 [%out], %r11;
{CLUSTER_SYNC} //+
""",
        "exit-before-peer",
        ctas=2,
        cluster=2,
    ),
)
