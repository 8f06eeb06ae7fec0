"""mbarriers: arrivals, bytes, phases (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

import pytest
from ptx import run, stored

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.machine import PhaseBarrier
from blackwell_matmul.emulator.spaces import Undefined

INIT = """.shared .align 8 .b64 bar; .reg .b64 %s; setp.eq.u32 %p0, %r39, 0;
@%p0 mbarrier.init.shared::cta.b64 [bar], {}; bar.sync 0;"""
ASK = """mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r0, 1, 0, %p1;
    mbarrier.test_wait.parity.shared.b64 %p1, [bar], 1; selp.u32 %r1, 2, 0, %p1; add.u32 %r0, %r0, %r1;"""


def asked(body: str, count: int = 32) -> int:
    """1 where parity 0 has passed, 2 where parity 1 has: 2 in phase 0, 1 in phase 1."""
    found = set(stored(INIT.format(count) + body + "bar.sync 0;" + ASK).tolist())
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("body", "count", "wanted"),
    [
        ("", 1, 2),
        ("mbarrier.arrive.shared.b64 %s, [bar];", 32, 1),
        ("mbarrier.arrive.shared.b64 _, [bar];", 33, 2),
        ("@%p0 mbarrier.arrive.shared.b64 _, [bar], 5;", 5, 1),
        ("@%p0 mbarrier.arrive.shared.b64 _, [bar], 4;", 5, 2),
        ("mbarrier.arrive.shared.b64 _, [bar]; bar.sync 0; mbarrier.arrive.shared.b64 _, [bar];", 32, 2),
        ("@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;", 1, 2),
        (
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; "
            "@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64;",
            1,
            1,
        ),
        (
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; "
            "@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 60;",
            1,
            2,
        ),
        (
            "@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64; "
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64;",
            1,
            1,
        ),
        (
            "@%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 8; @%p0 mbarrier.arrive.shared.b64 _, [bar];",
            1,
            2,
        ),
        (
            "@%p0 mbarrier.arrive_drop.shared.b64 _, [bar]; bar.sync 0; setp.lt.u32 %p2, %r39, 2; "
            "@%p2 mbarrier.arrive.shared.b64 _, [bar];",
            3,
            1,
        ),
    ],
)
def test_phases(body: str, count: int, wanted: int) -> None:
    assert asked(body, count) == wanted


def test_who_drops_is_not_awaited_in_the_next_phase() -> None:
    one = "@%p0 mbarrier.arrive.shared.b64 _, [bar];"
    assert asked(f"@%p0 mbarrier.arrive_drop.shared.b64 _, [bar]; {one} {one}", 2) == 2


def test_a_state_is_the_phase_that_it_arrived_in() -> None:
    found = stored(
        INIT.format(32)
        + """
        mbarrier.arrive.shared.b64 %s, [bar]; mbarrier.test_wait.shared.b64 %p1, [bar], %s; selp.u32 %r0, 1, 0, %p1;
        @%p0 mbarrier.arrive.shared.b64 %s, [bar]; @%p0 mbarrier.test_wait.shared.b64 %p1, [bar], %s;
        @%p0 selp.u32 %r0, 1, 0, %p1;"""
    )
    assert found.tolist() == [0] + [1] * 31


def test_arrivals_at_another_cta() -> None:
    found = stored(
        INIT.format(2)
        + """
        barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r1, bar; mapa.shared::cluster.u32 %r2, %r1, 0;
        @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2]; barrier.cluster.arrive; barrier.cluster.wait;
        """
        + ASK
        + "barrier.cluster.arrive; barrier.cluster.wait;",
        grid=2,
        cluster=2,
    )
    assert found[:, 0].tolist() == [1, 2]


def test_a_generic_address() -> None:
    assert asked("mov.u64 %x1, bar; cvta.shared.u64 %x2, %x1; mbarrier.arrive.b64 _, [%x2];") == 1


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("@%p0 mbarrier.arrive.shared.b64 _, [bar], 2;", "2 arrive at an mbarrier that awaits 1 of its 1 arrivals"),
        (
            "mov.u32 %r1, bar; @%p0 mbarrier.arrive.shared.b64 _, [%r1+8];",
            r"no mbarrier was initialised at 1,032 of shared memory of CTA \(0, 0, 0\)",
        ),
        (
            "@%p0 mbarrier.inval.shared.b64 [bar]; bar.sync 0; mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;",
            r"the mbarrier at 1,024 of shared memory of CTA \(0, 0, 0\) was invalidated at PTX line \d+",
        ),
        (
            "mbarrier.test_wait.parity.shared.b64 %p1, [bar], 2;",
            "waits for parity 2 of an mbarrier, which can be 0 or 1",
        ),
        ("@%p0 mbarrier.init.shared.b64 [bar], 0;", "an mbarrier counts 1 to 1,048,575 arrivals and not 0"),
        (
            "@%p0 mbarrier.init.shared.b64 [bar], 1048576;",
            "an mbarrier counts 1 to 1,048,575 arrivals and not 1,048,576",
        ),
        ("@%p0 mbarrier.init.shared.b64 [bar+4], 1;", "an mbarrier lies at 1,028, which is no multiple of 8"),
        ("@%p0 mbarrier.init.shared.b64 [bar+8], 1;", r"puts an mbarrier into 8 bytes at .* which has 1,032 bytes"),
        (
            "mov.u32 %r1, bar; add.u32 %r1, %r1, 33554432; @%p0 mbarrier.arrive.shared::cluster.b64 _, [%r1];",
            "address .* is of CTA 2 in a cluster of 1",
        ),
        (
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1048576;",
            "an mbarrier counts up to 1,048,575 bytes and not 1,048,576",
        ),
    ],
)
def test_what_stops(body: str, text: str) -> None:
    with pytest.raises(EmulationError, match=r"^PTX line \d+: .*: " + text + r"\.$"):
        run(INIT.format(1) + body)


def test_the_state_by_itself() -> None:
    barrier = PhaseBarrier(2, 2)
    barrier.expect(8)
    barrier.arrive(2)
    assert (
        str(barrier) == "phase 0, 0 of 2 arrivals and 8 bytes missing"
        and not barrier.has_passed(0)
        and barrier.has_passed(1)
    )
    with pytest.raises(Undefined):
        barrier.arrive()
    barrier.complete(8)
    assert (barrier.phase, barrier.pending, barrier.tx_bytes) == (1, 2, 0) and barrier.has_passed(0)
