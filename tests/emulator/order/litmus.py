"""Litmus programs: a rule of PTX's memory model each, with and without the instruction that the rule asks for.

%t: the thread. %mine, %other, %next: shared addresses of a word of this thread, of the same lane of the next warp, of
the next lane. %data: the first word. %bar: an mbarrier. %out: a global word of this thread; %flag, %word: two global
words of all. %first: thread 0. %lead: lane 0 of each warp. %zero, %one: of warp 0, of warp 1. %low: CTA 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator import check_ptx
from blackwell_matmul.emulator.order.ptx_findings import PtxReport

HEAD = """
.version 8.8
.target {target}
.address_size 64
.visible .entry litmus(.param .u64 global)
{{
.reg .pred %p<9>, %first, %lead, %zero, %one, %low, %high, %done, %free;
.reg .b32 %t, %lane, %warp, %cta, %r<40>, %mine, %other, %next, %data, %bar, %there;
.reg .b64 %base, %out, %flag, %word, %x<9>;
.shared .align 1024 .b8 data[8192];
.shared .align 8 .b8 bars[64];
mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5; mov.u32 %cta, %ctaid.x;
mov.u32 %data, data; mov.u32 %bar, bars;
shl.b32 %r0, %t, 2; add.s32 %mine, %data, %r0;
add.s32 %r0, %t, 32; and.b32 %r0, %r0, 63; shl.b32 %r0, %r0, 2; add.s32 %other, %data, %r0;
add.s32 %r0, %t, 1; and.b32 %r0, %r0, 31; mad.lo.s32 %r0, %warp, 32, %r0;
shl.b32 %r0, %r0, 2; add.s32 %next, %data, %r0;
setp.eq.u32 %first, %t, 0; setp.eq.u32 %lead, %lane, 0; setp.eq.u32 %zero, %warp, 0; setp.eq.u32 %one, %warp, 1;
setp.eq.u32 %low, %cta, 0; setp.ne.u32 %high, %cta, 0;
ld.param.u64 %x0, [global]; cvta.to.global.u64 %base, %x0;
mad.lo.s32 %r0, %cta, 64, %t; mul.wide.u32 %x0, %r0, 4; add.s64 %out, %base, %x0;
add.s64 %flag, %base, 4096; add.s64 %word, %base, 5120;
"""

INIT = "@%first mbarrier.init.shared::cta.b64 [%bar], {}; bar.sync 0;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%bar];"
LOAD = """@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%data], [%base], 256, [%bar];"""
STORE = """@%first cp.async.bulk.global.shared::cta.bulk_group [%base], [%data], 256;
@%first cp.async.bulk.commit_group;"""


def wait(parity: int, name: str) -> str:
    return f"{name}: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], {parity}; @!%done bra {name};"


def checked(
    body: str, ctas: int = 1, cluster: int = 1, threads: int = 64, target: str = "sm_90a", **how: Any
) -> PtxReport:  # fmt: skip
    """The report of a program on 2,048 words of global memory."""
    text = HEAD.format(target=target) + body + "\nret;\n}\n"
    memory = np.zeros(2048, np.uint32)
    return check_ptx(text, memory, grid=ctas, block=threads, cluster=cluster, **how)


def codes(report: PtxReport) -> set[str]:
    """The codes of errors, and those of what is unpromised in brackets."""
    told = {each.code for each in report.errors} | {f"({each.code})" for each in report.unpromised}
    return told | ({f"stopped: {report.stopped}"} if report.stopped else set())


def named(value: object) -> str:
    """Return the beginning of a parameter's text, the same in every process, as the name of a test."""
    return str(sorted(value) if isinstance(value, (set, frozenset)) else value)[:40]
