"""Clusters: what a CTA knows of its place, when the cluster's barrier opens, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from clean import clean, only
from orders import ORDERS, line_of, run_in
from scripts_cluster import Alone, Everywhere, InTurn, LateNames, Meet, Overlap, Positions

from blackwell_matmul import check
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.simulator import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tutorials"))
from tma.multicast import CopyToBoth


def tiles(rows: int) -> np.ndarray:
    return (np.arange(rows * 64) % 512).reshape(rows, 64).astype(np.float16)


@pytest.mark.parametrize("workers", [1, 2])
def test_each_cta_knows_its_place(workers: int) -> None:
    y = np.zeros((48, 32), np.int32)
    clean(Positions(), y, workers=workers)
    for cta in range(48):
        i, j, k = cta % 4, cta // 4 % 6, cta // 24
        rank = i % 2 + 2 * (j % 3)
        assert (y[cta] == rank + 10 * (i % 2 + 10 * (j % 3)) + 10000 * (2 + 30 + 100)).all(), (i, j, k)


def test_a_warp_that_has_returned_is_not_waited_for() -> None:
    for order in ORDERS:
        y = np.zeros(128, np.int32)
        assert not run_in(order, Meet(), y).findings
        assert (y == 1).all()


def test_a_warp_that_has_not_returned_is_waited_for() -> None:
    for order in ORDERS:
        finding = only(run_in(order, Meet(stuck=True), np.zeros(128, np.int32)), "deadlock")
        assert "warp 1 of CTA (1, 0, 0) waits" in finding.message
        assert "for warp 1 of CTA (1, 0, 0) at cluster.sync()" in finding.message
        assert finding.count == 2  # one for each cluster
        assert finding.location is not None and finding.location.line == line_of(Meet, "# wait")


def test_what_is_named_late_is_there_from_the_start() -> None:
    x = tiles(32)
    for order in ORDERS:
        y = np.zeros((64, 64), np.float16)
        assert not run_in(order, LateNames(), x, y).findings
        np.testing.assert_array_equal(y, np.concatenate([x, x]))


def test_the_kernel_of_the_first_lesson() -> None:
    x, y = torch.randn(64, 64).half(), torch.empty(128, 64).half()
    clean(CopyToBoth, x, y)
    assert torch.equal(y, torch.cat([x, x]))


def test_a_cluster_of_one() -> None:
    x, y = tiles(96), np.zeros((96, 64), np.float16)
    clean(Alone(), x, y)
    np.testing.assert_array_equal(y, x)


def test_a_rank_that_the_cluster_does_not_have() -> None:
    x, y = tiles(96), np.zeros((96, 64), np.float16)
    finding = only(simulate(Alone(target=1), x, y), "no-such-cta")
    assert finding.location is not None and finding.location.line == line_of(Alone, "# tell")
    assert "the cluster has one CTA, rank 0" in finding.message


def test_a_grid_that_is_no_multiple_of_the_cluster() -> None:
    with pytest.raises(InputError, match=r"3x1x1 CTAs in clusters of 2x1x1; .* must be a multiple"):
        simulate(Alone(cluster=2), tiles(96), tiles(96))


def test_a_cluster_that_is_too_large() -> None:
    with pytest.raises(InputError, match=r"clusters of 9x1x1 CTAs; a cluster has at most 8\.$"):
        simulate(Alone(cluster=9), tiles(96), tiles(96))


def test_ctas_of_a_cluster_may_write_the_same_in_turn() -> None:
    y = np.zeros((2, 32), np.int32)
    clean(Overlap(), y)
    assert (y == 2).all()


def test_clusters_may_not() -> None:
    finding = only(simulate(Everywhere(), np.zeros(32, np.int32), workers=1), "written-by-two-ctas")
    assert "CTA (1, 0, 0) and CTA (3, 0, 0) both write 32 element(s)" in finding.message


def test_clusters_that_also_signal_each_other() -> None:
    lock, y = np.zeros(1, np.int32), np.ones(32, np.int32)
    clean(InTurn(), lock, y)
    assert lock[0] == 0 and (y == ((1 * 3 + 0) * 3 + 1) * 3 + 2).all()


def test_progress_counts_ctas() -> None:
    told: list[tuple[int, int]] = []
    clean(Positions(), np.zeros((48, 32), np.int32), progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 48) for done in range(6, 49, 6)]


def test_a_report_has_the_events_of_a_cta_in_its_cluster() -> None:
    report = check(Meet(stuck=True), np.zeros(128, np.int32))
    (finding,) = report.findings
    assert any(event.agent == "warp 1" and event.kind == "wait" for event in finding.timeline)
    assert "cluster.sync" in report.coverage.exact
