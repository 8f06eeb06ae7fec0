"""A kernel that starts while the grid before it ends waits for that one before it touches global memory."""

from typing import Any

import pytest
import tilus
import torch
from tilus import float32, int32

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
    assert [str(finding.location).rpartition(":")[2] for finding in early] == ["23", "24"]
    assert "load_global accesses global memory before griddepcontrol.wait" in early[0].message
    assert "store_global accesses global memory" in early[1].message
    assert codes(check(TooLate, m, x, y, target="sm_90a")) == {"access-before-grid-wait"}
