"""Global memory: the tensors of a launch, the kernel's views of them, and their writers and readers."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.memory import Box, Region, Storage
from blackwell_matmul.simulator.types import Element, from_bits, to_bits, to_image


@dataclass
class Segment:
    """One argument's memory. `address` is the kernel's address of it; `cells` are its bytes.

    constant: the program does not write it, so it may be converted once and every process may keep its own.
    """

    name: str
    address: int
    cells: np.ndarray
    constant: bool = False

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes


def share_bytes(a: Any, b: Any) -> bool:
    """Return True if two ranges of bytes meet, for example if one tensor is passed twice."""
    return bool(a.address < b.address + b.nbytes and b.address < a.address + a.nbytes)


def segment_of(name: str, value: Any) -> Segment:
    """Return the memory of a CPU tensor (torch or numpy)."""
    if isinstance(value, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(value)
        whole = np.lib.stride_tricks.as_strided(value.view(np.uint8).reshape(-1)[:1], (high - low,), (1,))
        return Segment(name, value.__array_interface__["data"][0], whole)
    return Segment(name, value.data_ptr(), _torch_bytes(value))


def _torch_bytes(tensor: Any) -> np.ndarray:
    """Return the bytes from a tensor's first element to its last, without a copy. DLPack, unlike `.numpy()`, allows
    resizing the tensor later, as FSDP does with weights."""
    import torch

    if tensor.numel() == 0:
        return np.zeros(0, np.uint8)
    size = tensor.element_size()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((span,), (1,)).view(torch.uint8)
    shared = np.from_dlpack(flat)
    return (shared if shared.flags.writeable else flat.numpy())[: span * size]  # read-only from an older torch


@dataclass(frozen=True)
class ViewKey:
    """Everything that defines a view of global memory; strides in elements."""

    address: int
    item: Element
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str


IMAGE_PAYS_ELEMENTS = 2**16
"""Minimum elements of a view for which a conversion of the whole view pays. Tiles of smaller views are converted when
copied."""


class GlobalStorage(Storage):
    """A view of a segment: `declared` is the shape the kernel gave; `data` holds the part that exists."""

    def __init__(self, segment: Segment, key: ViewKey, data: np.ndarray) -> None:
        super().__init__("global", key.name, key.item, data)
        self.segment, self.key, self.address, self.declared = segment, key, key.address, key.shape
        self.constant = segment.constant
        self.maps: set[tuple[Any, ...]] = set()  # valid tensor maps: (dims, box, swizzle span)

    @functools.cached_property
    def image(self) -> np.ndarray | None:
        """Return a constant view, converted to shared memory's types (types.py); None if it may change, or is small."""
        if not self.segment.constant or self.item.dtype == self.item.image or self.data.size < IMAGE_PAYS_ELEMENTS:
            return None
        return to_image(self.data, self.item)

    def close(self) -> None:
        super().close()
        self.__dict__.pop("image", None)

    def element_at(self, address: int) -> Region:
        rest, index = address - self.address, [0] * len(self.shape)
        for dim in sorted(range(len(index)), key=lambda dim: -self.data.strides[dim]):
            index[dim], rest = divmod(rest, self.data.strides[dim])
        return Region(self, tuple((at, at + 1) for at in index))

    def byte_ranges(self, region: Region) -> np.ndarray:
        places = np.unravel_index(region.flat(), self.data.shape) if self.data.shape else ()
        return self.address + sum((p * s for p, s in zip(places, self.data.strides, strict=True)), np.zeros(1, int))


class PackedStorage(GlobalStorage):
    """A view of elements narrower than a byte, consecutive in a stream of bits: `data` holds their numbers."""

    def __init__(self, segment: Segment, key: ViewKey, numbers: np.ndarray, cells: np.ndarray) -> None:
        super().__init__(segment, key, numbers)
        self.cells = cells

    @property
    def image(self) -> None:
        return None

    def _bits(self, numbers: np.ndarray) -> np.ndarray:
        return numbers[..., None] * self.item.nbits + np.arange(self.item.nbits)

    def read(self, data: np.ndarray) -> np.ndarray:
        where = self._bits(data)
        bits = self.cells[where >> 3] >> (where & 7).astype(np.uint8) & 1
        return from_bits(bits.reshape(*data.shape[:-1], -1) if data.ndim else bits, self.item).reshape(data.shape)

    def write(self, data: np.ndarray, values: Any) -> None:
        where = self._bits(data)
        bits = to_bits(np.asarray(values)[..., None], self.item).reshape(where.shape)
        np.bitwise_and.at(self.cells, where >> 3, ~(np.uint8(1) << (where & 7).astype(np.uint8)))
        np.bitwise_or.at(self.cells, where >> 3, bits << (where & 7).astype(np.uint8))

    def byte_ranges(self, region: Region) -> np.ndarray:
        numbers = self.data.reshape(-1)[region.flat()]
        return self.address + np.unique(self._bits(numbers) >> 3)


class GlobalWorkspace(NamedTuple):
    """Global memory that a kernel allocates for all its CTAs, at one line of the script."""

    storage: GlobalStorage
    location: Location | None


@dataclass
class Semaphore:
    """A semaphore of a launch. found: its value before. waits: by awaited value, a lock that no release of the launch
    happens before. stored: the last release."""

    found: int
    waits: dict[int, Location | None] = field(default_factory=dict)
    stored: Location | None = None


@dataclass
class Write:
    """A CTA's writes through one view: a rectangle, or single elements."""

    key: ViewKey
    cta: int
    box: Box
    elements: tuple[np.ndarray, ...] | None = None


@dataclass
class GlobalMemory:
    """All segments of a launch. views: a cache for the kernel's global_view statements. writes: each CTA's stores.
    reads: each CTA's loads of memory that the program may also write. read: addresses of segments that some CTA
    loaded from. tensors: tensor arguments by name. seen: all views. workspaces: the kernel's allocations.
    semaphores: those of checked runs, by address."""

    segments: list[Segment] = field(default_factory=list)
    storages: dict[ViewKey, GlobalStorage] = field(default_factory=dict)
    views: dict[Any, Any] = field(default_factory=dict)
    writes: dict[Any, Write] = field(default_factory=dict)
    reads: dict[Any, Write] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    seen: dict[ViewKey, None] = field(default_factory=dict)
    workspaces: list[GlobalWorkspace] = field(default_factory=list)
    semaphores: dict[int, Semaphore] = field(default_factory=dict)

    def segment_at(self, address: int) -> Segment | None:
        for segment in self.segments:
            if segment.address <= address < segment.address + max(segment.nbytes, 1):
                return segment
        return None

    def word_at(self, address: int) -> np.ndarray | None:
        """Return the element of int32 at this address, as an array of one; None outside of all tensors."""
        segment = self.segment_at(address)
        start = 0 if segment is None else address - segment.address
        return None if segment is None else segment.cells[start : start + 4].view(np.int32)

    def name_at(self, address: int) -> str:
        """Return the name of the element of 32 bits at this address, by its workspace or its argument."""
        for workspace in self.workspaces:
            if workspace.storage.segment is self.segment_at(address):
                box = workspace.storage.element_at(address).box
                return f"{workspace.storage.name}[{', '.join(str(begin) for begin, _ in box)}]"
        segment = self.segment_at(address)
        return f"{address:#x}" if segment is None else f"{segment.name}[{(address - segment.address) // 4}]"

    def uncleaned(self, address: int) -> Region | None:
        """Return the element at this address if it is in a workspace that was not zeroed."""
        for workspace in self.workspaces:
            if not workspace.storage.defined and workspace.storage.segment is self.segment_at(address):
                return workspace.storage.element_at(address)
        return None

    def view(self, key: ViewKey) -> GlobalStorage | None:
        """Return the view's storage, or None if no argument's memory is at its address."""
        if key not in self.storages:
            segment = self.segment_at(key.address)
            if segment is None:
                return None
            self.storages[key] = self._make(segment, key)
            self.seen[key] = None
        return self.storages[key]

    def _make(self, segment: Segment, key: ViewKey) -> GlobalStorage:
        size = key.item.dtype.itemsize
        cells = segment.cells[key.address - segment.address :]
        if key.item.packed:
            return self._related(self._packed(segment, key, cells))
        typed = cells[: len(cells) // size * size].view(key.item.dtype)
        existing = _existing(key.shape, key.strides, len(typed))
        data = np.ndarray(existing, key.item.dtype, typed, strides=tuple(s * size for s in key.strides))
        return self._related(GlobalStorage(segment, key, data))

    @staticmethod
    def _packed(segment: Segment, key: ViewKey, cells: np.ndarray) -> PackedStorage:
        room = len(cells) * 8 // key.item.nbits
        numbers = np.arange(room)
        existing = _existing(key.shape, key.strides, room)
        data = np.lib.stride_tricks.as_strided(numbers, existing, tuple(s * numbers.itemsize for s in key.strides))
        return PackedStorage(segment, key, data, cells)

    def _related(self, storage: GlobalStorage) -> GlobalStorage:
        others = [s for s in self.storages.values() if s.segment is storage.segment]
        storage.family = [storage, *others]
        for other in others:
            other.family.append(storage)
        return storage

    def record(self, storage: GlobalStorage, cta: int, box: Box, elements: tuple[np.ndarray, ...] | None) -> None:
        tag = (storage.key, cta, box, None if elements is None else tuple(e.tobytes() for e in elements))
        self.writes[tag] = Write(storage.key, cta, box, elements)

    def record_read(self, storage: GlobalStorage, cta: int, box: Box) -> None:
        self.reads[storage.key, cta, box] = Write(storage.key, cta, box)

    def close(self) -> None:
        """Break reference cycles through views after the launch, so that their memory is freed immediately."""
        for storage in self.storages.values():
            storage.close()
        self.storages.clear()
        self.views.clear()
        self.workspaces.clear()
        self.semaphores.clear()

    # several processes

    def share(self) -> list[tuple[Segment, np.ndarray]]:
        """Move segments that the program may write to memory that forked processes share; return the pairs to copy
        back."""
        moved = []
        for segment in self.segments:
            if not segment.constant and segment.nbytes:
                shared = np.frombuffer(mmap.mmap(-1, segment.nbytes), np.uint8)
                shared[:] = segment.cells
                moved.append((segment, segment.cells))
                segment.cells = shared
        self.storages = {key: s for key, s in self.storages.items() if s.segment.constant}
        self.views.clear()
        return moved


def _existing(shape: tuple[int, ...], strides: tuple[int, ...], room: int) -> tuple[int, ...]:
    """Return the part of a declared shape that `room` elements can hold: whole slices of its slowest dimension."""
    if not shape:
        return shape
    if any(extent == 0 for extent in shape):
        return shape
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    if last < room:
        return shape
    slow = max(range(len(shape)), key=lambda d: strides[d])
    inner = last - (shape[slow] - 1) * strides[slow]
    fitting = 0 if inner >= room or strides[slow] == 0 else min(shape[slow], (room - inner - 1) // strides[slow] + 1)
    return tuple(fitting if d == slow else extent for d, extent in enumerate(shape))
