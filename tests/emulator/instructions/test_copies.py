"""Asynchronous copies: cp.async, bulk and tensor copies, and maps made on the device (PTX ISA, "Asynchronous copy")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx import LANE, REGISTERS, module, run

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator import TensorMap, emulate
from blackwell_matmul.emulator.emulation_listener import EmulationListener

BOX = (
    ".shared .align 1024 .b8 box[4096]; .shared .align 8 .b64 bar; setp.eq.u32 %p0, %r39, 0; "
    "mov.u32 %r30, box; mov.u32 %r31, bar;"
)
BARRIER = BOX + "@%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;"
WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT;"
OUT = """mad.lo.u32 %r32, %r39, 16, %r30; ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r32];
    mul.wide.u32 %x1, %r39, 16; add.s64 %x1, %x1, %x11; st.global.v4.u32 [%x1], {%r1, %r2, %r3, %r4};"""


def source() -> Any:
    return np.arange(512, dtype=np.uint8) % 251


@pytest.mark.parametrize("nbytes", [4, 8, 16])
@pytest.mark.parametrize(
    "wait",
    [
        "cp.async.commit_group; cp.async.wait_group 0;",
        "cp.async.wait_all;",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];" + WAIT,
    ],
)
def test_what_the_source_lacks_is_zero(nbytes: int, wait: str) -> None:
    """Each lane copies up to 16 bytes, of which the odd ones have half and the last none."""
    data, out = source(), np.full(512, 9, np.uint8)
    zero = "st.shared.v4.u32 [%r32], {0, 0, 0, 0};"
    run(
        BARRIER.replace("[bar], 1", "[bar], 32")
        + f"""
        mad.lo.u32 %r32, %r39, 16, %r30; {zero} and.b32 %r5, %r39, 1; setp.eq.u32 %p2, %r5, 1;
        selp.u32 %r6, {nbytes // 2}, {nbytes}, %p2;
        setp.eq.u32 %p3, %r39, 31; selp.u32 %r6, 0, %r6, %p3;
        mul.wide.u32 %x1, %r39, 16; add.s64 %x1, %x1, %x10;
        cp.async.{"cg" if nbytes == 16 else "ca"}.shared.global [%r32], [%x1], {nbytes}, %r6;
        {wait}"""
        + OUT,
        data,
        out,
    )
    for lane in range(32):
        kept = 0 if lane == 31 else nbytes // 2 if lane % 2 else nbytes
        assert out[16 * lane :][:16].tolist() == [*data[16 * lane :][:kept].tolist(), *[0] * (16 - kept)]


def test_groups_complete_in_their_order_and_no_earlier() -> None:
    body = (
        BOX
        + """mad.lo.u32 %r32, %r39, 16, %r30; mul.wide.u32 %x1, %r39, 16; add.s64 %x1, %x1, %x10;
        cp.async.ca.shared.global [%r32], [%x1], 16; cp.async.commit_group;
        cp.async.ca.shared.global [%r32+512], [%x1], 16; cp.async.commit_group;
        cp.async.wait_group 1; {}"""
    )
    data, out = source(), np.zeros(512, np.uint8)
    run(body.format(OUT), data, out)
    assert out.tolist() == data.tolist()
    with pytest.raises(EmulationError, match="that nothing has written"):
        run(body.format("ld.shared.u32 %r1, [%r32+512];"), data, out)


LANE_OF = (
    "mad.lo.u32 %r32, %r39, 16, %r30; mul.wide.u32 %x1, %r39, 16; add.s64 %x12, %x1, %x11; add.s64 %x1, %x1, %x10;"
)


@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_a_copy_is_over_for_the_lanes_that_have_waited_for_their_own(wait: str) -> None:
    """A wait of lanes 0 to 7 says nothing of what the others copied; so does a commit."""
    body = (
        BOX + LANE_OF + "setp.lt.u32 %p1, %r39, 8; cp.async.ca.shared.global [%r32], [%x1], 16;"
        "{} cp.async.commit_group; {} "
        + wait
        + """ bar.warp.sync -1;
        mov.u32 %r1, 0; {} ld.shared.u32 %r1, [%r32]; st.global.u32 [%x12], %r1;"""
    )
    for order in ("late", "newest", "random"):
        data, out = source(), np.zeros(512, np.uint8)
        run(body.format("", "@%p1", "@%p1"), data, out, order=order)
        assert out.reshape(32, 16)[:8, :4].tolist() == data.reshape(32, 16)[:8, :4].tolist()
    commits, waits = ("", "@%p1"), ("@%p1", "")
    for commit, waiter in (commits, waits) if "group" in wait else (commits,):
        with pytest.raises(EmulationError, match="that nothing has written"):
            run(body.format(commit, waiter, ""), source(), np.zeros(512, np.uint8))


def test_bulk_groups_are_a_lanes_own() -> None:
    """Lanes 0 to 3 store, and then overwrite what is stored: each has to wait for its own copy to have read it."""
    body = (
        BOX
        + LANE_OF
        + """setp.lt.u32 %p1, %r39, 4; setp.eq.u32 %p2, %r39, {}; mov.u32 %r1, 99;
        @%p1 st.shared.v4.u32 [%r32], {{%r39, %r39, %r39, %r39}}; fence.proxy.async.shared::cta;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r32], 16;
        {} cp.async.bulk.commit_group; {} cp.async.bulk.wait_group.read 0; bar.warp.sync -1;
        @%p1 st.shared.u32 [%r32], %r1; cp.async.bulk.wait_group 0;"""
    )

    def firsts(lane: int, commit: str, wait: str, **launch: Any) -> list[int]:
        out = np.zeros(512, np.uint8)
        run(body.format(lane, commit, wait), out, out, **launch)
        return out.view(np.uint32)[:16:4].tolist()

    for order in ("late", "eager", "newest", "copies last", "random"):
        assert firsts(0, "", "", order=order) == [0, 1, 2, 3]
    assert firsts(0, "", "@%p2") == [0, 99, 99, 99] and firsts(2, "", "@%p2") == [99, 99, 2, 99]
    assert firsts(2, "@%p2", "") == [99, 99, 2, 99] and firsts(7, "@%p1", "@%p2") == [99, 99, 99, 99]


def test_bulk_copies_there_and_back() -> None:
    data, out = source(), np.zeros(512, np.uint8)
    run(
        BARRIER
        + """
        @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%x10], 512, [%r31];"""
        + WAIT
        + """
        @%p0 cp.async.bulk.global.shared::cta.bulk_group [%x11], [%r30], 512; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;""",
        data,
        out,
    )
    assert out.tolist() == data.tolist()


def test_a_bulk_copy_to_every_cta_of_a_mask_tells_each_ones_mbarrier() -> None:
    data, out = source(), np.zeros((4, 512), np.uint8)
    run(
        BARRIER
        + """
        mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p4, %r10, 1; and.pred %p4, %p4, %p0; mov.b16 %h1, 5;
        setp.eq.u32 %p5, %r10, 0;
        setp.eq.u32 %p6, %r10, 2; or.pred %p5, %p5, %p6; and.pred %p6, %p5, %p0; mov.u32 %r1, 512;
        @%p6 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512; barrier.cluster.arrive; barrier.cluster.wait;
        @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r30],
        [%x10], %r1, [%r31], %h1;
        @!%p5 bra END;"""
        + WAIT
        + "mul.wide.u32 %x2, %r10, 512; add.s64 %x11, %x11, %x2;"
        + OUT
        + "END: barrier.cluster.arrive; barrier.cluster.wait;",
        data,
        out,
        grid=4,
        cluster=4,
    )
    assert [each.tolist() == data.tolist() for each in out] == [True, False, True, False]


def test_a_bulk_copy_that_adds() -> None:
    out = np.full(8, 5, np.uint32)
    run(
        BOX + "st.shared.u32 [box], 1; mad.lo.u32 %r32, %r39, 4, %r30; st.shared.u32 [%r32], %r39; "
        "fence.proxy.async; bar.sync 0;"
        "@%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%x10], [%r30], 32; "
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        out,
    )
    assert out.tolist() == [5 + i for i in range(8)]


@pytest.mark.parametrize(
    ("copy", "text"),
    [
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r30], 32;",
            "reads 32 bytes at .* that nothing has written",
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group [%x10+8], [%r30], 32;", "which are no multiples of 16"),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [%x10], [%r30], 24;",
            "copies 24 bytes .* which are no multiples of 16",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%x10+496], 32, [%r31];",
            "of argument 0, which has 512 bytes",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r30], [%x10], 32, [%r30+64];",
            "no mbarrier was initialised",
        ),
        ("cp.async.ca.shared.global [%r30+2], [%x10], 4;", "no multiple of 4"),
        ("cp.async.cg.shared.global [%r30], [%x10+508], 16;", "of argument 0"),
    ],
)
def test_copies_that_stop(copy: str, text: str) -> None:
    with pytest.raises(EmulationError, match=r"^PTX line \d+: .*" + text + r".*\.$"):
        run(BARRIER + "@%p0 " + copy, source())


# --- tensor copies

PLAIN = {
    "dtype": "UINT16",
    "strides_bytes": (64,),
    "box": (16, 8),
    "element_strides": (1, 1),
    "interleave": "NONE",
    "swizzle": "NONE",
    "l2_promotion": "NONE",
    "oob_fill": "NONE",
}
TENSOR = ".param .align 64 .b8 map[128]"


def tensor(body: str, array: Any, *others: Any, grid: int = 1, listener: Any = None, **changed: Any) -> None:
    """The body, with the map's address in %x10 and those of the others behind it."""
    names = "".join(f"ld.param.u64 %x{11 + place}, [p{place}];" for place in range(len(others)))
    text = module(
        REGISTERS + LANE + "mov.u64 %x10, map;" + names + body,
        [TENSOR[7:], *[f".u64 p{place}" for place in range(len(others))]],
    )
    described = TensorMap(pointer=array, dims=array.shape[::-1], **(PLAIN | changed))
    emulate(text, described, *others, grid=grid, block=32, listener=listener)


LOAD = (
    BARRIER
    + """
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r30],
        [%x10, {{{}, {}}}], [%r31];"""
    + WAIT
)
HALF = "setp.lt.u32 %p7, %r39, 16; @!%p7 exit;"


@pytest.mark.parametrize("corner", [(0, 0), (8, 4), (24, 7), (-8, -3), (40, 0)])
@pytest.mark.parametrize("swizzle", ["NONE", "32B"])
def test_a_box_is_clipped_and_counts_whole(corner: tuple[int, int], swizzle: str) -> None:
    array, out = np.arange(1, 321, dtype=np.uint16).reshape(10, 32), np.zeros(128, np.uint16)
    tensor(LOAD.format(*corner) + HALF + OUT, array, out, swizzle=swizzle)
    wide = np.zeros((40, 96), np.uint16)
    wide[16:26, 32:64] = array
    wanted = wide[16 + corner[1] :, 32 + corner[0] :][:8, :16]
    if swizzle == "32B":  # chunks of 16 bytes in rows of 32 change places in every other group of 4 rows
        wanted = np.array([np.roll(row, 8) if y // 4 % 2 else row for y, row in enumerate(wanted)])
    assert out.tolist() == wanted.reshape(-1).tolist()


ACROSS = "mov.u32 %r9, %ctaid.x; mul.lo.u32 %r9, %r9, {step}; mul.wide.u32 %x2, %r9, 32; add.s64 %x11, %x11, %x2;"


@pytest.mark.parametrize("listener", [None, EmulationListener()])
def test_ctas_load_a_box_each_at_once(listener: Any) -> None:
    array, out = np.arange(1, 321, dtype=np.uint16).reshape(10, 32), np.zeros((3, 8, 16), np.uint16)
    load = ACROSS.format(step=8) + LOAD.replace("{{{}, {}}}", "{{%r9, 1}}").format()
    tensor(load + HALF + OUT, array, out, grid=3, listener=listener)
    wide = np.pad(array, ((0, 0), (0, 16)))
    assert all((out[cta] == wide[1:9, 8 * cta :][:, :16]).all() for cta in range(3))


@pytest.mark.parametrize("listener", [None, EmulationListener()])
def test_a_box_of_one_cta_alone_that_starts_between_multiples_of_16_bytes_stops(listener: Any) -> None:
    load = ACROSS.format(step=4) + LOAD.replace("{{{}, {}}}", "{{%r9, 1}}").format()
    with pytest.raises(EmulationError, match=r"^PTX line \d+: .*a box starts at 4 elements of 2 bytes"):
        tensor(load, np.zeros((10, 32), np.uint16), np.zeros(384, np.uint16), grid=3, listener=listener)


def test_a_load_rounds_to_tf32() -> None:
    """To nearest, ties to even; what is too large is infinite, and all NaN are one."""
    given = [0x3F801000, 0x3F803000, 0x00001001, 0x7F7FEFFF, 0xFF7FF000, 0xFF800000, 0x7F800001, 0xFFC00000] * 8
    kept = [0x3F800000, 0x3F804000, 0x00002000, 0x7F7FE000, 0xFF800000, 0xFF800000, 0x7FFFE000, 0x7FFFE000] * 8
    array, out = np.array(given, np.uint32).reshape(4, 16), np.zeros(64, np.uint32)
    tensor(LOAD.format(0, 0) + HALF + OUT, array, out, dtype="TFLOAT32", box=(16, 4))
    assert out.tolist() == kept


def test_a_box_is_stored_where_it_is_inside() -> None:
    array = np.zeros((10, 32), np.uint16)
    fill = (
        "mad.lo.u32 %r32, %r39, 8, %r30; mov.b32 %r1, 0x00070007; st.shared.v2.u32 [%r32], {%r1, %r1}; "
        "fence.proxy.async; bar.sync 0;"
    )
    tensor(
        BOX
        + fill
        + """@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%x10, {24, 6}], [%r30];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;""",
        array,
    )
    wanted = np.zeros((10, 32), np.uint16)
    wanted[6:, 24:] = 7
    assert array.tolist() == wanted.tolist()


def test_a_box_of_which_nothing_was_written_stops() -> None:
    with pytest.raises(EmulationError, match="of which nothing has written 256 bytes"):
        tensor(
            BOX + "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%x10, {0, 0}], [%r30];",
            np.zeros((10, 32), np.uint16),
        )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            LOAD.format(0, 0).replace("[%r30],", "[%r30+64],"),
            "copies a box to .* which is no multiple of 128",
        ),
        (
            LOAD.format(0, 0).replace("{0, 0}", "{0, 0, 0}").replace(".2d", ".3d"),
            "3 coordinates for a tensor map of rank 2",
        ),
        (LOAD.format(0, 0).replace("[%x10, {", "[%x10+32, {"), "a tensor map lies at .* no multiple of 64"),
        (LOAD.format(0, 0).replace("[bar], 256", "[bar], 320"), r"64 bytes missing"),
    ],
)
def test_tensor_copies_that_stop(code: str, text: str) -> None:
    with pytest.raises(EmulationError, match=text):
        tensor(code, np.zeros((10, 32), np.uint16))


def test_a_map_made_field_by_field() -> None:
    array, out = np.arange(320, dtype=np.uint16).reshape(10, 32), np.zeros(128, np.uint16)
    fields = [
        "global_address.global.b1024.b64 [%x12], %x10",
        "rank.global.b1024.b32 [%x12], 1",
        "elemtype.global.b1024.b32 [%x12], 1",
        "interleave_layout.global.b1024.b32 [%x12], 0",
        "swizzle_mode.global.b1024.b32 [%x12], 0",
        "fill_mode.global.b1024.b32 [%x12], 0",
    ]
    for name, values in {"box_dim": (16, 8), "global_dim": (32, 10), "element_stride": (1, 1)}.items():
        fields += [f"{name}.global.b1024.b32 [%x12], {index}, {value}" for index, value in enumerate(values)]
    fields.append("global_stride.global.b1024.b64 [%x12], 0, 64")
    make = "".join(f"@%p0 tensormap.replace.tile.{field};" for field in fields)
    load = LOAD.format(8, 1).replace("[%x10, {", "[%x12, {")
    place = "mov.u64 %x12, space;"
    run(
        place
        + BARRIER
        + make
        + "fence.proxy.tensormap::generic.acquire.gpu [%x12], 128;"
        + load.replace(BARRIER, "")
        + HALF
        + OUT,
        array,
        out,
        outside=".global .align 64 .b8 space[128];",
    )
    assert out.tolist() == array[1:9, 8:24].reshape(-1).tolist()
