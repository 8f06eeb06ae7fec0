"""`Bug`: one bug, where it was published, and what each tool must say of it.

A bug is re-created as PTX, as a tilus script, or as both. Each has a faulty and a repaired variant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blackwell_matmul import check_ptx, simulate

REPAIRED, FAULTY = "//+", "//-"
"""Ends of lines of PTX that only the repaired variant, or only the faulty one, has."""

WORDS = 8192
"""Words of 32 bits of global memory that a kernel is given, all 0."""

HEAD = """
.version 8.8
.target {target}
.address_size 64
.visible .entry zoo(.param .u64 memory)
{{
.reg .pred %first, %lead, %w0, %w1, %w2, %w3, %c0, %c1, %done, %p<10>;
.reg .b32 %t, %lane, %warp, %cta, %rank, %tile, %mine, %other, %next, %bar, %peer_bar, %peer, %tmem, %lanes, %r<60>;
.reg .f32 %f<20>; .reg .b64 %base, %out, %desc_a, %desc_b, %x<20>; .reg .b128 %v<2>;
.shared .align 1024 .b8 tile[32768]; .shared .align 16 .b8 bars[128];
mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5;
mov.u32 %cta, %ctaid.x; mov.u32 %rank, %cluster_ctarank;
mov.u32 %tile, tile; mov.u32 %bar, bars; mad.lo.s32 %mine, %t, 4, %tile;
mov.u32 %r0, %ntid.x; add.s32 %r1, %t, 32; rem.u32 %r1, %r1, %r0; mad.lo.s32 %other, %r1, 4, %tile;
add.s32 %r1, %lane, 1; and.b32 %r1, %r1, 31; mad.lo.s32 %r1, %warp, 32, %r1; mad.lo.s32 %next, %r1, 4, %tile;
setp.eq.u32 %first, %t, 0; setp.eq.u32 %lead, %lane, 0; setp.eq.u32 %w0, %warp, 0; setp.eq.u32 %w1, %warp, 1;
setp.eq.u32 %w2, %warp, 2; setp.eq.u32 %w3, %warp, 3; setp.eq.u32 %c0, %rank, 0; setp.ne.u32 %c1, %rank, 0;
xor.b32 %r1, %rank, 1; mapa.shared::cluster.u32 %peer, %tile, %r1; mapa.shared::cluster.u32 %peer_bar, %bar, %r1;
ld.param.u64 %x0, [memory]; cvta.to.global.u64 %base, %x0;
mad.lo.s32 %r1, %cta, %r0, %t; mul.wide.u32 %x0, %r1, 4; add.s64 %out, %base, %x0;
"""
"""Registers that all kernels have. %t, %lane, %warp, %cta, %rank: of this thread. %tile: 32 KiB of shared memory.
%mine, %other, %next: its word of this thread, of the same lane of the next warp, of the next lane. %bar: 128 bytes
for mbarriers. %peer, %peer_bar: the tile and the mbarriers of the other CTA of a pair. %base, %out: global memory, and
a word of this thread in it. %first: thread 0. %lead: lane 0. %w0 to %w3: a warp. %c0, %c1: the first CTA of a
cluster, and the others.
"""

ALLOC = """
@%w0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+96], 64; bar.sync 0;
ld.shared.b32 %tmem, [%bar+96]; shl.b32 %lanes, %warp, 21; add.s32 %lanes, %tmem, %lanes;
"""
"""64 columns of tensor memory: %tmem, and %lanes, the lanes of this warp."""

FREE = """
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
@%w0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64;
"""

FILL = """
mad.lo.s32 %r2, %t, 32, %tile; mov.b32 %r3, 0;
st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3}; st.shared.v4.b32 [%r2+16], {%r3, %r3, %r3, %r3};
st.shared.v4.b32 [%r2+4096], {%r3, %r3, %r3, %r3}; st.shared.v4.b32 [%r2+4112], {%r3, %r3, %r3, %r3};
"""
"""Operands for 128 threads: 4 KiB of A at %tile, and as many of B behind it, written by st.shared."""

DESCRIPTORS = f"""
shr.u32 %r2, %tile, 4; cvt.u64.u32 %desc_a, %r2; or.b64 %desc_a, %desc_a, {128 >> 4 << 16 | 256 >> 4 << 32};
add.s64 %desc_b, %desc_a, 256;
"""
"""%desc_a, %desc_b: tiles of halves without a swizzle, 16 columns wide, for wgmma."""

TCGEN05 = (
    DESCRIPTORS
    + f"""
or.b64 %desc_a, %desc_a, {1 << 46}; or.b64 %desc_b, %desc_b, {1 << 46}; mov.b32 %r4, {1 << 4 | 2 << 17 | 8 << 24};
setp.ne.u32 %p9, 0, 0;
"""
)
"""The same for tcgen05.mma, and %r4, the instruction descriptor of a product of 128 x 16 x 16; %p9 is false."""

MMA = "tcgen05.mma.cta_group::1.kind::f16 [%tmem], %desc_a, %desc_b, %r4, %p9;"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"

PAIR = f"""
fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@%w0 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%bar+96], 64; bar.sync 0;
ld.shared.b32 %tmem, [%bar+96]; .reg .b16 %h<2>; mov.b16 %h1, 3;
{TCGEN05}
mov.b32 %r4, {1 << 4 | 2 << 17 | 16 << 24};
"""
"""64 columns of tensor memory for a pair, descriptors for a product of 256 x 16 x 16, and %h1, a mask of both CTAs."""

PAIR_END = f"""
tcgen05.fence::after_thread_sync; {CLUSTER_SYNC}
@%w0 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tmem, 64; {CLUSTER_SYNC}
"""
PAIR_MMA = MMA.replace("cta_group::1", "cta_group::2")
PAIR_COMMIT = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"


@dataclass(frozen=True)
class Ptx:
    """A kernel: its lines after HEAD, and its launch.

    `wait [address], parity;` stands for a loop of mbarrier.try_wait; words behind `wait` are its semantics and scope.
    told: the code expected of the faulty variant, in brackets where it is unpromised.
    missing: why check_ptx does not find it yet; empty where it does.
    """

    body: str
    told: str
    threads: int = 64
    ctas: int = 1
    cluster: int = 1
    target: str = "sm_90a"
    orders: tuple[str, ...] = ("eager",)
    missing: str = ""

    def text(self, repaired: bool) -> str:
        """Return the PTX of a variant."""
        lines = (HEAD.format(target=self.target) + self.body).splitlines()
        left_out = FAULTY if repaired else REPAIRED
        kept = [line for line in lines if not line.rstrip().endswith(left_out)]
        return re.sub(WAIT, _Loops(), "\n".join(kept)) + "\nret;\n}\n"

    def codes(self, repaired: bool) -> set[str]:
        """Return the codes that check_ptx finds: plain ones are errors, those in brackets unpromised."""
        memory = np.zeros(WORDS, np.uint32)
        text = self.text(repaired)
        report = check_ptx(
            text, memory, grid=self.ctas, block=self.threads, cluster=self.cluster, orders=self.orders
        )  # fmt: skip
        assert not report.stopped, report.stopped
        return {each.code for each in report.errors} | {f"({each.code})" for each in report.unpromised}


WAIT = r"\bwait((?:\.\w+)*) (\[[^\]]+\]), ([^;]+);"


@dataclass
class _Loops:
    """Writes each wait as a loop with a label of its own."""

    count: int = 0

    def __call__(self, found: re.Match[str]) -> str:
        words, address, parity = found.groups()
        self.count += 1
        again = f"W{self.count}"
        return (
            f"{again}: mbarrier.try_wait.parity{words}.shared::cta.b64 %done, {address}, {parity}; @!%done bra {again};"
        )


ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
"""Policies and seeds in which a script is simulated."""


@dataclass(frozen=True)
class Script:
    """A tilus script: `make(repaired)` returns it, `arguments()` what it is called with.

    told, missing: as of Ptx, of `simulate`; in brackets is what is unguaranteed.
    """

    make: Callable[[bool], Any]
    arguments: Callable[[], Iterable[Any]]
    told: str
    target: str = "sm_100a"
    missing: str = ""

    def codes(self, repaired: bool) -> set[str]:
        """Return the codes that simulate finds in some orders, those of unguaranteed findings in brackets."""
        found: set[str] = set()
        for policy, seed in ORDERS:
            arguments = tuple(self.arguments())
            run = simulate(
                self.make(repaired), *arguments, policy=policy, seed=seed, workers=1, target=self.target, trace=False
            )
            found |= {each.code if each.severity.value == "error" else f"({each.code})" for each in run.findings}
        return found


NOT_RUN = "not run"


@dataclass(frozen=True)
class Bug:
    """A bug. sources: where it was published. says: what is published, in our words. guess: what is not, and is ours.

    section: of the PTX ISA. sanitizer, consan: what compute-sanitizer and Triton's ConSan say, as published.
    """

    title: str
    sources: tuple[str, ...]
    says: str
    guess: str
    section: str
    ptx: Ptx | None = None
    script: Script | None = None
    sanitizer: str = NOT_RUN
    consan: str = NOT_RUN
    name: str = field(default="", compare=False)

    @property
    def levels(self) -> dict[str, Ptx | Script]:
        """What each tool of this project reads of it, by the tool's name."""
        both = {"simulate": self.script, "check_ptx": self.ptx}
        return {name: each for name, each in both.items() if each is not None}


def verdict(wanted: str, faulty: set[str], repaired: set[str]) -> str:
    """Return what a tool's answers to both variants amount to."""
    if repaired:
        return "alarm on the repair"
    if wanted in faulty:
        return "found"
    return "told otherwise" if faulty else "not found"
