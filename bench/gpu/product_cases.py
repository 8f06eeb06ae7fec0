"""What `products.py` compares: calls of ours and of torch's on the same tensors, of one size and of language models."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

import blackwell_matmul as ours
from blackwell_matmul.harness.bench.suites import LAYERS

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """Two calls that compute the same. backward: whether they take gradients, too. kind: what it has a mean with."""

    name: str
    ours: Callable[[], Any]
    torchs: Callable[[], Any]
    backward: bool = False
    kind: str = ""


class Swiglu(torch.nn.Module):
    """down(silu(gate) * up), with torch's linear or with ours."""

    def __init__(self, width: int, inner: int, linear: Callable[..., Tensor], **where: Any) -> None:
        super().__init__()
        self.linear = linear
        self.gate, self.up, self.down = (
            torch.nn.Parameter(torch.randn(shape, **where) / shape[1] ** 0.5)
            for shape in ((inner, width), (inner, width), (width, inner))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(functional.silu(self.linear(x, self.gate)) * self.linear(x, self.up), self.down)


def cases(size: int, device: str) -> Iterator[Case]:
    """size: 4096 on a GPU; a small one in the simulator."""
    more = {"simulate": True} if device == "cpu" else {}
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    m = n = k = size
    x, w, y, bias = (torch.randn(shape, **where) for shape in ((m, k), (n, k), (k, n), (n,)))
    tall = torch.randn(k, m, **where).T
    for name, a, b in _layouts(x, w, y, tall):
        yield Case(f"matmul {name}", partial(ours.matmul, a, b, **more), partial(torch.matmul, a, b))
    yield Case("linear bias", lambda: ours.linear(x, w, bias, **more), lambda: functional.linear(x, w, bias))
    for activation in ("relu", "gelu", "silu"):
        eager = partial(_eager, getattr(functional, activation), x, w, bias)
        yield Case(f"linear bias {activation}", partial(ours.linear, x, w, bias, activation, **more), eager)
    kept = torch.randn(m, n, **where)
    yield Case("addmm", lambda: ours.linear(x, w, residual=kept, **more), lambda: torch.addmm(kept, x, w.T))
    batches = torch.randn(16, m // 4, k // 4, **where), torch.randn(16, k // 4, n // 4, **where)
    yield Case("bmm of 16", lambda: ours.bmm(*batches, **more), lambda: torch.bmm(*batches))
    yield from _eight_bits(x, w, more)
    yield from _groups(size, where, more)
    yield from _mlp(size, where, more)


def _layouts(x: Tensor, w: Tensor, y: Tensor, tall: Tensor) -> tuple[tuple[str, Tensor, Tensor], ...]:
    """x[m, k], w[n, k] and y[k, n] are contiguous, and tall[m, k] along m."""
    return ("TN", x, w.T), ("NN", x, y), ("TT", tall, w.T), ("NT", tall, y)


def _eight_bits(x: Tensor, w: Tensor, more: dict[str, Any]) -> Iterator[Case]:
    a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn).T
    one = torch.ones((), device=x.device)
    rows = torch.rand(x.shape[0], 1, device=x.device), torch.rand(1, w.shape[0], device=x.device)
    for (name, scales), fast in itertools.product((("tensor", (one, one)), ("rowwise", rows)), (False, True)):
        how = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
        mine, torchs = (
            partial(ours.scaled_mm, a, b, *scales, **how, **more),
            partial(torch._scaled_mm, a, b, *scales, **how),
        )
        yield Case(f"scaled_mm {name}{', use_fast_accum' if fast else ''}", mine, torchs)


def _groups(size: int, where: dict[str, Any], more: dict[str, Any]) -> Iterator[Case]:
    rows = size // 8
    x, w = torch.randn(8 * rows, size, **where), torch.randn(8, size, size, **where)
    ends = torch.arange(1, 9, device=where["device"], dtype=torch.int32) * rows
    yield Case(
        "grouped of 8",
        lambda: ours.grouped_matmul(x, w.mT, ends, **more),
        lambda: torch._grouped_mm(x, w.mT, offs=ends),
    )


def _mlp(size: int, where: dict[str, Any], more: dict[str, Any]) -> Iterator[Case]:
    """As in a model of 7 thousand million parameters, at 4096."""
    mine = Swiglu(size, size * 43 // 16, lambda x, w: ours.linear(x, w, **more), **where)
    theirs = Swiglu(size, size * 43 // 16, functional.linear, **where)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(size, size, **where)

    def forward(model: torch.nn.Module) -> Tensor:
        with torch.no_grad():
            return model(x)

    def both(model: torch.nn.Module) -> Tensor:
        model.zero_grad()
        out = model(x)
        out.backward(x)
        return model.gate.grad

    yield Case("SwiGLU forward", lambda: forward(mine), lambda: forward(theirs))
    yield Case("SwiGLU with backward", lambda: both(mine), lambda: both(theirs), backward=True)


ROWS = 4096
"""Tokens of a batch."""

MODELS = ("Llama 3 8B", "Qwen2.5 7B")
BATCHED = (
    (32, 4096, 4096, 128), (32, 4096, 128, 4096), (128, 512, 512, 128), (128, 512, 128, 512), (64, 2048, 2048, 64),
    (16, 1024, 1024, 1024), (8, 4096, 1024, 4096),
)  # fmt: skip
"""Batches, M, N, K: scores and values of heads of 128, the two of latent attention's heads, scores of heads of 64, and
larger ones."""

EXPERTS = ((8, 28672, 4096), (8, 4096, 14336), (128, 1536, 2048), (128, 2048, 768), (32, 4096, 7168), (32, 7168, 2048))
"""How many, N, K: of Mixtral 8x7B, Qwen3 30B A3B, and a part of DeepSeek V3's, gate and up at once, and down."""

EIGHT_TIMES = 8
"""As many rows as tokens, for each goes to several experts."""


def llm(device: str, small: int = 1) -> Iterator[Case]:
    """small: what sizes are divided by, in the simulator."""
    more = {"simulate": True} if device == "cpu" else {}
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    for layer in (each for each in LAYERS if each.model in MODELS):
        m, n, k = ROWS // small, layer.n // small, layer.k // small
        yield from _layer(f"{m}x{n}x{k}", m, n, k, where, more)
    for batches, m, n, k in BATCHED:
        a, b = (torch.randn(-(-batches // small), *shape, **where) for shape in ((m // small, k), (k, n // small)))
        name = f"{batches} of {m}x{n}x{k}"
        yield Case(name, partial(ours.bmm, a, b, **more), partial(torch.bmm, a, b), kind="bmm")
    for experts, n, k in EXPERTS:
        yield _ragged(-(-experts // small), n // small, k // small, EIGHT_TIMES * ROWS // small, where, more)


ODD = ((50257, 768), (50257, 1600), (32003, 4096), (4100, 4096), (4100, 4100), (1001, 2048), (999, 776), (10, 4096))
"""N, K: rows of C begin anywhere. GPT-2's vocabulary, classes of images, and others."""

ODD_ROWS = (1, 16, 64, 512, 4096)

ODD_K = ((256, 511), (4096, 4095), (768, 50257), (8192, 1001))
"""N, K: rows of both operands begin anywhere."""

ODD_BATCHES = ((8, 64, 63, 64), (256, 129, 255, 64), (64, 129, 129, 129), (16, 511, 513, 64))
"""Batches, M, N, K."""


def odd(device: str, small: int = 1) -> Iterator[Case]:
    """Yield products with rows of C, or of an operand, that TMA does not address."""
    more = {"simulate": True} if device == "cpu" else {}
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    for (n, k), m in itertools.product(ODD, ODD_ROWS):
        m, n, k = -(-m // small), n // small | 1, k // small
        x, w, bias = (torch.randn(shape, **where) for shape in ((m, k), (n, k), (n,)))
        name = f"{m}x{n}x{k}"
        yield Case(name, partial(ours.matmul, x, w.T, **more), partial(torch.matmul, x, w.T), kind="matmul")
        linear = partial(ours.linear, x, w, bias, **more)
        yield Case(name, linear, partial(functional.linear, x, w, bias), kind="bias")
        w = w.T.contiguous()
        yield Case(name, partial(ours.matmul, x, w, **more), partial(torch.matmul, x, w), kind="matmul, w[k, n]")
    for (n, k), m in itertools.product(ODD_K, ODD_ROWS):
        m, n, k = -(-m // small), n // small, k // small | 1
        x, w = (torch.randn(shape, **where) for shape in ((m, k), (n, k)))
        name = f"{m}x{n}x{k}"
        yield Case(name, partial(ours.matmul, x, w.T, **more), partial(torch.matmul, x, w.T), kind="matmul, odd K")
    for batches, m, n, k in ODD_BATCHES:
        m, n, k = -(-m // small), n // small | 1, k // small
        x, w = (torch.randn(batches, *shape, **where) for shape in ((m, k), (k, n)))
        yield Case(f"{batches}x{m}x{n}x{k}", partial(ours.bmm, x, w, **more), partial(torch.bmm, x, w), kind="bmm")


def _layer(name: str, m: int, n: int, k: int, where: dict[str, Any], more: dict[str, Any]) -> Iterator[Case]:
    """x @ w.T in each layout, with what follows a linear layer, and of 8 bits."""
    x, w, bias = (torch.randn(shape, **where) for shape in ((m, k), (n, k), (n,)))
    for layout, a, b in _layouts(x, w, w.T.contiguous(), x.T.contiguous().T):
        yield Case(name, partial(ours.matmul, a, b, **more), partial(torch.matmul, a, b), kind=f"matmul {layout}")
    linear = partial(ours.linear, x, w, bias, **more)
    yield Case(name, linear, partial(functional.linear, x, w, bias), kind="bias")
    for activation, gelu in (("gelu_tanh", True), ("relu", False)):
        fused = partial(torch._addmm_activation, bias, x, w.T, use_gelu=gelu)
        yield Case(name, partial(linear, activation), fused, kind=f"bias and {activation}, cuBLASLt's fused")
    for activation in ("gelu", "silu"):
        eager = partial(_eager, getattr(functional, activation), x, w, bias)
        yield Case(name, partial(linear, activation), eager, kind=f"bias and {activation}, eager")
    yield from (replace(case, name=name, kind=case.name) for case in _eight_bits(x, w, more))


def _eager(activation: Activation, x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return activation(functional.linear(x, w, bias))


def _ragged(experts: int, n: int, k: int, rows: int, where: dict[str, Any], more: dict[str, Any]) -> Case:
    x, w = torch.randn(rows, k, **where), torch.randn(experts, n, k, **where)
    shares = torch.rand(experts, generator=torch.Generator().manual_seed(experts)) + 0.5
    ends = (shares.cumsum(0) / shares.sum() * rows).round().to(torch.int32).to(where["device"])
    mine, torchs = partial(ours.grouped_matmul, **more), partial(torch._grouped_mm, offs=ends)
    name = f"{experts} of {n}x{k}, {rows} rows"
    return Case(name, partial(mine, x, w.mT, ends), partial(torchs, x, w.mT), kind="grouped, ragged")
