"""Atomics and addresses; loads and stores are in test_spaces.py (PTX ISA, "atom", "red", "mapa", "cvta")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import run, stored

from blackwell_matmul.base.errors import BlackwellMatmulError, EmulationError

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda old, new: old + new,
    "and.b32": lambda old, new: old & new,
    "or.b32": lambda old, new: old | new,
    "xor.b32": lambda old, new: old ^ new,
    "exch.b32": lambda old, new: new,
    "min.u32": min,
    "max.u32": max,
    "inc.u32": lambda old, new: 0 if old >= new else old + 1,
    "dec.u32": lambda old, new: new if old == 0 or old > new else old - 1,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_lane_sees_what_the_one_before_left(name: str) -> None:
    cell, old = np.array([0xFFFFFFF0], np.uint32), np.zeros(32, np.uint32)
    run(
        f"""mad.lo.u32 %r1, %r39, 3, 5; atom.global.{name} %r2, [%x10], %r1;
        mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x11; st.global.u32 [%x1], %r2;""",
        cell,
        old,
    )
    value, seen = 0xFFFFFFF0, []
    for lane in range(32):
        seen.append(value)
        value = OPERATIONS[name](value, 3 * lane + 5) & 0xFFFFFFFF
    assert (old.tolist(), int(cell[0])) == (seen, value)


def test_signed_extremes_and_64_bits() -> None:
    cell = np.array([-5, 0], np.int32)
    run("atom.global.min.s32 %r1, [%x10], -7; red.global.max.s32 [%x10+4], 3;", cell)
    assert cell.tolist() == [-7, 3]
    wide = np.array([(1 << 64) - 1], np.uint64)
    run("red.global.add.u64 [%x10], 1;", wide)
    assert wide.tolist() == [32 - 1]


def test_compare_and_swap_lets_one_through() -> None:
    cell, old = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    run(
        """atom.acquire.gpu.global.cas.b32 %r2, [%x10], 0, 1; mul.wide.u32 %x1, %r39, 4;
        add.s64 %x1, %x1, %x11; st.global.u32 [%x1], %r2;""",
        cell,
        old,
    )
    assert cell[0] == 1 and sorted(old.tolist()) == [0] + [1] * 31


def test_only_the_lanes_of_the_guard() -> None:
    cell = np.zeros(1, np.uint32)
    run("setp.lt.u32 %p0, %r39, 5; @%p0 red.global.add.u32 [%x10], 2;", cell)
    assert cell[0] == 10


@pytest.mark.parametrize(
    ("type", "kind"),
    [("f32", np.float32), ("f64", np.float64), ("noftz.f16", np.float16), ("noftz.bf16", ml_dtypes.bfloat16)],
)
def test_sums_of_floats(type: str, kind: Any) -> None:
    cell, given = np.zeros(1, kind), np.array([0.5], kind)
    register = {2: "%h1", 4: "%r1", 8: "%x1"}[cell.itemsize]
    run(f"ld.global.b{8 * cell.itemsize} {register}, [%x11]; red.global.add.{type} [%x10], {register};", cell, given)
    assert cell.astype(float).tolist() == [16.0]


def test_pairs_and_vectors() -> None:
    cell = np.zeros(2, np.float16)
    run("mov.b32 %r1, 0x40003C00; red.global.add.noftz.f16x2 [%x10], %r1;", cell)
    assert cell.tolist() == [32, 64]
    four = np.zeros(4, np.float32)
    run(
        "mov.f32 %r1, 0f3F800000; mov.f32 %r2, 0f40000000; setp.eq.u32 %p0, %r39, 0; "
        "@%p0 red.global.add.v4.f32 [%x10], {%r1, %r2, %r1, %r2};",
        four,
    )
    assert four.tolist() == [1, 2, 1, 2]


def test_in_shared_memory_and_in_another_ctas() -> None:
    found = stored(
        """
        .shared .align 4 .b32 box; setp.eq.u32 %p0, %r39, 0; @%p0 st.shared.u32 [box], 0; barrier.cluster.arrive;
        barrier.cluster.wait;
        mov.u32 %r1, box; mapa.shared::cluster.u32 %r2, %r1, 1; atom.shared::cluster.add.u32 %r3, [%r2], 1;
        red.shared.add.u32 [box], 100;
        barrier.cluster.arrive; barrier.cluster.wait; ld.shared.u32 %r0, [box];""",
        grid=2,
        cluster=2,
    )
    assert found[:, 0].tolist() == [3200, 3264]


def test_an_atomic_on_what_nothing_has_written_stops() -> None:
    with pytest.raises(EmulationError, match="that nothing has written"):
        run(".shared .align 4 .b32 box; red.shared.add.u32 [box], 1;")


def test_addresses_go_to_generic_and_back() -> None:
    found = stored("""
        .shared .align 8 .b64 box; mov.u64 %x1, box; cvta.shared.u64 %x2, %x1; cvta.to.shared.u64 %x3, %x2;
        setp.eq.u64 %p0, %x1, %x3;
        cvta.to.global.u64 %x4, %x10; setp.eq.and.u64 %p0, %x4, %x10, %p0; setp.ne.and.u64 %p0, %x1, %x2, %p0;
        selp.u32 %r0, 1, 0, %p0;""")
    assert found.tolist() == [1] * 32


def test_the_rank_of_an_address() -> None:
    found = stored(
        """
        .shared .align 8 .b64 box; mov.u32 %r1, box; mapa.shared::cluster.u32 %r2, %r1, 3;
        getctarank.shared::cluster.u32 %r0, %r2;
        mov.u64 %x1, box; cvta.shared.u64 %x1, %x1; mapa.u64 %x2, %x1, 2; getctarank.u64 %r3, %x2;
        mad.lo.u32 %r0, %r0, 10, %r3;""",
        grid=4,
        cluster=4,
    )
    assert set(found.reshape(-1).tolist()) == {32}


def test_the_rank_stands_from_bit_24_up() -> None:
    """Compilers mask it there."""
    found = stored(
        """
        .shared .align 8 .b64 box; mov.u32 %r1, box; mapa.shared::cluster.u32 %r2, %r1, 1;
        mapa.shared::cluster.u32 %r3, %r1, 0;
        xor.b32 %r0, %r2, %r3;""",
        grid=2,
        cluster=2,
    )
    assert set(found.reshape(-1).tolist()) == {1 << 24}


ELSEWHERE = ".shared .align 16 .b64 box[2]; mov.u32 %r1, box; mov.u64 %x0, 0; st.shared.v2.b64 [box], {%x0, %x0};"


def test_lanes_may_have_the_address_of_a_cta_that_is_not_there() -> None:
    """As compilers have it: every lane maps to the CTA of its own number, and those of the cluster use it."""
    found = stored(
        ELSEWHERE
        + """
        mbarrier.init.shared.b64 [box], 2; barrier.cluster.arrive; barrier.cluster.wait;
        mapa.shared::cluster.u32 %r2, %r1, %r39; setp.lt.u32 %p0, %r39, 2;
        @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
        WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra WAIT;
        barrier.cluster.arrive; barrier.cluster.wait; getctarank.shared::cluster.u32 %r0, %r2;""",
        grid=2,
        cluster=2,
    )
    assert found.tolist() == [list(range(32))] * 2


@pytest.mark.parametrize(
    "use",
    [
        "ld.shared::cluster.u32 %r3, [%r2];",
        "st.shared::cluster.u32 [%r2], 1;",
        "atom.shared::cluster.add.u32 %r3, [%r2], 1;",
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r2], %r1, [%r2];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r2], [box], 16, [%r2];",
    ],
)
@pytest.mark.parametrize(
    ("rank", "text"),
    [("2", "2"), ("31", "31"), ("254", "254"), ("256", "255 or higher"), ("-1", "255 or higher")],
)
def test_who_uses_it_stops(use: str, rank: str, text: str) -> None:
    opcode = use.split()[0].replace(".", "[.]")
    with pytest.raises(EmulationError, match=f"{opcode}.*: address .* is of CTA {text} in a cluster of 2"):
        run(f"{ELSEWHERE} mov.b32 %r4, {rank}; mapa.shared::cluster.u32 %r2, %r1, %r4; {use}", grid=2, cluster=2)


def test_a_generic_address_of_a_cta_that_is_not_there_stops_its_use_alone() -> None:
    mapped = f"{ELSEWHERE} mov.u64 %x1, box; cvta.shared.u64 %x1, %x1; mapa.u64 %x2, %x1, 70000;"
    run(mapped, grid=2, cluster=2)
    with pytest.raises(EmulationError, match="is of CTA 255 or higher in a cluster of 2"):
        run(f"{mapped} ld.u32 %r3, [%x2];", grid=2, cluster=2)


def test_the_stack_gives_each_lane_memory_of_its_own() -> None:
    """A lane's second piece lies behind its first, aligned; what was allocated since stacksave is given back."""
    found = stored("""
        .local .align 4 .b32 own; st.local.u32 [own], 1000;
        stacksave.u64 %x1; add.u32 %r1, %r39, 4; alloca.u32 %r2, %r1; alloca.u32 %r3, 8, 16; st.local.u32 [%r3], %r39;
        and.b32 %r4, %r3, 15; cvt.u64.u32 %x2, %r3; cvta.local.u64 %x2, %x2; ld.u32 %r5, [%x2];
        stackrestore.u64 %x1; alloca.u32 %r6, 4; sub.u32 %r6, %r6, %r2;
        mad.lo.u32 %r0, %r4, 10000, %r5; mad.lo.u32 %r0, %r6, 10000, %r0;
        ld.local.u32 %r7, [own]; add.u32 %r0, %r0, %r7;""")
    assert found.tolist() == [1000 + lane for lane in range(32)]


def test_a_stack_that_is_full_stops() -> None:
    with pytest.raises(EmulationError, match="allocates 16,385 bytes of the stack; a thread's has 16,384"):
        run("stacksave.u32 %r2; alloca.u32 %r1, 16384; stackrestore.u32 %r2; alloca.u32 %r1, 16385;")


def test_addresses_in_initial_values() -> None:
    found = stored(
        """mov.u64 %x1, table; ld.global.u64 %x2, [%x1+8]; ld.u32 %r1, [%x2]; ld.global.u64 %x3, [%x1];
        ld.u32 %r2, [%x3];
        ld.global.u8 %r3, [parts]; ld.global.u8 %r4, [parts+1]; mad.lo.u32 %r3, %r4, 256, %r3; cvt.u32.u64 %r4, %x3;
        and.b32 %r4, %r4, 0xFFFF; sub.u32 %r3, %r3, %r4; mad.lo.u32 %r1, %r1, 100, %r2; add.u32 %r0, %r1, %r3;""",
        outside=".global .u32 n = 7, rows[3] = {1, 2, 3 * 3}; .global .u64 table[2] = {n, generic(rows) + 8};"
        ".global .u8 parts[2] = {0xFF(n), 0xFF00(n)};",
    )
    assert found.tolist() == [907] * 32


def test_the_address_of_what_is_not_there_is_refused() -> None:
    with pytest.raises(BlackwellMatmulError, match="table has the address of n, which is not declared"):
        run("", outside=".global .u64 table = n;")


def test_a_grid_meets_in_the_workspace_of_a_cooperative_launch() -> None:
    """Each CTA adds its part to a word behind %envreg1 and %envreg2, and waits for the others."""
    found = stored(
        """mov.b64 %x1, {%envreg2, %envreg1}; setp.ne.u32 %p0, %r39, 0; @%p0 bra DONE;
        mov.u32 %r1, %ctaid.x; add.u32 %r1, %r1, 1; red.global.add.u32 [%x1+4], %r1;
        WAIT: ld.acquire.gpu.global.u32 %r2, [%x1+4]; setp.lt.u32 %p1, %r2, 6; @%p1 bra WAIT;
        DONE: bar.sync 0; ld.global.u32 %r0, [%x1+4]; mov.u32 %r3, %envreg7; add.u32 %r0, %r0, %r3;""",
        grid=3,
    )
    assert found.tolist() == [[6] * 32] * 3


def test_shared_memory_is_cleared_in_bulk() -> None:
    found = stored(
        """
        .shared .align 16 .b32 box[34]; mov.u64 %x1, box; shl.b32 %r1, %r39, 2; cvt.u64.u32 %x2, %r1;
        add.u64 %x2, %x1, %x2;
        st.shared.u32 [%x2], %r39; setp.eq.u32 %p0, %r39, 0; bar.sync 0; mov.u64 %x3, 64; cvta.shared.u64 %x1, %x1;
        @%p0 st.bulk.weak [%x1+72], %x3, 0; bar.sync 0; ld.shared.u32 %r0, [%x2+8];""",
        target="sm_100a",
    )
    assert found.tolist() == [2 + lane if 2 + lane < 18 else 0 for lane in range(32)]
    with pytest.raises(EmulationError, match="both are multiples of 8"):
        run(".shared .align 16 .b32 box[34]; st.bulk.shared::cta [box], 12, 0;", target="sm_100a")


def test_the_type_of_an_atomic_may_precede_its_operation() -> None:
    cell = np.zeros(2, np.float32)
    run("mov.f32 %r1, 0f3F800000; atom.global.v2.f32.add {%r2, %r3}, [%x10], {%r1, %r1};", cell)
    assert cell.tolist() == [32, 32]
    wide = np.array([1, 2], np.uint64)
    run("mov.u64 %x1, 7; mov.b128 %v0, {%x1, %x1}; atom.global.b128.exch %v1, [%x10], %v0;", wide)
    assert wide.tolist() == [7, 7]


def test_hints_do_nothing() -> None:
    assert (
        stored(
            "prefetch.global.L2 [%x10]; createpolicy.fractional.L2::evict_last.b64 %x1, 1.0; "
            "discard.global.L2 [%x10], 128; mov.u32 %r0, 2;"
        ).tolist()
        == [2] * 32
    )
    out = np.array([4, 0], np.uint32)
    run(
        "mov.b64 %x1, 0; ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %r1, [%x10], %x1; "
        "st.global.L2::cache_hint.u32 [%x10+4], %r1, %x1;",
        out,
    )
    assert out.tolist() == [4, 4]
