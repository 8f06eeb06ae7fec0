"""What each case must compute: in float64, and as torch does it in the case's own types.

A reference takes the tensors as they were before the launch, by name, and gives `Expected` for each tensor that the
kernel writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Expected:
    """exact: in float64; own: torch's own result, in fp32 where the kernel accumulates so; both before the rounding to
    the output's type. noise: what summing in fp32 may cost each element.
    """

    exact: np.ndarray
    own: np.ndarray
    noise: np.ndarray | float = 0.0


def expected(options: Mapping[str, Any], tensors: Tensors) -> dict[str, Expected]:
    """By the name of the output."""
    function = REFERENCES[options["reference"]]
    return function(tensors, **{key: value for key, value in options.items() if key != "reference"})


def f64(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def f32(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def turned(values: np.ndarray, transposed: bool) -> np.ndarray:
    return np.swapaxes(values, -1, -2) if transposed else values


def sum_noise(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """2**-24 times the norms of each row of A and column of B, as `harness/verdict.py` has it."""
    one_sided = max(1.0, math.sqrt(a.shape[-1]) / 16)
    rows, columns = np.linalg.norm(f64(a), axis=-1), np.linalg.norm(f64(b), axis=-2)
    return 2.0**-24 * one_sided * rows[..., :, None] * columns[..., None, :]


def as_tf32(values: np.ndarray) -> np.ndarray:
    """What a tensor core reads of fp32: the low 13 bits do nothing."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


# --- products


def matmul(
    tensors: Tensors, a: str, b: str, out: str, transposed_a: bool = False, transposed_b: bool = False,
    tf32: bool = False, bias: str = "", activation: str = "", column_scale: str = "", addend: str = "",
) -> dict[str, Expected]:  # fmt: skip
    """out = activation(A B + bias) · scale + addend; C[m, n] of A[m, k] and B[k, n], each as it lies in memory."""
    left, right = turned(tensors[a], transposed_a), turned(tensors[b], transposed_b)
    if left.dtype.kind in "iu" and right.dtype.kind in "iu":
        exact = left.astype(np.int64) @ right.astype(np.int64)
        return {out: Expected(exact, exact)}
    exact = torch.from_numpy(f64(left)) @ torch.from_numpy(f64(right))
    own = f32(as_tf32(left) if tf32 else left) @ f32(as_tf32(right) if tf32 else right)
    noise = sum_noise(left, right)
    if bias:
        exact, own = exact + torch.from_numpy(f64(tensors[bias])), own + f32(tensors[bias])
    if activation:
        exact, own = ACTIVATIONS[activation](exact), ACTIVATIONS[activation](own)
    if column_scale:
        scale = tensors[column_scale]
        exact, own, noise = exact * torch.from_numpy(f64(scale)), own * f32(scale), noise * np.abs(f64(scale))
    if addend:
        exact, own = exact + torch.from_numpy(f64(tensors[addend])), own + f32(tensors[addend])
    return {out: Expected(exact.numpy(), own.numpy(), noise)}


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
}


def chained(tensors: Tensors, a: str, b: str, c: str, out: str) -> dict[str, Expected]:
    """out = (A B^T) C, the product in between rounded to C's type by torch's own."""
    left, middle, right = tensors[a], tensors[b], tensors[c]
    exact = f64(left) @ f64(middle).T @ f64(right)
    between = (f32(left) @ f32(middle).T).numpy().astype(right.dtype)
    return {out: Expected(exact, (f32(between) @ f32(right)).numpy(), sum_noise(between, right))}


def scaled_matmul(
    tensors: Tensors, a: str, b: str, a_scale: str, b_scale: str, out: str, a_type: str, b_type: str, block: int,
    packed: bool = False,
) -> dict[str, Expected]:  # fmt: skip
    """out = (A scale_A) (B scale_B)^T, each row of A and of B with a scale for `block` elements along k.

    packed: the scales lie in blocks of 128 rows by 4 columns, and in those in the order that tcgen05.cp takes.
    """
    of_a, of_b = (unpacked(tensors[name]) if packed else tensors[name] for name in (a_scale, b_scale))
    left = wide(tensors[a], a_type) * spread(of_a, block)
    right = wide(tensors[b], b_type) * spread(of_b, block)
    return {out: Expected(left @ right.T, (f32(left) @ f32(right).T).numpy(), sum_noise(left, right.T))}


def wide(values: np.ndarray, kind: str) -> np.ndarray:
    """float64 of values in memory; e2m1 has two elements a byte, the first in the low half."""
    if kind != "e2m1":
        return f64(values.view(np.uint8).view(ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2))
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.stack([values & 15, values >> 4], axis=-1).reshape(*values.shape[:-1], -1)
    return magnitudes[codes & 7] * np.where(codes & 8, -1.0, 1.0)


def unpacked(scales: np.ndarray) -> np.ndarray:
    rows, columns = scales.shape
    return scales.reshape(rows // 128, columns // 4, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(rows, columns)


def spread(scales: np.ndarray, block: int) -> np.ndarray:
    """A scale for each element; bytes are E8M0, powers of two with a bias of 127."""
    values = 2.0 ** (scales.astype(np.float64) - 127) if scales.dtype == np.uint8 else f64(scales)
    return np.repeat(values, block, axis=-1)


def attention(
    tensors: Tensors, q: str, k: str, v: str, out: str, scale: float, causal: bool = False, heads: int = 1
) -> dict[str, Expected]:
    """softmax(Q K^T scale) V of each head; torch's own rounds the probabilities to V's type."""
    queries, keys, values = (tensors[name].reshape(heads, -1, tensors[name].shape[-1]) for name in (q, k, v))
    allowed = torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed

    def attended(wide: Callable[[np.ndarray], torch.Tensor], narrow: bool) -> np.ndarray:
        scores = (wide(queries) @ wide(keys).mT * scale).masked_fill(~allowed, -torch.inf)
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        rounded = wide(weights.numpy().astype(values.dtype)) if narrow else weights
        return (rounded @ wide(values) / weights.sum(-1, keepdim=True)).numpy().reshape(tensors[q].shape)

    return {out: Expected(attended(lambda x: torch.from_numpy(f64(x)), False), attended(f32, True))}


# --- the rest


def same(tensors: Tensors, **pairs: str) -> dict[str, Expected]:
    """Each output equals the named input; NAME.T is its transpose."""
    return {out: _equal(tensors[name.removesuffix(".T")], name.endswith(".T")) for out, name in pairs.items()}


def _equal(values: np.ndarray, transposed: bool) -> Expected:
    exact = turned(values, transposed)
    return Expected(exact if exact.dtype.kind in "iu" else f64(exact), exact)


def padded(
    tensors: Tensors, source: str, out: str, offset: tuple[int, ...], shape: tuple[int, ...], fill: str = "zero"
) -> dict[str, Expected]:
    """The box of `shape` at `offset` of the source, zero or NaN where it leaves the tensor."""
    values = tensors[source]
    exact = np.full(shape, 0.0 if fill == "zero" else np.nan)
    starts = [max(0, at) for at in offset]
    ends = [min(extent, at + size) for extent, at, size in zip(values.shape, offset, shape)]
    inside = tuple(slice(start - at, end - at) for start, end, at in zip(starts, ends, offset))
    exact[inside] = f64(values[tuple(slice(start, end) for start, end in zip(starts, ends))])
    return {out: Expected(exact, exact)}


def cut(tensors: Tensors, source: str, out: str, index: int, columns: int) -> dict[str, Expected]:
    """A copy; of the slice at `index`, the columns from `columns` on are zero."""
    exact = f64(tensors[source])
    exact[index, ..., columns:] = 0
    return {out: Expected(exact, exact)}


def reduced(tensors: Tensors, source: str, out: str, function: str) -> dict[str, Expected]:
    """out = function(out, source), element by element."""
    exact = REDUCTIONS[function](tensors[out], tensors[source])
    return {out: Expected(exact, exact)}


REDUCTIONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def gathered(tensors: Tensors, source: str, index: str, out: str, axis: int = 0) -> dict[str, Expected]:
    """out = source taken at the index along an axis; of an index of two dimensions, element by element."""
    values, at = tensors[source], tensors[index].astype(np.int64)
    exact = f64(np.take_along_axis(values, at, axis) if at.ndim == values.ndim else np.take(values, at, axis))
    return {out: Expected(exact, exact)}


def scattered(tensors: Tensors, source: str, index: str, out: str) -> dict[str, Expected]:
    """Row i of the source lies in row index[i] of the output; the other rows stay."""
    exact = f64(tensors[out])
    exact[tensors[index]] = f64(tensors[source])
    return {out: Expected(exact, exact)}


def rowwise(tensors: Tensors, source: str, out: str, function: str, **more: Any) -> dict[str, Expected]:
    """softmax, layernorm, sum, max, argmax, cumsum or sort of each row."""
    values = tensors[source]
    named = {key: tensors[name] for key, name in more.items()}
    exact = ROWWISE[function](
        torch.from_numpy(f64(values)), **{key: torch.from_numpy(f64(each)) for key, each in named.items()}
    )
    own = ROWWISE[function](f32(values), **{key: f32(each) for key, each in named.items()})
    noise = 2.0**-24 * np.abs(f64(values)).sum(-1, keepdims=True) if function in ("sum", "cumsum") else 0.0
    return {out: Expected(exact.numpy(), own.numpy(), noise[..., 0] if function == "sum" else noise)}


ROWWISE: Mapping[str, Callable[..., torch.Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layernorm": lambda x, weight, bias: torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.amax(-1),
    "argmax": lambda x: torch.from_numpy(np.argmax(x.numpy(), -1)),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1).values,
}


def elementwise(tensors: Tensors, source: str, out: str, function: str) -> dict[str, Expected]:
    """A function of each element."""
    exact = ELEMENTWISE[function](torch.from_numpy(f64(tensors[source])))
    return {out: Expected(exact.numpy(), ELEMENTWISE[function](f32(tensors[source])).numpy())}


ELEMENTWISE: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "identity": lambda x: x,
    "truncate": torch.trunc,
    "double": lambda x: 2 * x,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "reciprocal": torch.reciprocal,
}


def by_twos(tensors: Tensors, a: str, b: str, out: str) -> dict[str, Expected]:
    """out = a b + (a + b b)."""
    exact = f64(tensors[a]) * f64(tensors[b]) + (f64(tensors[a]) + f64(tensors[b]) ** 2)
    return {out: Expected(exact, exact)}


def arithmetic(tensors: Tensors, a: str, b: str, **outs: str) -> dict[str, Expected]:
    """Integer operations of C on two tensors: each option names the operation of one output."""
    with np.errstate(over="ignore"):
        made = {out: ARITHMETIC[function](tensors[a], tensors[b]) for out, function in outs.items()}
    return {out: Expected(values, values) for out, values in made.items()}


def _unsigned(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint32).astype(np.uint64)


ARITHMETIC: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "divide": lambda x, y: np.trunc(f64(x) / f64(y)).astype(np.int64),
    "modulo": lambda x, y: np.fmod(x, y),
    "shift": lambda x, y: x >> (y & 31),
    "high": lambda x, y: (x.astype(np.int64) * y.astype(np.int64) >> 32).astype(np.int32),
    "unsigned_high": lambda x, y: (_unsigned(x) * _unsigned(y) >> np.uint64(32)).astype(np.uint32).view(np.int32),
    "minimum": np.minimum,
    "xor": np.bitwise_xor,
}


def histogram(tensors: Tensors, source: str, out: str) -> dict[str, Expected]:
    """How often each number occurs, added to what the output holds."""
    exact = tensors[out].astype(np.int64) + np.bincount(tensors[source].ravel(), minlength=len(tensors[out]))
    return {out: Expected(exact, exact)}


def total(tensors: Tensors, source: str, out: str) -> dict[str, Expected]:
    """The sum of all, added to the one element of the output."""
    exact = f64(tensors[out]) + f64(tensors[source]).sum()
    noise = 2.0**-24 * np.abs(f64(tensors[source])).sum()
    return {out: Expected(exact, tensors[out] + f32(tensors[source]).sum().numpy(), noise)}


REFERENCES: Mapping[str, Callable[..., dict[str, Expected]]] = {
    function.__name__: function
    for function in (
        matmul, chained, scaled_matmul, attention, same, padded, cut, reduced, gathered, scattered, rowwise,
        elementwise, by_twos, arithmetic, histogram, total,
    )
}  # fmt: skip
