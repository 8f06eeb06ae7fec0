"""Element types: the numpy types that hold values of a tilus DataType.

Registers and global memory hold the type itself. Shared memory holds an *image*: floats of 16 bits or fewer are kept as
float32, which represents them exactly. The tensor core then multiplies tiles in place.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.base.errors import UnsupportedError

_FLOATS: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "tfloat32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float6_e3m2": ml_dtypes.float6_e3m2fn,
    "float6_e2m3": ml_dtypes.float6_e2m3fn,
    "float4_e2m1": ml_dtypes.float4_e2m1fn,
}
_INTEGERS: dict[str, Any] = {f"{u}int{n}": np.dtype(f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)}
_INTEGERS |= {f"{u}int{n}b": np.dtype(f"{u}int8") for u in ("", "u") for n in range(1, 8)}
EIGHT_BIT_FLOATS = ("float8_e4m3", "float8_e5m2")
_INTEGERS |= {name: np.dtype("uint8") for name in ("float4_e2m1x2", "float8_e8m0")}  # bytes that products decode
_NARROW = re.compile(r"float([3-7])_e([1-5])m([1-4])")  # tilus's sub-byte floats; numpy lacks most of them


@dataclass(frozen=True)
class Element:
    """An element type: `dtype` holds a value, `image` is shared memory's type, `nbits` is its true width."""

    name: str
    nbits: int
    dtype: np.dtype
    image: np.dtype
    is_float: bool
    signed: bool

    @property
    def packed(self) -> bool:
        """Return True if a value is narrower than its numpy type."""
        return self.nbits < 8 and self.name != "bool"

    @property
    def poison(self) -> Any:
        """Return the contents of memory before the first write: NaN, or for integers an unlikely value."""
        if self.is_float:
            return np.nan
        return False if self.dtype == np.bool_ else np.array(0xCD, np.uint8).astype(self.dtype)


@functools.cache
def element_by_name(name: str, nbits: int) -> Element:
    if name == "bool":
        return Element(name, 8, np.dtype(bool), np.dtype(bool), False, False)
    if name in _FLOATS:
        dtype = np.dtype(_FLOATS[name])
        return Element(name, nbits, dtype, np.dtype(np.float32) if nbits <= 16 else dtype, True, True)
    if name in _INTEGERS:
        dtype = _INTEGERS[name]
        return Element(name, nbits, dtype, dtype, False, dtype.kind == "i")
    if _NARROW.fullmatch(name):  # float32 holds every value of them
        return Element(name, nbits, np.dtype(np.float32), np.dtype(np.float32), True, True)
    raise UnsupportedError(f"The simulator does not hold elements of type {name}; it knows {', '.join(known())}.")


def element(tilus_dtype: Any) -> Element:
    return element_by_name(tilus_dtype.name, tilus_dtype.nbits)


def known() -> list[str]:
    return ["bool", *_FLOATS, *_INTEGERS, "the sub-byte floats of tilus"]


def convert(values: np.ndarray, source: Element, target: Element) -> np.ndarray:
    """Convert `values` to the target type by the rules of PTX cvt: round to nearest even, truncate to integers,
    saturate to narrow floats (PTX has only cvt.rn.satfinite for them; below eight bits, as tilus generates: see
    `_encode`). Between float32 and float64 denormals of float32 are zero (.ftz)."""
    if source.name == target.name:
        return values.copy()
    if (source.name, target.name) in _BY_WAY_OF_FLOAT32:
        values = flushed(values.astype(np.float32, copy=False))
    if target.name == "bool":
        return values != 0
    if target.is_float and target.packed:
        return _decode(_encode(values.astype(np.float32), target), target)
    if target.name in EIGHT_BIT_FLOATS:
        return canonical(_saturated(values, target))
    if not target.is_float and source.is_float:
        return wrap(_truncate(values, target), target)
    if source.is_float and source.dtype.kind == "V":  # ml_dtypes convert to float32 exactly, and from there on
        values = values.astype(np.float32)
    if target.name == "bfloat16" and values.dtype.itemsize > 2 and values.dtype != np.float32:
        values = _to_odd(values)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wrap(values.astype(target.dtype), target)
    return flushed(narrow) if source.name == "float64" else canonical(narrow)


_BY_WAY_OF_FLOAT32 = {("float32", "float64"), ("float32", "bool"), ("bfloat16", "float64")}


def flushed(values: np.ndarray) -> np.ndarray:
    """Return denormal float32 as zeros of the same sign (PTX ISA, .ftz); any other type unchanged."""
    if values.dtype != np.float32:
        return values
    small = (np.abs(values) < _SMALLEST_NORMAL) & (values != 0)
    return np.where(small, np.copysign(np.float32(0), values), values) if small.any() else values


_SMALLEST_NORMAL = np.float32(2.0**-126)


def fetched_as_tf32(values: np.ndarray) -> np.ndarray:
    """Return float32 as TMA loads it with a TFLOAT32 tensor map. The mantissa has 10 bits, rounded to nearest even;
    denormals stay, too large values are infinite, all NaN are one (measured on an H200; not documented)."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    even = bits >> np.uint32(13) & np.uint32(1)
    rounded = ((bits + np.uint32(0x0FFF) + even) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), rounded, np.where(np.isnan(values), _NAN_OF_TF32, values))


_NAN_OF_TF32 = np.array(0x7FFFE000, np.uint32).view(np.float32)
_NAN: dict[Any, tuple[Any, int]] = {
    np.dtype(np.float64): (np.uint64, 0x7FFFFFFFE0000000),
    np.dtype(np.float32): (np.uint32, 0x7FFFFFFF),
    np.dtype(np.float16): (np.uint16, 0x7FFF),
    np.dtype(ml_dtypes.bfloat16): (np.uint16, 0x7FFF),
    np.dtype(ml_dtypes.float8_e4m3fn): (np.uint8, 0x7F),
    np.dtype(ml_dtypes.float8_e5m2): (np.uint8, 0x7F),
}


def canonical(values: np.ndarray) -> np.ndarray:
    """Return values with the canonical NaN of instructions (PTX ISA, "Floating Point Instructions"; in float64, that of
    converted float32, as on an H200). Other types are unchanged."""
    if values.dtype not in _NAN or not (nan := np.isnan(values)).any():
        return values
    bits, pattern = _NAN[values.dtype]
    return np.where(nan, bits(pattern), np.ascontiguousarray(values).view(bits)).astype(bits).view(values.dtype)


def _saturated(values: np.ndarray, target: Element) -> np.ndarray:
    limit = float(ml_dtypes.finfo(target.dtype).max)
    narrow = values.astype(np.float32) if values.dtype != np.float64 else _to_odd(values)
    return np.clip(narrow, -limit, limit).astype(target.dtype)


def _to_odd(values: np.ndarray) -> np.ndarray:
    """Return float32 values that a narrower type rounds like `values`: inexact ones become the neighbour whose last
    bit is set (round to odd)."""
    with np.errstate(over="ignore", invalid="ignore"):
        near = values.astype(np.float32)
    wide, back = values.astype(np.longdouble), near.astype(np.longdouble)
    bits = near.view(np.uint32)
    inexact = np.isfinite(near) & (back != wide) & (bits & 1 == 0)
    away = (np.abs(back) < np.abs(wide)) if inexact.any() else inexact
    return np.where(inexact, np.where(away, bits + 1, bits - 1), bits).astype(np.uint32).view(np.float32)


def _truncate(values: np.ndarray, target: Element) -> np.ndarray:
    """Convert float to integer as cvt.rzi does: towards zero, out of range saturates, NaN becomes 0."""
    info = np.iinfo(np.int64 if target.nbits < 32 else target.dtype)
    wide = np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = np.clip(wide, float(info.min), float(info.max))
    exact = inside.astype(np.int64 if info.min < 0 else np.uint64)
    return np.where(wide >= float(info.max), info.max, exact).astype(target.dtype if target.nbits >= 32 else np.int64)


def wrap(values: np.ndarray, target: Element) -> np.ndarray:
    """Keep the low `nbits` of integers (two's complement)."""
    if target.is_float or not target.packed:
        return values.astype(target.dtype, copy=False)
    low = values.astype(np.int64) & ((1 << target.nbits) - 1)
    if target.signed:
        low = np.where(low >> (target.nbits - 1), low - (1 << target.nbits), low)
    return low.astype(target.dtype)


_HALF_BITS = np.dtype(np.uint16)
TORCH_PAYS_ELEMENTS = 2**14


def to_image(values: np.ndarray, item: Element) -> np.ndarray:
    """Return values of the element type in shared memory's type; exact."""
    if item.dtype == item.image:
        return values
    if item.name == "bfloat16":  # a bfloat16 is the upper half of a float32; shifting is faster than ml_dtypes' loop
        return (values.view(_HALF_BITS).astype(np.uint32) << 16).view(np.float32)
    if item.name == "float16" and values.size >= TORCH_PAYS_ELEMENTS and values.flags.writeable:
        import torch  # converts with vector instructions where numpy does it element by element

        return torch.from_numpy(values).float().numpy()
    return values.astype(item.image)


def from_image(values: np.ndarray, item: Element) -> np.ndarray:
    """Invert `to_image`: every value in shared memory came from the element type, so this is exact too."""
    if item.dtype == item.image:
        return values
    if item.name == "bfloat16":
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16).view(item.dtype)
    return values.astype(item.dtype)


def to_bits(values: np.ndarray, item: Element) -> np.ndarray:
    """Return the last axis as a stream of bits, least significant first (as registers hold packed elements)."""
    if item.is_float and item.packed:
        values = _encode(values.astype(np.float32), item)
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, values.dtype.itemsize)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., : item.nbits]
    return bits.reshape(*values.shape[:-1], -1)


def from_bits(bits: np.ndarray, item: Element) -> np.ndarray:
    """Invert `to_bits`."""
    grouped = bits.reshape(*bits.shape[:-1], -1, item.nbits)
    width = 8 if item.packed else item.dtype.itemsize * 8
    padded = np.zeros((*grouped.shape[:-1], width), np.uint8)
    padded[..., : item.nbits] = grouped
    if item.packed and item.signed and not item.is_float:
        padded[..., item.nbits :] = grouped[..., -1:]
    raw = np.packbits(padded, axis=-1, bitorder="little")
    return _decode(raw[..., 0], item) if item.is_float and item.packed else raw.view(item.dtype)[..., 0]


def _format(item: Element) -> tuple[int, int]:
    """Return exponent and mantissa bits of a sub-byte float."""
    match = _NARROW.fullmatch(item.name)
    assert match is not None
    return int(match[2]), int(match[3])


def _decode(codes: np.ndarray, item: Element) -> np.ndarray:
    """Return the values of a sub-byte float's bits: no infinity, no NaN, the exponent's bias is 2**(bits - 1) - 1."""
    exponent, mantissa = _format(item)
    wide = codes.astype(np.uint32)
    magnitude = ((wide & ((1 << (item.nbits - 1)) - 1)) << (23 - mantissa)).view(np.float32)
    scale = np.float32(2.0 ** (128 - (1 << (exponent - 1))))
    values = np.where(wide >> (item.nbits - 1) & 1, -magnitude * scale, magnitude * scale)
    return values.astype(np.float32).astype(item.dtype)


def _encode(values: np.ndarray, item: Element) -> np.ndarray:
    """Return float32 values' bits in a sub-byte float, as in tilus's generated code: to nearest even, then truncated
    below the normal numbers. Too large values become the largest; NaN and infinity, all ones."""
    exponent, mantissa = _format(item)
    raw = np.ascontiguousarray(values).view(np.uint32)
    sign, power = raw >> 31 << (item.nbits - 1), (raw >> 23 & 0xFF).astype(np.int64)
    shift = 23 - mantissa
    digits = (raw & 0x7FFFFF) | 0x800000
    half, rest, odd = digits >> (shift - 1) & 1, digits & ((1 << (shift - 1)) - 1), digits >> shift & 1
    digits = digits + (((half != 0) & ((rest != 0) | (odd != 0))).astype(np.uint32) << shift)
    carry = digits >> 24
    digits = (digits >> carry >> shift).astype(np.int64)
    field = power + carry - 127 + (1 << (exponent - 1)) - 1
    normal = (field << mantissa) | (digits ^ (1 << mantissa))
    below = np.where(field >= 1 - mantissa, digits >> np.clip(1 - field, 0, 63), 0)
    body = np.where(field >= 1 << exponent, (1 << (item.nbits - 1)) - 1, np.where(field <= 0, below, normal))
    codes = np.where(power == 0xFF, (1 << item.nbits) - 1, np.where(power == 0, sign, sign | body))
    return codes.astype(np.uint8)
