"""Lanes read what other lanes of their warp wrote, without __syncwarp."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A warp stores a tile to shared memory and reads it by other lanes with no __syncwarp in between",
    sources=("https://github.com/JustVugg/colibri/issues/1099",),
    says="Three kernels store accumulators to a shared tile and read them across lanes; two have __syncwarp, one"
    " lacks it. racecheck on a GB10 warns of three hazards, and of none with the barrier.",
    guess="Plain stores here, in place of a store of fragments.",
    section="bar.warp.sync, Causality Order",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t;
bar.warp.sync -1; //+
ld.shared.b32 %r10, [%next]; st.global.b32 [%out], %r10;
""",
        "data-race",
    ),
    sanitizer="racecheck: 3 hazards as warnings, none with the repair, as published",
)
