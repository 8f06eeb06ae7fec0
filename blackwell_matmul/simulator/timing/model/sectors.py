"""Sectors that threads' loads and stores move, by the tensor's strides and the place in it.

A warp moves whole sectors of 32 bytes (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"). One
instruction, of up to 16 bytes for each lane, takes as many as its lanes' addresses lie in. The L2 and memory see each
sector once, as the L1 keeps loaded data until the next instruction and the L2 gathers stores. But each store of a part
of a sector goes there by itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.simulator.lowering.context import layouts_of
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.global_memory import GlobalStorage
from blackwell_matmul.simulator.machine.registers import WarpLayout
from blackwell_matmul.simulator.semantics.views import GlobalView
from blackwell_matmul.simulator.timing.model.sm import SECTOR_BYTES
from blackwell_matmul.simulator.timing.model.work import Load, MoveLines

VECTOR_BITS = 128
"""Maximum bits of a lane that one instruction moves (PTX ISA, "ld", "st": .v4.b32)."""


class SectorsOf:
    """Sectors of an instruction. given: tensors that the program only reads, whose loads may come from memory."""

    def __init__(self, inst: Any, work: MoveLines, given: frozenset[str]) -> None:
        self.work, self.given = work, given
        self.dims = tuple(sorted(getattr(inst, "dims", None) or ()))
        registers = inst.output if work.returns else inst.inputs[-1]
        self.layouts: Mapping[int, WarpLayout] = layouts_of(registers, work.instruction.group)
        self._known: dict[Any, MoveLines] = {}

    def at(self, warp: Warp, operands: tuple[Any, ...]) -> MoveLines:
        view, offsets = operands[0], operands[-1]
        assert isinstance(view, GlobalView) and isinstance(view.storage, GlobalStorage)
        layout, bits, name = self.layouts[warp.index], view.storage.item.nbits, view.storage.segment.name
        strides, start = _in_elements(view, offsets)
        start %= SECTOR_BYTES * 8 // bits
        along = tuple(strides[dim] for dim in self.dims)
        inside = tuple(min(view.declared[d] - offsets[d], e) for d, e in zip(self.dims, layout.shape, strict=True))
        key = warp.index, name, along, start, inside
        if key not in self._known:
            self._known[key] = self._moved(name not in self.given, sectors(layout, along, start, bits, inside))
        return self._known[key]

    def _moved(self, own: bool, found: Sectors) -> MoveLines:
        """Return the work: a cycle for each sector, and more for a partly stored sector."""
        took = found.taken if self.work.returns else found.taken + found.parts * (self.work.part_cycles - 1)
        took = max(self.work.way_cycles, took)
        return dataclasses.replace(self.work, own=own, way_cycles=took, count_bytes=found.distinct * SECTOR_BYTES)


def _in_elements(view: GlobalView, offsets: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the strides of a view, and where a tile begins in its storage, both in elements."""
    size, whole = view.data.itemsize, view.storage.data.strides
    strides = tuple(stride // size for stride in view.data.strides)
    start = sum(place * stride // size for place, stride in zip(view.base, whole, strict=True))
    return strides, start + sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))


class RowsOf:
    """Rows of a TMA load, from a tensor whose rows may begin within L2 lines."""

    def __init__(self, work: Load) -> None:
        self.work = work
        self.by_pitch: dict[int, Load] = {}

    def at(self, operands: tuple[Any, ...]) -> Load:
        view = next(each for each in operands if isinstance(each, GlobalView))
        pitch = math.gcd(ROW_BYTES, *(stride for stride in view.data.strides if stride > view.data.itemsize))
        if pitch not in self.by_pitch:
            self.by_pitch[pitch] = dataclasses.replace(self.work, pitch_bytes=pitch)
        return self.by_pitch[pitch]


class Sectors(NamedTuple):
    """Numbers of sectors of a warp. taken: by all its instructions. distinct: different sectors. parts: sectors of
    which only a part is accessed."""

    taken: int
    distinct: int
    parts: int


def sectors(layout: WarpLayout, strides: Sequence[int], start: int, bits: int, inside: Sequence[int]) -> Sectors:
    """Count sectors. start: the first element's place in its sector. inside: the extents within the tensor."""
    where, keep = np.full((layout.lanes, layout.local_size), start), np.ones((layout.lanes, layout.local_size), bool)
    for index, stride, extent in zip(layout.coords, strides, inside, strict=True):
        where, keep = where + index * stride, keep & (index < extent)
    places = np.where(keep, where, -1)
    each = [np.unique(part) for part in np.split(places, layout.local_size // _vector(where, bits), axis=1)]
    held = [np.unique(part[part >= 0] * bits // (8 * SECTOR_BYTES), return_counts=True)[1] for part in each]
    distinct = np.unique(places[keep] * bits // (8 * SECTOR_BYTES)).size
    parts = sum(int((counts * bits < 8 * SECTOR_BYTES).sum()) for counts in held)
    return Sectors(sum(counts.size for counts in held), distinct, parts)


def _vector(where: np.ndarray, bits: int) -> int:
    """Return the number of contiguous registers of a lane that one instruction moves."""
    width = 1
    while where.shape[1] % (2 * width) == 0 and 2 * width * bits <= VECTOR_BITS:
        pairs = where.reshape(len(where), -1, 2, width)
        if not (pairs[:, :, 1, 0] == pairs[:, :, 0, 0] + width).all():
            break
        width *= 2
    return width


def given(lowered: Lowered) -> frozenset[str]:
    """Return the names of the tensors that a program only reads."""
    return frozenset(name for name, _ in lowered.program.params) - (lowered.written or frozenset())
