"""Products on several GPUs, beside torch's own: an MLP that is tensor-parallel or fully sharded, and rows that travel.

    torchrun --nproc-per-node 4 bench/gpu/parallel.py --out bench/results/parallel.json

Each case has calls on the same tensors, which are timed in turn; an MLP is trained for some steps before, and its
losses are told. With --simulate it runs the same code on a CPU, by gloo, at a small size, and gives no times.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import blackwell_matmul as ours

ROUNDS = 30
STEPS, RATE = 5, 4.0
"""Of stochastic gradient descent."""
LIMIT = timedelta(minutes=2)
"""For one rank to wait for another."""

Calls = dict[str, Callable[[], Tensor]]


@dataclass(frozen=True)
class Case:
    """Calls that compute the same; the first is ours. models: what some of them train."""

    name: str
    calls: Calls
    models: dict[str, nn.Module] = field(default_factory=dict)


class Layer(nn.Linear):
    """torch's, or ours."""

    def __init__(self, inputs: int, outputs: int, own: Callable[..., Tensor] | None, **where: Any) -> None:
        super().__init__(inputs, outputs, bias=False, **where)
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.own is None else self.own(x, self.weight)


def mlp(size: int, own: Callable[..., Tensor] | None, **where: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Layer(size, 4 * size, own, **where), nn.GELU(), Layer(4 * size, size, own, **where))


def tensor_parallel(model: nn.Module, kind: str) -> None:
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def fully_sharded(model: nn.Module, kind: str) -> None:
    mesh = init_device_mesh(kind, (dist.get_world_size(),))
    for each in (model[0], model[2], model):
        fully_shard(each, mesh=mesh)


def loss_after_backward(model: nn.Module, x: Tensor) -> Tensor:
    model.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    return loss.detach()


def losses(call: Callable[[], Tensor], model: nn.Module) -> list[float]:
    """Before each of some steps."""
    descent, found = torch.optim.SGD(model.parameters(), RATE), []
    for _ in range(STEPS):
        found.append(float(call()))
        descent.step()
    return found


def cases(size: int, device: torch.device) -> Iterator[Case]:
    """size: 8192 on GPUs, a small one in the simulator; the operands of the others are by rank."""
    more = {"simulate": True} if device.type == "cpu" else {}
    where = {"device": device, "dtype": torch.bfloat16}
    yield _trained("tensor-parallel MLP with backward", tensor_parallel, size, more, where)
    if device.type == "cuda":  # what inductor makes for a CPU takes a compiler
        yield _trained("tensor-parallel MLP with backward, compiled", tensor_parallel, size, more, where, torch.compile)
    yield _trained("fully sharded MLP with backward", fully_sharded, size, more, where)
    torch.manual_seed(dist.get_rank())
    shard, a, b = (torch.randn(rows, size, **where) for rows in (size // dist.get_world_size(), size, size))
    yield Case("all_gather_matmul", _gathers(shard, b.T, more))
    yield Case("matmul_reduce_scatter", _scatters(a, b.T, more))


def _trained(
    name: str,
    shard: Callable[[nn.Module, str], None],
    size: int,
    more: dict[str, Any],
    where: dict[str, Any],
    compiled: Callable[[nn.Module], Any] = lambda model: model,
) -> Case:
    models = {"ours": mlp(size, lambda x, w: ours.linear(x, w, **more), **where), "torch": mlp(size, None, **where)}
    x = torch.randn(size, size, **where)
    for model in models.values():
        shard(model, where["device"].type)
    called = {name: compiled(model) for name, model in models.items()}
    calls: Calls = {name: lambda model=model: loss_after_backward(model, x) for name, model in called.items()}
    return Case(name, calls, models)


def _gathers(shard: Tensor, b: Tensor, more: dict[str, Any]) -> Calls:
    name = dist.group.WORLD.group_name

    def unfused() -> Tensor:
        whole = shard.new_empty((shard.shape[0] * dist.get_world_size(), shard.shape[1]))
        dist.all_gather_into_tensor(whole, shard)
        return whole @ b

    calls: Calls = {"ours": lambda: ours.all_gather_matmul(shard, [b], **more)[1][0], "unfused": unfused}
    if shard.is_cuda:
        calls["fused"] = lambda: torch.ops.symm_mem.fused_all_gather_matmul(shard, [b], 0, name)[1][0]
    return calls


def _scatters(a: Tensor, b: Tensor, more: dict[str, Any]) -> Calls:
    name = dist.group.WORLD.group_name

    def unfused() -> Tensor:
        part = a.new_empty((a.shape[0] // dist.get_world_size(), b.shape[1]))
        dist.reduce_scatter_tensor(part, a @ b)
        return part

    calls: Calls = {"ours": lambda: ours.matmul_reduce_scatter(a, b, **more), "unfused": unfused}
    if a.is_cuda:
        calls["fused"] = lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, name)
    return calls


def compared(case: Case, timed: bool) -> dict[str, Any]:
    """Losses; the largest difference from ours, in parts of the largest value, on this rank; medians in us."""
    trained = {f"{name}_losses": losses(case.calls[name], model) for name, model in case.models.items()}
    found = {name: call().float() for name, call in case.calls.items()}
    mine = found.pop("ours")
    row: dict[str, Any] = {"case": case.name, **trained}
    row |= {f"{name}_difference": float((x - mine).abs().max() / x.abs().max()) for name, x in found.items()}
    return {**row, **(_times(case.calls) if timed else {})}


def _times(calls: Calls) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            taken[name].append(_us(call))
    return {f"{name}_us": round(statistics.median(each), 1) for name, each in taken.items()}


def _us(call: Callable[[], Tensor]) -> float:
    """Of one call, from when all ranks are here until its results are."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    size: Annotated[int, typer.Option()] = 8192,
    simulate: Annotated[bool, typer.Option(help="On a CPU, without times")] = False,
) -> None:
    """Compare, time, and write, on rank 0."""
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu") if simulate else torch.device("cuda", local)
    if not simulate:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if simulate else "nccl", timeout=LIMIT)
    world, what = dist.get_world_size(), f"--size {size}" + (" --simulate" if simulate else "")
    rows: list[dict[str, Any]] = []
    record = {
        "command": f"torchrun --nproc-per-node {world} bench/gpu/parallel.py {what} --out {out}",
        "gpu": None if simulate else torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "processes": world,
        "rows": rows,
    }
    for case in cases(size, device):
        rows.append(compared(case, not simulate))
        if dist.get_rank() == 0:
            print(rows[-1], flush=True)
            out.write_text(json.dumps(record, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
