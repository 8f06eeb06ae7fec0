"""Warps in turns, operations that complete late, and the sentences for what never ends (`emulator/scheduler.py`)."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from ptx import run, stored

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator import ORDERS, scheduler

BARRIER = """
    .shared .align 8 .b64 bar; .shared .align 16 .b8 box[512];
    setp.eq.u32 %p0, %r39, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;"""

WAIT = """
    WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;"""

COPIES = (
    BARRIER
    + """
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%x11], 256, [bar];
    {early}
    {wait}
    mov.u32 %r1, box; shl.b32 %r2, %r39, 2; add.u32 %r1, %r1, %r2; ld.shared.u32 %r0, [%r1];"""
)


def copied(wait: str, order: str, seed: int = 0, early: str = "") -> list[int]:
    """A copy of 256 bytes into shared memory, of which each lane reads a word."""
    result, source = np.zeros(32, np.uint32), np.arange(64, dtype=np.uint32) + 7
    body = (
        COPIES.format(wait=wait, early=early)
        + "mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10; st.global.u32 [%x1], %r0;"
    )
    run(body, result, source, order=order, seed=seed)
    return result.tolist()


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_waited_for_is_there_in_every_order(order: str) -> None:
    assert copied(WAIT, order, seed=3) == list(range(7, 39))


def test_what_is_not_waited_for_is_late() -> None:
    """Only a copy that completes at once is there."""
    assert copied("", "eager") == list(range(7, 39))
    with pytest.raises(EmulationError, match="that nothing has written"):
        copied("", "late")


ORDERED = """
    setp.eq.u32 %p0, %r39, 0; @!%p0 bra END; .shared .align 16 .b8 box[64];
    mov.u32 %r1, box; st.shared.v4.u32 [%r1], {1, 1, 1, 1}; st.shared.v4.u32 [%r1+16], {2, 2, 2, 2};
    st.shared.v4.u32 [%r1+32], {3, 3, 3, 3};
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r1], 16; add.u32 %r2, %r1, 16;
    cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r2], 16; add.u32 %r2, %r1, 32;
    cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r2], 16;
    END:"""


def last(order: str, seed: int = 0) -> int:
    """Which of three stores to one place was the last."""
    result = np.zeros(4, np.uint32)
    run(ORDERED, result, order=order, seed=seed)
    return int(result[0])


def test_the_order_of_stores_that_nobody_orders() -> None:
    assert last("late") == last("eager") == 3
    assert last("newest") == 1
    found = [last("random", seed) for seed in range(12)]
    assert set(found) == {1, 2, 3}
    assert found == [last("random", seed) for seed in range(12)]


def test_a_deadlock_names_the_barrier_its_phase_and_what_is_missing() -> None:
    with pytest.raises(EmulationError) as caught:
        run(BARRIER + "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 48;" + WAIT, block=64)
    text = str(caught.value)
    assert text.startswith("deadlock: everybody waits and nothing is in flight: warp 0 of CTA (0, 0, 0), warp 1 of CTA")
    assert "PTX line" in text and "mbarrier.try_wait.parity" in text
    assert "mbarrier at 1,024, parity 0: phase 0, 0 of 1 arrivals and 48 bytes missing" in text


def test_a_deadlock_of_arrivals_and_of_threads() -> None:
    with pytest.raises(EmulationError, match="phase 0, 1 of 1 arrivals and 0 bytes missing"):
        run(BARRIER + WAIT)
    with pytest.raises(EmulationError, match="barrier 2: 32 of 64 threads are there"):
        run("setp.ge.u32 %p0, %r39, 32; @%p0 bra END; bar.sync 2; END: bar.sync 3;", block=64)
    with pytest.raises(EmulationError, match="64 threads of the cluster are missing"):
        run(
            "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p0, %r1, 0; @!%p0 bra L; barrier.cluster.arrive; "
            "barrier.cluster.wait; "
            "L: bar.sync 2, 64;",
            grid=3,
            cluster=3,
        )


def test_many_who_wait_are_told_in_few_words() -> None:
    with pytest.raises(EmulationError, match=r"warp 2 of CTA \(0, 0, 0\) and 5 more at PTX line"):
        run(BARRIER + WAIT, block=256)


def test_an_endless_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "IDLE_STEPS", 30_000)
    with pytest.raises(
        EmulationError,
        match=r"^endless: 30,000 instructions ran and changed neither memory nor a barrier, the last near PTX line",
    ):
        run(
            ".shared .align 4 .b32 box; st.shared.u32 [box], 0; mov.u32 %r2, 0; L: ld.shared.u32 %r1, [box]; "
            "add.u32 %r2, %r2, 1; setp.eq.u32 %p0, %r1, 0; @%p0 bra L;"
        )


SPIN = {
    "a load": "ld.acquire.gpu.global.s32 %r1, [%x10]; setp.ne.s32 %p1, %r1, 3; @%p1 bra L;",
    "a failing swap": """
        mov.s32 %r1, 3; setp.eq.u32 %p1, %r39, 0; @%p1 atom.global.cas.b32 %r1, [%x10], 3, 4; setp.ne.s32 %p2, %r1, 3;
        @%p2 bra L;""",
    "a vote": """
        mov.s32 %r1, 3; setp.eq.u32 %p1, %r39, 0; @%p1 ld.acquire.gpu.global.s32 %r1, [%x10]; setp.ne.s32 %p2, %r1, 3;
        bar.red.or.pred %p3, 0, %p2; @%p3 bra L;""",
}


@pytest.mark.parametrize("spin", SPIN.values(), ids=SPIN)
@pytest.mark.parametrize("order", ["late", "eager", "random"])
def test_a_load_of_what_nobody_writes_is_told_with_what_it_sees_and_wants(spin: str, order: str) -> None:
    """Of two CTAs one ends; the semaphore stays as it was."""
    body = f"mov.u32 %r3, %ctaid.x; setp.eq.u32 %p4, %r3, 0; @%p4 bra END; L: {spin} END: ret;"
    told = (
        r"^endless: -7 is read again and again by warp \d of CTA \(1, 0, 0\)(, warp .*)? at PTX line \d+: .*\[%x10\].*"
        r", and compared with 3 \(setp.ne.s32, PTX line \d+\); the other warps have ended, wait or repeat a loop too, "
        r"and nobody writes another value\.$"
    )
    with pytest.raises(EmulationError, match=told):
        run(body, np.array([-7], np.int32), grid=2, block=64, order=order, limit=scheduler.Limit(steps=500_000))


@pytest.mark.parametrize("spin", SPIN.values(), ids=SPIN)
@pytest.mark.parametrize("order", ["late", "eager", "random"])
def test_a_load_of_what_a_later_cta_or_a_late_copy_writes_ends(spin: str, order: str) -> None:
    """CTA 0 spins until the last of 3 CTAs stores 3, with a bulk copy."""
    body = f"""
        .shared .align 16 .b8 box[16]; setp.ne.u32 %p5, %r39, 0; mov.u32 %r3, %ctaid.x;
        setp.eq.u32 %p4, %r3, 0; @%p4 bra L; setp.ne.u32 %p4, %r3, 2; @%p4 bra END; @%p5 bra END;
        mov.u32 %r2, box; st.shared.v4.u32 [%r2], {{3, 3, 3, 3}}; fence.proxy.async;
        cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r2], 16; bra END;
        L: {spin} END: ret;"""
    memory = np.zeros(4, np.int32)
    run(body, memory, grid=3, block=64, order=order, limit=scheduler.Limit(steps=500_000))
    assert memory[3] == 3


def test_a_loop_that_changes_nothing_is_endless() -> None:
    with pytest.raises(EmulationError, match=r"^endless: a loop without loads runs near PTX line \d+: bra"):
        run("L: bra L;", limit=scheduler.Limit(steps=500_000))


def test_a_wait_that_times_out_goes_on() -> None:
    """try_wait may return without success: the kernel counts to three and goes its way."""
    found = stored(
        BARRIER
        + """
        mov.u32 %r0, 0;
        L: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; add.u32 %r0, %r0, 1; setp.lt.u32 %p2, %r0, 3;
        @%p2 bra L;"""
    )
    assert found.tolist() == [3] * 32


def test_test_wait_does_not_wait() -> None:
    assert (
        stored(BARRIER + "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r0, 1, 0, %p1;").tolist()
        == [0] * 32
    )


def test_a_copy_that_is_looked_for_without_end_completes() -> None:
    spin = "LOOK: mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra LOOK;"
    assert copied(spin, "late") == list(range(7, 39))


def test_a_grid_whose_ctas_wait_for_later_ones() -> None:
    """The first looks for what the last writes: it must start."""
    (flag,) = run(
        """
        mov.u32 %r1, %ctaid.x; setp.eq.u32 %p0, %r1, 3; @%p0 bra SET;
        L: ld.acquire.gpu.global.u32 %r2, [%x10]; setp.eq.u32 %p1, %r2, 0; @%p1 bra L; bra END;
        SET: st.release.gpu.global.u32 [%x10], 5;
        END:""",
        np.zeros(1, np.uint32),
        grid=4,
    )
    assert flag[0] == 5


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    run("mov.u32 %r0, 0;", grid=6, cluster=2, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("frozen", [False, True])
def test_the_garbage_collector_is_left_as_it_was(frozen: bool) -> None:
    gc.unfreeze()
    if frozen:
        gc.freeze()
    before = gc.get_freeze_count()
    assert stored("mov.u32 %r0, 7;").tolist() == [7] * 32
    with pytest.raises(EmulationError):
        stored("trap;")
    assert (before > 0) == (gc.get_freeze_count() > 0) == frozen
    gc.unfreeze()


def test_a_kernel_ends_behind_its_last_instruction() -> None:
    from blackwell_matmul.emulator import emulate

    took = emulate(".version 8.0\n.target sm_90a\n.entry k() {\n.reg .b32 %r;\nmov.u32 %r, 1;\n}\n")
    assert took.instructions == 2
