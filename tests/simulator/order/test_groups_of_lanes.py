"""Groups of copies are a thread's own: who commits or waits for another lane's is named (PTX ISA, "cp.async.bulk.
commit_group", "cp.async.commit_group")."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from lane_scripts import BulkStores, LaneCopies, StoreRing
from orders import ORDERS, line_of, run_in

from blackwell_matmul.simulator import Finding, Run


def stored(order: Any, **how: Any) -> tuple[Run, bool]:
    x, y = torch.arange(96 * 32).reshape(96, 32).half(), torch.zeros(96, 32).half()
    run = run_in(order, BulkStores(**how), x, y, target="sm_90a")
    return run, torch.equal(y, x * 2)


def copied(order: Any, **how: Any) -> tuple[Run, bool]:
    x, y = torch.arange(1024.0).reshape(32, 32), torch.zeros(32, 32)
    run = run_in(order, LaneCopies(**how), x, y)
    return run, torch.equal(y, x)


def named(run: Run, code: str) -> Finding:
    return next(finding for finding in run.findings if finding.code == code)


@pytest.mark.parametrize("commits", [32, -1, 0])
@pytest.mark.parametrize("waits", [32, -1, 0])
def test_a_bulk_store_is_the_elected_lanes(commits: int, waits: int) -> None:
    for order in ORDERS:
        run, good = stored(order, commits=commits, waits=waits)
        assert not run.findings and good, (order, run.findings)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize(
    ("how", "edge"), [({"waits": 7}, "wait"), ({"commits": 31}, "commit"), ({"commits": 7, "waits": 7}, "wait")]
)
def test_a_bulk_store_that_another_lane_commits_or_waits_for(how: dict[str, int], edge: str, read: bool) -> None:
    for order in ORDERS:
        run, _ = stored(order, read=read, **how)
        found = named(run, "overwritten-in-flight")
        assert found.missing == edge
        assert f"the missing {edge}: tma.{edge}_group by the elected lane of warp 1" in found.message
        assert f"is by lane {how.get(f'{edge}s')} of warp 1, and groups are a thread's own" in found.message
        assert found.location.line == line_of(BulkStores, "fill")
        assert found.at_fault.line == line_of(BulkStores, f"its {edge}")
    assert not stored(ORDERS[0], read=read, **how)[1]


@pytest.mark.parametrize("read", [True, False])
def test_a_bulk_store_that_another_warp_waits_for(read: bool) -> None:
    for order in ORDERS:
        found = named(stored(order, waits=33, read=read)[0], "overwritten-in-flight")
        assert "the missing wait: tma.wait_group by the elected lane of warp 1, which issued it" in found.message
        assert "is by the elected lane of warp 2, and groups are a thread's own" in found.message
        assert found.at_fault.line == line_of(BulkStores, "the other's wait")


def test_a_copy_of_all_lanes_is_over_when_all_have_waited() -> None:
    for order in ORDERS:
        run, good = copied(order)
        assert not run.findings and good


@pytest.mark.parametrize(
    "how", [{"waits": 7}, {"commits": 0}, {"commits": 3, "waits": 3}, {"waits": 0, "every": True}], ids=str
)
def test_a_copy_of_all_lanes_that_one_commits_or_waits_for(how: dict[str, Any]) -> None:
    run, good = copied(ORDERS[0], **how)
    assert named(run, "read-before-complete").location.line == line_of(LaneCopies, "load") and not good
    for order in ORDERS:
        assert not copied(order, **how)[0].ok


def ring_of(fault: str, order: Any) -> tuple[Run, bool]:
    x, y = torch.arange(128 * 32).reshape(128, 32).half(), torch.zeros(128, 32).half()
    run = run_in(order, StoreRing(fault), x, y, target="sm_90a")
    return run, torch.equal(y, x)


def test_a_ring_of_stores() -> None:
    for order in ORDERS:
        run, good = ring_of("", order)
        assert not run.findings and good, (order, run.findings)


@pytest.mark.parametrize(
    ("fault", "code", "first", "then"),
    [
        ("sync behind the wait", "overwritten-in-flight", "wait for a buffer", "fill a buffer"),
        ("sync before the store", "data-race", "fill a buffer", "store a buffer"),
    ],
)
def test_a_ring_of_stores_names_the_missing_sync(fault: str, code: str, first: str, then: str) -> None:
    for order in ORDERS:
        found = ring_of(fault, order)[0].findings[0]
        assert (found.code, found.missing) == (code, "sync")
        advice = found.message.partition("the missing sync: self.sync() ")[2]
        lines = [*map(int, re.findall(r"lane_scripts\.py:(\d+)", advice))]
        last = line_of(StoreRing, then)
        assert lines[:2] == [line_of(StoreRing, first), last] or (advice.startswith("before ") and lines[0] == last)


def test_two_stores_of_one_tile_name_the_wait_for_reads_alone() -> None:
    for order in ORDERS:
        found = named(ring_of("two stores", order)[0], "overwritten-in-flight")
        assert "None" not in found.message
        assert "read=True" in found.message and "waits for its reads alone: without read" in found.message
