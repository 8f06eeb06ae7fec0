"""Products whose parts travel, in each process of a group; test_sharding.py starts them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from blackwell_matmul import all_gather_matmul, matmul_reduce_scatter
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.ops.distributed import exchanges

OURS = {"simulate": True}


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return float((found.detach().double() - exact).abs().max())


def on_every_rank(x: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return parts


def operands(*shape_of_a: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Others on every rank."""
    torch.manual_seed(dist.get_rank())
    return torch.randn(*shape_of_a).bfloat16(), torch.randn(shape_of_a[-1], 64).bfloat16()


def gathers(world: int) -> None:
    """Of another dimension than the first; two weights."""
    shard, b = operands(2, 8, 64)
    whole, (c, twice) = all_gather_matmul(shard, [b, 2 * b], 1, **OURS)
    assert torch.equal(whole, torch.cat(on_every_rank(shard), 1))
    exact = whole.double() @ b.double()
    assert error(c, exact) <= 2 * error(whole @ b, exact)
    assert torch.equal(twice, 2 * c)
    assert all_gather_matmul(shard, [b], 1, return_a=False, **OURS)[0] is None


def gradients_of_gathers(world: int) -> None:
    shard, b = (x.requires_grad_() for x in operands(8, 64))
    whole, (c,) = all_gather_matmul(shard, [b], **OURS)
    assert not whole.requires_grad
    c.sum().backward()
    weights, ones = on_every_rank(b.detach()), torch.ones_like(c).detach()
    exact, torchs = (
        sum(x @ y.to(x.dtype).T for y in weights).chunk(world)[dist.get_rank()] for x in (ones.double(), ones)
    )
    assert error(shard.grad, exact) <= 2 * error(torchs, exact)
    exact = whole.double().T @ ones.double()
    assert error(b.grad, exact) <= 2 * error(whole.T @ ones, exact)


def scatters(world: int) -> None:
    """Sum and mean, and the same bits again."""
    (a, b), mine = operands(2, 4 * world, 64), dist.get_rank()
    every = list(zip(on_every_rank(a), on_every_rank(b), strict=True))
    exact = sum(x.double() @ y.double() for x, y in every)
    unfused = sum(x @ y for x, y in every)
    c = matmul_reduce_scatter(a, b, scatter_dim=1, **OURS)
    assert error(c, exact.chunk(world, 1)[mine]) <= 2 * error(unfused, exact)
    assert torch.equal(c, matmul_reduce_scatter(a, b, scatter_dim=1, **OURS))
    assert torch.equal(c / world, matmul_reduce_scatter(a, b, "avg", 1, **OURS))


def gradients_of_scatters(world: int) -> None:
    """Of the mean."""
    a, b = (x.requires_grad_() for x in operands(8, 64))
    matmul_reduce_scatter(a, b, "avg", **OURS).sum().backward()
    share = torch.full((8, 64), 1 / world, dtype=torch.bfloat16)
    x, weight = a.detach(), b.detach()
    exact_a, exact_b = share.double() @ weight.double().T, x.double().T @ share.double()
    assert error(a.grad, exact_a) <= 2 * error(share @ weight.T, exact_a)
    assert error(b.grad, exact_b) <= 2 * error(x.T @ share, exact_b)


def frozen_operands(world: int) -> None:
    """The gradient of one operand is that of both, and its own values are not saved."""
    calls = (
        lambda a, b: all_gather_matmul(a, [b], return_a=False, **OURS)[1][0],
        lambda a, b: matmul_reduce_scatter(a, b, **OURS),
    )
    for call in calls:
        both = [x.requires_grad_() for x in operands(8, 64)]
        call(*both).sum().backward()
        for trained in range(2):
            alone = [x.requires_grad_(at == trained) for at, x in enumerate(operands(8, 64))]
            made = call(*alone)
            saved = [x.data_ptr() for x in made.grad_fn.saved_tensors if x is not None]
            assert saved and alone[trained].data_ptr() not in saved
            made.sum().backward()
            assert torch.equal(alone[trained].grad, both[trained].grad)


def the_first_product_waits_for_nobody(world: int) -> None:
    """Others send nothing before rank 0 says that it has multiplied its own part: with a wait it would never end."""
    store, group, mine = distributed_c10d._get_default_store(), dist.group.WORLD, dist.get_rank()
    shard, gathered, consumed = torch.full((2, 4), float(mine)), torch.empty(2 * world, 4), []

    def consume(part: torch.Tensor, rank: int) -> None:
        assert torch.equal(part, torch.full((2, 4), float(rank)))
        consumed.append(rank)
        store.set(f"rank {mine} has consumed", str(rank))

    if mine:
        store.wait(["rank 0 has consumed"])
    exchanges.gather_and_consume(shard, consume, gathered, group)
    assert consumed == [(mine + step) % world for step in range(world)]
    assert torch.equal(gathered, torch.arange(float(world)).repeat_interleave(2)[:, None].expand(-1, 4))


def a_part_travels_before_the_last_product(world: int) -> None:
    """Rank 0 does not multiply for itself before another one has its part."""
    store, group, mine = distributed_c10d._get_default_store(), dist.group.WORLD, dist.get_rank()
    received = torch.empty(world, 4)

    def produce(rank: int, place: torch.Tensor) -> None:
        place.fill_(10 * mine + rank)
        if mine == rank == 1:
            store.set("rank 1 is at its last", "")
        if mine == rank == 0:
            store.wait(["rank 1 is at its last"])

    exchanges.produce_and_scatter(produce, received, group)
    assert received[:, 0].tolist() == [10 * rank + mine for rank in range(world)]


def what_does_not_fit(world: int) -> None:
    a, b = torch.randn(world + 1, 64).half(), torch.randn(64, 24).half()
    outside = dist.new_group([1])
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: matmul_reduce_scatter(a, b, **OURS), f"{world + 1} rows in dimension 0.*pad it to {2 * world}"),
        (lambda: matmul_reduce_scatter(a, b, "max", **OURS), "one of sum, avg"),
        (lambda: matmul_reduce_scatter(a, b, scatter_dim=1, **OURS), "only rows travel"),
        (lambda: all_gather_matmul(a, [b], 2, **OURS), "gather_dim is 2"),
        (lambda: all_gather_matmul(a, b, **OURS), "list of one tensor or more"),
        (lambda: all_gather_matmul(a, [b.T], **OURS), "as many columns as b has rows"),
        (lambda: all_gather_matmul(a, [b[0]], **OURS), "must be"),
        (lambda: all_gather_matmul(a, [b], group="nobody", **OURS), "group is 'nobody'"),
        (lambda: all_gather_matmul(a, [b]), "simulate=True"),
    ]
    if dist.get_rank() == 0:
        refused.append((lambda: all_gather_matmul(a, [b], group=outside, **OURS), "this process is in"))
    for call, words in refused:
        with pytest.raises(BlackwellMatmulError, match=words) as caught:
            call()
        assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def the_bench(world: int) -> None:
    """bench/gpu/parallel.py: ours and torch's are the same."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))
    import parallel

    for case in parallel.cases(64, torch.device("cpu")):
        row = parallel.compared(case, timed=False)
        differences = [value for name, value in row.items() if name.endswith("_difference")]
        assert differences and max(differences) <= 0.02, row
