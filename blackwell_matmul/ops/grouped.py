"""`grouped_matmul`: the products of a mixture of experts, one launch for all groups, as torch's operation.

The host never reads offs, so that a call can be captured in a CUDA graph. Gradients are two grouped products more.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.errors import InputError, UnsupportedError
from blackwell_matmul.gpus import Gpu
from blackwell_matmul.kernels.group_calls import check_types, why_no_rows
from blackwell_matmul.ops.launching import gpu_of
from blackwell_matmul.ops.library import setup_context
from blackwell_matmul.ops.operand_checks import check_derivatives, check_fakes, check_simulate, check_tensors
from blackwell_matmul.ops.placing import k_major, padded, readable

FAMILIES = {"sm_100a": "Blackwell", "sm_103a": "Blackwell", "sm_90a": "Hopper"}
"""Whose kernels run, by architecture."""

_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
_library.define(
    "grouped_matmul(Tensor x, Tensor w, Tensor offs, *, bool simulate=False) -> Tensor",
    tags=[torch.Tag.pt2_compliant_tag],
)


def grouped_matmul(x: Tensor, w: Tensor, offs: Tensor, *, simulate: bool = False) -> Tensor:
    """x[rows of group g, k] @ w[g, k, n] for each group g, one below the other, as torch._grouped_mm.

    x: [m, k], float16 or bfloat16, its rows by group. w: [groups, k, n], also as a transposed view. offs: int32, where
    the rows of each group end, the ends ascending; a group may be empty. Rows after the last end are zeros.

    With a w of two dimensions the sums are grouped: x[k, rows of group g] @ w[rows of group g, n] is [g, k, n]; that of
    an empty group is zeros.

    Raises InputError for what does not fit, UnsupportedError where no kernel runs.
    """
    check_tensors(x=x, w=w, offs=offs)
    check_simulate(simulate)
    check_fakes((x, w, offs))
    check_derivatives("grouped_matmul", (x, w, offs))
    made: Tensor = torch.ops.blackwell_matmul.grouped_matmul.default(x, w, offs, simulate=simulate)
    return made


def shape_of(x: Tensor, w: Tensor, offs: Tensor) -> tuple[int, ...]:
    """Of the result; InputError for what is no grouped product."""
    if x.dim() != 2 or w.dim() not in (2, 3) or offs.dim() != 1:
        raise InputError(
            f"x, w and offs have shapes {tuple(x.shape)}, {tuple(w.shape)} and {tuple(offs.shape)}; they must be "
            "(m, k), (groups, k, n) and (groups,), or (k, m), (m, n) and (groups,)."
        )
    if x.shape[1] != w.shape[-2]:
        raise InputError(f"x has shape {tuple(x.shape)} and w {tuple(w.shape)}; x has as many columns as w has rows.")
    if w.dim() == 3 and w.shape[0] != offs.shape[0]:
        raise InputError(f"w has {w.shape[0]} groups and offs {offs.shape[0]} ends; each group has one.")
    if not x.device == w.device == offs.device:
        raise InputError(f"x is on {x.device}, w on {w.device} and offs on {offs.device}; all must be on one device.")
    check_types(x, w, offs)
    outer = (x.shape[0],) if w.dim() == 3 else (offs.shape[0], x.shape[0])
    return *outer, w.shape[-1]


def _check_ends(offs: Tensor, rows: int) -> None:
    """Where they are known; on a GPU nobody waits to look at them."""
    ends = [0, *offs.tolist(), rows]
    if any(end < before for before, end in itertools.pairwise(ends)):
        raise InputError(f"offs is {offs.tolist()} for {rows} rows; the ends ascend from 0 to {rows} at most.")


def run(x: Tensor, w: Tensor, offs: Tensor, simulate: bool = False) -> Tensor:
    """Without gradients."""
    shape = shape_of(x, w, offs)
    gpu = gpu_of(x, simulate, "grouped_matmul", "x")
    if simulate:
        _check_ends(offs, x.shape[1] if w.dim() == 2 else x.shape[0])
    if 0 in shape or x.shape[1] == 0 or offs.shape[0] == 0:
        return x.new_zeros(shape)
    x, w, offs = x.detach(), w.detach(), offs.contiguous()
    return _product(x, w, offs, gpu) if w.dim() == 3 else _sums(x.mT, w, offs, gpu)


def _product(x: Tensor, w: Tensor, offs: Tensor, gpu: Gpu) -> Tensor:
    (m, k), (groups, _, n) = x.shape, w.shape
    c = x.new_empty((m, n))
    _kernel(gpu, "grouped", "GroupedMatmul")(m, n, k, groups, _by_rows(x), readable(w.mT).mT, offs, c)
    return c


def _sums(x: Tensor, y: Tensor, offs: Tensor, gpu: Gpu) -> Tensor:
    """x[m, k], y[m, n]. Where rows of C are no multiples of 16 bytes they are written further apart, and copied."""
    (m, k), n, groups = x.shape, y.shape[1], offs.shape[0]
    c = x.new_empty((groups, k, padded(n, x.element_size())))[..., :n]
    _kernel(gpu, "group_sums", "GroupSums")(m, n, k, groups, _by_rows(x), _by_rows(y), offs, c)
    return c.contiguous()


def _by_rows(x: Tensor) -> Tensor:
    """x itself, or a copy of which the rows of a group can be read."""
    return k_major(x) if why_no_rows(x) else x


@functools.cache
def _kernel(gpu: Gpu, file: str, name: str) -> Any:
    """One kernel object of each: it keeps what it compiled and packed."""
    if gpu.arch not in FAMILIES:
        raise UnsupportedError(
            f"grouped_matmul has no kernel for {gpu} yet; it has some for {', '.join(FAMILIES)}, and matmul of the "
            "rows of a group runs here."
        )
    family = FAMILIES[gpu.arch]
    module = importlib.import_module(f"blackwell_matmul.kernels.{family.lower()}.{file}")
    return getattr(module, family + name)()


# --- what torch is told


def _fake(x: Tensor, w: Tensor, offs: Tensor, *, simulate: bool = False) -> Tensor:
    return x.new_empty(shape_of(x, w, offs))


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Of a product the gradient of w is one of sums, and of sums that of x and of w are products."""
    x, w, offs = ctx.saved_tensors
    multiply = functools.partial(torch.ops.blackwell_matmul.grouped_matmul, **ctx.rest)
    of_x = of_w = None
    if ctx.needs_input_grad[0]:
        of_x = multiply(grad, w.mT, offs) if w.dim() == 3 else multiply(w, grad.mT, offs).mT
    if ctx.needs_input_grad[1]:
        of_w = multiply(x.mT, grad, offs)
    return of_x, of_w, None


_library.impl("grouped_matmul", run, "CompositeExplicitAutograd")
torch.library.register_fake("blackwell_matmul::grouped_matmul", _fake, lib=_library)
torch.library.register_autograd(
    "blackwell_matmul::grouped_matmul", _backward, setup_context=setup_context, lib=_library
)
