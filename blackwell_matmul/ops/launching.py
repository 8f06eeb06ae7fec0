"""Which kernel computes a product, and its launch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.form import PLAIN, Epilogue, Form
from blackwell_matmul.gpus import Gpu
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.ops.finished import finished
from blackwell_matmul.ops.placing import is_plain, padded, readable
from blackwell_matmul.problem import DTYPE_OF_TORCH, Problem


@dataclass(frozen=True)
class Extras:
    """What a product gets besides a and b: see `form.Epilogue`."""

    bias: Tensor | None = None
    residual: Tensor | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None
    activation: str = "none"
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def none(self) -> bool:
        tensors = (self.bias, self.residual, self.scale_a, self.scale_b)
        return all(each is None for each in tensors) and self.activation == "none" and self.alpha == 1

    @property
    def form(self) -> Form:
        """What a kernel is pinned to; the rest its tensors say."""
        return _form(self.activation, self.alpha, self.beta)


@functools.cache
def _form(activation: str, alpha: float, beta: float) -> Form:
    epilogue = Epilogue(activation=activation, alpha=alpha, beta=beta)
    return PLAIN if epilogue == PLAIN.epilogue else Form(epilogue=epilogue)


NOTHING = Extras()


def product(a: Tensor, b: Tensor, gpu: Gpu, out: torch.dtype, extras: Extras = NOTHING) -> Tensor:
    """a[.., m, k] @ b[.., k, n] with what `extras` says, in a tensor of type `out`."""
    left, right = a, b.mT
    batch = () if a.dim() == b.dim() == 2 else (max(x.shape[0] for x in (a, b) if x.dim() == 3),)
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    columns = n // 2 if extras.activation == "swiglu" else n
    if 0 in (*batch, m, n):
        return a.new_empty((*batch, m, columns), dtype=out)
    if k == 0:
        return finished(a.new_zeros((*batch, m, n), dtype=torch.float32), extras).to(out)
    name = _of_forms(gpu)
    ladder = name is None or (is_plain(left) and is_plain(right))
    if ladder and not batch and extras.none and out == a.dtype:
        return _by_ladder(left, right, gpu)
    if name is None:
        raise UnsupportedError(
            f"There is no kernel for {gpu} yet that computes batches or epilogues; torch does, and matmul of matrices "
            "runs here."
        )
    kernel = _kernel(name, extras.form)
    return _by_form(kernel, readable(left), readable(right), (*batch, m, columns), n, out, extras)


def _by_ladder(left: Tensor, right: Tensor, gpu: Gpu) -> Tensor:
    """One product of matrices by the best rung that takes the shape; where they are not K-major, of copies."""
    left, right = (x if is_plain(x) else _whole(x) for x in (left, right))
    (m, k), n = left.shape, right.shape[0]
    c = left.new_empty((m, n))
    _kernel(best_rung(gpu, m, n, k, left.dtype), PLAIN)(m, n, k, left, right, c)
    return c


def _whole(x: Tensor) -> Tensor:
    """A copy with its padding, as zeros."""
    rows, k = x.shape
    made = x.new_zeros((rows, padded(k, x.element_size())))
    made[:, :k].copy_(x)
    return made


def _by_form(
    kernel: Any, left: Tensor, right: Tensor, of_c: tuple[int, ...], n: int, out: torch.dtype, extras: Extras
) -> Tensor:
    """Where rows of C are no multiples of 16 bytes they are written further apart, and copied."""
    *batch, m, columns = of_c
    line = padded(columns, out.itemsize)
    c = left.new_empty((*batch, m, line), dtype=out)[..., :columns]
    tensors = (extras.bias, extras.residual, extras.scale_a, extras.scale_b)
    flat = [0 if each is None else each.contiguous() for each in tensors]
    kernel(m, n, left.shape[-1], left, right, c, *flat, batch[0] if batch else 1)
    return c if line == columns else c.contiguous()


@functools.lru_cache(maxsize=4096)
def best_rung(gpu: Gpu, m: int, n: int, k: int, dtype: torch.dtype) -> str:
    """The first rung of the GPU's row in `LADDERS` that has a schedule for the shape; the last, if none has."""
    problem = Problem(m, n, k, DTYPE_OF_TORCH[str(dtype)])
    *better, last = _ladder(gpu)
    return next((name for name in better if _takes(name, problem, gpu)), last)


def _takes(name: str, problem: Problem, gpu: Gpu) -> bool:
    from blackwell_matmul.scheduling import rules, space

    return any(not rules.why_not(schedule, problem, gpu) for schedule in space.projection(rung(name)))


@functools.cache
def _of_forms(gpu: Gpu) -> str | None:
    """The rung of the GPU that takes any form; None where there is none."""
    return next((name for name in _ladder(gpu) if "forms" in rung(name).features), None)


@functools.cache
def _kernel(name: str, form: Form) -> Any:
    """One kernel object for each rung and epilogue: it keeps what it compiled and packed."""
    return rung(name)() if form == PLAIN else rung(name)(form=form)


def _ladder(gpu: Gpu) -> tuple[str, ...]:
    if gpu.arch in LADDERS:
        return LADDERS[gpu.arch]
    raise UnsupportedError(
        f"matmul has no kernel for {gpu} yet; it has some for {', '.join(LADDERS)}, and torch.matmul runs here."
    )
