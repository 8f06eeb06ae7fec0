"""tilus's emitter of casts, run on numbers: each statement is executed as it is emitted.

PTX ISA: "prmt" in its default mode, "lop3", "sub", "mul" and "fma" of f16x2. A loop runs once: one vector is cast.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tilus.backends.emitters import cast as emitters

MASK = 0xFFFFFFFF


class Place:
    """An element of an array: its value in arithmetic, and `~` is its address."""

    type = "uint32"

    def __init__(self, array: np.ndarray, index: int = 0) -> None:
        self.array, self.index = array, index

    def __int__(self) -> int:
        return int(self.array[self.index])

    def __invert__(self) -> Place:
        return self


def _operate(compute: Callable[[int, int], int]) -> Callable[[Place, Any], Place]:
    return lambda a, b: word(compute(int(a), int(b)))


for _name in ("rshift", "lshift", "and_", "or_", "xor", "sub"):
    setattr(Place, f"__{_name.rstrip('_')}__", _operate(getattr(operator, _name)))


def word(value: int) -> Place:
    return Place(np.array([value & MASK], np.uint32))


class Cells:
    """An array in registers, of elements of a tilus type."""

    def __init__(self, array: np.ndarray, kind: Any) -> None:
        self.array, self.type = array, kind

    def __getitem__(self, index: Any) -> Place:
        return Place(self.array, int(index))


class Kind:
    """uint8 or uint32: calling it makes a word, and `~` is its pointer type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def __call__(self, value: int) -> Place:
        return word(value)

    def __invert__(self) -> Any:
        return self.dtype


def _set(d: Place, value: int) -> None:
    d.array[d.index] = value & MASK


def _prmt(d: Place, a: Place, b: Place, c: Place) -> None:
    data = (int(a) | int(b) << 32).to_bytes(8, "little")
    picks = [int(c) >> 4 * i & 15 for i in range(4)]
    assert max(picks) < 8  # no sign is replicated
    _set(d, int.from_bytes(bytes(data[pick] for pick in picks), "little"))


def _lop3(d: Place, a: Any, b: Any, c: Any, *, imm_lut: Any) -> None:
    x, y, z = int(a), int(b), int(c)
    table = imm_lut if isinstance(imm_lut, int) else imm_lut(0xF0, 0xCC, 0xAA)
    terms = [(x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z) for i in range(8) if table >> i & 1]
    value = 0
    for term in terms:
        value |= term
    _set(d, value)


def _pairwise(dtype: Any, compute: Callable[..., Any]) -> Callable[..., None]:
    def emitted(d: Place, **operands: Place) -> None:
        halves = [np.array([int(each)], np.uint32).view(dtype).astype(np.float64) for each in operands.values()]
        _set(d, int(compute(*halves).astype(dtype).view(np.uint32)[0]))

    return emitted


def _declared(value: Any) -> Any:
    return Place(np.array([int(value)], np.uint32)) if isinstance(value, Place) else value


@contextlib.contextmanager
def _once(extent: int, **_: Any) -> Iterator[Place]:
    assert extent == 1
    yield word(0)


def emitter_on_numbers(monkeypatch: pytest.MonkeyPatch, size: int) -> Any:
    """A NvgpuCastInstEmitter whose statements act on `Cells` of one vector of `size` elements."""
    monkeypatch.setattr(emitters, "cast", lambda cells, dtype: Cells(cells.array.view(dtype), cells.type))
    monkeypatch.setattr(emitters, "get_data_type", lambda kind: kind)
    monkeypatch.setattr(emitters, "tensor_pointer_var", lambda *_, **__: None)
    monkeypatch.setattr(
        emitters, "tensor_var", lambda *_, shape, **__: Cells(np.zeros(shape, np.uint32), emitters.uint32)
    )
    monkeypatch.setattr(emitters, "Var", lambda *_, **__: None)
    for name, made in {
        "uint8": Kind(np.uint8), "uint32": Kind(np.uint32), "prmt": _prmt, "lop3": _lop3,
        "sub_f16x2": _pairwise(np.float16, operator.sub), "mul_f16x2": _pairwise(np.float16, operator.mul),
        "fma_f16x2": _pairwise(np.float16, lambda a, b, c: a * b + c),
        "mul_bf16x2": _pairwise(ml_dtypes.bfloat16, operator.mul),
    }.items():  # fmt: skip
        monkeypatch.setattr(emitters, name, made)
    emitter = object.__new__(emitters.NvgpuCastInstEmitter)
    emitter.size = size
    for name, made in {
        "declare": lambda v, init=None: v if init is None else _declared(init),
        "declare_var": lambda name, kind, init=None: word(0) if init is None else _declared(init),
        "append": lambda _: None,
        "for_range": _once,
        "buffer_store": lambda buf, indices, value: _set(buf[indices[0]], int(value)),
    }.items():
        monkeypatch.setattr(emitter, name, made, raising=False)
    return emitter
