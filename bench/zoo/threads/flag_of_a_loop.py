"""All threads read a flag as the condition of a loop; one may already write it for the next turn."""

from zoo.bug import Bug, Ptx

BUG = Bug(
    title="Threads read a shared flag as the condition of a loop while thread 0, a turn ahead, writes it: they "
    "part at barriers",
    sources=(
        "https://github.com/NVIDIA/TensorRT-LLM/issues/18338",
        "https://github.com/NVIDIA/TensorRT-LLM/pull/18339",
    ),
    says="A top-k kernel decides by a scalar in shared memory whether to go round. It is rewritten before all "
    "have read it, so threads part and meet at different barriers: wrong output and crashes. The "
    "repair adds barriers.",
    guess="The loop is ours: two turns, and a flag that thread 0 writes.",
    section="bar, Causality Order",
    ptx=Ptx(
        """
@%first st.shared.b32 [%tile], 1; bar.sync 0;
mov.u32 %r10, 0;
TURN: ld.shared.b32 %r11, [%tile]; setp.eq.u32 %p1, %r11, 0; @%p1 bra END;
bar.sync 0; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 2; selp.u32 %r12, 1, 0, %p2;
@%first st.shared.b32 [%tile], %r12;
bar.sync 0;
bra TURN;
END:
""",
        "data-race",
    ),
)
