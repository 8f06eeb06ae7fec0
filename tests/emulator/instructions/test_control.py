"""Branches, barriers of threads, exchange between lanes (PTX ISA, "Control Flow", "Parallel Synchronization")."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np
import pytest
from ptx import run, stored

from blackwell_matmul.base.errors import EmulationError

ALL = 0xFFFFFFFF


def test_both_sides_of_a_branch_run_and_meet() -> None:
    found = stored("""
        setp.lt.u32 %p0, %r39, 10; mov.u32 %r0, 0;
        @%p0 bra LESS; mov.u32 %r0, 5; bra DONE;
        LESS: mov.u32 %r0, 7;
        DONE: activemask.b32 %r1; add.u32 %r0, %r0, %r1;""")
    assert found.tolist() == [7 + ALL & ALL] * 10 + [5 + ALL & ALL] * 22


def test_each_lane_loops_as_often_as_it_wants() -> None:
    found = stored("""
        mov.u32 %r0, 0; mov.u32 %r1, 0;
        LOOP: setp.ge.u32 %p0, %r1, %r39; @%p0 bra OUT;
        add.u32 %r0, %r0, %r1; add.u32 %r1, %r1, 1; bra.uni LOOP;
        OUT: vote.sync.ballot.b32 %r2, 1, -1; setp.ne.u32 %p1, %r2, -1; @%p1 trap;""")
    assert found.tolist() == [sum(range(lane)) for lane in range(32)]


def test_nested_branches_and_a_lane_that_leaves() -> None:
    found = stored("""
        mov.u32 %r0, 1; add.s64 %x1, %x10, 0; mul.wide.u32 %x2, %r39, 4; add.s64 %x1, %x1, %x2;
        setp.eq.u32 %p0, %r39, 3; @%p0 st.global.u32 [%x1], 99; @%p0 exit;
        setp.gt.u32 %p1, %r39, 7; @!%p1 bra END;
        and.b32 %r1, %r39, 1; setp.eq.u32 %p2, %r1, 0; @%p2 bra EVEN; mov.u32 %r0, 2; bra END;
        EVEN: mov.u32 %r0, 3;
        END: bar.warp.sync -1;""")
    assert found.tolist() == [99 if lane == 3 else 1 if lane < 8 else 3 - lane % 2 for lane in range(32)]


def test_a_table_of_places() -> None:
    found = stored(
        """
        mov.u32 %r1, %ctaid.x;
        TABLE: .branchtargets ONE, TWO, THREE;
        brx.idx %r1, TABLE;
        ONE: mov.u32 %r0, 10; bra END;
        TWO: mov.u32 %r0, 20; bra END;
        THREE: mov.u32 %r0, 30;
        END:""",
        grid=3,
    )
    assert found[:, 0].tolist() == [10, 20, 30]


def test_a_trap_stops_with_its_line() -> None:
    with pytest.raises(EmulationError, match=r"^PTX line \d+: @%p0 ?trap: the kernel stops itself\.$"):
        run("setp.eq.u32 %p0, %r39, 4; @%p0 trap;")


# --- barriers


@pytest.mark.parametrize("order", ["late", "random"])
def test_a_barrier_orders_two_warps(order: str) -> None:
    found = stored(
        """
        .shared .align 4 .b32 box[64];
        mov.u32 %r1, box; shl.b32 %r2, %r39, 2; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r39;
        bar.sync 0; xor.b32 %r2, %r39, 32; shl.b32 %r2, %r2, 2; mov.u32 %r1, box; add.u32 %r1, %r1, %r2;
        ld.shared.u32 %r0, [%r1];""",
        threads=64,
        order=order,
    )
    assert found.tolist() == [lane ^ 32 for lane in range(64)]


def test_a_barrier_that_some_only_arrive_at() -> None:
    """The first warp waits for 64 threads, of which the second's only come by."""
    found = stored(
        """
        .shared .align 4 .b32 box;
        setp.lt.u32 %p0, %r39, 32; mov.u32 %r0, 1; @%p0 bra WAITS;
        st.shared.u32 [box], 5; barrier.cta.arrive 3, 64; bra END;
        WAITS: bar.sync 3, 64; ld.shared.u32 %r0, [box];
        END:""",
        threads=64,
    )
    assert found.tolist() == [5] * 32 + [1] * 32


def test_a_barrier_is_used_again() -> None:
    found = stored(
        """
        .shared .align 4 .b32 box; setp.eq.u32 %p0, %r39, 0; @%p0 st.shared.u32 [box], 0; mov.u32 %r1, 0;
        LOOP: bar.sync 1, 96; @%p0 atom.shared.add.u32 %r2, [box], 3; bar.sync 1, 96;
        ld.shared.u32 %r0, [box]; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 5; @%p1 bra LOOP;""",
        threads=96,
    )
    assert found.tolist() == [15] * 96


def test_a_barrier_does_not_wait_for_warps_that_left() -> None:
    found = stored("setp.ge.u32 %p0, %r39, 32; mov.u32 %r0, 4; @%p0 exit; bar.sync 0;", threads=64)
    assert found.tolist() == [4] * 32 + [0xDEAD] * 32


def test_lanes_that_leave_later_are_not_awaited() -> None:
    """The lower half waits, and only then does the upper half leave."""
    for wait in ("bar.sync 0;", "bar.warp.sync -1;", "vote.sync.all.pred %p2, 1, -1;"):
        found = stored(f"setp.ge.u32 %p0, %r39, 16; mov.u32 %r0, 4; @%p0 bra OUT; {wait} bra END; OUT: exit; END:")
        assert found.tolist() == [4] * 16 + [0xDEAD] * 16, wait


def test_lanes_of_a_warp_meet_from_two_places() -> None:
    found = stored("""
        .shared .align 4 .b32 box[32]; mov.u32 %r1, box; shl.b32 %r2, %r39, 2; add.u32 %r1, %r1, %r2;
        setp.lt.u32 %p0, %r39, 16; @%p0 bra LOW;
        st.shared.u32 [%r1], 100; bar.warp.sync -1; bra END;
        LOW: st.shared.u32 [%r1], 200; bar.warp.sync -1;
        END: xor.b32 %r2, %r39, 16; shl.b32 %r2, %r2, 2; mov.u32 %r1, box; add.u32 %r1, %r1, %r2;
        ld.shared.u32 %r0, [%r1];""")
    assert found.tolist() == [100] * 16 + [200] * 16


def test_only_members_meet() -> None:
    found = stored("""
        setp.lt.u32 %p0, %r39, 16; @%p0 bra LOW; mov.u32 %r0, 1; bra END;
        LOW: bar.warp.sync 0xFFFF; shfl.sync.idx.b32 %r0, %r39, 3, 31, 0xFFFF;
        END:""")
    assert found.tolist() == [3] * 16 + [1] * 16


def test_lanes_wait_for_one_another_in_a_loop() -> None:
    """Lane 0 sets what the others look for in a loop that stands in front of it."""
    found = stored("""
        .shared .align 4 .b32 box; setp.eq.u32 %p0, %r39, 0; @%p0 st.shared.u32 [box], 0; bar.warp.sync -1;
        mov.u32 %r0, 0; @%p0 bra SET;
        LOOK: ld.volatile.shared.u32 %r1, [box]; setp.eq.u32 %p1, %r1, 0; @%p1 bra LOOK; bra END;
        SET: st.volatile.shared.u32 [box], 9; mov.u32 %r1, 1;
        END: mov.u32 %r0, %r1;""")
    assert found.tolist() == [1] + [9] * 31


@pytest.mark.parametrize("bar", ["bar", "bar.cta", "barrier", "barrier.cta"])
def test_a_barrier_counts_the_threads_whose_predicate_is_true(bar: str) -> None:
    aligned = ".aligned" if bar.startswith("barrier") else ""
    found = stored(
        f"and.b32 %r1, %r39, 3; setp.eq.u32 %p0, %r1, 0; {bar}.red.popc{aligned}.u32 %r0, 0, %p0;", threads=96
    )
    assert found.tolist() == [24] * 96
    found = stored(f"setp.lt.u32 %p0, %r39, 5; {bar}.red.popc{aligned}.u32 %r0, 2, 64, !%p0;", threads=64)
    assert found.tolist() == [59] * 64


@pytest.mark.parametrize("mode, whole, one, none", [("and", 1, 0, 0), ("or", 1, 1, 0)])
def test_a_barrier_tells_whether_all_threads_say_yes_or_one(mode: str, whole: int, one: int, none: int) -> None:
    for condition, expected in (
        ("ge.u32 %p0, %r39, 0", whole),
        ("eq.u32 %p0, %r39, 70", one),
        ("gt.u32 %p0, 0, %r39", none),
    ):
        found = stored(f"setp.{condition}; bar.red.{mode}.pred %p1, 0, %p0; selp.u32 %r0, 1, 0, %p1;", threads=96)
        assert found.tolist() == [expected] * 96


@pytest.mark.parametrize("order", ["late", "random"])
def test_each_round_of_a_barrier_that_reduces_has_its_own_result(order: str) -> None:
    found = stored(
        """
        mov.u32 %r0, 0; mov.u32 %r1, 0; shr.u32 %r3, %r39, 5;
        LOOP: setp.lt.u32 %p0, %r39, %r1; bar.red.popc.u32 %r2, 1, %p0; mad.lo.s32 %r0, %r0, 7, %r2;
        add.u32 %r1, %r1, 1; setp.le.u32 %p1, %r1, 4; @%p1 bra LOOP;""",
        threads=128,
        order=order,
    )
    assert found.tolist() == [functools.reduce(lambda sum, yes: 7 * sum + yes, range(5), 0)] * 128


def test_who_only_arrives_or_has_left_has_no_say_at_a_barrier_that_reduces() -> None:
    found = stored(
        """
        mov.u32 %r0, 3; setp.lt.u32 %p0, %r39, 32; @%p0 bra ASKS;
        bar.arrive 0, 64; bra END;
        ASKS: setp.lt.u32 %p2, %r39, 4; @%p2 exit; setp.ge.u32 %p1, %r39, 4;
        bar.red.and.pred %p3, 0, 64, %p1; bar.red.popc.u32 %r1, 1, 32, %p1; selp.u32 %r0, %r1, 0, %p3;
        END:""",
        threads=64,
    )
    assert found.tolist() == [0xDEAD] * 4 + [28] * 28 + [3] * 32


@pytest.mark.parametrize("order", ["late", "random"])
def test_a_barrier_of_the_cluster(order: str) -> None:
    """Each CTA reads what the next one wrote."""
    found = stored(
        """
        .shared .align 4 .b32 box; mov.u32 %r1, %cluster_ctarank; add.u32 %r2, %r1, 50; st.shared.u32 [box], %r2;
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        add.u32 %r3, %r1, 1; and.b32 %r3, %r3, 3; mov.u32 %r4, box; mapa.shared::cluster.u32 %r4, %r4, %r3;
        ld.shared::cluster.u32 %r0, [%r4];
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;""",
        grid=4,
        cluster=4,
        order=order,
    )
    assert found[:, 0].tolist() == [51, 52, 53, 50]


def test_who_left_after_arriving_does_not_count_for_another() -> None:
    """CTA 0 arrives and leaves; 1 waits until 2 has arrived as well, which writes before."""
    found = stored(
        """
        .shared .align 4 .b32 box; mov.u32 %r1, %cluster_ctarank; mov.u32 %r0, 0;
        setp.eq.u32 %p0, %r1, 2; @!%p0 bra ARRIVE; mov.u32 %r9, 0;
        SPIN: add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 3000; @%p2 bra SPIN; st.shared.u32 [box], 6;
        ARRIVE: barrier.cluster.arrive; setp.eq.u32 %p1, %r1, 0; @%p1 exit;
        barrier.cluster.wait; mov.u32 %r4, box; mapa.shared::cluster.u32 %r4, %r4, 2; ld.shared::cluster.u32 %r0, [%r4];
        barrier.cluster.arrive; barrier.cluster.wait;""",
        grid=3,
        cluster=3,
    )
    assert found[1:, 0].tolist() == [6, 6]


def test_to_wait_without_arriving_stops() -> None:
    with pytest.raises(EmulationError, match="at which it has not arrived"):
        run("barrier.cluster.wait.aligned;")
    with pytest.raises(EmulationError, match="at which it has not arrived"):
        run("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; barrier.cluster.wait.aligned;")


# --- between lanes


def shuffled(mode: str, b: int, c: int) -> list[int]:
    """As the ISA writes it."""
    found = []
    for lane in range(32):
        segment, bound = c >> 8 & 31, c & 31
        highest = (lane & segment) | (bound & ~segment)
        source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": (lane & segment) | (b & ~segment)}[mode]
        inside = source >= highest if mode == "up" else source <= highest
        found.append((source if inside else lane) * 10 + 1000 * inside)
    return found


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("c", [0x1F, 0, 0x181F, 0x1800, 0x1C1F, 0x100F])
def test_shuffle(mode: str, c: int) -> None:
    for b in (0, 1, 5, 16, 31):
        found = stored(f"""
            mul.lo.u32 %r1, %r39, 10; shfl.sync.{mode}.b32 %r0|%p0, %r1, {b}, {c}, -1;
            selp.u32 %r2, 1000, 0, %p0; add.u32 %r0, %r0, %r2;""")
        assert found.tolist() == shuffled(mode, b, c), b


def test_shuffle_without_a_predicate_after_a_branch() -> None:
    found = stored("""
        mov.u32 %r1, %r39; setp.lt.u32 %p0, %r39, 5; @%p0 bra A; add.u32 %r1, %r1, 100;
        A: shfl.sync.idx.b32 %r0, %r1, 7, 31, -1;""")
    assert found.tolist() == [107] * 32


def test_votes() -> None:
    def vote(mode: str, condition: str) -> list[int]:
        result = "%r0" if mode == "ballot.b32" else "%p1"
        last = "" if mode == "ballot.b32" else "selp.u32 %r0, 1, 0, %p1;"
        return stored(f"{condition} vote.sync.{mode} {result}, %p0, -1; {last}").tolist()

    some, none, every = ("setp.gt.u32 %p0, %r39, 29;", "setp.gt.u32 %p0, %r39, 31;", "setp.ge.u32 %p0, %r39, 0;")
    for mode, wanted in {
        "all.pred": (0, 0, 1),
        "any.pred": (1, 0, 1),
        "uni.pred": (0, 1, 1),
        "ballot.b32": (3 << 30, 0, ALL),
    }.items():
        for condition, value in zip((some, none, every), wanted):
            assert vote(mode, condition) == [value] * 32, mode


def test_a_vote_of_some() -> None:
    found = stored("""
        mov.u32 %r0, 0; setp.ge.u32 %p0, %r39, 8; @%p0 bra END; setp.lt.u32 %p1, %r39, 3;
        vote.sync.ballot.b32 %r0, %p1, 0xFF; vote.sync.ballot.b32 %r1, !%p1, 0xFF; shl.b32 %r1, %r1, 8;
        or.b32 %r0, %r0, %r1; END:""")
    assert found.tolist() == [0xF807] * 8 + [0] * 24


def test_one_lane_is_elected() -> None:
    found = stored("elect.sync %r1|%p0, 0xFFFFFFFF; selp.u32 %r0, 100, 0, %p0; add.u32 %r0, %r0, %r1;")
    assert sorted(each >= 100 for each in found.tolist()) == [False] * 31 + [True]
    chosen = next(lane for lane, each in enumerate(found.tolist()) if each >= 100)
    assert {each % 100 for each in found.tolist()} == {chosen}
    found = stored("""
        mov.u32 %r0, 0; setp.lt.u32 %p1, %r39, 20; @%p1 bra END; elect.sync _|%p0, 0xFFF00000;
        selp.u32 %r0, 1, 2, %p0; END:""")
    assert found[:20].tolist() == [0] * 20 and sorted(found[20:].tolist()) == [1] + [2] * 11


def test_lanes_with_the_same_value() -> None:
    found = stored("and.b32 %r1, %r39, 3; match.any.sync.b32 %r0, %r1, -1;")
    assert found.tolist() == [0x11111111 << lane % 4 for lane in range(32)]
    found = stored("mov.u32 %r1, 7; match.all.sync.b32 %r0|%p0, %r1, -1; selp.u32 %r0, %r0, 1, %p0;")
    assert found.tolist() == [ALL] * 32
    found = stored("match.all.sync.b32 %r0|%p0, %r39, -1; selp.u32 %r0, 1, %r0, %p0;")
    assert found.tolist() == [0] * 32


def test_same_values_among_some_lanes() -> None:
    found = stored("""
        mov.u32 %r0, 0; setp.ge.u32 %p1, %r39, 4; @%p1 bra END; and.b32 %r1, %r39, 1; match.any.sync.b32 %r0, %r1, 0xF;
        END: bar.warp.sync -1;""")
    assert found.tolist() == [5, 10, 5, 10] + [0] * 28


REDUCTIONS: dict[str, Callable[[list[int]], int]] = {
    "add.u32": sum,
    "add.s32": sum,
    "min.u32": min,
    "max.u32": max,
    "and.b32": lambda a: functools.reduce(operator.and_, a),
    "or.b32": lambda a: functools.reduce(operator.or_, a),
    "xor.b32": lambda a: functools.reduce(operator.xor, a),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_lanes_wrap(name: str) -> None:
    values = [(lane * 0x9E3779B9 + 12345) & ALL for lane in range(32)]
    found = stored(f"mad.lo.u32 %r1, %r39, 0x9E3779B9, 12345; redux.sync.{name} %r0, %r1, -1;")
    assert found.tolist() == [REDUCTIONS[name](values) & ALL] * 32


def test_signed_and_float_reductions() -> None:
    assert stored("sub.s32 %r1, 5, %r39; redux.sync.min.s32 %r0, %r1, -1;", np.int32).tolist() == [-26] * 32
    code = "sub.s32 %r1, 5, %r39; cvt.rn.f32.s32 %r1, %r1; setp.eq.u32 %p0, %r39, 9; @%p0 mov.b32 %r1, 0x7FC00000;"
    target = {"target": "sm_100a"}
    assert stored(code + "redux.sync.max.f32 %r0, %r1, -1;", np.float32, **target).tolist() == [5] * 32
    assert stored(code + "redux.sync.min.abs.f32 %r0, %r1, -1;", np.float32, **target).tolist() == [0] * 32
    assert np.isnan(stored(code + "redux.sync.max.NaN.f32 %r0, %r1, -1;", np.float32, **target)).all()


OF_HALVES = "setp.lt.u32 %p0, %r39, 16; selp.b32 %r5, 0xFFFF, 0xFFFF0000, %p0; and.b32 %r1, %r39, 3;"
"""%r5: the lane's half of the warp as members. %r1: its number modulo 4."""


@pytest.mark.parametrize("comes_late", [False, True])
def test_parts_of_a_warp_name_their_own_members(comes_late: bool) -> None:
    """As tiles of cooperative groups do; lane 20 may come alone, behind the others."""
    late = "setp.eq.u32 %p2, %r39, 20; @!%p2 bra THERE; add.u32 %r1, %r1, 0; THERE:" * comes_late
    lane, half = np.arange(32), np.arange(32) // 16

    def found(body: str) -> list[int]:
        told = stored(OF_HALVES + late + body).tolist()
        assert isinstance(told, list)
        return told

    assert found("setp.eq.u32 %p1, %r39, 3; vote.sync.any.pred %p3, %p1, %r5; selp.b32 %r0, 1, 0, %p3;") == [
        int(each == 0) for each in half
    ]
    assert found("vote.sync.ballot.b32 %r0, 1, %r5;") == [0xFFFF << 16 * each for each in half.tolist()]
    assert found("match.any.sync.b32 %r0, %r1, %r5;") == [0x1111 << each % 4 + each // 16 * 16 for each in range(32)]
    assert found("redux.sync.add.u32 %r0, %r39, %r5;") == [int(lane[half == each].sum()) for each in half]
    assert found("elect.sync %r0|%p1, %r5;") == [16 * each for each in half.tolist()]
    assert found("shfl.sync.idx.b32 %r0, %r39, 5, 0x101F, %r5;") == [5 + 16 * each for each in half.tolist()]
    assert found("bar.warp.sync %r5; mov.u32 %r0, %r39;") == lane.tolist()


def test_a_part_of_a_warp_goes_on_while_another_one_waits() -> None:
    body = """.shared .b32 flag; mov.u32 %r0, flag; setp.eq.u32 %p2, %r39, 31; @!%p2 bra MEET;
        WAIT: ld.volatile.shared.b32 %r6, [%r0]; setp.ne.u32 %p3, %r6, 7; @%p3 bra WAIT;
        MEET: vote.sync.ballot.b32 %r7, 1, %r5;
        setp.eq.u32 %p1, %r39, 0; @%p1 st.volatile.shared.b32 [%r0], 7; mov.u32 %r0, %r7;"""
    assert stored(OF_HALVES + body, unwritten="note").tolist() == [0xFFFF] * 16 + [0xFFFF0000] * 16


def test_what_is_only_time_or_order_does_nothing() -> None:
    found = stored("""
        fence.sc.gpu; membar.gl; fence.proxy.async; griddepcontrol.wait; griddepcontrol.launch_dependents;
        nanosleep.u32 100;
        setmaxnreg.inc.sync.aligned.u32 96; wgmma.fence.sync.aligned; mov.u32 %r0, 3;""")
    assert found.tolist() == [3] * 32
