"""`grouped_matmul`: products of a mixture of experts, one launch for all groups, called as torch's grouped_mm.

The host never reads offs, so that a CUDA graph can capture a call. Gradients are two more grouped products.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels.host.forms import why_unreadable
from blackwell_matmul.kernels.host.grouped import why_no_rows
from blackwell_matmul.ops.counting import tell_counters
from blackwell_matmul.ops.direct import bypasses_dispatch, wants_gradient
from blackwell_matmul.ops.functions import bmm
from blackwell_matmul.ops.gradients import OperandLayout
from blackwell_matmul.ops.launching import Ready, gpu_of, kind_of
from blackwell_matmul.ops.operand_checks import (
    GROUPED,
    check_columns,
    check_dense,
    check_dispatched,
    check_ends,
    check_grouped_options,
    check_without_offs,
    grouped_shape,
    taken,
)
from blackwell_matmul.ops.placing import Copy, across, k_major, packed, padded
from blackwell_matmul.ops.ready import Call, again, keep, launched
from blackwell_matmul.ops.two_levels import define
from blackwell_matmul.problem.form import check_flag
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.runtime.recent import Recent

FAMILIES = {"sm_100a": "Blackwell", "sm_103a": "Blackwell", "sm_90a": "Hopper"}
"""Kernel family by architecture."""


def grouped_matmul(
    mat_a: Tensor,
    mat_b: Tensor,
    offs: Tensor | None = None,
    bias: None = None,
    out_dtype: torch.dtype | None = None,
    *,
    simulate: bool = False,
) -> Tensor:
    """Return mat_a[rows of group g, k] @ mat_b[g, k, n] for each group g, stacked by rows, as torch's grouped_mm.

    mat_a: [m, k], float16 or bfloat16, sorted by group. mat_b: [groups, k, n], also as a transposed view. offs: int32,
    ascending ends of the groups' rows; a group may be empty. Rows after the last end are zeros.

    A mat_b[k, n] of two dimensions groups k: the result is [groups, m, n], mat_a[m, k of group g] @ mat_b[k of group
    g, n], zeros for an empty group. A mat_a[groups, m, k] and a mat_b[k, n] group the columns of mat_b: the result is
    [m, n], copied once, as the kernel writes its transpose. Two operands of three dimensions, without offs, are
    multiplied by `bmm`. bias: None, as in torch. out_dtype: None, or mat_a's type.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    if simulate is not False:
        check_flag("simulate", simulate)
    call = None
    if bias is out_dtype is None:
        made, call = launched("grouped_matmul", (mat_a, mat_b, offs), (simulate,))
        if made is not None:
            return made
    plain = bypasses_dispatch((mat_a, mat_b), (offs,))
    if not plain:
        needed, rest = {"mat_a": mat_a, "mat_b": mat_b}, {"bias": bias, "out_dtype": out_dtype, "simulate": simulate}
        if (node := taken(grouped_matmul, needed, {"offs": offs}, **rest)) is not None:
            return node
    check_grouped_options(bias, out_dtype, mat_a)
    if offs is None:
        check_without_offs(mat_a, mat_b)
        return bmm(mat_a, mat_b, simulate=simulate)
    if mat_a.dim() == 3 and mat_b.dim() == 2:
        check_columns(mat_a, mat_b, offs)
        return grouped_matmul(mat_b.mT, mat_a.mT, offs, simulate=simulate).mT.contiguous()
    return _product_of_groups(mat_a, mat_b, offs, call, plain=plain, simulate=simulate)


def _product_of_groups(x: Tensor, w: Tensor, offs: Tensor, call: Call | None, *, plain: bool, simulate: bool) -> Tensor:
    """Return the grouped product of rows or of k, with gradients if needed, as `library.product` does."""
    multiply = functools.partial(run, call=call)
    if plain and not wants_gradient((x, w)):
        return multiply(x, w, offs, simulate)
    if plain:
        made: Tensor = ProductOfGroups.apply(multiply, grouped_matmul, {"simulate": simulate}, x, w, offs)
        return made
    check_dispatched((x, w, offs), GROUPED)
    tell_counters()
    made = torch.ops.blackwell_matmul.grouped_matmul.default(x, w, offs, simulate=simulate)
    return made


class ProductOfGroups(torch.autograd.Function):
    """Autograd function of multiply(x, w, offs, **rest). again: function that multiplies in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        multiply: Callable[..., Tensor],
        again: Callable[..., Tensor],
        rest: dict[str, Any],
        x: Tensor,
        w: Tensor,
        offs: Tensor,
    ) -> Tensor:
        made = multiply(x, w, offs, **rest)
        ctx.again, ctx.rest, ctx.layout = again, rest, OperandLayout.of(w)
        for_x, for_w = ctx.needs_input_grad[3:5]
        ctx.save_for_backward(x if for_w else None, w if for_x else None, offs)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, w, offs = ctx.saved_tensors
        multiply = functools.partial(ctx.again, **ctx.rest)
        of_x = None if w is None else _of_x(grad, w, offs, multiply)
        of_w = None if x is None else _of_w(grad, x, ctx.layout, offs, multiply)
        return None, None, None, of_x, of_w, None


def _of_x(grad: Tensor, w: Tensor, offs: Tensor, multiply: Callable[..., Tensor]) -> Tensor:
    """Return x's gradient, a product with groups of rows."""
    return multiply(grad, w.mT, offs) if w.dim() == 3 else multiply(w, grad.mT, offs).mT


def _of_w(grad: Tensor, x: Tensor, w: OperandLayout, offs: Tensor, multiply: Callable[..., Tensor]) -> Tensor:
    """Return w's gradient, in the memory layout of w. The gradient of a product with groups of rows has groups of k;
    the reverse holds, too."""
    turned = len(w.shape) == 3 and w.across
    return multiply(grad.mT, x, offs).mT if turned else multiply(x.mT, grad, offs)


def run(x: Tensor, w: Tensor, offs: Tensor, simulate: bool = False, call: Call | None = None) -> Tensor:
    """Return the product without gradients. Calls with equal shapes, strides and types share a plan.

    call: the caller's `Call`. Later calls of its kind need no checks.
    """
    if call is not None and (made := again(call.kind, call.addresses)) is not None:
        return made
    key = (*kind_of(x), *kind_of(w), *kind_of(offs), simulate)
    plan = _plans.made(key, _planned, x, w, offs, simulate)
    if simulate:
        check_ends(offs, x.shape[1] if w.dim() == 2 else x.shape[0])
        x, w = x.detach(), w.detach()
    if not isinstance(plan, GroupedPlan):
        return x.new_zeros(plan)
    made = plan(x, w, offs)
    if call is not None:
        keep(call, plan.ready(x, offs))
    return made


@dataclass(frozen=True, eq=False)
class GroupedPlan:
    """Function that computes a grouped product of operands with fixed shapes and strides, for any ends of groups.

    sizes: m, n, k and the number of groups, as the kernel takes them. shape: shape of C in memory; the first n columns
    are the result. turns: True if the kernel takes x transposed.
    """

    launches: Launches
    sizes: tuple[int, int, int, int]
    copy_x: Copy | None
    copy_w: Copy | None
    shape: tuple[int, ...]
    turns: bool

    def __call__(self, x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
        x = x if self.copy_x is None else self.copy_x(x)
        w = w if self.copy_w is None else self.copy_w(w)
        c, n, ends = x.new_empty(self.shape), self.sizes[1], offs.contiguous()
        c = c if self.shape[-1] == n else c[..., :n]
        self.launches((x, w, ends, c), lambda: (*self.sizes, x.mT if self.turns else x, w, ends, c))
        return packed(c)

    def ready(self, x: Tensor, offs: Tensor) -> Ready | None:
        """Return the launches for later calls of a kind; None if a tensor is copied, or simulated."""
        copied = self.copy_x is not None or self.copy_w is not None or self.shape[-1] != self.sizes[1]
        if copied or self.launches.device < 0 or not offs.is_contiguous():
            return None
        return Ready(self.launches, self.shape, x.dtype, 3)


KEPT_GROUPED_PLANS = 1024
_plans: Recent[tuple[Any, ...], GroupedPlan | tuple[int, ...]] = Recent(KEPT_GROUPED_PLANS)
"""Plans by the properties of the tensors. A product without elements has the shape of its zeros in place of a plan."""


def _planned(x: Tensor, w: Tensor, offs: Tensor, simulate: bool) -> GroupedPlan | tuple[int, ...]:
    shape = grouped_shape(x, w, offs)
    gpu = gpu_of(x, simulate, *GROUPED[:2])
    if 0 in shape or x.shape[1] == 0 or offs.shape[0] == 0:
        return shape
    return _product(x, w, offs, shape, gpu) if w.dim() == 3 else _sums(x, w, offs, shape, gpu)


def _product(x: Tensor, w: Tensor, offs: Tensor, shape: tuple[int, ...], gpu: Gpu) -> GroupedPlan:
    launches = Launches(_kernel(gpu, "GroupedMatmul"), x.get_device())
    copies = (k_major if why_no_rows(x) else None), (across if why_unreadable(w.mT) else None)
    m, n = shape
    return GroupedPlan(launches, (m, n, x.shape[1], offs.shape[0]), *copies, shape, turns=False)


def _sums(x: Tensor, w: Tensor, offs: Tensor, shape: tuple[int, ...], gpu: Gpu) -> GroupedPlan:
    """Return the plan of a product with groups of k. C's rows are padded to multiples of 16 bytes; C is then copied."""
    launches = Launches(_kernel(gpu, "GroupedGradient"), x.get_device())
    copies = (across if why_no_rows(x.mT) else None), (k_major if why_no_rows(w) else None)
    groups, k, n = shape
    written = (groups, k, padded(n, x.element_size()))
    return GroupedPlan(launches, (x.shape[1], n, k, groups), *copies, written, turns=True)


@functools.cache
def _kernel(gpu: Gpu, name: str) -> Any:
    """Return the kernel object for a GPU and name. The object caches its compiled code and packed arguments."""
    if gpu.arch not in FAMILIES:
        raise UnsupportedError(
            f"grouped_matmul has no kernel for {gpu} yet; it has some for {', '.join(FAMILIES)}, and matmul of the "
            "rows of a group runs here."
        )
    family = FAMILIES[gpu.arch]
    file = family.lower() + ("_gradient" if name == "GroupedGradient" else "")
    module = importlib.import_module(f"blackwell_matmul.kernels.experts.{file}")
    return getattr(module, family + name)()


# --- torch's operation


def _fake(x: Tensor, w: Tensor, offs: Tensor, *, simulate: bool = False) -> Tensor:
    for name, each in (("mat_a", x), ("mat_b", w), ("offs", offs)):
        check_dense(name, each)
    return x.new_empty(grouped_shape(x, w, offs))


_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
GROUPED_SCHEMA = "Tensor x, Tensor w, Tensor offs, *, bool simulate=False"
define(_library, "grouped_matmul", GROUPED_SCHEMA, run, _fake, ProductOfGroups.apply)
