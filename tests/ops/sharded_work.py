"""What each process of a group does; test_sharding.py starts them."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


def run(rank: int, world: int, port: int, names: list[str]) -> None:
    """names: of functions here, or `module.function`."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        for name in names:
            torch.manual_seed(0)
            module, _, function = name.rpartition(".")
            getattr(importlib.import_module(module or __name__), function)(world)
    finally:
        dist.destroy_process_group()


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=2e-2, atol=2e-2)


def every_placement(world: int, simulate: bool = True) -> None:
    """Rows, columns and k in parts, or whole, of both."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, init_device_mesh

    from blackwell_matmul import matmul

    mesh = init_device_mesh("cpu", (world,))
    a, b = torch.randn(32, 64).half(), torch.randn(64, 48).half()
    stay = {(0, None): Shard(0), (None, 1): Shard(1), (1, 0): Partial(), (None, None): Replicate()}
    for of_a, of_b in (*stay, (0, 0), (1, None)):
        placed = [
            distribute_tensor(x, mesh, [Replicate() if at is None else Shard(at)]) for x, at in ((a, of_a), (b, of_b))
        ]
        c = matmul(*placed, simulate=simulate)
        assert c.placements == (stay.get((of_a, of_b), c.placements[0]),), (of_a, of_b, c.placements)
        close(c.full_tensor(), a @ b)


def every_placement_without_options(world: int) -> None:
    """By the overload of two tensors, which no simulated product takes: torch multiplies the parts."""
    from blackwell_matmul.ops import library

    original, library.run = library.run, lambda a, b, *_, **__: a @ b
    try:
        every_placement(world, simulate=False)
    finally:
        library.run = original


def batches_and_extras(world: int) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    from blackwell_matmul import baddbmm, linear, scaled_mm

    mesh = init_device_mesh("cpu", (world,))

    def placed(x: torch.Tensor, at: int | None) -> Any:
        return distribute_tensor(x, mesh, [Replicate() if at is None else Shard(at)])

    a, b, kept = torch.randn(4, 16, 32).half(), torch.randn(4, 32, 24).half(), torch.randn(4, 16, 24).half()
    for at in (0, 1):
        close(
            baddbmm(placed(kept, 0), placed(a, at), placed(b, 0), simulate=True).full_tensor(),
            torch.baddbmm(kept, a, b),
        )
    x, w, bias = torch.randn(16, 64).half(), torch.randn(64, 64).half(), torch.randn(64).half()
    expected = nn.functional.silu((x @ w.T + bias)[:, 0::2]) * (x @ w.T + bias)[:, 1::2]
    for of_x, of_w in ((0, None), (None, 0), (1, 1)):
        made = linear(placed(x, of_x), placed(w, of_w), placed(bias, None), "swiglu", simulate=True)
        torch.testing.assert_close(made.full_tensor(), expected, rtol=3e-2, atol=0.1)
        close(linear(placed(x, of_x), placed(w, of_w), placed(bias, None), simulate=True).full_tensor(), x @ w.T + bias)
    e, v = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(16, 1), torch.rand(1, 64)
    expected = ((e.float() @ v.float().T) * scale_a * scale_b).bfloat16()
    for of_e, of_v in ((0, None), (None, 1)):  # gloo sends no 8 bits
        kinds = (placed(x, of_e).to(e.dtype), placed(w.T, of_v).to(e.dtype))
        made = scaled_mm(*kinds, placed(scale_a, None), placed(scale_b, None), simulate=True)
        torch.testing.assert_close(made.full_tensor(), expected, rtol=2e-2, atol=2e-2)


class Mlp(nn.Module):
    """As a model has it, with our operation in place of torch's."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours, self.up, self.down = ours, Layer(32, 64, ours), Layer(64, 32, ours)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Layer(nn.Linear):
    def __init__(self, inputs: int, outputs: int, ours: bool) -> None:
        super().__init__(inputs, outputs, dtype=torch.bfloat16)
        self.ours = ours

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from blackwell_matmul import linear

        return linear(x, self.weight, self.bias, simulate=True) if self.ours else super().forward(x)


def trained(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    out = model(x)
    out.float().square().mean().backward()
    full = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in model.parameters()]
    return out.detach(), full


def pair() -> tuple[Mlp, Mlp, torch.Tensor]:
    torchs, ours = Mlp(False), Mlp(True)
    ours.load_state_dict(torchs.state_dict())
    return torchs, ours, torch.randn(2, 8, 32).bfloat16()


def tensor_parallel(world: int) -> None:
    """Columns of the first layer, rows of the second: one sum at the end; the same losses and gradients."""
    from torch.distributed.tensor import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torchs, ours, x = pair()
    parallelize_module(ours, init_device_mesh("cpu", (world,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    (out, grads), (expected, wanted) = trained(ours, x), trained(torchs, x)
    close(out, expected)
    for mine, theirs in zip(grads, wanted, strict=True):
        close(mine, theirs)
    ours.zero_grad()
    again, compiled = trained(torch.compile(ours, backend="aot_eager", fullgraph=True), x)
    assert torch.equal(again, out) and all(map(torch.equal, compiled, grads))


def fully_sharded(world: int) -> None:
    """FSDP2: weights in parts, whole while a layer computes."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    torchs, ours, x = pair()
    mesh = init_device_mesh("cpu", (world,))
    for layer in (ours.up, ours.down, ours):
        fully_shard(layer, mesh=mesh)
    (out, grads), (expected, wanted) = trained(ours, x), trained(torchs, x)
    close(out, expected)
    for mine, theirs in zip(grads, wanted, strict=True):
        close(mine, theirs)


def two_dimensions(world: int) -> None:
    """A mesh of 2 x 2: rows of x in one dimension, columns of w in the other."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    from blackwell_matmul import matmul

    mesh = init_device_mesh("cpu", (2, world // 2))
    x, w = torch.randn(32, 64).half(), torch.randn(64, 48).half()
    c = matmul(
        distribute_tensor(x, mesh, [Shard(0), Replicate()]),
        distribute_tensor(w, mesh, [Replicate(), Shard(1)]),
        simulate=True,
    )
    assert c.placements == (Shard(0), Shard(1))
    close(c.full_tensor(), x @ w)
