"""Threads arrive at a named barrier a second time before the others have met the first."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="Threads that only arrive at a named barrier run ahead and arrive again before the others have met the first",
    sources=(
        "https://github.com/flashinfer-ai/flashinfer/pull/4732",
        "https://github.com/vllm-project/vllm/pull/26026",
    ),
    says="256 threads arrive without waiting, 128 wait. The arriving ones can do the next tile and arrive again;"
    " the phase ends without a waiter, and a later one starves. The repair alternates two barriers. In the "
    "second source a path without work arrives and goes round.",
    guess="Two warps here, one on each side; the barrier of two tiles is enough for the fault.",
    section="bar.arrive (no second bar.arrive before the barrier is reset)",
    ptx=Ptx(
        """
mov.u32 %r10, 0; @%w1 bra WAITER;
TILE: st.shared.b32 [%mine], %r10;
bar.arrive 1, 64; //-
and.b32 %r11, %r10, 1; add.u32 %r11, %r11, 1; bar.arrive %r11, 64; //+
bar.sync 4, 64; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 4; @%p1 bra TILE; bra END;
WAITER:
bar.sync 1, 64; //-
and.b32 %r11, %r10, 1; add.u32 %r11, %r11, 1; bar.sync %r11, 64; //+
ld.shared.b32 %r12, [%other];
bar.sync 4, 64; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 4; @%p1 bra WAITER;
END:
""",
        "deadlock",
    ),
)
