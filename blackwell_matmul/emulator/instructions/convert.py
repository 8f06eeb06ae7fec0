"""Conversions between types and moves between registers (PTX ISA, "cvt", "cvt.pack", "mov")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Unknown, instruction, last_type
from blackwell_matmul.emulator.instructions.integers import elementwise, predicates
from blackwell_matmul.emulator.instructions.rounding import DIRECTED, directed, nearest
from blackwell_matmul.emulator.instructions.special_values import canonical, flushed
from blackwell_matmul.emulator.lanes import LANES, TYPES, WORDS, Array
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import SIZES, Register, Statement, Vector

NARROW: dict[str, Any] = {
    "e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2, "e2m3x2": ml_dtypes.float6_e2m3fn,
    "e3m2x2": ml_dtypes.float6_e3m2fn, "e2m1x2": ml_dtypes.float4_e2m1fn, "ue8m0x2": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
"""Pairs of narrow floats: 16 bits, e2m1x2 8 bits."""

_NARROW_NAN = {to: np.uint8(0x7F).view(NARROW[to]) for to in ("e4m3x2", "e5m2x2")}
"""Those of 4 and 6 bits have none: the largest takes its place."""

_WIDE: dict[str, Any] = {
    "f16x2": np.float16,
    "bf16x2": ml_dtypes.bfloat16,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
}
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "rs")


@instruction("cvt")
def convert(build: Builder, each: Statement) -> Act:
    """`cvt{.rounding}{.relu}{.satfinite}.to.from d, a{, b}`; a pair takes a into the upper half ("cvt")."""
    to, source = each.modifiers[-2:]
    if to == "pack" or "pack" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    if to in NARROW or to in ("f16x2", "bf16x2"):
        return _to_pair(build, each, to, source)
    if source in NARROW:
        raise Unknown(f"{each.opcode} is not emulated")
    if to == "tf32":
        return elementwise(build, each, _to_tf32(each), "b32", "f32")
    read, word = build.reader(each.operands[1], source), WORDS[SIZES[to]]
    change = _change(each, to, source)
    flush = "ftz" in each.modifiers
    target, widen = build.target(each.operands[0]), _widen(build, each, to)

    def act(warp: WarpState, mask: int) -> None:
        with np.errstate(all="ignore"):
            value = change(flushed(read(warp))) if flush and source == "f32" else change(read(warp))
            value = canonical(flushed(value) if flush and to == "f32" else value)
        warp.set(target, value.view(word) if widen is None else widen(value), mask)

    return act


def _widen(build: Builder, each: Statement, to: str) -> Callable[[Array], Array] | None:
    """A narrow integer fills a wider register with its sign."""
    register = each.operands[0]
    if not isinstance(register, Register) or SIZES[build.types[register.slot]] == SIZES[to]:
        return None
    size = SIZES[build.types[register.slot]]
    wide = np.dtype(f"i{size}") if to[0] == "s" else WORDS[size]
    return lambda value: value.astype(wide).view(WORDS[size])


def _change(each: Statement, to: str, source: str) -> Callable[[Array], Array]:
    kind, rounding = TYPES[to], next((word for word in each.modifiers if word in ROUNDINGS), "")
    saturates = "sat" in each.modifiers
    if "f" not in to and "f" not in source:
        return (lambda a: _clipped(a, kind)) if saturates else (lambda a: a.astype(kind))
    if "f" not in to:
        return lambda a: _to_integer(a, rounding, kind)
    if "f" in source and rounding in _TO_WHOLE:
        return lambda a: _TO_WHOLE[rounding](a.astype(np.float64)).astype(kind)
    if rounding in ("rz", "rm", "rp") and SIZES[to] < 8:
        return lambda a: directed(a, kind, rounding)
    change: Callable[[Array], Array] = lambda a: canonical(a).astype(kind)  # noqa: E731
    if "relu" in each.modifiers:
        return lambda a: np.maximum(change(a), kind(0))
    return (lambda a: np.clip(change(a), kind(0), kind(1))) if saturates else change


_TO_WHOLE: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _clipped(value: Array, kind: Any) -> Array:
    limits = np.iinfo(kind)
    return np.array([min(max(int(x), limits.min), limits.max) for x in value], kind)


def _to_integer(value: Array, rounding: str, kind: Any) -> Array:
    """Rounded, and at the ends of the range where it is outside; NaN is 0."""
    whole = _TO_WHOLE[rounding](value.astype(np.float64))
    limits = np.iinfo(kind)
    return np.array(
        [0 if np.isnan(x) else int(min(max(x, float(limits.min)), float(limits.max))) if not _beyond(x, limits) else
         (limits.min if x < 0 else limits.max) for x in whole], kind,
    )  # fmt: skip


def _beyond(value: float, limits: Any) -> bool:
    return not limits.min <= value <= limits.max


def _to_tf32(each: Statement) -> Callable[[Array], Array]:
    """10 bits of mantissa: rna rounds ties away from zero, rn to even, rz cuts."""
    bias: Any = np.uint32(0x1000 if "rna" in each.modifiers else 0x0FFF if "rn" in each.modifiers else 0)

    def every(a: Array) -> Array:
        bits = a.view(np.uint32)
        even = bits >> np.uint32(13) & np.uint32(1) if "rn" in each.modifiers else np.uint32(0)
        rounded = (bits + bias + even) & np.uint32(0xFFFFE000)
        return np.where(np.isfinite(a), rounded, bits)

    return every


def _to_pair(build: Builder, each: Statement, to: str, source: str) -> Act:
    """From two f32, or from one pair of another type."""
    relu = "relu" in each.modifiers
    reads = [build.reader(operand, _raw(source)) for operand in each.operands[1:]]
    target, nbytes = build.target(each.operands[0]), _pair_bytes(to)
    widen = build.fit(each.operands[0], nbytes)

    def act(warp: WarpState, mask: int) -> None:
        with np.errstate(all="ignore"):
            if len(reads) == 2:
                values = np.stack([reads[1](warp).view(np.float32), reads[0](warp).view(np.float32)], axis=1)
            else:
                values = unpacked(reads[0](warp), source)
            word = packed(np.maximum(values, 0) if relu else values, to, each.modifiers)
        warp.set(target, word if widen is None else widen(word), mask)

    return act


def _raw(type: str) -> str:
    return {1: "b8", 2: "b16", 4: "b32"}[4 if type == "f32" else _pair_bytes(type)]


def _pair_bytes(type: str) -> int:
    return 1 if type == "e2m1x2" else 2 if type in NARROW or type in ("f16", "bf16") else 4


def unpacked(word: Array, type: str) -> Array:
    """32 pairs of floats from their bits, the lower half first."""
    if type == "e2m1x2":
        nibbles = np.stack([word & 15, word >> 4], axis=1).astype(np.uint8)
        return nibbles.view(NARROW[type]).astype(np.float32)
    kind = NARROW.get(type) or _WIDE[type]
    parts = np.ascontiguousarray(word).view(np.uint8 if type in NARROW else np.uint16).reshape(LANES, -1)
    return parts.view(kind).astype(np.float32)


def packed(values: Array, to: str, modifiers: tuple[str, ...]) -> Array:
    """The bits of 32 pairs; .satfinite: beyond the range is the largest finite."""
    kind = NARROW.get(to) or _WIDE[to]
    if to == "ue8m0x2":
        return _exponents(values, modifiers)
    if "rz" in modifiers:
        narrow = np.stack([directed(values[:, half], kind, "rz") for half in range(2)], axis=1)
    elif to in NARROW or "satfinite" in modifiers:
        top = float(ml_dtypes.finfo(kind).max)
        narrow = np.clip(values, -top, top).astype(kind)
        narrow = np.where(np.isnan(values), _NARROW_NAN.get(to, kind(top)), narrow)
    else:
        narrow = values.astype(kind)
    raw = np.ascontiguousarray(narrow)
    if to == "e2m1x2":
        bits = raw.view(np.uint8)
        return bits[:, 0] & np.uint8(15) | bits[:, 1] << np.uint8(4)
    return raw.view(np.uint16 if to in NARROW else np.uint32).reshape(LANES)


def _exponents(values: Array, modifiers: tuple[str, ...]) -> Array:
    """ue8m0: a power of two; .rp up to the next, .rz down."""
    mantissa, exponent = np.frexp(np.abs(values.astype(np.float64)))
    power = exponent - 1 + ((mantissa != 0.5) & ("rp" in modifiers))
    bits = np.where(np.isnan(values), 255, np.clip(power + 127, 0, 254)).astype(np.uint8)
    return np.ascontiguousarray(bits).view(np.uint16).reshape(LANES)


# --- moves


@instruction("mov")
def move(build: Builder, each: Statement) -> Act:
    """Of a register, an immediate, an address; between a wide register and the vector of its parts ("mov")."""
    to, source = each.operands
    type = last_type(each)
    if type == "pred":
        return predicates(build, each, "mov")
    if isinstance(to, Vector):
        return _split(build, to, source, type)
    if isinstance(source, Vector):
        return _joined(build, to, source, type)
    target, slot = build.target(to), build.source(source, type)
    if isinstance(source, Register) and SIZES[build.types[slot]] != SIZES[type]:
        raise Unknown(f"{each.opcode} between registers of other sizes is not emulated")

    def act(warp: WarpState, mask: int) -> None:
        warp.set(target, warp.registers[slot], mask)

    return act


def _split(build: Builder, to: Vector, source: Any, type: str) -> Act:
    slot, count = build.source(source, type), len(to.parts)
    targets, part = build.targets(to), WORDS[SIZES[type] // len(to.parts)]

    def act(warp: WarpState, mask: int) -> None:
        parts = np.ascontiguousarray(warp.registers[slot]).view(part).reshape(LANES, count)
        for index, target in enumerate(targets):
            warp.set(target, parts[:, index].copy(), mask)

    return act


def _joined(build: Builder, to: Any, source: Vector, type: str) -> Act:
    target, size = build.target(to), SIZES[type] // len(source.parts)
    reads = [build.reader(part, f"b{8 * size}") for part in source.parts]

    def act(warp: WarpState, mask: int) -> None:
        word = np.stack([read(warp) for read in reads], axis=1).view(WORDS[SIZES[type]]).reshape(LANES)
        warp.set(target, word, mask)

    return act


# narrow pairs to wide ones: cvt.rn.f16x2.e4m3x2 and its like come through `_to_pair`
