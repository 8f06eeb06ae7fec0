"""mbarriers: arrivals of threads, warps and groups; phases; too many and too few."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from async_scripts import Ahead, GroupArrive, Handoff, Unused
from kernel_edits import edited
from orders import ORDERS, codes, faulty, finding, line_of, lines, run_in, silent

from blackwell_matmul import BlackwellMatmulV1
from blackwell_matmul.simulator import simulate
from blackwell_matmul_studies import mutation


def rows(rounds: int = 5) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rounds, 32)).astype(np.float32)
    return x, np.zeros_like(x)


@pytest.mark.parametrize("flags", [{}, {"count": 64, "arrivals": 2}, {"by": "thread", "count": 1, "meet": True}])
def test_two_warps_hand_rows_over(flags: dict[str, Any]) -> None:
    x, y = rows()
    silent(Handoff(**flags), (5, x, y), y, x)


def test_one_lane_that_arrives_for_its_warp() -> None:
    """All lanes store, one arrives: it publishes what it did itself (NVIDIA/cudnn-frontend issue 426)."""
    x, y = rows()
    found = finding(faulty(Handoff(by="thread", count=1), 5, x, y), "data-race")
    assert lines(found) == (line_of(Handoff, "self.load_shared(s_x)"), line_of(Handoff, "self.store_shared(s_x"))
    assert found.missing == "sync" and "one lane of warp 0 arrives on full" in found.message


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_whole_group_arrives(rounds: int) -> None:
    x = np.arange(128, dtype=np.int32).reshape(4, 32)
    y = np.zeros_like(x)
    silent(GroupArrive(), (rounds, x, y), y, x + rounds)


@pytest.mark.parametrize(
    "flags, lacks", [({"count": 33}, "1 of 33 arrival(s)"), ({"by": "thread"}, "31 of 32 arrival(s)")]
)
def test_too_few_arrivals(flags: dict[str, Any], lacks: str) -> None:
    x, y = rows()
    found = finding(faulty(Handoff(**flags), 5, x, y), "deadlock")
    full, empty = (line_of(Handoff, f"wait({name}") for name in ("full", "empty"))
    assert f"{full} for parity 0 of full, which is in phase 0 (parity 0) and still lacks {lacks}" in found.message
    assert f"{empty} for parity 0 of empty" in found.message
    assert "warp 0 waits" in found.message and "warp 1 waits" in found.message


ALONE = "put the arrival under `with self.single_thread():`, or "


@pytest.mark.parametrize(
    "flags, got, advice",
    [
        ({"count": 31}, (32, 31), f"; {ALONE}give it a count of 32"),
        ({"arrivals": 2}, (64, 32), "a count of 32; give it a count of 64"),
    ],
)
def test_too_many_arrivals(flags: dict[str, Any], got: tuple[int, int], advice: str) -> None:
    x, y = rows()
    found = finding(faulty(Handoff(**flags), 5, x, y), "mbarrier-over-arrival")
    assert f"full gets {got[0]} arrival(s) where phase 0 lacked {got[1]}" in found.message
    assert found.message.endswith(advice)
    assert lines(found) == (line_of(Handoff, "arrive(full"), line_of(Handoff, "full = self.mbarrier.alloc"))


def test_arrivals_beyond_a_phase_count_for_the_next() -> None:
    """32 lanes that arrive twice where 32 were expected complete two phases; the waiter for the first hangs."""
    x, y = rows()
    found = finding(run_in(ORDERS[0], Handoff(arrivals=2), 5, x, y), "deadlock")
    assert "parity 0 of full, which is in phase 2 (parity 0)" in found.message


def test_a_phase_that_is_counted_and_not_flipped(tmp_path: Path) -> None:
    """The values are right, as its low bit is the parity; PTX has a meaning for 0 and 1 alone."""
    source = inspect.getsource(sys.modules[BlackwellMatmulV1.__module__])
    script = mutation.load(edited(source, [("phase ^= 1", "phase += 1", 0)]), "BlackwellMatmulV1", tmp_path)
    a, b, c = torch.eye(128, 192).half(), torch.ones(64, 192).half(), torch.zeros(128, 64).half()
    run = simulate(script, 128, 64, 192, a, b, c, schedule={"block_k": 64})
    found = [each for each in run.findings if each.code == "mbarrier-parity"]
    assert len(found) == 2 and all("phase 2" in each.message and each.location for each in found)
    assert (c == 1).all()


def test_the_consumer_that_never_frees() -> None:
    x, y = rows()
    run = faulty(Handoff(free=False), 5, x, y)
    assert "of empty, which is in phase 0 (parity 0) and still lacks 32 of 32" in finding(run, "deadlock").message


def test_an_arrival_that_is_left_out() -> None:
    x, y = rows()
    message = finding(faulty(Handoff(skip_arrive=2), 5, x, y), "deadlock").message
    assert "parity 0 of full, which is in phase 2 (parity 0) and still lacks 32 of 32 arrival(s)" in message
    np.testing.assert_array_equal(y[:2], x[:2])


@pytest.mark.parametrize("ahead, parity", [(0, 1), (1, 0), (2, 1), (3, 0)])
def test_a_wait_passes_when_the_phase_of_its_parity_is_over(ahead: int, parity: int) -> None:
    y = np.zeros(32, np.int32)
    silent(Ahead(ahead, parity), (y,), y, np.full(32, 7, np.int32))


@pytest.mark.parametrize("ahead, parity", [(0, 0), (1, 1), (2, 0)])
def test_a_wait_for_the_current_phase_or_one_that_came_back(ahead: int, parity: int) -> None:
    y = np.zeros(32, np.int32)
    run = faulty(Ahead(ahead, parity), y)
    assert codes(run) == {"deadlock"}
    assert f"which is in phase {ahead} (parity {ahead % 2})" in finding(run, "deadlock").message


def test_mbarriers_that_nothing_uses_may_differ_in_their_counts() -> None:
    out = np.zeros(32, np.int32)
    silent(Unused(), (out,), out, np.ones(32, np.int32))
