"""cp.async and its groups: what arrives, and what a missing wait, commit or sync does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from async_scripts import CpAsyncGroups, CpAsyncReuse
from orders import codes, faulty, finding, line_of, lines, run_in, silent

from blackwell_matmul.simulator.machine.registers import ThreadGroup
from blackwell_matmul.simulator.semantics.cp_async import _parts


def tiles(rows: int = 64, columns: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float16)
    expected = np.zeros((64, 64), np.float16)
    expected[:rows, :columns] = x[:64, :64]
    return x, np.zeros((64, 64), np.float16), expected


@pytest.mark.parametrize("rows, columns", [(64, 64), (40, 64), (64, 40), (1, 8), (100, 72)])
def test_what_lies_outside_arrives_as_zeros(rows: int, columns: int) -> None:
    x, y, expected = tiles(rows, columns)
    silent(CpAsyncGroups(), (rows, columns, x, y), y, expected)


@pytest.mark.parametrize("begin, count", [(0, 128), (32, 96), (0, 32), (40, 50), (5, 1), (0, 256)])
@pytest.mark.parametrize("shape", [(16, 64), (3, 20), (2, 16, 24), (1, 40), (64,)])
def test_threads_take_turns_in_row_major_order(shape: tuple[int, ...], begin: int, count: int) -> None:
    group, together = ThreadGroup(begin, count), 4
    copies = (*shape[:-1], shape[-1] // together)
    threads = begin + np.arange(math.prod(copies)).reshape(copies) % count
    copied = np.full(shape, -1)
    for warp in group.warps:
        for box in _parts(group, warp, shape, len(shape) - 1, together):
            part = copied[tuple(slice(*span) for span in box)]
            assert part.size and (part == -1).all()
            part[...] = warp
    np.testing.assert_array_equal(copied, np.repeat(threads // 32, together, axis=-1))


def test_a_thread_reads_what_it_copied_without_a_sync() -> None:
    x, y, expected = tiles()
    silent(CpAsyncGroups(sync=False, own=True), (64, 64, x, y), y, expected)


def test_a_warp_reads_what_others_copied_after_a_sync_alone() -> None:
    """Warps take turns: of 32 rows of 128 bytes warp 0 copies rows 0 to 3 and 16 to 19."""
    x, y, _ = tiles()
    run = faulty(CpAsyncGroups(sync=False), 64, 64, x, y)
    assert "the missing sync: self.sync() between" in run.findings[0].message
    assert np.isnan(y.astype(np.float32)).any()


def test_wait_all_needs_no_commit() -> None:
    x, y, expected = tiles()
    silent(CpAsyncGroups(wait_all=True, commit=False), (64, 64, x, y), y, expected)


@pytest.mark.parametrize("flags, shared", [({"first": 2}, "s_0"), ({"second": 1}, "s_1"), ({"commit": False}, "s_1")])
def test_a_group_that_nobody_waited_for(flags: dict[str, object], shared: str) -> None:
    x, y, _ = tiles()
    run = faulty(CpAsyncGroups(**flags), 64, 64, x, y)
    found = next(f for f in run.findings if f.code == "read-before-complete" and shared in f.message)
    assert lines(found) == (
        line_of(CpAsyncGroups, f"self.load_shared({shared})"),
        line_of(CpAsyncGroups, f"dst={shared}"),
    )
    first = run.findings[0] if "commit" in flags else found
    assert "copy_async_wait_group" in first.message
    assert ("the missing commit: copy_async_commit_group between" in first.message) == ("commit" in flags)
    assert np.isnan(y.astype(np.float32)).any()


def test_the_newest_groups_may_stay_in_flight_and_no_others() -> None:
    """wait_group(1) after two commits completes the first group: its tile is right and only the second is not."""
    x, y, _ = tiles()
    run = run_in(("adversarial", 0), CpAsyncGroups(first=1, second=1), 64, 64, x, y)
    np.testing.assert_array_equal(y[:32], x[:32])
    assert np.isnan(y[32:].astype(np.float32)).all()
    assert {line_of(CpAsyncGroups, "dst=s_1")} == {lines(f)[1] or lines(f)[0] for f in run.findings}


def test_an_uncommitted_copy_is_in_flight_at_the_exit() -> None:
    x, y, _ = tiles()
    run = run_in(("eager", 0), CpAsyncGroups(commit=False), 64, 64, x, y)
    assert lines(finding(run, "in-flight-at-exit"))[0] in {
        line_of(CpAsyncGroups, "dst=s_0"),
        line_of(CpAsyncGroups, "dst=s_1"),
    }


def test_a_tile_that_is_used_again_and_again() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (5 * 32, 16)).astype(np.float32)
    y = np.zeros((32, 16), np.float32)
    silent(CpAsyncReuse(), (5, x, y), y, x.reshape(5, 32, 16).sum(0))
    run = faulty(CpAsyncReuse(wait=False), 5, x, y)
    assert codes(run) == {"read-before-complete", "overwritten-in-flight"}
    assert not np.array_equal(y, x.reshape(5, 32, 16).sum(0))
