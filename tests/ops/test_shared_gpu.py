"""Products on a GPU that other streams use too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from blackwell_matmul import GPUS, InputError, matmul
from blackwell_matmul.ops import library, ready
from blackwell_matmul.ops.distributed import shared_gpu
from blackwell_matmul.ops.distributed.shared_gpu import queue_pays, share_gpu
from blackwell_matmul.ops.finished import NO_TENSORS
from blackwell_matmul.ops.launching import planned
from blackwell_matmul.ops.operand_checks import DEFAULTS, How

H200, B200 = GPUS["H200"], GPUS["B200"]


@pytest.fixture(autouse=True)
def as_found() -> Iterator[None]:
    yield
    share_gpu()


def queue(m: int, n: int, k: int, gpu: str = "H200", how: How = DEFAULTS) -> int | None:
    """Return the pinned queue of the product that multiplies on this GPU; None if none is pinned."""
    a, b = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(n, k, dtype=torch.bfloat16)
    plan = planned(a, b.T, NO_TENSORS, GPUS[gpu], a.dtype, how)
    assert plan is not None
    return plan.launches.kernel.pins.get("queue")


def test_a_product_of_several_tiles_for_each_sm_takes_them_from_a_queue_on_a_shared_gpu() -> None:
    assert queue(4096, 4096, 4096) is None
    share_gpu(True)
    assert queue(4096, 4096, 4096) == 1
    assert queue(1024, 1024, 4096) is None, "all tiles run at once"
    assert queue(4096, 4096, 512) is None, "tiles end too early"
    assert queue(4096, 4096, 4096, "B200") is None, "CLC deals tiles as they come"
    assert queue(4096, 4096, 4096, how=How(alone=True)) is None, "copies to other GPUs take no SM"
    assert queue(4096, 4096, 4096, how=How(batch_invariant=True)) is None, "each CTA has one tile"
    share_gpu(False)
    assert queue(4096, 4096, 4096) is None


@pytest.mark.parametrize(
    ("backend", "ranks", "shared"),
    [("nccl", 4, True), ("nccl", 1, False), ("gloo", 4, False), ("cpu:gloo,cuda:nccl", 2, True)],
)
def test_nccl_with_several_ranks_shares_the_gpu(
    monkeypatch: pytest.MonkeyPatch, backend: str, ranks: int, shared: bool
) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: backend)
    monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
    assert queue_pays(H200, 1 << 26, 4096) is shared
    share_gpu(False)
    assert not queue_pays(H200, 1 << 26, 4096)


def test_a_change_makes_plans_anew_and_the_values_stay() -> None:
    x, w = (torch.randn(64, 64, dtype=torch.float16) for _ in range(2))
    before = matmul(x, w, simulate=True)
    assert len(library._plans)
    share_gpu(True)
    assert not len(library._plans) and not len(ready._ready)
    assert torch.equal(matmul(x, w, simulate=True), before)


def test_anything_but_a_truth_is_refused() -> None:
    with pytest.raises(InputError, match=r"shared is .yes.; it must be True or False, or None to find out"):
        share_gpu("yes")  # type: ignore[arg-type]
    assert shared_gpu._shared is None
