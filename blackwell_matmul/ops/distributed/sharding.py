"""DTensor's sharding rules for products: sharded rows, columns, batches, or k with partial sums.

torch asks for the strategies of each dimension of a mesh. A strategy is an allowed placement of each tensor; torch
redistributes the tensors to one of the strategies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

Placement = Any
Row = tuple[Placement, list[Placement | None]]
"""Placement of C, and the placements of a, b, bias, residual, scale_a and scale_b."""


@torch.compiler.assume_constant_result
def register() -> None:
    """Register the rules once. torch.compile calls this function without tracing it, as tracing would fail."""
    _registered()


@functools.cache
def _registered() -> None:
    """Register the DTensor strategies of `torch.ops.blackwell_matmul.matmul` and of the operation below autograd.

    torch caches strategies by a key in which the activation is missing, although C's shape depends on the activation.
    No public API adds a keyword to the key (torch 2.13, register_sharding).
    """
    known: dict[Any, Any] = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    launch = torch.ops.blackwell_matmul.matmul_launch
    register_sharding(launch.plain)(_acceptable_without_options)
    for op in (torch.ops.blackwell_matmul.matmul.default, launch.default):
        register_sharding(op)(_acceptable)
        info = known[op]
        known[op] = replace(info, static_kwargkey=[*(info.static_kwargkey or ()), "activation"])


def _acceptable(
    a: Any,
    b: Any,
    bias: Any = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    *,
    activation: str = "none",
    **_: Any,
) -> list[tuple[list[Placement], list[Placement | None]]]:
    given = (bias, residual, scale_a, scale_b)
    rows = _rows(a, b, scale_a, activation)
    return [([c], [x, y, *[p if t is not None else None for p, t in zip(rest, given)]]) for c, (x, y, *rest) in rows]


def _acceptable_without_options(a: Any, b: Any) -> list[tuple[list[Placement], list[Placement | None]]]:
    return [(of_c, of_all[:2]) for of_c, of_all in _acceptable(a, b)]


def _rows(a: Any, b: Any, scale_a: Any, activation: str) -> Iterator[Row]:
    """Yield the allowed placements of C and of all tensors, also of absent ones."""
    here, batched = Replicate(), 3 in (len(a.shape), len(b.shape))
    last = 2 if batched else 1  # index of C's last dimension
    single = scale_a is None or torch.Size(scale_a.shape).numel() == 1
    yield here, [here] * 6
    by_row = Shard(len(a.shape) - 2)
    if len(a.shape) == last + 1:
        of_scales = (here, here) if single else (Shard(0), here)
        yield Shard(last - 1), [by_row, here, here, Shard(last - 1), *of_scales]
    whole_pairs = activation != "swiglu" or b.shape[-1] % (2 * b.mesh.size()) == 0
    if len(b.shape) == last + 1 and whole_pairs:
        of_scales = (here, here) if single else (here, _of_columns(scale_a))
        yield Shard(last), [here, Shard(last), Shard(0), Shard(last), *of_scales]
    if batched:
        sides = [Shard(0) if len(x.shape) == 3 and x.shape[0] > 1 else here for x in (a, b)]
        yield Shard(0), [*sides, here, Shard(0), here, here]
    if activation == "none" and single:
        parts = (Shard(len(a.shape) - 1), Shard(len(b.shape) - 2))
        yield Partial(), [*parts, Partial(), Partial(), here, here]


def _of_columns(scale_a: Any) -> Placement:
    """Return the placement of scale_b for sharded columns: scale_b is [n], or [1, n] if scale_a is [m, 1]."""
    return Shard(len(scale_a.shape) - 1)
