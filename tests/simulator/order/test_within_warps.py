"""Races between lanes of one warp: they need a barrier, although they execute each instruction together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from lane_scripts import COLUMNS, HalfThrough, Through
from orders import ORDERS, line_of, run_in
from tilus.ir.layout.ops import spatial

from blackwell_matmul.simulator import Run

SPACES = ("shared", "global", "cp.async")


def through(order: Any, **how: Any) -> Run:
    x, y = np.arange(1024, dtype=np.int32).reshape(32, 32), np.zeros((32, 32), np.int32)
    run = run_in(order, Through(**how), x, np.zeros_like(x), y)
    np.testing.assert_array_equal(y, x)
    return run


def written(space: str) -> int:
    return line_of(Through, {"shared": "s, r_x", "global": "g_t, r_x", "cp.async": "g_x, s"}[space])


def read(space: str) -> int:
    return line_of(Through, "g_t, offsets=[0, 0], shape" if space == "global" else "self.load_shared(s)")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", [{}, {"waits": "all"}], ids=str)
@pytest.mark.parametrize("space", SPACES)
def test_a_barrier_orders_the_lanes(space: str, how: dict[str, str], order: Any) -> None:
    assert not through(order, space=space, **how).findings


@pytest.mark.parametrize("space", SPACES)
def test_a_missing_sync_before_the_read(space: str) -> None:
    (found,) = through(ORDERS[0], space=space, first=False).findings
    assert found.code == "data-race" and "by other lanes of warp 0 writes without an order" in found.message
    assert found.location is not None and found.other is not None
    assert (found.location.line, found.other.line) == (read(space), written(space))
    begin = line_of(Through, "# awaited") if space == "cp.async" else found.other.line
    assert re.fullmatch(
        rf"the missing sync: self\.sync\(\) between \S+:{begin} and {re.escape(str(found.location))}", found.advice
    )


@pytest.mark.parametrize("space", SPACES)
def test_a_missing_sync_before_the_next_write(space: str) -> None:
    (found,) = through(ORDERS[0], space=space, second=False).findings
    assert found.location is not None and found.other is not None
    assert (found.location.line, found.other.line) == (written(space), read(space))
    assert found.advice.endswith("of the next round")


@pytest.mark.parametrize("space", ["shared", "global"])
def test_a_lane_needs_no_barrier_for_its_own_elements(space: str) -> None:
    assert not through(ORDERS[0], space=space, first=False, second=False, loads=COLUMNS).findings


def test_a_lane_needs_no_barrier_for_what_it_copied() -> None:
    """A copy takes 16 bytes: lane 0 has columns 0 to 3 of rows 0, 4, 8 and so on."""
    own = spatial(4, 8).local(8, 1).local(1, 4)
    assert through(ORDERS[0], space="cp.async", first=False, second=False, loads=own).findings
    own = spatial(1, 1).local(8, 1).spatial(4, 8).local(1, 4)
    assert not through(ORDERS[0], space="cp.async", first=False, second=False, loads=own).findings


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("waits", ["one", "too early"])
@pytest.mark.parametrize("space", SPACES)
def test_an_mbarrier_orders_lanes_whose_arrivals_follow_their_accesses(space: str, waits: str, order: Any) -> None:
    (found,) = through(order, space=space, waits=waits).findings
    assert found.code == "data-race" and found.location is not None and found.location.line == read(space)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_before_the_wait_does_not_order_copies(order: Any) -> None:
    (found,) = through(order, space="cp.async", first="too early").findings
    assert found.location is not None and found.location.line == read("cp.async")
    assert f"lane_scripts.py:{line_of(Through, '# awaited')} and {found.location}" in found.advice


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [("half", "half", ""), ("warp", "warp", ""), ("", "warp", "read"), ("half", "", "written")],
)
def test_lanes_of_half_a_warp(first: str, second: str, line: str) -> None:
    x, y = np.arange(256, dtype=np.int32).reshape(16, 16), np.zeros((16, 16), np.int32)
    found = [each.location.line for each in run_in(ORDERS[0], HalfThrough(first, second), x, y).findings]
    assert found == ([line_of(HalfThrough, f"# half {line}")] if line else [])
