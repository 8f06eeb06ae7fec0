"""Warps that execute together, and what each has alone (`Row` in `emulator/machine.py`, `emulator/scheduler.py`)."""

from __future__ import annotations

import numpy as np
import ptx
import pytest

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator import machine
from blackwell_matmul.emulator.emulation_listener import EmulationListener

NUMBER = "mov.u32 %r38, %ctaid.x; mov.u32 %r37, %ntid.x; mad.lo.u32 %r36, %r38, %r37, %r39;"
"""%r36: the thread's number in the grid; %r38: its CTA."""


def stored(body: str, ctas: int, threads: int, **launch: object) -> np.ndarray:
    """What each thread leaves in %r0, CTAs in rows."""
    return ptx.stored(NUMBER + body, threads=threads, grid=ctas, **launch)


def test_lanes_and_warps_part_and_join() -> None:
    """Each thread counts down from its own number, lanes of one warp and warps of one CTA differently often."""
    body = """
        mov.u32 %r0, 0; mov.u32 %r1, %r36;
        L: setp.eq.u32 %p0, %r1, 0; @%p0 bra E; add.u32 %r0, %r0, %r1; sub.u32 %r1, %r1, 1; bra L; E:"""
    number = np.arange(3 * 96).reshape(3, 96)
    assert (stored(body, 3, 96) == number * (number + 1) // 2).all()


def test_warps_that_stay_apart_get_a_row_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    part = machine.Row.part

    def counted(row: machine.Row, warps: list[machine.WarpState]) -> machine.Row:
        sizes.append((len(row.warps), len(warps)))
        return part(row, warps)

    monkeypatch.setattr(machine.Row, "part", counted)
    body = """
        .shared .align 4 .b32 box[8]; mov.u32 %r2, box; shr.u32 %r1, %r39, 5; mov.u32 %r0, 0;
        setp.ne.u32 %p0, %r1, 1; @%p0 bra E;
        L: add.u32 %r0, %r0, 1; setp.lt.u32 %p1, %r0, 1000; @%p1 bra L;
        st.shared.u32 [%r2], %r0;
        E: bar.sync 0; ld.shared.u32 %r0, [%r2]; add.u32 %r0, %r0, %r38;"""
    assert (stored(body, 2, 96) == [[1000], [1001]]).all()
    assert sizes == [(6, 2)]


def test_a_fault_names_the_cta_and_the_line_as_of_a_warp_alone() -> None:
    body = """
        .shared .align 4 .b32 box[64]; mov.u32 %r2, box; mad.lo.u32 %r2, %r36, 4, %r2; st.shared.u32 [%r2], %r36;
        mov.u32 %r0, 0;"""
    told = []
    for how in ({}, {"listener": EmulationListener()}):
        with pytest.raises(EmulationError) as found:
            stored(body, 2, 64, **how)
        told.append(str(found.value))
    assert "of shared memory of CTA (1, 0, 0), which has 1,280 bytes" in told[0]
    assert told[0] == told[1]


def test_ctas_of_a_row_have_shared_memory_of_their_own() -> None:
    body = """
        .shared .align 4 .b32 box[64]; mov.u32 %r2, box; shl.b32 %r3, %r39, 2; add.u32 %r2, %r2, %r3;
        st.shared.u32 [%r2], %r36; bar.sync 0; xor.b32 %r4, %r3, 252; mov.u32 %r5, box; add.u32 %r5, %r5, %r4;
        ld.shared.u32 %r0, [%r5];"""
    assert (stored(body, 3, 64) == np.arange(192).reshape(3, 64)[:, ::-1]).all()


def test_atomics_on_one_place_are_in_the_order_of_the_lanes() -> None:
    body = """
        .shared .align 4 .b32 box[4]; mov.u32 %r2, box; setp.eq.u32 %p0, %r39, 0; @%p0 st.shared.u32 [%r2], 7;
        bar.sync 0; and.b32 %r1, %r39, 1; mad.lo.u32 %r1, %r1, 2, 1; atom.shared.add.u32 %r0, [%r2], %r1;"""
    amounts = np.where(np.arange(64) & 1, 3, 1)
    assert (stored(body, 2, 64) == 7 + np.cumsum(amounts) - amounts).all()


def test_sums_of_several_ctas_are_in_the_order_of_the_ctas() -> None:
    """Floats that other orders would round otherwise."""
    total = np.zeros(1, np.float32)
    body = """
        mov.u32 %r38, %ctaid.x; cvt.rn.f32.u32 %f0, %r38; mul.f32 %f0, %f0, 0f4B800001; add.f32 %f0, %f0, 0f3F8CCCCD;
        red.global.add.f32 [%x10], %f0;"""
    ptx.run(".reg .f32 %f<2>;" + body, total, grid=40)
    wanted = np.float32(0)
    for cta in np.repeat(np.arange(40, dtype=np.float32), 32):
        wanted += np.float32(cta * np.float32(16777218.0)) + np.float32(1.1)
    assert total[0] == wanted


def test_a_barrier_of_some_warps_lets_these_alone_go_on() -> None:
    """Warps 0 and 1 of each CTA meet at barrier 1, and warp 2 goes on."""
    body = """
        .shared .align 4 .b32 box[4]; mov.u32 %r2, box; shr.u32 %r1, %r39, 5; mov.u32 %r0, %r1;
        setp.eq.u32 %p0, %r1, 2; @%p0 bra E; setp.eq.u32 %p1, %r39, 32; @%p1 st.shared.u32 [%r2], 9;
        bar.sync 1, 64; ld.shared.u32 %r0, [%r2]; E:"""
    assert (stored(body, 2, 96) == [9] * 64 + [2] * 32).all()
