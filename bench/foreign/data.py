"""The tensors of a case from their recipes: the same numbers on every machine.

A recipe is one of {"integers": [low, high]}, {"normal": deviation}, {"uniform": [low, high]}, {"powers": [low, high]}
(of two), {"bytes": true} (any bits), {"permutation": true}, {"fill": value} and {"poison": true}, with a "seed".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

Recipe = Mapping[str, Any]
POISON = 0x55
"""What the bytes of an unwritten output of integers are; one of floats is NaN."""


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def made(shape: tuple[int, ...], dtype: np.dtype[Any], recipe: Recipe) -> np.ndarray:
    """A tensor by its recipe."""
    kind = next(key for key in recipe if key != "seed")
    if kind == "poison":
        return poison(shape, dtype)
    return np.ascontiguousarray(
        _RECIPES[kind](np.random.default_rng(recipe.get("seed", 0)), shape, recipe[kind]).astype(dtype)
    )


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    if dtype.kind in "iu":
        return np.full((*shape, dtype.itemsize), POISON, np.uint8).view(dtype).reshape(shape)
    return np.full(shape, np.nan, np.float32).astype(dtype)


def is_poison(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "iu":
        return values == poison((1,), values.dtype)
    return np.isnan(values.astype(np.float64))


_RECIPES: Mapping[str, Any] = {
    "integers": lambda rng, shape, limits: rng.integers(limits[0], limits[1], shape, endpoint=True),
    "normal": lambda rng, shape, deviation: rng.standard_normal(shape, np.float32) * np.float32(deviation),
    "uniform": lambda rng, shape, limits: rng.uniform(limits[0], limits[1], shape),
    "powers": lambda rng, shape, limits: 2.0 ** rng.integers(limits[0], limits[1], shape, endpoint=True),
    "bytes": lambda rng, shape, _: rng.integers(0, 255, shape, endpoint=True),
    "permutation": lambda rng, shape, _: rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1),
    "fill": lambda rng, shape, value: np.full(shape, value),
}
