"""Global memory: the tensors that a launch was given, the kernel's views of them, and who wrote what."""

from __future__ import annotations

import functools
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blackwell_matmul.errors import InputError
from blackwell_matmul.simulator.disagreement import disagreement
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.memory import Box, Region, Storage
from blackwell_matmul.simulator.types import Element, from_bits, to_bits, to_image


@dataclass
class Segment:
    """One argument's memory. `address` is what the kernel computes with; `cells` are its bytes.

    constant: the program writes nothing to it, so it may be converted once and every process may keep its own.
    """

    name: str
    address: int
    cells: np.ndarray
    constant: bool = False

    @property
    def nbytes(self) -> int:
        return self.cells.nbytes


def segment_of(name: str, value: Any) -> Segment:
    """The memory behind a CPU tensor (torch or numpy)."""
    if isinstance(value, np.ndarray):
        low, high = np.lib.array_utils.byte_bounds(value)
        if not value.flags.writeable:
            raise InputError(f"{name} is a read-only array; pass a writable one.")
        whole = np.lib.stride_tricks.as_strided(value.view(np.uint8).reshape(-1)[:1], (high - low,), (1,))
        return Segment(name, value.__array_interface__["data"][0], whole)
    return Segment(name, value.data_ptr(), _torch_bytes(value))


def _torch_bytes(tensor: Any) -> np.ndarray:
    """The bytes from a tensor's first element to its last, without a copy."""
    import torch

    if tensor.numel() == 0:
        return np.zeros(0, np.uint8)
    size = tensor.element_size()
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((span,), (1,)).view(torch.uint8)
    return flat.numpy()[: span * size]


@dataclass(frozen=True)
class ViewKey:
    """All that defines a view of global memory; strides in elements."""

    address: int
    item: Element
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str


IMAGE_PAYS_ELEMENTS = 2**16
"""Below, tiles are converted as they are copied."""


class GlobalStorage(Storage):
    """One view of a segment: `declared` is the shape the kernel gave; `data` holds the part that exists."""

    def __init__(self, segment: Segment, key: ViewKey, data: np.ndarray) -> None:
        super().__init__("global", key.name, key.item, data, True)
        self.segment, self.key, self.address, self.declared = segment, key, key.address, key.shape
        self.constant = segment.constant
        self.maps: set[tuple[Any, ...]] = set()  # the (dims, box, span of the swizzle) that TMA can address it with

    @functools.cached_property
    def image(self) -> np.ndarray | None:
        """All of a constant view as shared memory will hold it (see types.py); None when it may still change."""
        if not self.segment.constant or self.item.dtype == self.item.image or self.data.size < IMAGE_PAYS_ELEMENTS:
            return None
        return to_image(self.data, self.item)

    def close(self) -> None:
        self.family.clear()
        self.__dict__.pop("image", None)

    def byte_ranges(self, region: Region) -> np.ndarray:
        places = np.unravel_index(region.flat(), self.data.shape) if self.data.shape else ()
        return self.address + sum((p * s for p, s in zip(places, self.data.strides, strict=True)), np.zeros(1, int))


class PackedStorage(GlobalStorage):
    """A view of elements narrower than a byte, one after the other in a stream of bits: `data` holds their numbers."""

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


@dataclass
class Write:
    """What one CTA wrote through one view: a rectangle, or single elements."""

    key: ViewKey
    cta: int
    box: Box
    elements: tuple[np.ndarray, ...] | None = None


@dataclass
class GlobalMemory:
    """All segments of a launch. views: a cache for the kernel's global_view statements. writes: what each CTA stored
    where. reads: what each CTA loaded of what the program may also write. read: addresses of the segments that some
    CTA loaded from. tensors: the arguments that are some, by name. seen: all views there were."""

    segments: list[Segment] = field(default_factory=list)
    storages: dict[ViewKey, GlobalStorage] = field(default_factory=dict)
    views: dict[Any, Any] = field(default_factory=dict)
    writes: dict[Any, Write] = field(default_factory=dict)
    reads: dict[Any, Write] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    tensors: Mapping[str, Any] = field(default_factory=dict)
    seen: dict[ViewKey, None] = field(default_factory=dict)

    def segment_at(self, address: int) -> Segment | None:
        for segment in self.segments:
            if segment.address <= address < segment.address + max(segment.nbytes, 1):
                return segment
        return None

    def view(self, key: ViewKey) -> GlobalStorage | None:
        """The view's storage; None when no argument's memory lies at its address."""
        if key not in self.storages:
            segment = self.segment_at(key.address)
            if segment is None:
                return None
            self.storages[key] = self._make(segment, key)
            self.seen[key] = None
        return self.storages[key]

    def disagreements(self) -> tuple[str, ...]:
        """Where the kernel's views and the tensors themselves differ in type, shape or strides."""
        found = (disagreement(self.tensors, key) for key in self.seen)
        return tuple(dict.fromkeys(each for each in found if each is not None))

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
        """The launch is over: break the cycles through its views, so that their memory is free now."""
        for storage in self.storages.values():
            storage.close()
        self.storages.clear()
        self.views.clear()

    # several processes

    def share(self) -> list[tuple[Segment, np.ndarray]]:
        """Move what the program may write to memory that forked processes share; returns what to copy back."""
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
    """The part of a declared shape that `room` elements can hold: whole slices of its slowest dimension."""
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


def merge(
    memory: GlobalMemory, grid: tuple[int, int, int], cluster: tuple[int, int, int], complete: bool
) -> list[Finding]:
    """Faults that show only when the CTAs' results are laid over each other; complete: every CTA came to its end.

    What the CTAs of one cluster do to each other was looked at as they ran."""
    findings: list[Finding] = []
    by_key: dict[ViewKey, list[Write]] = {}
    for write in memory.writes.values():
        by_key.setdefault(write.key, []).append(write)
    by_key = {key: writes for key, writes in by_key.items() if not _is_tiled(memory, key, list(by_key), writes)}
    owners: dict[tuple[int, int], np.ndarray] = {}
    leaders = _leaders(grid, cluster)
    for key, writes in by_key.items():
        storage = memory.view(key)
        assert storage is not None
        findings += _paint(_owner_view(owners, storage), writes, storage, grid, leaders)
    findings += _stale_reads(memory, owners, grid, leaders)
    for key, writes in by_key.items():
        storage = memory.view(key)
        assert storage is not None
        if complete and storage.segment.address not in memory.read:
            findings += _unwritten(_owner_view(owners, storage), writes, storage)
    return findings


def _leaders(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> np.ndarray | None:
    """For each CTA, the number of the first one of its cluster; None: each is a cluster by itself."""
    if cluster == (1, 1, 1):
        return None
    numbers = np.arange(math.prod(grid)).reshape(grid[::-1])
    z, y, x = (np.arange(extent) // size * size for extent, size in zip(grid[::-1], cluster[::-1], strict=True))
    return numbers[np.ix_(z, y, x)].reshape(-1)


def _foreign(part: np.ndarray, cta: int, leaders: np.ndarray | None) -> np.ndarray:
    """The elements that a CTA owns (see `_owner_view`) which is not of this one's cluster."""
    foreign = (part != 0) & (part != cta + 1)
    return foreign if leaders is None else foreign & (leaders[part - 1] != leaders[cta])


MAX_CELLS = 2**20


def _is_tiled(memory: GlobalMemory, key: ViewKey, keys: list[ViewKey], writes: list[Write]) -> bool:
    """True for an output that only this view writes, each element of it once, and nobody reads: nothing to report."""
    storage = memory.view(key)
    assert storage is not None
    alone = all(other is key or memory.segment_at(other.address) is not storage.segment for other in keys)
    rectangles = all(write.elements is None for write in writes)
    unread = storage.segment.address not in memory.read
    return alone and rectangles and unread and tiles([write.box for write in writes], storage.data.shape)


def tiles(boxes: list[Box], shape: tuple[int, ...]) -> bool:
    """Whether the rectangles cover the shape without meeting: cut along all edges, each cell lies in one of them."""
    edges = [sorted({0, extent, *(edge for box in boxes for edge in box[dim])}) for dim, extent in enumerate(shape)]
    if any(cuts[-1] != extent for cuts, extent in zip(edges, shape, strict=True)):
        return False
    if math.prod(len(cuts) for cuts in edges) > MAX_CELLS:
        return False
    numbers = [{edge: i for i, edge in enumerate(cuts)} for cuts in edges]
    cells = np.zeros([len(cuts) - 1 for cuts in edges], np.int32)
    for box in boxes:
        cells[tuple([slice(at[lo], at[hi]) for at, (lo, hi) in zip(numbers, box, strict=True)])] += 1
    return bool((cells == 1).all())


def _stale_reads(
    memory: GlobalMemory,
    owners: dict[tuple[int, int], np.ndarray],
    grid: tuple[int, int, int],
    leaders: np.ndarray | None,
) -> list[Finding]:
    """Reads of what another CTA of the same launch writes: nothing here orders CTAs."""
    findings: dict[str, Finding] = {}
    for read in memory.reads.values():
        storage = memory.view(read.key)
        if storage is None or (storage.segment.address, storage.item.nbits) not in owners:
            continue
        part = _owner_view(owners, storage)[tuple(slice(lo, hi) for lo, hi in read.box)]
        foreign = _foreign(part, read.cta, leaders)
        if foreign.any():
            writer, reader = position_of(int(part[foreign][0]) - 1, grid), position_of(read.cta, grid)
            message = (
                f"CTA {reader} reads {int(foreign.sum())} element(s) of {storage.name}[{_spell(read.box)}] that CTA"
                f" {writer} writes; nothing orders them"
            )
            findings.setdefault(storage.name, Finding("read-of-another-cta", Severity.ERROR, message, reader))
    return list(findings.values())


def _owner_view(owners: dict[tuple[int, int], np.ndarray], storage: GlobalStorage) -> np.ndarray:
    """For each element of the view, 1 + the number of the CTA that wrote it; 0: nobody."""
    bits = storage.item.nbits
    key = (storage.segment.address, bits)
    if key not in owners:
        owners[key] = np.zeros(storage.segment.nbytes * 8 // bits, np.int32)
    start = (storage.address - storage.segment.address) * 8 // bits
    strides = tuple(s * 4 for s in storage.key.strides)
    return np.lib.stride_tricks.as_strided(owners[key][start:], storage.data.shape, strides)


def _paint(
    owner: np.ndarray,
    writes: list[Write],
    storage: GlobalStorage,
    grid: tuple[int, int, int],
    leaders: np.ndarray | None,
) -> list[Finding]:
    clashes: dict[tuple[int, int], tuple[int, Box]] = {}
    for write in writes:
        where: Any = tuple(slice(lo, hi) for lo, hi in write.box) if write.elements is None else write.elements
        part = owner[where]
        foreign = _foreign(part, write.cta, leaders)
        if foreign.any():
            pair = (int(part[foreign][0]) - 1, write.cta)
            count, box = clashes.get(pair, (0, write.box))
            clashes[pair] = (count + int(foreign.sum()), box)
        owner[where] = write.cta + 1
    return [_clash(storage, pair, count, box, grid) for pair, (count, box) in list(clashes.items())[:16]]


def position_of(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """The block index of a CTA, x fastest."""
    x, y = grid[0], grid[1]
    return number % x, number // x % y, number // (x * y)


def _clash(storage: GlobalStorage, pair: tuple[int, int], count: int, box: Box, grid: tuple[int, int, int]) -> Finding:
    first, second = (position_of(number, grid) for number in pair)
    return Finding(
        "written-by-two-ctas",
        Severity.ERROR,
        f"CTA {first} and CTA {second} both write {count} element(s) of {storage.name}, in the tile"
        f" [{_spell(box)}]; nothing orders them",
        second,
    )


def _spell(box: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{lo}:{hi}" for lo, hi in box)


def _unwritten(owner: np.ndarray, writes: list[Write], storage: GlobalStorage) -> list[Finding]:
    """Elements of an output view that no CTA wrote, by tiles of the size that one CTA writes."""
    missing = owner == 0
    count = int(missing.sum())
    if count == 0:
        return []
    tile = _tile_shape(writes, len(owner.shape))
    corners = np.unique(np.stack([c // t for c, t in zip(np.nonzero(missing), tile, strict=True)], axis=1), axis=0)
    shown = ", ".join(str(tuple(int(x) for x in corner)) for corner in corners[:4])
    more = f" and {len(corners) - 4} more" if len(corners) > 4 else ""
    return [
        Finding(
            "never-written",
            Severity.UNGUARANTEED,
            f"nobody writes {count} of the {math.prod(owner.shape)} elements of {storage.name}: tile(s) {shown}{more},"
            f" in tiles of {'x'.join(map(str, tile))}",
        )
    ]


def _tile_shape(writes: list[Write], rank: int) -> tuple[int, ...]:
    """The rectangle around what one CTA writes; the largest of them."""
    spans: dict[int, list[list[int]]] = {}
    for write in writes:
        span = spans.setdefault(write.cta, [[2**62, 0] for _ in range(rank)])
        for dim, (lo, hi) in enumerate(write.box):
            span[dim] = [min(span[dim][0], lo), max(span[dim][1], hi)]
    return tuple(max(max(span[d][1] - span[d][0], 1) for span in spans.values()) for d in range(rank))
