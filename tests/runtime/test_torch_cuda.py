"""Memory from torch's allocator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from blackwell_matmul.compiler.plan import Workspace
from blackwell_matmul.runtime import torch_cuda


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let torch make zeros on the CPU; return the sizes that are made."""
    sizes: list[int] = []

    def zeros(nbytes: int, **_: Any) -> torch.Tensor:
        sizes.append(nbytes)
        return torch.full((nbytes,), 0, dtype=torch.uint8)

    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setattr(torch_cuda, "_raw_stream", lambda: lambda device: 0x51)
    monkeypatch.setattr(torch_cuda, "_zeroed", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return sizes


def test_a_workspace_that_is_left_zero_is_kept_for_its_stream_and_grows(made: list[int]) -> None:
    first, again = (torch_cuda.empty(Workspace(128, True, True), 0, 0x51) for _ in range(2))
    assert first is again and made == [128]
    assert torch_cuda.empty(Workspace(64, True, True), 0, 0x51) is first
    larger = torch_cuda.empty(Workspace(256, True, True), 0, 0x51)
    assert larger.nbytes == 256 and torch_cuda.empty(Workspace(128, True, True), 0, 0x51) is larger
    assert torch_cuda.empty(Workspace(128, True, True), 1, 0x51) is not larger, "another GPU"
    assert made == [128, 256, 128]


def test_a_graph_zeroes_its_own_workspace(made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = torch_cuda.empty(Workspace(128, True, True), 0, 0x51)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert torch_cuda.empty(Workspace(128, True, True), 0, 0x51) is not kept and made == [128, 128]


def test_another_workspace_is_zeroed_for_each_launch(made: list[int]) -> None:
    first, second = (torch_cuda.empty(Workspace(128, True), 0, 0x51) for _ in range(2))
    assert first is not second and made == [128, 128] and not torch_cuda._zeroed
