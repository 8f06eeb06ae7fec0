"""Cluster launch control: work that has not started is taken over (PTX ISA, "clusterlaunchcontrol")."""

from __future__ import annotations

import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import EmulationError

STEAL = """
    .shared .align 16 .b8 answer[16]; .shared .align 8 .b64 bar; setp.eq.u32 %p0, %r39, 0;
    @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, 0;
    LOOP: mul.wide.u32 %x1, %r1, 4; add.s64 %x1, %x1, %x10; @%p0 red.global.add.u32 [%x1], 1;
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; mov.u32 %r5, answer; mov.u32 %r6, bar; bar.sync 0;
    @%p0 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r5], [%r6];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], %r2; @!%p1 bra WAIT; xor.b32 %r2, %r2, 1;
    ld.shared.b128 %v1, [answer]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %v1;
    @%p2 clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r1, %r7, %r8, _}, %v1; bar.sync 0;
    @%p2 bra LOOP;"""


@pytest.mark.parametrize("order", ["late", "eager", "random"])
def test_every_cta_is_worked_on_once(order: str) -> None:
    done = np.zeros(9, np.uint32)
    run(STEAL, done, grid=9, order=order, target="sm_100a")
    assert done.tolist() == [1] * 9


def test_one_coordinate_alone() -> None:
    done = np.zeros(5, np.uint32)
    run(
        STEAL.replace("get_first_ctaid.v4.b32.b128 {%r1, %r7, %r8, _}", "get_first_ctaid::x.b32.b128 %r1"),
        done,
        grid=5,
        target="sm_100a",
    )
    assert done.tolist() == [1] * 5


def test_the_place_that_a_refusal_tells_may_be_read_and_dropped() -> None:
    """CuTe's kernels read the index before they look if there is one."""
    done = np.zeros(1, np.uint32)
    run(STEAL.replace("@%p2 clusterlaunchcontrol", "clusterlaunchcontrol"), done, grid=1, target="sm_100a")
    assert done.tolist() == [1]


def test_an_answer_that_is_misplaced_stops() -> None:
    with pytest.raises(EmulationError, match=r"a response at .* of shared memory, which is no multiple of 16"):
        run(
            STEAL.replace("mov.u32 %r5, answer;", "mov.u32 %r5, answer; add.u32 %r5, %r5, 8;"),
            np.zeros(1, np.uint32),
            grid=1,
            target="sm_100a",
        )
