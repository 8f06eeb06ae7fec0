"""Is an output right? Of exact data, equal; otherwise off by at most twice what torch's own result is off by."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from data import is_poison
from references import Expected

ALLOWED_RATIO = 2.0


@dataclass(frozen=True)
class Judgement:
    """ratio: the largest error over torch's own, both in roundings of the output's type; 0 is exact."""

    right: bool
    ratio: float
    message: str


def judge(name: str, result: np.ndarray, wanted: Expected, exact: bool) -> Judgement:
    """One output against its expectation."""
    if result.shape != wanted.exact.shape:
        return Judgement(False, np.inf, f"{name} has shape {result.shape}, its reference {wanted.exact.shape}")
    if exact or result.dtype.kind in "iu":
        return _equal(name, result, wanted.exact.astype(result.dtype))
    return _close(name, result, wanted)


def _equal(name: str, result: np.ndarray, wanted: np.ndarray) -> Judgement:
    bad = ~((result == wanted) | (_isnan(result) & _isnan(wanted)))
    if not bad.any():
        return Judgement(True, 0.0, f"{name} is exact")
    return Judgement(False, np.inf, f"{_told(name, result, wanted, bad)}")


def _close(name: str, result: np.ndarray, wanted: Expected) -> Judgement:
    errors = _errors(result, wanted, result.dtype)
    own = max(_errors(each.astype(result.dtype), wanted, result.dtype).max() for each in (wanted.own, wanted.exact))
    ratio = float(errors.max() / own) if own else (np.inf if errors.max() else 0.0)
    bad = errors > ALLOWED_RATIO * own
    if not bad.any():
        return Judgement(True, ratio, f"{name} is off by {ratio:.2f}x torch's own")
    return Judgement(False, ratio, f"{_told(name, result, wanted.exact, bad)}, {ratio:.3g}x torch's own")


def _errors(values: np.ndarray, wanted: Expected, dtype: np.dtype) -> np.ndarray:
    """Beyond the noise of the sums, in units of one rounding of the output's type and that noise."""
    info = ml_dtypes.finfo(dtype)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(wanted.exact), float(info.smallest_normal))))
        unit = 2.0**exponent * float(info.eps) / 2 + wanted.noise
        errors = np.maximum(np.abs(values.astype(np.float64) - wanted.exact) - wanted.noise, 0) / unit
    rounded = wanted.exact.astype(dtype).astype(np.float64)
    same = (values.astype(np.float64) == rounded) | (np.isnan(rounded) & _isnan(values))
    return np.where(same & ~np.isfinite(errors), 0, np.where(np.isnan(errors), np.inf, errors))


def _told(name: str, result: np.ndarray, wanted: np.ndarray, bad: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    unwritten = int((is_poison(result) & bad).sum())
    text = f", {unwritten} as if never written" if unwritten else ""
    wrong = f"{int(bad.sum())} of {bad.size} elements of {name} are wrong{text}"
    return f"{wrong}: {name}{list(at)} is {result[at]}, not {wanted[at]}"


def _isnan(values: np.ndarray) -> np.ndarray:
    return np.isnan(values.astype(np.float64)) if values.dtype.kind not in "iu" else np.zeros(values.shape, bool)
