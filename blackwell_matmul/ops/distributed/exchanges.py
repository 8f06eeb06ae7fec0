"""Exchange of tensors between processes while products run, through symmetric memory or by messages.

Both ways take a callback that multiplies, as torch's pipelines for symmetric memory do. Messages are posted as early as
possible. On CUDA they use NCCL's stream, and a product waits only for the message that it reads.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Consume = Callable[[Tensor, int], None]
"""Callback that takes a received tensor and its source rank."""
Produce = Callable[[int, Tensor], None]
"""Callback that takes a destination rank, and the tensor into which it writes the data for that rank."""


def gather_and_consume(shard: Tensor, consume: Consume, gathered: Tensor, group: Any, keep: bool = True) -> None:
    """Call `consume` with the shard of each rank, this rank's first.

    gathered: output, the shards of all ranks. keep: True also writes this rank's shard to `gathered`.
    """
    if _has_symmetric_memory(group, shard.device):
        symmetric()._pipelined_all_gather_and_consume(shard, consume, gathered, group.group_name, keep)
    else:
        _gather_by_messages(shard, consume, gathered, group, keep)


def produce_and_scatter(produce: Produce, received: Tensor, group: Any) -> None:
    """Call `produce` for each rank, this rank last, and send the results.

    received: output, the results of all ranks for this rank, in rank order.
    """
    if _has_symmetric_memory(group, received.device):
        symmetric()._pipelined_produce_and_all2all(produce, received, group.group_name)
    else:
        _scatter_by_messages(produce, received, group)


def _gather_by_messages(shard: Tensor, consume: Consume, gathered: Tensor, group: Any, keep: bool) -> None:
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    parts = gathered.chunk(world)
    sources = [(rank + step) % world for step in range(1, world)]
    posted = [_swap(shard, 2 * rank - source, parts[source], source, group) for source in sources]
    consume(shard, rank)
    for source, works in zip(sources, posted, strict=True):
        works[-1].wait()
        consume(parts[source], source)
    if keep:
        parts[rank].copy_(shard)
    _finish([work for works in posted for work in works[:-1]])


def _scatter_by_messages(produce: Produce, received: Tensor, group: Any) -> None:
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    arriving, leaving = received.chunk(world), torch.empty_like(received).chunk(world)
    posted = []
    for step in range(1, world):
        target, source = (rank + step) % world, (rank - step) % world
        produce(target, leaving[target])
        posted += _swap(leaving[target], target, arriving[source], source, group)
    produce(rank, arriving[rank])
    _finish(posted)


def _swap(leaving: Tensor, target: int, arriving: Tensor, source: int, group: Any) -> list[Any]:
    """Post a send and a receive, and return their works. When the last work is done, `arriving` is complete."""
    sent = dist.P2POp(dist.isend, leaving, group=group, group_peer=target % dist.get_world_size(group))
    return list(dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, arriving, group=group, group_peer=source)]))


def _finish(works: list[Any]) -> None:
    for work in works:
        work.wait()


# --- symmetric memory


def symmetric() -> Any:
    """Return torch's private module with the pipelines of its fused operations, as of torch 2.13."""
    from torch.distributed import _symmetric_memory

    return _symmetric_memory


def _has_symmetric_memory(group: Any, device: torch.device) -> bool:
    return device.type == "cuda" and dist.get_world_size(group) > 1 and _all_reach_each_other(group)


@functools.cache
def _all_reach_each_other(group: Any) -> bool:
    """Return True if all ranks are on one machine and all their GPUs have peer access. All ranks get the same
    result."""
    mine = (socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.current_device())
    places: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(places, mine, group=group)
    gpus = {gpu for *_, gpu in places}
    if len({tuple(where) for *where, _ in places}) > 1 or len(gpus) < len(places):
        return False
    return all(torch.cuda.can_device_access_peer(one, other) for one in gpus for other in gpus if one != other)
