"""Register tensors, and the thread that holds each element.

A warp's part of a register tensor is an array of (32 lanes, elements a lane). `WarpLayout` moves it to and from a tile,
through the real register layout, so that "warp 2 stored rows 64..95" is exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

WARP = 32
_LANE_COLUMN = np.arange(WARP)[:, None]

Gather = Callable[[np.ndarray, float], np.ndarray]
"""Function of a warp's registers, and of a value for elements that they do not hold."""


@dataclass(frozen=True)
class ThreadGroup:
    """Threads [begin, begin + count) of the CTA that execute an instruction. elected: one lane chosen by elect.sync."""

    begin: int
    count: int
    elected: bool = False

    @property
    def warps(self) -> range:
        return range(self.begin // WARP, (self.begin + self.count - 1) // WARP + 1)

    def is_part_of(self, other: ThreadGroup) -> bool:
        """Return True if all threads of this group are in `other`."""
        return other.begin <= self.begin and self.begin + self.count <= other.begin + other.count

    def leaves_out_lanes_of(self, other: ThreadGroup) -> bool:
        """Return True if a warp has some threads of this group, and further threads of `other`."""
        return any(self.lanes(warp) != other.lanes(warp) for warp in self.warps)

    def lanes(self, warp: int) -> tuple[int, int]:
        """Return the first lane and the number of lanes of `warp` in the group."""
        first = max(self.begin, warp * WARP)
        return first - warp * WARP, min(self.begin + self.count, (warp + 1) * WARP) - first

    def first_of(self, warp: int) -> ThreadGroup:
        """Return a group of only the first of these lanes."""
        return ThreadGroup(max(self.begin, warp * WARP), 1, self.elected)

    def mask(self, warp: int, most: int = WARP) -> int:
        """Return the mask of these lanes, among the first `most`."""
        first, count = self.lanes(warp)
        return (1 << min(count, most)) - 1 << first


def _threads(group: ThreadGroup, warp: int) -> np.ndarray:
    """Return indices of the warp's active threads relative to the group (tilus's current_thread)."""
    lane, count = group.lanes(warp)
    return np.arange(warp * WARP + lane, warp * WARP + lane + count) - group.begin


def _deserialize(index: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    digits: list[np.ndarray] = []
    for extent in reversed(shape):
        digits.append(index % extent)
        index = index // extent
    return digits[::-1]


def coordinates(layout: Any, threads: np.ndarray) -> list[np.ndarray]:
    """Return the element that each register holds, as one array of shape (threads, local size) for each dimension."""
    spatial = _deserialize(threads[:, None] % max(layout.spatial_size, 1), layout.spatial_shape)
    local = _deserialize(np.arange(layout.local_size)[None, :], layout.local_shape)
    modes: list[np.ndarray] = [np.zeros((1, 1), np.int64) for _ in layout.mode_shape]
    for mode, digit in zip(layout.spatial_modes, spatial, strict=True):
        if mode >= 0:
            modes[mode] = digit
    for mode, digit in zip(layout.local_modes, local, strict=True):
        modes[mode] = digit
    full = (len(threads), layout.local_size)
    result = []
    for group in layout.grouped_modes:
        index = np.zeros((1, 1), np.int64)
        for mode in group:
            index = index * layout.mode_shape[mode] + modes[mode]
        result.append(np.broadcast_to(index, full))
    return result


def local_index(layout: Any, indices: Sequence[np.ndarray]) -> np.ndarray:
    """Return the register number of an element inside its lane."""
    digits: dict[int, np.ndarray] = {}
    for index, group in zip(indices, layout.grouped_modes, strict=True):
        parts = _deserialize(np.asarray(index), [layout.mode_shape[m] for m in group])
        digits.update(zip(group, parts, strict=True))
    result = np.zeros(np.broadcast_shapes((1,), *(np.shape(i) for i in indices)), np.int64)
    for mode in layout.local_modes:
        result = result * layout.mode_shape[mode] + digits[mode]
    return result


class WarpLayout:
    """The part of a register layout that one warp of a thread group holds.

    coords: for each dimension, the index of the element in (active lanes, local size). box: the rectangle around
    them; dense: the warp holds the whole rectangle. unique: False when several lanes hold the same element.
    """

    def __init__(self, layout: Any, group: ThreadGroup, warp: int) -> None:
        self.shape: tuple[int, ...] = tuple(layout.shape)
        self.local_size: int = layout.local_size
        self.lane, self.lanes = group.lanes(warp)
        self.coords = tuple(coordinates(layout, _threads(group, warp)))
        self.box = tuple((int(c.min()), int(c.max()) + 1) for c in self.coords)
        self.flat = (
            np.ravel_multi_index(self.coords, self.shape)
            if self.shape
            else np.zeros((self.lanes, self.local_size), np.int64)
        )
        distinct = np.unique(self.flat).size
        self.dense = distinct == math.prod(hi - lo for lo, hi in self.box)
        self.unique = distinct == self.flat.size
        self._strided = self._find_strided() if self.dense and self.unique and self.shape else None

    def _find_strided(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return (split, axes) if the warp's rectangle, split into bits, is a permutation of (lane, register) bits."""
        extents = [hi - lo for lo, hi in self.box]
        if (
            any(e & (e - 1) for e in extents)
            or self.lanes & (self.lanes - 1)
            or self.local_size & (self.local_size - 1)
        ):
            return None
        local = [c - lo for c, (lo, _) in zip(self.coords, self.box, strict=True)]
        strides = np.cumprod([1, *extents[:0:-1]])[::-1]
        position = sum(c * s for c, s in zip(local, strides, strict=True)).reshape(-1)
        bits = position.size.bit_length() - 1
        axes = []
        for bit in reversed(range(bits)):  # which bit of the tile position does this bit of (lane, register) set?
            value = int(position[1 << bit])
            if value & (value - 1):
                return None
            axes.append(bits - value.bit_length())
        rebuilt = sum(((np.arange(position.size) >> (bits - 1 - i)) & 1) << (bits - 1 - a) for i, a in enumerate(axes))
        return _merge(extents, axes) if bits == 0 or np.array_equal(rebuilt, position) else None

    def load(self, tile: np.ndarray) -> np.ndarray:
        """Return the warp's registers (32, local size) of a tile of the layout's shape, or of its part with the warp's
        box."""
        if self._strided is not None and self.lanes == WARP:
            split, axes = self._strided
            block = tile[tuple(slice(lo, hi) for lo, hi in self.box)]
            return np.array(block.reshape(split).transpose(axes), order="C").reshape(WARP, self.local_size)
        whole = tile.shape == self.shape and tile.flags.c_contiguous  # `flat` counts in the layout's shape
        return self._in_lanes(tile.reshape(-1).take(self.flat) if whole else tile[self.coords])

    def holders(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the elements in the lanes' registers, and the lane of each."""
        lanes = np.arange(self.lane, self.lane + self.lanes)
        return numbers.reshape(-1), np.repeat(lanes, numbers.size // max(self.lanes, 1))

    def _in_lanes(self, held: np.ndarray) -> np.ndarray:
        """Return the registers of all lanes, of those of the active lanes."""
        if self.lanes == WARP:
            return held
        out = np.zeros((WARP, self.local_size), held.dtype)
        out[self.lane : self.lane + self.lanes] = held
        return out

    def store(self, tile: np.ndarray, registers: np.ndarray) -> None:
        """Write the warp's registers to their places in a tile."""
        if self._strided is not None and self.lanes == WARP:
            split, axes = self._strided
            block = tile[tuple(slice(lo, hi) for lo, hi in self.box)]
            permuted = block.reshape(split).transpose(axes)  # splitting axes never copies
            permuted[...] = registers.reshape(permuted.shape)
            return
        self.place(registers, tile)

    def place(self, registers: np.ndarray, out: np.ndarray) -> None:
        """Scatter registers as `store` does, into any array: to gather a whole tile from several warps."""
        active = registers[self.lane : self.lane + self.lanes]
        out[self.coords] = active if self.coords else active[0, 0]

    @functools.cached_property
    def lines(self) -> tuple[np.ndarray, ...]:
        """Return the indices of each dimension at which the warp holds an element."""
        return tuple(map(np.unique, self.coords))

    def block(self, lines: Sequence[np.ndarray]) -> Gather:
        """Return a function that gathers the elements at these indices from registers; missing elements get a given
        value."""
        slots = self._slots(lines)
        missing = slots < 0
        if not missing.any():
            return lambda registers, value: registers.take(slots)
        return lambda registers, value: np.where(missing, registers.dtype.type(value), registers.take(slots))

    def holds(self, lines: Sequence[Sequence[int] | np.ndarray]) -> bool:
        """Return True if the warp holds all elements at these indices of each dimension."""
        return bool((self._slots(lines) >= 0).all())

    def _slots(self, lines: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
        """Return the register, lane by lane, that holds each of these elements; -1 for none."""
        slots = np.full(self.shape, -1)
        self.place(np.arange(WARP * self.local_size).reshape(WARP, -1), slots)
        found: np.ndarray = slots[np.ix_(*lines)]
        return found

    def registers(self, block: np.ndarray) -> np.ndarray:
        """Return the registers as `load` does, from only the warp's `lines` of a tile."""
        return self._in_lanes(block.reshape(-1).take(self._on_lines))

    @functools.cached_property
    def _on_lines(self) -> np.ndarray:
        """Return the index of the element that each register holds, in row-major order among the warp's lines."""
        inside = tuple(map(np.searchsorted, self.lines, self.coords))
        return np.ravel_multi_index(inside, tuple(map(len, self.lines)))


def _merge(extents: Sequence[int], axes: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Join neighbouring bits that move together: numpy copies few long axes faster than many of two."""
    bits_of = [e.bit_length() - 1 for e in extents]
    starts = {sum(bits_of[:i]) for i in range(len(bits_of))}
    runs: list[list[int]] = []
    for axis in axes:
        if runs and axis == runs[-1][-1] + 1 and axis not in starts:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    ordered = sorted(runs)
    split = tuple(1 << len(run) for run in ordered)
    return split or (1,), tuple(ordered.index(run) for run in runs) or (0,)


KEPT_INDICES = 4096
"""Maximum number of cached broadcast indices."""

_layouts: dict[Any, WarpLayout] = {}
_indices: dict[Any, np.ndarray] = {}
"""Warp layouts and broadcast indices, by signatures of layouts, group and warp."""


def warp_layout(layout: Any, group: ThreadGroup, warp: int) -> WarpLayout:
    """Return the cached `WarpLayout`; equal layouts share one."""
    key = _signature(layout), group, warp
    if key not in _layouts:
        _layouts[key] = WarpLayout(layout, group, warp)
    return _layouts[key]


def _signature(layout: Any) -> tuple[Any, ...]:
    return (tuple(layout.shape), tuple(layout.mode_shape), tuple(layout.spatial_modes), tuple(layout.local_modes))


def broadcast_index(out: Any, operand: Any, group: ThreadGroup, warp: int) -> np.ndarray | None:
    """Return, for each register of `out`, the register of `operand` in the same lane to combine; None: the same."""
    key = _signature(out), _signature(operand), group, warp
    if key[0] == key[1]:
        return None
    if key not in _indices:
        if len(_indices) >= KEPT_INDICES:
            _indices.clear()
        _indices[key] = _broadcast_index(out, operand, group, warp)
    return _indices[key]


def _broadcast_index(out: Any, operand: Any, group: ThreadGroup, warp: int) -> np.ndarray:
    coords, shape = warp_layout(out, group, warp).coords, operand.shape
    aligned = coords[len(coords) - len(shape) :]
    picked = [np.zeros_like(c) if extent == 1 else c for c, extent in zip(aligned, shape, strict=True)]
    full = np.zeros((WARP, out.local_size), np.int64)
    lane, lanes = group.lanes(warp)
    full[lane : lane + lanes] = local_index(operand, picked) if shape else 0
    return full


def pick(registers: np.ndarray, index: np.ndarray | None) -> np.ndarray:
    """Return registers in the order of `broadcast_index`."""
    return registers if index is None else registers[_LANE_COLUMN, index]


# origins of unwritten values (unwritten.py): each byte of an element holds a number, 0 if it was written


def numbers(origins: np.ndarray) -> np.ndarray:
    """Return the number of each element; for a partly written element, the number of the unwritten part."""
    parts = np.ascontiguousarray(origins).view(np.uint8)
    return np.asarray(parts.reshape(*origins.shape, origins.dtype.itemsize).max(axis=-1))


def spread(each: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Invert `numbers` for elements of this type."""
    return np.repeat(each, dtype.itemsize, axis=1).view(f"u{dtype.itemsize}")
