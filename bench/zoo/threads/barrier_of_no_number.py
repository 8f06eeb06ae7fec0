"""A named barrier has a number that no barrier has."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="A named barrier is called by a number beyond 15",
    sources=("https://github.com/flashinfer-ai/flashinfer/pull/4533",),
    says="A correction step takes barrier numbers that are computed and out of range, which is undefined. It was"
    " removed in the search for a hang, and need not have caused it.",
    guess="The number.",
    section="bar (barriers 0 to 15)",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t;
mov.u32 %r11, 17; //-
mov.u32 %r11, 7; //+
bar.sync %r11, 64;
ld.shared.b32 %r10, [%other]; st.global.b32 [%out], %r10;
""",
        "no-such-barrier",
    ),
)
