"""`all_gather_matmul` and `matmul_reduce_scatter`: products that overlap with communication.

The communicated rows are A's or C's. Each function is the backward pass of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import integer, plain_text, shown
from blackwell_matmul.ops.distributed.exchanges import gather_and_consume, produce_and_scatter
from blackwell_matmul.ops.finished import NO_TENSORS
from blackwell_matmul.ops.launching import gpu_of
from blackwell_matmul.ops.library import run
from blackwell_matmul.ops.operand_checks import How, check_tensors, checked

REDUCTIONS = ("sum", "avg")


@torch.compiler.disable
def all_gather_matmul(
    a_shard: Tensor,
    bs: Sequence[Tensor],
    gather_dim: int = 0,
    group: Any = None,
    *,
    return_a: bool = True,
    simulate: bool = False,
) -> tuple[Tensor | None, list[Tensor]]:
    """Return a and a list with a @ b for each b[k, n]; a is the a_shard[.., k] of all processes, stacked along
    gather_dim by rank.

    Shards are multiplied while others are transferred, as in torch.ops.symm_mem.fused_all_gather_matmul. gather_dim:
    any dimension but the last. group: a process group or its name; None: all processes. return_a: False returns None in
    place of a. The products have gradients; a has none.

    Raises InputError for operands that do not fit, before communication, and UnsupportedError if no kernel runs. Later
    failures are torch.distributed's errors.
    """
    check_tensors(a_shard=a_shard)
    if not isinstance(bs, (list, tuple)) or not bs:
        raise InputError(f"bs is {shown(bs)}; it must be a list of one tensor or more.")
    group = _known(group)
    for b in bs:
        _check("a_shard", a_shard, b, "gather_dim", gather_dim, simulate)
    way = _Way(int(gather_dim), group, How(simulate=simulate, alone=True))  # alone: transfers occupy no SM
    whole, *products = _GatherAndMultiply.apply(way, bool(return_a), a_shard, *bs)
    return whole, products


@torch.compiler.disable
def matmul_reduce_scatter(
    a: Tensor,
    b: Tensor,
    reduce_op: str = "sum",
    scatter_dim: int = 0,
    group: Any = None,
    *,
    simulate: bool = False,
) -> Tensor:
    """Return this process's part, along scatter_dim, of the sum of all processes' a[.., k] @ b[k, n].

    A part is transferred while the next part is multiplied, as in torch.ops.symm_mem.fused_matmul_reduce_scatter. Parts
    are added in rank order, so that results are reproducible to the bit. reduce_op: "sum" or "avg". scatter_dim: any
    dimension but the last. group: as in `all_gather_matmul`. The result has gradients.

    Raises InputError for operands that do not fit, before communication, and UnsupportedError if no kernel runs. Later
    failures are torch.distributed's errors.
    """
    check_tensors(a=a)
    if plain_text(reduce_op) not in REDUCTIONS:
        raise InputError(f"reduce_op is {shown(reduce_op)}; it must be one of {', '.join(REDUCTIONS)}.")
    group = _known(group)
    _check("a", a, b, "scatter_dim", scatter_dim, simulate)
    rows, world = a.shape[scatter_dim], dist.get_world_size(group)
    if rows % world:
        raise InputError(
            f"a has {rows} rows in dimension {scatter_dim}, which {world} processes cannot share evenly; pad it to "
            f"{-(-rows // world) * world}."
        )
    way = _Way(int(scatter_dim), group, How(simulate=simulate, alone=True))  # alone: transfers occupy no SM
    made: Tensor = _MultiplyAndScatter.apply(way, reduce_op == "avg", a, b)
    return made


# --- checks


def _known(group: Any) -> Any:
    """Return the process group for a group, its name or None; raise InputError for any other value."""
    if not dist.is_available() or not dist.is_initialized():
        raise InputError("there is no process group; call torch.distributed.init_process_group first.")
    found = dist.group.WORLD if group is None else _named(group) if isinstance(group, str) else group
    if not isinstance(found, dist.ProcessGroup):
        raise InputError(f"group is {shown(group)}; it must be a process group that this process is in, or its name.")
    return found


def _named(name: str) -> Any:
    try:
        return dist.distributed_c10d._resolve_process_group(dist.distributed_c10d.GroupName(name))
    except (RuntimeError, ValueError):
        return None


def _check(name: str, a: Tensor, b: Any, dim_name: str, dim: object, simulate: bool) -> None:
    check_tensors(b=b)
    for what, x in ((name, a), ("b", b)):
        if type(x).__name__ == "DTensor":
            raise InputError(f"{what} is a DTensor; give what this process has of it, {what}.to_local().")
    if a.dim() < 2 or b.dim() != 2:
        raise InputError(
            f"{name} has shape {tuple(a.shape)} and b {tuple(b.shape)}; they must be (.., m, k) and (k, n)."
        )
    if integer(dim, 0, a.dim() - 1) is None:
        raise InputError(f"{dim_name} is {shown(dim)}; {name} has shape {tuple(a.shape)}, so that it is 0 or more, "
                         f"and at most {a.dim() - 2}.")  # fmt: skip
    if dim == a.dim() - 1:
        raise UnsupportedError(
            f"{dim_name} is {dim}, the last of {name} with shape {tuple(a.shape)}: only rows travel here; share out "
            "another dimension, or let torch do it."
        )
    checked(a.flatten(0, -2), b, NO_TENSORS)
    gpu_of(a, simulate, "a product whose parts travel", name, "b")


# --- the two pipelines


@dataclass(frozen=True)
class _Way:
    """Dimension and group of the communication, and options of the products."""

    dim: int
    group: Any
    how: How

    @property
    def world(self) -> int:
        return dist.get_world_size(self.group)

    def rows(self, x: Tensor) -> Tensor:
        """Return x as a matrix in which each rank's part along `dim` is consecutive rows."""
        return x.movedim(self.dim, 0).flatten(0, -2)

    def shaped(self, rows: Tensor, like: Tensor) -> Tensor:
        """Return a matrix in the shape of `like`, with the matrix's own sizes along `dim` and the last dimension."""
        others = [size for at, size in enumerate(like.shape[:-1]) if at != self.dim]
        return rows.unflatten(0, (-1, *others)).movedim(0, self.dim)

    def gathered(self, shard: Tensor, bs: Sequence[Tensor], keep: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the rows of all ranks, and their products with each b."""
        part = self.rows(shard).contiguous()
        whole = part.new_empty((part.shape[0] * self.world, part.shape[1]))
        products = [part.new_empty((whole.shape[0], b.shape[1])) for b in bs]
        places = [product.chunk(self.world) for product in products]

        def consume(rows: Tensor, rank: int) -> None:
            for b, place in zip(bs, places, strict=True):
                self._multiply(rows, b, place[rank])

        gather_and_consume(part, consume, whole, self.group, keep)
        return whole, products

    def scattered(self, a: Tensor, b: Tensor, mean: bool = False) -> Tensor:
        """Return this rank's rows of the sum of all ranks' products, added in rank order."""
        parts = self.rows(a).chunk(self.world)
        received = parts[0].new_empty((self.world * parts[0].shape[0], b.shape[1]))

        def produce(rank: int, place: Tensor) -> None:
            self._multiply(parts[rank], b, place)

        produce_and_scatter(produce, received, self.group)
        stacked = received.unflatten(0, (self.world, -1))
        return stacked.mean(0) if mean else stacked.sum(0)

    def _multiply(self, rows: Tensor, b: Tensor, place: Tensor) -> None:
        """Write rows @ b into `place`. If TMA cannot address `place`, multiply into a temporary tensor and copy."""
        made = run(rows, b, how=self.how, into=place)
        if made is not place:
            place.copy_(made)


class _GatherAndMultiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, way: _Way, keep: bool, shard: Tensor, *bs: Tensor) -> tuple[Tensor | None, ...]:
        ctx.way = way
        kept = keep or any(ctx.needs_input_grad[3:])
        whole, products = way.gathered(shard, bs, kept)
        ctx.save_for_backward(whole if kept else None, *(bs if ctx.needs_input_grad[2] else ()))
        ctx.set_materialize_grads(False)
        a = way.shaped(whole, shard) if keep else None
        if a is not None:
            ctx.mark_non_differentiable(a)
        return a, *[way.shaped(product, shard) for product in products]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Return the gradient of the shard, summed over all ranks, and of each b, for this rank alone."""
        way, (whole, *bs) = ctx.way, ctx.saved_tensors
        given = [(grad, b) for grad, b in zip(grads[1:], bs) if grad is not None]  # bs is empty if a needs no gradient
        of_a = sum(way.shaped(way.scattered(grad, b.mT), grad) for grad, b in given) if given else None
        of_bs = [
            run(whole.mT, way.rows(grad), how=way.how) if needed and grad is not None else None
            for grad, needed in zip(grads[1:], ctx.needs_input_grad[3:], strict=True)
        ]
        return None, None, of_a, *of_bs


class _MultiplyAndScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, way: _Way, mean: bool, a: Tensor, b: Tensor) -> Tensor:
        ctx.way, ctx.mean = way, mean
        for_a, for_b = ctx.needs_input_grad[2:]
        ctx.save_for_backward(a if for_b else None, b if for_a else None)
        return way.shaped(way.scattered(a, b, mean), a)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Return the gradients of a and b. The gradients of all ranks are multiplied as they arrive."""
        way, (a, b) = ctx.way, ctx.saved_tensors
        of_own = grad / way.world if ctx.mean else grad
        whole, of_a = way.gathered(of_own, [] if b is None else [b.mT], keep=a is not None)
        of_b = None if a is None else run(way.rows(a).mT, whole, how=way.how)
        return None, None, None if b is None else way.shaped(of_a[0], grad), of_b
