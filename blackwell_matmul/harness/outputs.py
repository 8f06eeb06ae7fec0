"""`compare`: compares an output of any kernel with the `reference` of the kernel's file.

The rule is that of `torch.testing.assert_close`: an element is right if |actual - expected| <= atol + rtol *
|expected|, with torch's tolerances for the type (integers: 0). One difference: a small sum of large products has the
error of the products, so atol is at least `CANCELS` times the size of the output. The file may set other tolerances.
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
"""Tolerances by element type: those of torch.testing.assert_close, or two units in the last place for 8-bit floats."""


CANCELS = 2.0**-16
"""Minimum atol, as a fraction of the root mean square of the expected values.

It is three times the error of fp32 sums of 16384 products in steps of 16, and a thirtieth of a rounding to 16 bits.
"""


ROUNDING = 32.0
"""Multiple of the tolerance up to which an error may come from rounding. A lost or repeated summand usually gives a
larger error."""
OWN_TOLERANCE = "`tolerance = (rtol, atol)` beside the class allows more"


@dataclass(frozen=True)
class OutputVerdict:
    """Result of the comparison of one output.

    elements: number of elements. wrong: number of elements beyond the tolerance. worst: index of the largest error, or
    of the first unexpected NaN or infinity, for which max_abs_error is inf. excess: largest error as a multiple of its
    tolerance.
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
        """Return the result as text, without a final period."""
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
    """Compare one output, a torch tensor or an array, and return the verdict.

    Raises InputError if `expected` has another shape or is no tensor.
    """
    have, want = _as_numbers(name, actual), _as_numbers(f"the reference of {name}", expected)
    if have.dtype != want.dtype:
        have, want = have.double(), want.double()
    if have.shape != want.shape:
        shapes = f"{tuple(want.shape)} and {name} has {tuple(have.shape)}"
        raise InputError(f"the reference of {name} has shape {shapes}; they must be the same.")
    rtol, atol = tolerance or _tolerance(str(attribute(actual, "dtype")).removeprefix("torch."), want)
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
    """Return |have - want|. An equal infinity or NaN gives 0; other NaN or infinities give inf."""
    same = (have == want) | (have.isnan() & want.isnan())
    error = (have.double() - want.double()).abs().nan_to_num(math.inf, math.inf)
    if not have.is_floating_point():
        error = error.clamp(min=1)  # beyond 2**53, neighbouring integers are the same float64
    return torch.where(same, 0.0, error)


def _as_numbers(what: str, value: Any) -> torch.Tensor:
    """Return a value as a dense CPU tensor of float64, or of int64 for integers; raise InputError for others."""
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
