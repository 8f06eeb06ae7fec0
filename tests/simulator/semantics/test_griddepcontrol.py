"""A kernel that starts while the grid before it ends waits for that one before it touches global memory."""

import linecache
from typing import Any

import pytest
import tilus
import torch
from tilus import float32, int32
from tilus.ir.instructions import StoreSharedInst

from blackwell_matmul import check, simulate
from blackwell_matmul.frontend import launch_order


class Copy(tilus.Script):
    """y = x, for 64 elements."""

    def __call__(self, m: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m])
        self.sync()
        tile = self.load_global(g_x, offsets=[0], shape=[64])
        self.store_global(g_y, tile, offsets=[0])


class TooLate(Copy):
    """A program of its own, for nothing is kept of it."""


class Pair(tilus.Script):
    """Two CTAs of a cluster meet after each has stored."""

    def __call__(self, m: int32, y_ptr: ~int32):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        s = self.shared_tensor(dtype=int32, shape=[64])
        one = self.register_tensor(dtype=int32, shape=[64], init=1)
        self.store_shared(s, one)
        self.cluster.sync()
        g_y = self.global_view(y_ptr, dtype=int32, shape=[m])
        self.store_global(g_y, one, offsets=[self.blockIdx.x * 64])


class RelaxedPair(Pair):
    """A program of its own, likewise."""


def codes(found: Any) -> set[str]:
    return {finding.code for finding in found.findings}


def arguments() -> tuple[int, torch.Tensor, torch.Tensor]:
    return 64, torch.arange(64, dtype=torch.float32), torch.zeros(64)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_the_frontend_waits_in_time(target: str) -> None:
    m, x, y = arguments()
    assert not simulate(Copy, m, x, y, target=target).findings and torch.equal(x, y)


def test_a_wait_that_stands_too_late_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a prologue that ends nowhere, both accesses come before the wait."""
    monkeypatch.setattr(launch_order, "_is_harmless", lambda stmt: True)
    m, x, y = arguments()
    found = simulate(TooLate, m, x, y, target="sm_90a")
    early = [finding for finding in found.findings if finding.code == "access-before-grid-wait"]
    lines = [linecache.getline(finding.location.file, finding.location.line) for finding in early if finding.location]
    assert ["load_global" in line for line in lines] == [True, False] and "store_global" in lines[1]
    assert "load_global accesses global memory before griddepcontrol.wait" in early[0].message
    assert "store_global accesses global memory" in early[1].message
    assert codes(check(TooLate, m, x, y, target="sm_90a")) == {"access-before-grid-wait"}


def test_a_meeting_after_a_store_is_not_relaxed(monkeypatch: pytest.MonkeyPatch) -> None:
    y = torch.zeros(128, dtype=torch.int32)
    assert not simulate(Pair, 128, y, target="sm_90a").findings and bool((y == 1).all())
    harmless = (*launch_order._HARMLESS, StoreSharedInst)
    monkeypatch.setattr(launch_order, "_HARMLESS", harmless)
    found = simulate(RelaxedPair, 128, y, target="sm_90a")
    assert codes(found) == {"relaxed-wait"}
    assert "store_shared comes before a cluster.sync whose arrival is relaxed" in str(found.findings[0])
