"""Bulk copies by TMA: boxes of every rank, edges, tx bytes, bulk groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from async_scripts import LinearCopy, StoreThenReload, StripStore, TmaLoad, TmaStore
from orders import ORDERS, codes, faulty, finding, line_of, lines, never_ok, run_in, silent

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
    ([100], [32], [-16]),
    ([40, 24], [16, 8], [8, 4]),
    ([40, 24], [16, 8], [-3, 20]),
    ([40, 24], [16, 8], [36, -7]),
    ([40, 24], [16, 8], [40, 0]),  # wholly outside
    ([5, 12, 16], [2, 8, 8], [4, 6, -2]),
    ([3, 4, 6, 8], [2, 2, 4, 4], [-1, 3, 4, 6]),
    ([2, 3, 4, 5, 8], [1, 2, 2, 4, 4], [1, 2, -1, 3, 5]),
]


@pytest.mark.parametrize("shape, box, offsets", BOXES)
def test_a_load_fills_with_zeros_what_lies_outside(shape: list[int], box: list[int], offsets: list[int]) -> None:
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    y, expected = np.zeros(box, np.float32), np.zeros(box, np.float32)
    inside, part = overlap(shape, box, offsets)
    expected[part] = x[inside]
    silent(TmaLoad(shape, box, offsets), (x, y), y, expected)


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
    assert found.message.endswith("the missing wait: mbarrier.wait on full")
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
    "flags, lacks",
    [
        ({"more_bytes": 16}, "still lacks 16 bytes"),
        ({"more_bytes": -16}, "still lacks an expect_tx of 16 bytes"),
        ({"count": 2}, "still lacks 1 of 2 arrival(s)"),
        ({"arrive": False}, "still lacks 1 of 1 arrival(s) and an expect_tx of 512 bytes"),
    ],
)
def test_a_phase_that_never_ends(flags: dict[str, Any], lacks: str) -> None:
    script, x, y = load(**flags)
    run = faulty(script, x, y)
    found = finding(run, "deadlock")
    assert lines(found) == (line_of(TmaLoad, "mbarrier.wait"), line_of(TmaLoad, "mbarrier.alloc"))
    assert found.message.startswith("warp 0 waits at ") and "for parity 0 of full, which is in phase 0" in found.message
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
    assert "6 dimensions" in tensor_map_fault(4096, (1,) * 6, (4,) * 6, (1,) * 6 + (4,))


def test_a_tensor_that_tma_cannot_address() -> None:
    x, y = np.zeros((40, 21), np.float32), np.zeros((16, 8), np.float32)
    run = faulty(TmaLoad([40, 21], [16, 8], [0, 0]), x, y)
    found = finding(run, "tensor-map")
    assert "a stride is 84 bytes, and TMA needs multiples of 16" in found.message
    assert lines(found)[0] == line_of(TmaLoad, "global_to_shared")


@pytest.mark.parametrize("warps", [1, 4])
def test_linear_copies(warps: int) -> None:
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    y = np.zeros_like(x)
    silent(LinearCopy(warps), (x, y), y, x)
    found = finding(faulty(LinearCopy(warps, wait=False), x, y), "read-before-complete")
    assert lines(found) == (line_of(LinearCopy, "shared_to_global"), line_of(LinearCopy, "global_to_shared"))
    assert np.isnan(y).all()
