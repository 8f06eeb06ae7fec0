"""CTAs of a cluster: who may access the memory of whom, and when; scopes of arrivals and waits across CTAs."""

from __future__ import annotations

import numpy as np
import pytest
from litmus import HEAD, INIT, checked, codes, named, wait

from blackwell_matmul.emulator import check_ptx

BARRIER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PEER = """xor.b32 %r1, %cta, 1; mapa.shared::cluster.u32 %there, %mine, %r1; mapa.shared::cluster.u32 %r2, %bar, %r1;"""
PUT, GET = "st.shared::cluster.b32 [%there], %t;", "ld.shared.b32 %r9, [%mine];"
BARS = PEER + "@%first mbarrier.init.shared::cta.b64 [%bar], {}; fence.mbarrier_init.release.cluster;" + BARRIER
ARRIVE = "mbarrier.arrive{}.shared::cluster.b64 _, [%r2];"
BYTES = """setp.eq.u32 %p4, %t, 0; and.pred %p4, %p4, %high;
@%p4 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;"""
ASYNC = "@%low {}.shared::cluster.mbarrier::complete_tx::bytes.{} [%there], %t, [%r2]; @%low bra END;"


def waits(words: str) -> str:
    return wait(0, "W").replace(".shared", f"{words}.shared")


SCOPES = [
    (".release.cluster", ".acquire.cluster", set()),
    (".release.cluster", ".acquire.cta", {"relaxed-order"}),
    (".release.cluster", "", {"relaxed-order"}),
    (".release.cluster", ".relaxed.cluster", {"relaxed-order"}),
    (".relaxed.cluster", ".acquire.cluster", {"relaxed-order"}),
    (".release.cta", ".acquire.cluster", {"relaxed-order"}),
]


@pytest.mark.parametrize(("arrival", "wait", "wanted"), SCOPES)
def test_a_wait_and_an_arrival_of_another_cta_need_the_scope_of_the_cluster(
    arrival: str, wait: str, wanted: set[str]
) -> None:
    body = BARS.format(64) + PUT + ARRIVE.format(arrival) + waits(wait) + GET + BARRIER
    assert codes(checked(body, ctas=2, cluster=2)) == wanted


RING = "add.u32 %r1, %cta, 1; and.b32 %r1, %r1, 3; mapa.shared::cluster.u32 %there, %mine, %r1;"
LIVES = [
    ("a barrier before and behind", 2, PEER + BARRIER + PUT + BARRIER + GET, set()),
    ("a read when the peer may be over", 2,
     PEER + "st.shared.b32 [%mine], %t;" + BARRIER + "ld.shared::cluster.b32 %r9, [%there];", {"exit-before-peer"}),
    ("a read, and a barrier", 2,
     PEER + "st.shared.b32 [%mine], %t;" + BARRIER + "ld.shared::cluster.b32 %r9, [%there];" + BARRIER, set()),
    ("a read, and a relaxed barrier", 2, PEER + "st.shared.b32 [%mine], %t;" + BARRIER
     + "ld.shared::cluster.b32 %r9, [%there];" + BARRIER.replace("arrive", "arrive.relaxed"), set()),
    ("an arrival that nobody waits for", 2, BARS.format(64) + ARRIVE.format(".release.cluster"), {"exit-before-peer"}),
    ("an arrival, and a wait", 2,
     BARS.format(64) + ARRIVE.format(".release.cluster") + waits(".acquire.cluster"), set()),
    ("a ring of four", 4, BARRIER + RING + PUT + BARRIER + GET, set()),
    ("a ring of four, a barrier of the CTA", 4, BARRIER + RING + PUT + "bar.sync 0;" + GET + BARRIER, {"data-race"}),
    ("st.async", 2, BARS.format(1) + BYTES + ASYNC.format("st.async", "b32") + wait(0, "W") + GET + "END:" + BARRIER,
     set()),
    ("st.async without a wait", 2, BARS.format(1) + BYTES + ASYNC.format("st.async", "b32") + GET + "END:" + BARRIER,
     {"data-race", "exit-before-peer"}),
    ("red.async", 2, BARS.format(1) + "st.shared.b32 [%mine], 0;" + BARRIER + BYTES
     + ASYNC.format("red.async.relaxed.cluster", "add.u32") + wait(0, "W") + GET + "END:" + BARRIER, set()),
    ("red.async without a wait", 2, BARS.format(1) + "st.shared.b32 [%mine], 0;" + BARRIER + BYTES
     + ASYNC.format("red.async.relaxed.cluster", "add.u32") + GET + "END:" + BARRIER,
     {"data-race", "exit-before-peer"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ctas", "body", "wanted"), LIVES, ids=named)
def test_the_memory_of_another_cta(name: str, ctas: int, body: str, wanted: set[str]) -> None:
    assert codes(checked(body, ctas=ctas, cluster=ctas)) == wanted


def test_a_peer_that_may_not_have_started_is_shown_on_request() -> None:
    report = checked(PEER + PUT + BARRIER + GET, ctas=2, cluster=2)
    assert not codes(report) and any("peer-not-started" in line for line in report.lines(all=True))
    assert not checked(PEER + BARRIER + PUT + BARRIER + GET, ctas=2, cluster=2).findings


def test_red_async_adds() -> None:
    """Each lane of CTA 0 adds its number to 7 in the memory of CTA 1."""
    body = BARS.format(1) + "st.shared.b32 [%mine], 7;" + BARRIER + BYTES
    body += (
        ASYNC.format("red.async.relaxed.cluster", "add.u32") + wait(0, "W") + GET + "st.global.b32 [%out], %r9; END:"
    )
    memory = np.zeros(2048, np.uint32)
    text = HEAD.format(target="sm_90a") + body + BARRIER + "ret;\n}\n"
    assert check_ptx(text, memory, grid=2, block=64, cluster=2).ok
    assert memory[64:128].tolist() == [7 + lane for lane in range(64)]


RESPONSE = """mov.u32 %r4, %cluster_ctarank; setp.eq.u32 %low, %r4, 0; setp.ne.u32 %high, %r4, 0; xor.b32 %r1, %r4, 1;
mapa.shared::cluster.u32 %there, %mine, %r1; setp.eq.u32 %p5, %t, 0; and.pred %p6, %p5, %low;
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster;"""
CANCEL = """@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16; @%p6 clusterlaunchcontrol.try_cancel.async
.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%data+2048], [%bar];""".replace("\n.", ".")
ANSWER = "ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%data+2048];"
CANCELS = [
    ("an answer for all", CANCEL + wait(0, "W") + ANSWER, set()),
    ("no wait for the answer", CANCEL + ANSWER + wait(0, "W"), {"read-before-complete"}),
    ("an answer brings no data of the peer", "@%low " + PUT + "bar.sync 0;" + CANCEL + wait(0, "W") + ANSWER
     + "@%high " + GET, {"data-race"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "wanted"), CANCELS, ids=named)
def test_cluster_launch_control(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(RESPONSE + BARRIER + body + BARRIER, ctas=4, cluster=2, target="sm_100a")) == wanted


INVAL = "@%first mbarrier.inval.shared::cta.b64 [%bar];"
PLAIN = "mbarrier.arrive.shared::cta.b64 _, [%bar];"
STEPS = """mov.u32 %r6, 0; mov.u32 %r5, 0; TURN: @%first {}
X: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], %r6;
@!%done bra X; xor.b32 %r6, %r6, 1; {} add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 2; @%p1 bra TURN;"""
SPOKEN = """@%one st.relaxed.cta.shared.b32 [%data], 1; @%one bra ON; POLL: ld.relaxed.cta.shared.b32 %r9, [%data];
setp.ne.u32 %p2, %r9, 1; @%p2 bra POLL; ON:"""
OBJECTS = [
    ("used as data", INIT.format(64) + "@%first st.shared.b32 [%bar], 7;" + PLAIN,
     {"(mbarrier-as-data)", "mbarrier-as-data"}),
    ("invalidated, then data", INIT.format(64) + PLAIN + wait(0, "W") + "bar.sync 0;" + INVAL
     + "@%first st.shared.b32 [%bar], 7;", set()),
    ("invalidated while others wait", INIT.format(2) + "@%lead " + PLAIN + wait(0, "W") + "bar.warp.sync -1;"
     + SPOKEN + INVAL, {"data-race"}),
    ("the next phase behind a barrier", INIT.format(1) + STEPS.format(PLAIN, "bar.sync 0;"), set()),
    ("the next phase may end before the wait", "st.shared.b32 [%data], 0;" + INIT.format(1)
     + STEPS.format(PLAIN, SPOKEN), {"phase-overrun"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "wanted"), OBJECTS, ids=named)
def test_the_life_of_an_mbarrier(name: str, body: str, wanted: set[str]) -> None:
    assert codes(checked(body)) == wanted
