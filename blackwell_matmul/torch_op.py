"""`matmul(a, b)`, an operation of torch: a @ b through the best rung of the ladder for the GPU and the shape.

The kernels read K-major operands: rows of A[m, k] and of B[n, k], each one contiguous run along k. `b` is given as
torch gives it, with shape (k, n); `w.T` of a weight w[n, k] is K-major already.

| operand | strides | what happens |
|---|---|---|
| a, shape (m, k) | (k, 1) | read as it is |
| b, shape (k, n) | (1, k), such as `w.T` | read as it is |
| either | any others, such as a row-major b | one copy into K-major order |
| either | k or the address no multiple of 8 elements | one copy, rows padded with zeros to a multiple of 8 |

`copies(a, b)` tells in words which copies a call would make.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.errors import InputError, UnsupportedError
from blackwell_matmul.frontend.bind import DEFAULT_TARGET
from blackwell_matmul.gpus import Gpu, gpu_for_target
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.problem import DTYPE_OF_TORCH, Problem
from blackwell_matmul.validation import shown

K_MULTIPLE = 8
"""Rows of 16-bit elements have to be multiples of 16 bytes for TMA."""

ALIGNMENT_BYTES = 16

_library = torch.library.Library("blackwell_matmul", "DEF")
_library.define("matmul(Tensor a, Tensor b, *, bool simulate=False) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])


def matmul(a: Tensor, b: Tensor, *, simulate: bool = False) -> Tensor:
    """a[m, k] @ b[k, n] for matrices of float16 or bfloat16, accumulated in float32.

    CUDA tensors run on their GPU. CPU tensors are refused, unless simulate is true: then the simulator runs the kernel
    as on a B200. Works with autograd, with torch.compile and in a captured CUDA graph.
    """
    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} is {shown(value)}; matmul takes two tensors.")
    return torch.ops.blackwell_matmul.matmul.default(a, b, simulate=simulate)


def copies(a: Tensor, b: Tensor) -> list[str]:
    """The copies that `matmul(a, b)` makes before its kernel, one sentence each; empty if it reads both as they are."""
    _check(a, b)
    return [sentence for name, x in (("a", a), ("b", b.T)) if (sentence := _why_copied(name, x))]


# --- what is accepted


def _check(a: Tensor, b: Tensor) -> None:
    for name, x, shape in (("a", a, "(m, k)"), ("b", b, "(k, n)")):
        if x.dim() != 2:
            raise InputError(
                f"{name} has shape {tuple(x.shape)}; it must be a matrix {shape}; flatten(0, -2) makes one."
            )
        if x.dtype not in (torch.float16, torch.bfloat16):
            raise InputError(f"{name} is {x.dtype}; matmul takes torch.float16 and torch.bfloat16.")
    if a.shape[1] != b.shape[0]:
        raise InputError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; a has as many columns as b has rows.")
    if a.dtype != b.dtype or a.device != b.device:
        raise InputError(f"a is {a.dtype} on {a.device} and b is {b.dtype} on {b.device}; both must be alike.")


# --- K-major operands


def _k_major(x: Tensor) -> Tensor:
    """A matrix (rows, k) as the kernels read it: x itself, or one copy with rows padded by zeros."""
    if not _is_copied(x):
        return x
    rows, k = x.shape
    padded = _padded(k)
    made = x.new_empty((rows, padded))
    made[:, :k].copy_(x)
    made[:, k:].zero_()
    return made


def _is_copied(x: Tensor) -> bool:
    """Not for a contiguous matrix with whole rows at an aligned address."""
    return not x.is_contiguous() or x.shape[1] % K_MULTIPLE != 0 or x.data_ptr() % ALIGNMENT_BYTES != 0


def _padded(k: int) -> int:
    return -(-k // K_MULTIPLE) * K_MULTIPLE


def _why_copied(name: str, x: Tensor) -> str | None:
    """The reasons, for a matrix (rows, k); b is described as it was given, (k, rows)."""
    shape, strides = (tuple(x.shape), x.stride()) if name == "a" else (tuple(x.T.shape), x.T.stride())
    nbytes = x.shape[0] * _padded(x.shape[1]) * x.element_size()
    reasons = list(_copy_reasons(x))
    if not reasons:
        return None
    return f"{name} with shape {shape} and strides {strides} is copied ({nbytes} bytes): {' and '.join(reasons)}."


def _copy_reasons(x: Tensor) -> Iterator[str]:
    if not x.is_contiguous():
        yield "it is not contiguous along k"
    if x.shape[1] % K_MULTIPLE:
        yield f"k = {x.shape[1]} is no multiple of {K_MULTIPLE}"
    if x.data_ptr() % ALIGNMENT_BYTES:
        yield f"it does not start at a multiple of {ALIGNMENT_BYTES} bytes"


# --- the kernels


def _run(a: Tensor, b: Tensor, gpu: Gpu) -> Tensor:
    """c = a @ b by the best rung that takes the shape."""
    (m, k), n = a.shape, b.shape[1]
    if 0 in (m, n, k):
        return a.new_zeros((m, n))
    left, right, c = _k_major(a), _k_major(b.T), a.new_empty((m, n))
    k = left.shape[1]
    _kernel(_rung(gpu, m, n, k, a.dtype))(m, n, k, left, right, c)
    return c


@functools.lru_cache(maxsize=4096)
def _rung(gpu: Gpu, m: int, n: int, k: int, dtype: torch.dtype) -> str:
    """The first rung of the GPU's row in `LADDERS` that has a schedule for the shape; the last, if none has."""
    problem = Problem(m, n, k, DTYPE_OF_TORCH[str(dtype)])
    *better, last = _ladder(gpu)
    return next((name for name in better if _takes(name, problem, gpu)), last)


def _takes(name: str, problem: Problem, gpu: Gpu) -> bool:
    from blackwell_matmul.scheduling import rules, space

    return any(not rules.why_not(schedule, problem, gpu) for schedule in space.projection(rung(name)))


@functools.cache
def _kernel(name: str) -> Any:
    """One kernel object for each rung: it keeps what it compiled and packed."""
    return rung(name)()


def _ladder(gpu: Gpu) -> tuple[str, ...]:
    if gpu.arch in LADDERS:
        return LADDERS[gpu.arch]
    raise UnsupportedError(
        f"matmul has no kernel for {gpu} yet; it has some for {', '.join(LADDERS)}, and torch.matmul runs here."
    )


# --- what torch is told


def _eager(a: Tensor, b: Tensor, *, simulate: bool = False) -> Tensor:
    _check(a, b)
    if simulate:
        return _simulated(a, b)
    if not a.is_cuda:
        raise UnsupportedError(
            f"matmul got tensors on {a.device}; it runs CUDA tensors, and simulates CPU tensors with simulate=True."
        )
    from blackwell_matmul.runtime.device import gpu_at

    return _run(a, b, gpu_at(a.get_device()))


def _simulated(a: Tensor, b: Tensor) -> Tensor:
    if a.device.type != "cpu":
        raise InputError(f"a and b are on {a.device}; simulate=True takes CPU tensors, such as a.cpu().")
    return _run(a.detach(), b.detach(), gpu_for_target(DEFAULT_TARGET))


def _fake(a: Tensor, b: Tensor, *, simulate: bool = False) -> Tensor:
    _check(a, b)
    return a.new_empty((a.shape[0], b.shape[1]))


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], keyword_only_inputs: Any, output: Tensor) -> None:
    a, b = inputs
    ctx.save_for_backward(a if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None)
    ctx.simulate = keyword_only_inputs["simulate"]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Both gradients are products by the same operation; `copies` tells what is transposed for them."""
    a, b = ctx.saved_tensors
    grad_a = None if b is None else matmul(grad, b.T, simulate=ctx.simulate)
    grad_b = None if a is None else matmul(a.T, grad, simulate=ctx.simulate)
    return grad_a, grad_b


_library.impl("matmul", _eager, "CompositeExplicitAutograd")
torch.library.register_fake("blackwell_matmul::matmul", _fake, lib=_library)
torch.library.register_autograd("blackwell_matmul::matmul", _backward, setup_context=_setup_context, lib=_library)
