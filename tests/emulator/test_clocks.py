"""Clocks of the emulator: what all warps have executed (`emulator/instructions/convert.py`)."""

from __future__ import annotations

import numpy as np
from ptx import module

from blackwell_matmul.emulator import emulate

READ = module(
    """
    .reg .b32 %r<4>; .reg .b64 %x<8>; mov.u64 %x1, %clock64; mov.u32 %r0, %clock; mov.u64 %x2, %globaltimer;
    ld.param.u64 %x0, [a]; mov.u32 %r1, %tid.x; mul.wide.u32 %x3, %r1, 32; add.s64 %x0, %x0, %x3;
    cvt.u64.u32 %x4, %r0; mov.u64 %x5, %clock64;
    st.global.v2.u64 [%x0], {%x1, %x4}; st.global.v2.u64 [%x0+16], {%x2, %x5};""",
    [".u64 a"],
)


def test_a_clock_counts_the_instructions_of_all_warps() -> None:
    found = np.zeros((2, 64, 4), np.uint64)
    emulate(READ, found[0], block=64)
    assert found[0, 0].tolist() == [1, 3, 5, 17], "mov, mov, mov, ld, mov, mul, add, cvt, mov of two warps in turns"
    assert (found[0, :32] == found[0, 0]).all() and (found[0, 32:] == found[0, 32]).all()
    assert (found[0, 32] == found[0, 0] + 1).all()
