"""Bulk copies by TMA: boxes of every rank, edges, tx bytes, bulk groups."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tilus
from async_scripts import LinearCopy, StoreThenReload, StripStore, TmaLoad, TmaPart, TmaStore
from orders import ORDERS, codes, faulty, finding, line_of, lines, never_ok, run_in, silent
from tilus.ir.layout.ops.shared_ops import shared_row_major
from tilus.ir.layout.shared_layout import Swizzle

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults.shared_layouts import offset_in
from blackwell_matmul.simulator import simulate
from blackwell_matmul.simulator.semantics.tma import tensor_map_fault

Slices = tuple[slice, ...]


def overlap(shape: list[int], extents: list[int], offsets: list[int]) -> tuple[Slices, Slices]:
    """Where a box at `offsets` meets the tensor: in the tensor, and in the box."""
    low = [max(o, 0) for o in offsets]
    high = [max(lo, min(o + e, s)) for lo, o, e, s in zip(low, offsets, extents, shape)]
    inside = tuple(slice(lo, hi) for lo, hi in zip(low, high))
    return inside, tuple(slice(lo - o, hi - o) for lo, hi, o in zip(low, high, offsets))


BOXES = [
    ([100], [32], [96]),
    ([40, 24], [16, 8], [8, 4]),
    ([40, 24], [16, 8], [37, 20]),
    ([40, 24], [16, 8], [40, 0]),  # wholly outside
    ([5, 12, 16], [2, 8, 8], [4, 6, 12]),
    ([3, 4, 6, 8], [2, 2, 4, 4], [1, 3, 4, 4]),
    ([2, 3, 4, 5, 8], [1, 2, 2, 4, 4], [1, 2, 1, 3, 4]),
]
BEFORE = [
    ([100], [32], [-16]),
    ([40, 24], [16, 8], [-3, 20]),
    ([40, 24], [16, 8], [36, -4]),
    ([40, 24], [16, 8], [-16, -8]),  # wholly outside
    ([5, 12, 16], [2, 8, 8], [-1, 6, -4]),
    ([3, 4, 6, 8], [2, 2, 4, 4], [-1, 3, 4, 4]),
    ([2, 3, 4, 5, 8], [1, 2, 2, 4, 4], [1, 2, -1, 3, 4]),
]
"""Boxes that begin before the tensor: TMA loads such, and stores none."""


@pytest.mark.parametrize("shape, box, offsets", BOXES + BEFORE)
def test_a_load_fills_with_zeros_what_lies_outside(shape: list[int], box: list[int], offsets: list[int]) -> None:
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    y, expected = np.zeros(box, np.float32), np.zeros(box, np.float32)
    inside, part = overlap(shape, box, offsets)
    expected[part] = x[inside]
    silent(TmaLoad(shape, box, offsets), (x, y), y, expected)


TF32 = {  # bits of a float, and what a load through a map of TFLOAT32 leaves of them
    0x3F801000: 0x3F800000, 0x3F801001: 0x3F802000, 0x3F803000: 0x3F804000, 0xBF80FFFF: 0xBF810000,
    0x00000001: 0x00000000, 0x00001001: 0x00002000, 0x007FFFFF: 0x00800000, 0x80000001: 0x80000000,
    0x7F7FEFFF: 0x7F7FE000, 0x7F7FF000: 0x7F800000, 0xFF7FFFFF: 0xFF800000, 0x7F800000: 0x7F800000,
    0xFF800000: 0xFF800000, 0x7F800001: 0x7FFFE000, 0xFFC00000: 0x7FFFE000, 0x7FFFFFFF: 0x7FFFE000,
}  # fmt: skip


def test_a_load_rounds_to_tf32() -> None:
    x, y = (np.array(list(bits), np.uint32).view(np.float32) for bits in (TF32, TF32.values()))
    out = np.empty_like(y)
    for order in ORDERS:
        out.fill(99)
        assert not run_in(order, TmaLoad([16], [16], [0], dtype=tilus.tfloat32), x, out).findings
        assert out.view(np.uint32).tolist() == y.view(np.uint32).tolist()


@pytest.mark.parametrize("shape, box, offsets", BOXES)
def test_a_store_drops_what_lies_outside(shape: list[int], box: list[int], offsets: list[int]) -> None:
    x = np.arange(1, 1 + np.prod(box), dtype=np.float32).reshape(box)
    for order in ORDERS:
        y, expected = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        inside, part = overlap(shape, box, offsets)
        expected[inside] = x[part]
        run = run_in(order, TmaStore(shape, box, offsets), x, y)
        assert run.ok and codes(run) <= {"never-written"}
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "shape, box, offsets, text",
    [
        ([100], [32], [6], "[6]: its innermost coordinate, 6 elements of 4 bytes = 24 bytes, is no multiple of 16"),
        ([100], [32], [-2], "-2 elements of 4 bytes = -8 bytes"),
        ([40, 24], [16, 8], [8, 5], "[8, 5]: its innermost coordinate, 5 elements"),
        ([40, 24], [16, 8], [-3, 2], "[-3, 2]: its innermost coordinate, 2 elements"),
        ([40, 24], [16, 8], [48, 21], "[48, 21]: its innermost"),  # wholly outside
        ([2, 3, 4, 5, 8], [1, 2, 2, 4, 4], [1, 2, 0, 3, 7], "[1, 2, 0, 3, 7]: its innermost"),
    ],
)
def test_an_innermost_coordinate_between_multiples_of_16_bytes(
    shape: list[int], box: list[int], offsets: list[int], text: str
) -> None:
    whole, part = np.ones(shape, np.float32), np.ones(box, np.float32)
    for script, way, other in ((TmaLoad, "load of g_x", "load_global"), (TmaStore, "store to g_y", "store_global")):
        inputs = (whole, part) if script is TmaLoad else (part, whole)
        found = finding(faulty(script(shape, box, offsets), *inputs), "tma-coordinate")
        assert found.fatal and f"TMA {way} at [" in found.message and text in found.message
        assert found.message.endswith(f"; move the box to a multiple of 4 elements, or use {other}")
        assert lines(found) == (line_of(script, "self.tma."), None)


@pytest.mark.parametrize("shape, box, offsets", BEFORE)
def test_a_store_before_the_tensor(shape: list[int], box: list[int], offsets: list[int]) -> None:
    x, y = np.ones(box, np.float32), np.zeros(shape, np.float32)
    found = finding(faulty(TmaStore(shape, box, offsets), x, y), "tma-coordinate")
    dim = next(dim for dim, offset in enumerate(offsets) if offset < 0)
    assert f"at {offsets}: a store takes no negative coordinate, as that of dimension {dim} is" in found.message
    assert found.message.endswith("; start the box at 0 or later, or use store_global")
    assert not y.any()


def test_a_box_over_some_dimensions() -> None:
    x = np.arange(4 * 10 * 16, dtype=np.float32).reshape(4, 10, 16)
    y, expected = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    expected[:7] = x[2, 3:10, 4:12]
    silent(TmaLoad([4, 10, 16], [8, 8], [2, 3, 4], dims=[1, 2]), (x, y), y, expected)
    expected = np.zeros((4, 8), np.float32)
    expected[:3] = x[1:4, 7, 8:16]
    y = np.zeros((4, 8), np.float32)
    silent(TmaLoad([4, 10, 16], [4, 8], [1, 7, 8], dims=[0, 2]), (x, y), y, expected)


def test_a_store_over_some_dimensions() -> None:
    x, y = np.arange(1, 65, dtype=np.float32).reshape(8, 8), np.zeros((4, 10, 16), np.float32)
    run = run_in(ORDERS[0], TmaStore([4, 10, 16], [8, 8], [2, 3, 4], dims=[1, 2]), x, y)
    assert run.ok
    np.testing.assert_array_equal(y[2, 3:10, 4:12], x[:7])
    assert np.count_nonzero(y) == 56


def load(**flags: Any) -> tuple[TmaLoad, np.ndarray, np.ndarray]:
    x = np.arange(40 * 24, dtype=np.float32).reshape(40, 24)
    return TmaLoad([40, 24], [16, 8], [8, 4], **flags), x, np.zeros((16, 8), np.float32)


def test_bytes_may_be_announced_after_they_arrived() -> None:
    script, x, y = load(late_expect=True)
    silent(script, (x, y), y, x[8:24, 4:12])


def test_a_load_that_nobody_waited_for() -> None:
    script, x, y = load(wait=False)
    run = faulty(script, x, y)
    found = finding(run, "read-before-complete")
    assert lines(found) == (line_of(TmaLoad, "self.load_shared"), line_of(TmaLoad, "global_to_shared"))
    assert "the missing wait: mbarrier.wait on full before " in found.message
    assert np.isnan(y).all()


def test_waiting_for_the_wrong_parity() -> None:
    """Parity 1 of a fresh barrier is that of the phase before the first: over, unless phase 0 is over as well."""
    script, x, y = load(phase=1)
    assert never_ok(script, x, y) <= {
        "wrong-phase", "read-before-complete", "in-flight-at-exit", "deadlock", "phase-overrun",
    }  # fmt: skip
    found = finding(run_in(ORDERS[0], script, x, y), "wrong-phase")
    assert "passed on the phase before the first" in found.message and found.missing == "phase"


@pytest.mark.parametrize(
    "flags, begins, lacks",
    [
        ({"more_bytes": 16}, "phase 0 of full cannot end: 528 bytes are announced at ", "still lacks 16 bytes"),
        ({"more_bytes": -16}, "phase 0 of full cannot end: 496 bytes", "still lacks an expect_tx of 16 bytes"),
        ({"count": 2}, "the count of 2 at ", "still lacks 1 of 2 arrival(s)"),
        (
            {"arrive": False},
            "the missing arrival: no line of the kernel arrives on full, for which warp 0 waits at ",
            "still lacks 1 of 1 arrival(s) and an expect_tx of 512 bytes",
        ),
    ],
)
def test_a_phase_that_never_ends(flags: dict[str, Any], begins: str, lacks: str) -> None:
    script, x, y = load(**flags)
    run = faulty(script, x, y)
    found = finding(run, "deadlock")
    assert lines(found) == (line_of(TmaLoad, "mbarrier.wait"), line_of(TmaLoad, "mbarrier.alloc"))
    assert found.message.startswith(begins)
    assert "for parity 0 of full, which is in phase 0" in found.message
    assert lacks in found.message


def strips(count: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(-99, 99, (count * 32, 64)).astype(np.float16)
    return x, np.zeros_like(x), x + 1


@pytest.mark.parametrize("flags", [{}, {"read": False}, {"last": False}, {"keep": 1, "buffers": 2}, {"buffers": 3}])
def test_strips_in_turn_through_shared_memory(flags: dict[str, Any]) -> None:
    x, y, expected = strips()
    silent(StripStore(**flags), (4, x, y), y, expected)


@pytest.mark.parametrize("flags", [{"wait": False}, {"keep": 1}, {"commit": False}, {"keep": 2, "buffers": 2}])
def test_a_strip_overwritten_while_the_store_reads_it(flags: dict[str, Any]) -> None:
    x, y, expected = strips()
    run = faulty(StripStore(**flags), 4, x, y)
    found = finding(run, "overwritten-in-flight")
    assert lines(found) == (line_of(StripStore, "self.store_shared"), line_of(StripStore, "shared_to_global"))
    assert "s_y" in found.message and "still reads" in found.message and "tma.wait_group" in found.message
    assert ("tma.commit_group" in found.message) == ("commit" in flags)
    assert not np.array_equal(y, expected)


def test_a_wait_for_reads_leaves_the_writes_in_flight() -> None:
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float16)
    t, y = np.zeros_like(x), np.zeros_like(x)
    silent(StoreThenReload(), (x, t, y), y, x)
    silent(StoreThenReload(read_first=True), (x, t, y), y, x)
    run = faulty(StoreThenReload(read_first=True, full=False), x, t, y)
    assert codes(run) == {"read-before-complete"}
    found = finding(run, "read-before-complete")
    assert lines(found) == (
        line_of(StoreThenReload, "self.load_global(g_t"),
        line_of(StoreThenReload, "shared_to_global"),
    )
    t.fill(0)
    run_in(ORDERS[0], StoreThenReload(read_first=True, full=False), x, t, y)
    assert not y.any()
    np.testing.assert_array_equal(t, x)


def test_what_no_tensor_map_can_say() -> None:
    assert tensor_map_fault(4096, (40, 24), (96, 4), (16, 8, 4)) == ""
    assert "2 bytes past" in tensor_map_fault(4098, (40, 24), (48, 2), (16, 8, 2))
    assert "stride is 42 bytes" in tensor_map_fault(4096, (40, 21), (42, 2), (16, 8, 2))
    assert "extent of 512" in tensor_map_fault(4096, (1024, 8), (16, 2), (512, 8, 2))
    assert "row of the tile is 8 bytes" in tensor_map_fault(4096, (40, 24), (48, 2), (16, 4, 2))
    assert "stride of 8 bytes" in tensor_map_fault(4096, (40, 24), (192, 8), (16, 8, 4))
    assert "row of the tile is 256 bytes, and its swizzle permutes 128" in tensor_map_fault(
        4096, (40, 64), (256, 4), (16, 64, 4), 128
    )
    assert tensor_map_fault(4096, (40, 64), (256, 4), (16, 32, 4), 128) == ""
    assert "stride is 1099511627776 bytes, and TMA has strides below 2**40" in tensor_map_fault(
        4096, (2, 8), (2**40, 4), (2, 8, 4)
    )
    assert "extents from 1 to 2**32" in tensor_map_fault(4096, (0, 8), (32, 4), (2, 8, 4))
    assert "6 dimensions" in tensor_map_fault(4096, (1,) * 6, (4,) * 6, (1,) * 6 + (4,))


def test_a_tensor_that_tma_cannot_address() -> None:
    x, y = np.zeros((40, 21), np.float32), np.zeros((16, 8), np.float32)
    run = faulty(TmaLoad([40, 21], [16, 8], [0, 0]), x, y)
    found = finding(run, "tensor-map")
    assert "a stride is 84 bytes, and TMA needs multiples of 16" in found.message
    assert lines(found)[0] == line_of(TmaLoad, "global_to_shared")


@pytest.mark.parametrize("way", ["load", "store"])
def test_a_box_between_multiples_of_128_bytes_of_shared_memory(way: str) -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    y = np.zeros_like(x)
    silent(TmaPart(2, 8, 2, way), (x, y), y, x)
    found = finding(faulty(TmaPart(2, 8, 3, way), x, y), "tensor-map")
    assert "s[3:4, 0:2, 0:8]: it starts 64 bytes past a multiple of 128 in shared memory" in found.message
    assert lines(found)[0] == line_of(TmaPart, "self.tma.", 0 if way == "load" else 1)


def test_a_swizzled_box_where_the_pattern_does_not_begin() -> None:
    """128 bytes a row, swizzled over eight of them: a part of four rows is half a pattern, and the
    first element of its second half is not at its start."""
    x = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
    y = np.zeros_like(x)
    silent(TmaPart(4, 32, 2, "load", swizzled=True), (x, y), y, x)
    found = finding(faulty(TmaPart(4, 32, 3, "load", swizzled=True), x, y), "tensor-map")
    assert "starts 576 bytes past a multiple of 1024" in found.message


def test_the_address_of_an_element_is_the_layouts() -> None:
    for swizzle in (None, Swizzle(base=3, bits=3, shift=3), Swizzle(base=2, bits=2, shift=4)):
        layout = shared_row_major(2, 16, 64)
        layout = layout if swizzle is None else layout.apply_swizzle(swizzle)
        grid = layout.as_numpy_grid()
        for place in ((0, 0, 0), (1, 5, 8), (0, 15, 63), (1, 8, 16)):
            assert offset_in(layout, place) == grid[place]


@pytest.mark.parametrize("end", [0, 1])
def test_linear_copies_between_multiples_of_16_bytes(end: int) -> None:
    buffers = [np.zeros(4 * 64 + 4, np.float32) for _ in range(2)]
    tensors = [buffer[int(i == end) : 256 + int(i == end)].reshape(4, 64) for i, buffer in enumerate(buffers)]
    found = finding(faulty(LinearCopy(), *tensors), "tensor-map")
    name = ("g_x", "g_y")[end]
    assert f"a bulk copy cannot address {name}: it starts 4 bytes past a multiple of 16" in found.message


@pytest.mark.parametrize("warps", [1, 4])
def test_linear_copies(warps: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    y = np.zeros_like(x)
    silent(LinearCopy(warps), (x, y), y, x)
    found = finding(faulty(LinearCopy(warps, wait=False), x, y), "read-before-complete")
    assert lines(found) == (line_of(LinearCopy, "shared_to_global"), line_of(LinearCopy, "global_to_shared"))
    assert np.isnan(y).all()


@pytest.mark.parametrize("warps", [1, 4])
def test_a_linear_copy_announces_its_bytes_itself(warps: int) -> None:
    x, y = np.ones((4, 64), np.float32), np.zeros((4, 64), np.float32)
    found = finding(faulty(LinearCopy(warps, again=True), x, y), "deadlock")
    assert "still lacks 1024 bytes" in found.message
    (note,) = [note for note in found.notes if note.startswith("announcements of bytes on full come from")]
    copy, arrival = line_of(LinearCopy, "global_to_shared"), line_of(LinearCopy, "arrive_and_expect_tx")
    assert re.search(
        rf"cp\.async\.bulk \(load\) at \S+:{copy} by .*mbarrier\.arrive\.expect_tx at \S+:{arrival} by", note
    )


@pytest.mark.parametrize("warps", [1, 4])
def test_what_tilus_emits_for_a_linear_copy_announces_each_piece(warps: int) -> None:
    x = np.ones((4, 64), np.float32)
    source = compile(LinearCopy(warps), x, x.copy(), target="sm_90a", cache=False).source
    announcement = r"\w+_mbarrier_expect_tx_shared\((\w+), uint32_t\(256u\)\);"
    copy = r"\w+_bulk_shared_global\(.*, 256, \1\);"
    piece = rf"if \(\(int\)threadIdx\.x < 4\) {{\s*{announcement}\s*{copy}"
    assert len(re.findall(piece, source)) == 1


def test_an_arrival_before_a_linear_copy_ends_the_phase_without_its_bytes() -> None:
    x, y = np.ones((4, 64), np.float32), np.zeros((4, 64), np.float32)
    found = finding(faulty(LinearCopy(early=True), x, y), "too-few-bytes")
    assert "it announces them itself, and the arrivals have to come after it" in found.message


@pytest.mark.parametrize("row", [-1, 1])
def test_a_linear_copy_neither_fills_nor_clips(row: int) -> None:
    x = np.ones((4, 64), np.float32)
    with pytest.raises(UnsupportedError, match=r"that reaches beyond the shape \[4, 64\] of g_x; one that lies inside"):
        simulate(LinearCopy(row=row), x, x.copy())
