"""`compare`: is an output of a kernel of any kind what its author expects?

`check_matmul` knows what a product may be off by; nobody knows it of a kernel in general. The rule here is that of
`torch.testing.assert_close`: an element is right when |actual - expected| <= atol + rtol * |expected|, with the
tolerances that torch has for the output's type (integers: none), but for one thing: elements that are small because
what was added up cancels are off by what the sums are off by, and so atol is at least `CANCELS` of the output's size.
The author may give others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import attribute, has_memory, shown

Tolerance = tuple[float, float]
"""rtol and atol."""

TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "float64": (1e-7, 1e-7),
        "float32": (1.3e-6, 1e-5),
        "float16": (1e-3, 1e-5),
        "bfloat16": (1.6e-2, 1e-5),
        "float8_e4m3fn": (0.125, 1e-2),
        "float8_e5m2": (0.25, 1e-2),
    }
)
"""By element type: torch.testing.assert_close's own; for 8-bit floats, which it compares exactly, two units."""


CANCELS = 2.0**-16
"""Of the root of the mean square of what is expected. Sums of 16384 products in fp32 are off by a third of
it where they are added in steps of 16; one rounding to 16 bits costs thirty times as much."""


ROUNDING = 32.0
"""Times what is allowed: an error of another element type, or of sums in another order, is no larger; a lost or a
repeated part of a sum is, as a rule."""
OWN_TOLERANCE = "`tolerance = (rtol, atol)` beside the class allows more"


@dataclass(frozen=True)
class OutputVerdict:
    """One output against its expectation.

    wrong: elements out of `elements` beyond the tolerance; worst: the index of the largest error, or of the first
    element that is NaN or infinite without reason (max_abs_error is inf then). excess: the largest error as a multiple
    of what is allowed there.
    """

    name: str
    ok: bool
    elements: int
    wrong: int
    max_abs_error: float
    worst: tuple[int, ...]
    rtol: float
    atol: float
    excess: float = math.inf

    @property
    def message(self) -> str:
        """A few words, without an end."""
        if self.max_abs_error == 0:
            return f"{self.name} is exact"
        allowed = f"rtol {self.rtol:g}, atol {self.atol:g}"
        if self.ok:
            return f"{self.name} has largest error {self.max_abs_error:.3g}, within {allowed}"
        where = f"{self.name}[{', '.join(map(str, self.worst))}]"
        size = f"largest error {self.max_abs_error:.3g}" if math.isfinite(self.max_abs_error) else "NaN or infinite"
        rounding = f" (if that is rounding, {OWN_TOLERANCE})" if self.excess <= ROUNDING else ""
        return f"{self.wrong} of {self.elements} elements of {self.name} beyond {allowed}, {size} at {where}{rounding}"


def compare(name: str, actual: Any, expected: Any, tolerance: Tolerance | None = None) -> OutputVerdict:
    """Judge one output, a torch tensor or an array; InputError when `expected` has another shape or is no tensor."""
    have, want = _as_numbers(name, actual), _as_numbers(f"the reference of {name}", expected)
    if have.dtype != want.dtype:
        have, want = have.double(), want.double()
    if have.shape != want.shape:
        shapes = f"{tuple(want.shape)} and {name} has {tuple(have.shape)}"
        raise InputError(f"the reference of {name} has shape {shapes}; they must be the same.")
    rtol, atol = tolerance or _tolerance(_type_name(actual), want)
    if have.numel() == 0:
        return OutputVerdict(name, True, 0, 0, 0.0, (), rtol, atol)
    error = _errors(have, want)
    allowed = atol + rtol * want.double().nan_to_num(0, 0, 0).abs()
    wrong, excess = int((error > allowed).sum()), float((error / allowed).nan_to_num(0.0, math.inf).max())
    worst = int(error.argmax())
    index = tuple(int(i) for i in np.unravel_index(worst, tuple(have.shape)))
    largest = float(error.flatten()[worst])
    return OutputVerdict(name, wrong == 0, have.numel(), wrong, largest, index, rtol, atol, excess)


def _tolerance(kind: str, want: torch.Tensor) -> Tolerance:
    if kind not in TOLERANCES:
        return 0.0, 0.0
    rtol, atol = TOLERANCES[kind]
    finite = want.double()[want.isfinite()]
    size = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return rtol, max(atol, float(f"{CANCELS * size:.2g}"))


def _errors(have: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """|have - want|; 0 where both are the same infinity or NaN, infinite where one of them is not finite."""
    same = (have == want) | (have.isnan() & want.isnan())
    error = (have.double() - want.double()).abs().nan_to_num(math.inf, math.inf)
    if not have.is_floating_point():
        error = error.clamp(min=1)  # beyond 2**53 neighbours are one float64
    return torch.where(same, 0.0, error)


def _type_name(value: Any) -> str:
    return str(attribute(value, "dtype")).removeprefix("torch.")


def _as_numbers(what: str, value: Any) -> torch.Tensor:
    """A dense CPU tensor of float64, or of int64 for integers."""
    try:
        if isinstance(value, torch.Tensor) and (value.layout is not torch.strided or has_memory(value)):
            return _widened(value.detach().to_dense().cpu())
        array = np.asarray(value)
        if array.dtype.kind in "cOSUMm":
            raise TypeError("complex numbers, objects, texts and dates have no distance")
        return torch.from_numpy(array.astype(np.int64 if array.dtype.kind == "i" else np.float64))
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        raise InputError(f"{what} is {shown(value)}; it must be a tensor or an array of real numbers.") from None


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex() or tensor.is_meta:
        raise TypeError("complex numbers have no order, and what is not there no value")
    return tensor.long() if tensor.dtype in _INTEGERS else tensor.double()


_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
