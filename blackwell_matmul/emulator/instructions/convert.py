"""Conversions between types and moves between registers (PTX ISA, "cvt", "cvt.pack", "mov")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Clock, instruction, last_type, wide
from blackwell_matmul.emulator.instructions.integers import elementwise, predicates
from blackwell_matmul.emulator.instructions.moves import widener
from blackwell_matmul.emulator.instructions.rounding import DIRECTED, directed, directed_double, nearest
from blackwell_matmul.emulator.instructions.special_values import canonical, flushed
from blackwell_matmul.emulator.lanes import LANES, TYPES, WORDS, Array
from blackwell_matmul.emulator.machine import LaneState, WarpState
from blackwell_matmul.emulator.parser import SIZES_BYTES, Operand, Statement, Symbol, Vector
from blackwell_matmul.emulator.unknown import Known, Unknown

CLOCKS = {"%clock": 0, "%clock64": 0, "%clock_hi": 32, "%globaltimer": 0, "%globaltimer_lo": 0, "%globaltimer_hi": 32}
"""Special registers that count time; bits by which each shifts the count of executed instructions."""

NARROW: dict[str, Any] = {
    "e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2, "e2m3x2": ml_dtypes.float6_e2m3fn,
    "e3m2x2": ml_dtypes.float6_e3m2fn, "e2m1x2": ml_dtypes.float4_e2m1fn, "ue8m0x2": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
"""Element type of each pair of narrow floats. A pair has 16 bits; e2m1x2 has 8 bits."""

_NARROW_NAN = {to: np.uint8(0x7F).view(NARROW[to]) for to in ("e4m3x2", "e5m2x2")}
"""NaN of each narrow type. Types of 4 and 6 bits have no NaN; the largest value takes its place."""

_WIDE: dict[str, Any] = {
    "f16x2": np.float16,
    "bf16x2": ml_dtypes.bfloat16,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}


@instruction("cvt")
def convert(build: Builder, each: Statement) -> Act:
    """Convert: `cvt{.rounding}{.relu}{.satfinite}.to.from d, a{, b}`. In a pair, a becomes the upper half ("cvt")."""
    to, source = each.modifiers[-2:].exactly(2)
    by_chance = "rs" in each.modifiers
    if (source in NARROW and to not in _WIDE) or "scaled" in each.opcode or (by_chance and to not in _RANDOM_BITS):
        raise Unknown(f"{each.opcode} is not emulated")
    if by_chance:
        return _to_pair_by_chance(build, each, to)
    if to in NARROW or to in ("f16x2", "bf16x2"):
        return _to_pair(build, each, to, source)
    if to == "tf32":
        return elementwise(build, each, _to_tf32(each), "b32", "f32")
    read, word = build.reader(each.operands[1], source), WORDS[SIZES_BYTES[to]]
    change = _change(each, to, source)
    flush = "ftz" in each.modifiers
    target, widen = build.target(each.operands[0]), widener(build, each.operands[0], to)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        value = change(flushed(read(warp))) if flush and source == "f32" else change(read(warp))
        value = flushed(value) if flush and to == "f32" else value
        warp.set(target, value.view(word) if widen is None else widen(value.view(word)), mask)

    return act


@instruction("cvt.pack")
def convert_pack(build: Builder, each: Statement) -> Act:
    """Clip two integers and pack them, b lowest: `cvt.pack.sat.to.s32 d, a, b` ("cvt.pack"). `cvt.pack.sat.to.s32.b32
    d, a, b, c` puts the low bits of c above them."""
    words = each.modifiers.exactly(5 if len(each.operands) == 4 else 4)
    to = Known({f"{kind}{bits}": (kind, bits) for kind in "us" for bits in (2, 4, 8, 16)})[words[2]]
    bits = to[1]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to[0] == "s" else (0, (1 << bits) - 1)

    def every(a: Array, b: Array, *c: Array) -> Array:
        upper, lower = (np.clip(value.astype(np.int64), low, high) & (1 << bits) - 1 for value in (a, b))
        rest = c[0].astype(np.int64) << 2 * bits if c else 0
        return ((rest | upper << bits | lower) & 0xFFFFFFFF).astype(np.uint32)

    return elementwise(build, each, every, "b32", words[3], words[3], *["b32"] * (len(words) == 5))


_TO_WHOLE: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _change(each: Statement, to: str, source: str) -> Callable[[Array], Array]:
    kind, words = np.dtype(TYPES[to]), each.modifiers
    whole = next((_TO_WHOLE[word] for word in words if word in _TO_WHOLE), None)
    if "f" not in to and "f" not in source:
        return (lambda a: _clipped(a.tolist(), kind)) if "sat" in words else (lambda a: a.astype(kind))
    if "f" not in to:
        nan = 1 << 8 * kind.itemsize - 1 if source == "f64" or kind.itemsize == 8 else 0
        if whole is None:
            raise Unknown(f"{each.opcode} does not say how it rounds")
        return lambda a: _clipped(whole(a.astype(np.float64)).tolist(), kind, nan)
    rounding = next((word for word in words if word in DIRECTED), "")
    if kind == np.float64 and rounding and "f" not in source:
        return directed_double(lambda a: a, rounding)
    return lambda a: narrowed(a if whole is None else whole(a.astype(np.float64)), kind, words)


def _clipped(values: list[Any], kind: Any, nan: int = 0) -> Array:
    """Return integers clipped to a type's range. nan: result for NaN."""
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    whole = [int(min(max(x, low), high)) if x == x else nan for x in values]
    return np.array([each & (1 << 64) - 1 for each in whole], np.uint64).astype(kind)


def narrowed(value: Array, kind: Any, words: tuple[str, ...]) -> Array:
    """Return values rounded to a float type, clipped by .sat, .satfinite and .relu."""
    value = _odd(value) if value.dtype.kind in "iu" and kind.itemsize < 8 else canonical(value)
    if "satfinite" in words:
        top = float(ml_dtypes.finfo(kind).max)
        value = np.clip(value, -top, top)
    if "sat" in words:  # NaN and -0 are +0
        value = np.where(np.isnan(value), 0, np.clip(value, 0, 1) + 0).astype(value.dtype)
    value = np.maximum(value, 0) if "relu" in words else value
    rounding = next((word for word in words if word in DIRECTED), "")
    return canonical(directed(value, kind, rounding) if rounding else nearest(value, kind))


def _odd(value: Array) -> Array:
    """Return integers as float64, rounded to odd, so that a second rounding gives the correct result."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    low = value & value.dtype.type(0x7FF)
    cut = value - low + (low != 0).astype(value.dtype) * value.dtype.type(0x800)
    cut = np.where(value & value.dtype.type(0x800), value - low, cut)
    return np.where(np.abs(value.astype(np.float64)) < 2.0**53, value, cut).astype(np.float64)


def _to_tf32(each: Statement) -> Callable[[Array], Array]:
    """Return a function that rounds to 10 mantissa bits: rna ties away from zero, rn to even, rz truncates."""
    top, relu = np.uint32(0x7F7FE000), "relu" in each.modifiers
    bias: Any = np.uint32(0x1000 if "rna" in each.modifiers else 0x0FFF if "rn" in each.modifiers else 0)

    def every(a: Array) -> Array:
        bits = a.view(np.uint32)
        even = bits >> np.uint32(13) & np.uint32(1) if "rn" in each.modifiers else np.uint32(0)
        rounded = (bits + bias + even) & np.uint32(0xFFFFE000)
        rounded = np.where(np.isfinite(a), rounded, bits)
        if "satfinite" in each.modifiers:
            sign = bits & np.uint32(0x80000000)
            rounded = np.where((rounded & np.uint32(0x7FFFFFFF)) == 0x7F800000, top | sign, rounded)
        return np.where(relu & (a < 0), np.uint32(0), rounded)

    return every


def _to_pair(build: Builder, each: Statement, to: str, source: str) -> Act:
    """Convert to a pair of floats: from two f32, or from a pair of another type."""
    reads = [build.reader(operand, _raw(source)) for operand in each.operands[1:]]
    target, nbytes = build.target(each.operands[0]), _pair_bytes(to)
    widen = build.fit(each.operands[0], nbytes)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        if len(reads) == 2:
            values = np.stack([reads[1](warp).view(np.float32), reads[0](warp).view(np.float32)], axis=1)
        else:
            values = unpacked(reads[0](warp), source)
        word = packed(values, to, each.modifiers)
        warp.set(target, word if widen is None else widen(word), mask)

    return act


_RANDOM_BITS = {"f16x2": 13, "bf16x2": 16}
"""Random bits for each element, in a half of a register: mantissa bits of float32 less those of the element."""


def _to_pair_by_chance(build: Builder, each: Statement, to: str) -> Act:
    """Convert two f32 to a pair with stochastic rounding: `cvt.rs.f16x2.f32 d, a, b, random`.

    An element is rounded away from zero if adding its discarded bits and the random bits carries.
    """
    a, b, random = (build.reader(operand, type) for operand, type in zip(each.operands[1:4], ("f32", "f32", "b32")))
    target, bits, finest = build.target(each.operands[0]), _RANDOM_BITS[to], ml_dtypes.finfo(_WIDE[to])

    @wide
    def act(warp: LaneState, mask: int) -> None:
        values = np.stack([b(warp), a(warp)], axis=1).astype(np.float64)
        chance = np.stack([random(warp), random(warp) >> np.uint32(16)], axis=1) & np.uint32((1 << bits) - 1)
        _, exponent = np.frexp(np.where(np.isfinite(values), values, 0))
        unit = np.exp2(np.maximum(exponent - 1, int(finest.minexp)) - float(finest.nmant))
        size = np.abs(values) / unit
        rounded = np.floor(size) + (size - np.floor(size) + chance / (1 << bits) >= 1)
        found = np.where(np.isfinite(values), np.copysign(rounded * unit, values), values)
        warp.set(target, packed(found, to, each.modifiers), mask)

    return act


def _raw(type: str) -> str:
    return {1: "b8", 2: "b16", 4: "b32"}[4 if type == "f32" else _pair_bytes(type)]


def _pair_bytes(type: str) -> int:
    return 1 if type == "e2m1x2" else 2 if type in NARROW or type in ("f16", "bf16") else 4


def unpacked(word: Array, type: str) -> Array:
    """Return pairs of floats as float32, lanes x 2, the lower half first."""
    if type == "e2m1x2":
        nibbles = np.stack([word & 15, word >> 4], axis=1).astype(np.uint8)
        return nibbles.view(NARROW[type]).astype(np.float32)
    kind = NARROW.get(type) or _WIDE[type]
    parts = np.ascontiguousarray(word).view(np.uint8 if type in NARROW else np.uint16).reshape(len(word), -1)
    return parts.view(kind).astype(np.float32)


def packed(values: Array, to: str, words: tuple[str, ...]) -> Array:
    """Return the bits of pairs of floats."""
    if to == "ue8m0x2":
        return _exponents(values, words)
    kind = np.dtype(NARROW.get(to) or _WIDE[to])
    narrow = narrowed(values, kind, words)
    if to in NARROW:
        nan = _NARROW_NAN.get(to, ml_dtypes.finfo(kind).max)
        narrow = np.where(np.isnan(values), kind.type(nan), narrow)
    raw = np.ascontiguousarray(narrow)
    if to == "e2m1x2":
        bits = raw.view(np.uint8)
        return bits[:, 0] & np.uint8(15) | bits[:, 1] << np.uint8(4)
    return raw.view(np.uint16 if to in NARROW else np.uint32).reshape(-1)


def _exponents(values: Array, words: tuple[str, ...]) -> Array:
    """Return pairs of ue8m0: powers of two from 2^-127 to 2^127, and NaN. .rp rounds up, .rz down."""
    size = np.abs(values.astype(np.float64))
    mantissa, exponent = np.frexp(np.where(np.isinf(size), 2.0**127, np.maximum(size, 2.0**-127)))
    power = exponent - 1 + ((mantissa != 0.5) & ("rp" in words))
    is_nan = np.isnan(values) | (np.isinf(values) & ("satfinite" not in words))
    bits = np.where(is_nan, 255, np.clip(power + 127, 0, 254)).astype(np.uint8)
    return np.ascontiguousarray(bits).view(np.uint16).reshape(-1)


# --- moves


@instruction("mov")
def move(build: Builder, each: Statement) -> Act:
    """Move a register, an immediate or an address. Split a wide register into a vector, or join a vector ("mov")."""
    to, source = each.operands.exactly(2)
    type = last_type(each)
    if type == "pred":
        return predicates(build, each, "mov")
    if {"v2", "v4"} & {*each.modifiers}:
        return _each_part(build, build.vector(to), build.vector(source), type)
    if isinstance(to, Vector):
        return _split(build, to, source, type)
    if isinstance(source, Vector):
        return _joined(build, to, source, type)
    if isinstance(source, Symbol) and source.name in CLOCKS:
        return _clock(build.target(to), WORDS[SIZES_BYTES[type]], CLOCKS[source.name])
    target, slot = build.target(to), build.source(source, type)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        warp.set(target, warp.registers[slot], mask)

    return act


def _clock(target: int, word: Any, shift: int) -> Act:
    """Read a clock: the number of instructions that all warps have executed ("%clock", "%clock64", "%globaltimer")."""

    def act(warp: WarpState, mask: int) -> Clock:
        return Clock(
            lambda now: warp.set(target, np.full(LANES, now >> shift & (1 << 8 * word().itemsize) - 1, word), mask)
        )

    return act


def _each_part(build: Builder, to: tuple[Operand, ...], source: tuple[Operand, ...], type: str) -> Act:
    """Move the parts of a vector: `mov.v4.f32 {a, b, c, d}, V`."""
    targets = [build.target(part) for part in to]
    reads = [build.reader(part, f"b{8 * SIZES_BYTES[type]}") for part in source]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        for target, value in zip(targets, [read(warp) for read in reads]):
            warp.set(target, value, mask)

    return act


def _split(build: Builder, to: Vector, source: Any, type: str) -> Act:
    slot, count = build.source(source, type), len(to.parts)
    targets, part = build.targets(to), WORDS[SIZES_BYTES[type] // len(to.parts)]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        parts = np.ascontiguousarray(warp.registers[slot]).view(part).reshape(-1, count)
        for index, target in enumerate(targets):
            warp.set(target, parts[:, index].copy(), mask)

    return act


def _joined(build: Builder, to: Any, source: Vector, type: str) -> Act:
    target, size = build.target(to), SIZES_BYTES[type] // len(source.parts)
    reads = [build.reader(part, f"b{8 * size}") for part in source.parts]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        word = np.stack([read(warp) for read in reads], axis=1).view(WORDS[SIZES_BYTES[type]]).reshape(-1)
        warp.set(target, word, mask)

    return act
