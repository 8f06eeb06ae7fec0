"""Operands of tensor cores in memory: matrix descriptors, swizzled layouts, and values of elements.

PTX ISA, "Asynchronous wgmma: Shared Memory Matrix Layout, Matrix Descriptor Format" and "tcgen05: Matrix Descriptor,
Canonical Layouts". The unit is a chunk of 16 bytes, which no layout splits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.spaces import Memory, Undefined
from blackwell_matmul.emulator.tensor_map import swizzled
from blackwell_matmul.emulator.unknown import Known

CHUNK = 16
WGMMA_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}
TCGEN05_SWIZZLES = {0: 0, 2: 128, 4: 64, 6: 32}


def bit_mask(*bits: int) -> int:
    return sum(1 << bit for bit in bits)


RESERVED_WGMMA = bit_mask(14, 15, 30, 31, 46, 47, 48, *range(52, 62))
RESERVED_TCGEN05 = bit_mask(14, 15, 30, 31, *range(53, 61))


@dataclass(frozen=True, eq=False)  # compared by identity, as `descriptor` caches its results
class Descriptor:
    """A matrix descriptor, in bytes. leading, stride: byte offsets, used by layout in `chunks`.

    continues: True if `leading` is the address where rows of more than 128 bytes continue (bit 52, for K of 48 bytes).
    """

    start: int
    leading: int
    stride: int
    swizzle: int
    continues: bool = False


@functools.lru_cache(maxsize=4096)
def descriptor(bits: int, blackwell: bool) -> Descriptor:
    """Return the fields of a 64-bit matrix descriptor; raise Undefined for fields that are not emulated."""
    code = bits >> 61 & 7 if blackwell else bits >> 62 & 3
    table = TCGEN05_SWIZZLES if blackwell else WGMMA_SWIZZLES
    if bits & (RESERVED_TCGEN05 if blackwell else RESERVED_WGMMA):
        raise Undefined(f"the matrix descriptor {bits:#018x} has bits set that are reserved")
    if blackwell and bits >> 46 & 7 != 1:
        raise Undefined(f"the matrix descriptor {bits:#018x} has {bits >> 46 & 7} in bits 46 to 48, where 1 must be")
    if code not in table:
        raise Undefined(f"the matrix descriptor {bits:#018x} has swizzle mode {code}, which is not emulated")
    if bits >> 49 & 7 and table[code]:
        raise Undefined(f"the matrix descriptor {bits:#018x} has a base offset, which is not emulated")
    continues = blackwell and bool(bits >> 52 & 1)
    if continues and table[code] != 128:
        raise Undefined(f"the matrix descriptor {bits:#018x} has bit 52 set, and 128-byte swizzle alone has that")
    start, leading, stride = ((bits >> low & 0x3FFF) << 4 for low in (0, 16, 32))
    return Descriptor(start, leading, stride, table[code], continues)


@functools.lru_cache(maxsize=4096)
def chunks(found: Descriptor, outer: int, inner: int, k_major: bool) -> Array:
    """Return the index in shared memory of each 16-byte chunk, outer x inner.

    K-major: outer rows of M or N, inner chunks along K. MN-major: outer rows of K, inner chunks along M or N.
    """
    row, chunk = np.arange(outer)[:, None], np.arange(inner)[None, :]
    span = found.swizzle or CHUNK
    if k_major:
        step = chunk * CHUNK if found.swizzle else chunk * found.leading
        offset = row // 8 * found.stride + row % 8 * span + step
        if found.swizzle and found.start % span + inner * CHUNK > span:
            passed = found.start % span + step - span
            if not found.continues:
                raise Undefined(
                    f"a row of {inner * CHUNK} bytes from byte {found.start % span} on passes the row of {span} bytes "
                    "that is swizzled; bit 52 of the descriptor and an address tell where the rest lies"
                )
            offset = np.where(passed < 0, offset, offset - step + found.leading - found.start + passed)
    elif found.swizzle:
        in_span = span // CHUNK
        offset = chunk // in_span * found.leading + chunk % in_span * CHUNK + row // 8 * found.stride + row % 8 * span
    else:
        offset = chunk * found.stride + row // 8 * found.leading + row % 8 * CHUNK
    return swizzled(found.start + offset, found.swizzle) // CHUNK


def matrix(memory: Memory, found: Descriptor, rows: int, k: int, format: str, k_major: bool) -> Array:
    """Return rows x k elements from shared memory as float32 (int32 for integers); rows: of M or N."""
    per_chunk = ELEMENTS_IN_CHUNK[format]
    outer, inner = (rows, k // per_chunk) if k_major else (k, rows // per_chunk)
    index = chunks(found, outer, inner, k_major)
    raw = read_chunks(memory, index, "a matrix", 2 * PADDED_BITS.get(format, 8))
    values = elements(raw.view(np.uint8).reshape(outer, -1), format)
    return values if k_major else values.T


def read_chunks(memory: Memory, index: Array, what: str, used: int = CHUNK) -> Array:
    """Return chunks of shared memory; raise Undefined beyond its end, or if one of their `used` bytes was not
    written."""
    if not memory.all_written(index):
        _verify_chunks(memory, index, what, used)
    if memory.listener is not None:
        memory.listener.read(memory, np.ravel(index) * CHUNK + memory.base, CHUNK)
    return memory.view(CHUNK)[index]


def _verify_chunks(memory: Memory, index: Array, what: str, used: int) -> None:
    last = int(index.max()) * CHUNK + CHUNK
    if last > memory.nbytes:
        raise Undefined(f"{what} reads up to byte {last:,} of {memory.name}, which has {memory.nbytes:,}")
    if memory.written is not None:
        marks = memory.written[: memory.nbytes // CHUNK * CHUNK].reshape(-1, CHUNK)[index][..., :used]
        if not marks.all():
            missing = marks.size - int(marks.sum())
            memory.lack(f"{what} reads {missing:,} bytes of {memory.name} that nothing has written")


# --- elements

_TABLES: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip

SCALE_TYPES: Known[str, Any] = Known({"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn})
"""numpy type of each type of scales."""

ELEMENTS_IN_CHUNK = {"f16": 8, "bf16": 8, "tf32": 4, "s8": 16, "u8": 16, "packed e2m1": 32} | dict.fromkeys(_TABLES, 16)
"""Number of elements in 16 bytes. Unpacked floats of 4 and 6 bits are padded: 16 elements take 16 bytes."""


PADDED_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
"""Bits of an element, for types whose 16 elements are packed at the beginning of 16 bytes of shared memory."""

PACKED_BITS = {"b4x16_p64": 4, "b6x16_p32": 6}
"""Bits of an element, by PTX's type of 16 such elements."""


@functools.cache
def _table(format: str) -> Array:
    """Return the float32 value of each of the 256 bytes."""
    kind = _TABLES[format]
    bits = (1 << PADDED_BITS.get(format, 8)) - 1
    return (np.arange(256) & bits).astype(np.uint8).view(kind).astype(np.float32)


def elements(raw: Array, format: str) -> Array:
    """Return the values of packed elements, given as rows of bytes."""
    if format == "f16":
        return raw.view(np.float16).astype(np.float32)
    if format == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if format == "tf32":  # the low 13 bits are not read
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    if format in ("s8", "u8"):
        return raw.view(np.int8 if format == "s8" else np.uint8).astype(np.int32)
    if format == "f64":
        return raw.view(np.float64)
    if format in ("s4", "u4"):
        values = _nibbles(raw).astype(np.int32)
        return (values ^ 8) - 8 if format == "s4" else values
    if format == "b1":
        return np.unpackbits(raw, axis=-1, bitorder="little").astype(np.int32)
    if format == "packed e2m1":
        return _table("e2m1")[_nibbles(raw)]
    if format in PADDED_BITS:
        return _table(format)[padded(raw, PADDED_BITS[format])]
    return _table(format)[raw]


def in_bytes(raw: Array, format: str) -> Array:
    """Return the values of elements in registers or tensor memory, where an element of 4 or 6 bits has a byte. 4 bits
    are in the middle of the byte, 6 bits at its low end (PTX ISA, "mma": .kind::f8f6f4)."""
    if format == "e2m1":
        return _table(format)[raw >> 2]
    return _table(format)[raw] if format in ("e2m3", "e3m2") else elements(raw, format)


def _nibbles(raw: Array) -> Array:
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1)


def padded(raw: Array, bits: int) -> Array:
    """Return the codes of 16 elements of 4 or 6 bits, which are packed at the beginning of each chunk."""
    parts = raw.reshape(*raw.shape[:-1], -1, CHUNK)
    if bits == 4:
        found = _nibbles(parts[..., :8])
    else:
        groups = parts[..., :12].reshape(*parts.shape[:-1], 4, 3).astype(np.uint32)
        word = groups[..., 0] | groups[..., 1] << np.uint32(8) | groups[..., 2] << np.uint32(16)
        found = np.stack([word >> np.uint32(6 * index) & np.uint32(63) for index in range(4)], axis=-1)
        found = found.reshape(*parts.shape[:-1], 16)
    return found.reshape(*raw.shape[:-1], -1)


def product(a: Array, b: Array) -> Array:
    """Return a (M x K) times the transpose of b (N x K), in the type of a; int32 wraps. Stacks are multiplied one by
    one.

    The order of float32 sums along K is that of numpy's matmul. Each instruction rounds its product to float32 and adds
    it to the accumulator.
    """
    if a.dtype == np.int32:
        return (a.astype(np.float64) @ b.mT.astype(np.float64)).astype(np.int64).astype(np.int32)
    return a @ b.mT


def differing(a: Array, b: Array) -> Array:
    """Return the number of bits in which a row of A and a column of B differ."""
    return (a.sum(axis=-1)[..., None] + b.sum(axis=-1)[..., None, :] - 2 * product(a, b)).astype(np.int32)


def saturated(a: Array, b: Array) -> Array:
    """Return the sum of int32 numbers, clamped to their range."""
    return np.clip(a.astype(np.int64) + b, -(1 << 31), (1 << 31) - 1).astype(np.int32)
