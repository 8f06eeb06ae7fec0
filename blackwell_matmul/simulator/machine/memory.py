"""Memory: storages, the views that a kernel takes of them, and the regions that instructions touch.

A storage is one allocation: a shared tensor, the tensor memory of a CTA, or one global view. It is kept in logical
order (row-major elements of the tensor as the kernel declared it); slices, permutations and reshapes are numpy views.
Shared tensors that code generation overlaps (`free_shared`) are kept in their true bytes instead, so that a write to
one is seen in the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from blackwell_matmul.simulator.findings import nobody
from blackwell_matmul.simulator.machine.registers import WarpLayout
from blackwell_matmul.simulator.types import Element, from_image, to_image

Box = tuple[tuple[int, int], ...]
Holders = tuple[np.ndarray, np.ndarray]


class Storage:
    """One allocation. `data` is its root array.

    defined: every element has a value before anything is written, as in tensor arguments. in_cta, address_of: of a
    shared tensor, return that of another CTA, and the address of an element. performed: called when deferred work is
    done (deferred.py).
    """

    in_cta: Callable[[Any], Storage]
    address_of: Callable[[tuple[int, ...]], int]

    def __init__(self, space: str, name: str, item: Element, data: np.ndarray) -> None:
        self.space, self.name, self.item, self.data = space, name, item, data
        self.family: list[Storage] = [self]  # storages that share memory with this one
        self.constant = False  # nothing writes it
        self.defined = space == "global"
        self.performed: Callable[[Any], None] = nobody

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @functools.cached_property
    def root(self) -> View:
        """Return the view of the whole storage. It is always the same object, so that its slices are cached."""
        return View(self, self.data, tuple(0 for _ in self.shape), tuple(range(len(self.shape))))

    def byte_ranges(self, region: Region) -> np.ndarray:
        """Return the addresses of the region's elements, to compare storages that overlap."""
        return region.flat() * self.item.dtype.itemsize

    # reading and writing through a view

    def fill(self) -> None:
        """Perform deferred copies (deferred.py). Call it before any read of `data` other than by a view's `read`."""

    def forget(self, box: Box) -> None:
        """Prepare the rectangle for a write other than by a view's `write`."""

    def clear(self) -> None:
        """Restore the state before anything was written (replay/)."""

    def close(self) -> None:
        """Break reference cycles after its CTA or the launch, so that its memory is freed immediately."""
        self.family.clear()
        if root := self.__dict__.pop("root", None):
            root.close()

    def patch(self, view: View) -> Any:
        """Return the constant memory with the view's contents (`deferred.Patch`), if it is known."""
        return None

    def read(self, data: np.ndarray) -> np.ndarray:
        return data

    def write(self, data: np.ndarray, values: Any) -> None:
        data[...] = values


class AliasedStorage(Storage):
    """Shared tensor whose bytes another tensor reuses: `data` holds element offsets into the CTA's bytes."""

    def __init__(self, name: str, item: Element, offsets: np.ndarray, buffer: np.ndarray, address: int) -> None:
        super().__init__("shared", name, item, offsets)
        self.address = address
        self.cells = buffer[address:].view(np.uint8)
        usable = len(self.cells) // item.dtype.itemsize * item.dtype.itemsize
        self.cells = self.cells[:usable].view(item.dtype)
        self.end = address + (int(offsets.max()) + 1) * item.dtype.itemsize

    def meets(self, other: AliasedStorage) -> bool:
        """Return True if the byte ranges of both overlap."""
        return self.address < other.end and other.address < self.end

    def read(self, data: np.ndarray) -> np.ndarray:
        return to_image(self.cells[data], self.item)

    def write(self, data: np.ndarray, values: Any) -> None:
        exact = from_image(np.ascontiguousarray(np.broadcast_to(values, data.shape).astype(self.item.image)), self.item)
        self.cells[data] = exact

    def byte_ranges(self, region: Region) -> np.ndarray:
        return self.address + self.data.reshape(-1)[region.flat()] * self.item.dtype.itemsize


def meet(first: Box, second: Box) -> bool:
    """Return True if two rectangles share an element."""
    for (begin, end), (lo, hi) in zip(first, second, strict=True):  # noqa: SIM110  # a loop costs half of what all() does
        if begin >= hi or lo >= end:
            return False
    return True


def numbers_in(box: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> np.ndarray:
    """Return the row-major numbers of a rectangle's elements in an array of this shape, in the rectangle's shape."""
    numbers = np.zeros((), np.int64)
    for (begin, end), extent in zip(box, shape, strict=True):
        numbers = np.add.outer(numbers * extent, np.arange(begin, end))
    return numbers


def in_common(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True if two arrays of element numbers share one, by a mask of their common range, without sorting."""
    if not first.size or not second.size:
        return False
    begin, end = max(first.min(), second.min()), min(first.max(), second.max()) + 1
    if end - begin > 64 * (first.size + second.size):
        return bool(np.intersect1d(first, second).size)
    mask = np.zeros(max(end - begin, 0), bool)
    mask[first[(begin <= first) & (first < end)] - begin] = True
    return bool(mask[second[(begin <= second) & (second < end)] - begin].any())


@dataclass(eq=False, repr=False, slots=True)
class Region:
    """Part of a storage: a rectangle in its root coordinates, or some elements inside of one.

    elements: returns their row-major numbers if they do not fill the rectangle; called only in doubt. owner: the name
    of the tensor with this part of the storage, and its beginning (tensor memory). holders: returns the numbers of all
    elements that the lanes of a warp access, and the lane of each; called only in doubt.
    """

    storage: Storage
    box: Box
    elements: Callable[[], np.ndarray] | None = None
    owner: tuple[str, tuple[int, ...]] | None = None
    holders: Callable[[], Holders] | None = None

    @property
    def name(self) -> str:
        return self.owner[0] if self.owner else self.storage.name

    @property
    def dense(self) -> bool:
        return self.elements is None

    def meets(self, other: Region) -> bool:
        """Return True if both share an element, or a byte for storages that overlap."""
        if self.storage is not other.storage:
            return self._shares_bytes(other)
        if not meet(self.box, other.box):
            return False
        return (self.dense and other.dense) or in_common(self.flat(), other.flat())

    def _shares_bytes(self, other: Region) -> bool:
        if other.storage not in self.storage.family:
            return False
        mine, theirs = self.storage.byte_ranges(self), other.storage.byte_ranges(other)
        return in_common(mine, theirs)

    def flat(self) -> np.ndarray:
        if self.elements is not None:
            return self.elements().reshape(-1)
        return numbers_in(self.box, self.storage.shape).reshape(-1)

    def __str__(self) -> str:
        if self.elements is not None:
            return f"{np.unique(self.flat()).size} elements of {self._rectangle()}"
        return self._rectangle()

    def _rectangle(self) -> str:
        if not self.box:
            return self.name
        begins = self.owner[1] if self.owner else (0,) * len(self.box)
        spans = ", ".join(f"{lo - begin}:{hi - begin}" for (lo, hi), begin in zip(self.box, begins, strict=True))
        return f"{self.name}[{spans}]"


def joined(regions: Sequence[Region]) -> Region:
    """Return one region with the elements of several of a storage."""
    if len(regions) == 1:
        return regions[0]
    box = tuple([(min(lo), max(hi)) for lo, hi in (zip(*spans) for spans in zip(*(each.box for each in regions)))])
    elements = functools.cache(lambda: np.concatenate([each.flat() for each in regions]))
    return Region(regions[0].storage, box, elements)


def _of_elements(storage: Storage, data: np.ndarray, index: np.ndarray) -> View:
    """Return the view of these elements, as a rectangle of the root if they form one."""
    found = _rectangle(index, storage.shape)
    if found is None:
        first = int(index.flat[0]) if index.size else 0
        return View(storage, data, tuple(int(begin) for begin in np.unravel_index(first, storage.shape)), (), index)
    return View(storage, data, *found)


def _rectangle(index: np.ndarray, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the beginning of the rectangle with these elements, and the root's dimension for each of its dimensions.
    None if the elements are no rectangle."""
    if not index.size or index.ndim > len(shape):
        return None
    first = int(index.flat[0])
    base = tuple(int(begin) for begin in np.unravel_index(first, shape))
    strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    dims, free = [-1] * index.ndim, list(range(len(shape)))
    for axis in sorted(range(index.ndim), key=lambda axis: index.shape[axis] == 1):  # extent 1 takes what is left
        extent = index.shape[axis]
        step = int(index.take(1, axis).flat[0]) - first if extent > 1 else None
        fitting = [d for d in free if base[d] + extent <= shape[d] and step in (None, strides[d])]
        if not fitting:
            return None
        dims[axis] = fitting[0]
        free.remove(fitting[0])
    axes = zip(np.indices(index.shape), dims, strict=True)
    expected = first + sum((number * strides[dim] for number, dim in axes), np.int64(0))
    return (base, tuple(dims)) if np.array_equal(index, expected) else None


@dataclass(eq=False, repr=False, slots=True)
class View:
    """A tensor as the kernel sees it: part of a storage, in the kernel's own order of dimensions.

    base: its beginning in the root's coordinates. dims: the root's dimension for each of its dimensions. index: root
    element numbers, for views that are not rectangles of the root. origin: the view that it was taken of, and how; None
    for the root.
    """

    storage: Storage
    data: np.ndarray
    base: tuple[int, ...]
    dims: tuple[int, ...]
    index: np.ndarray | None = None
    origin: tuple[View, Callable[..., View], tuple[Any, ...]] | None = field(default=None, init=False)
    _slices: dict[Any, View] = field(default_factory=dict, init=False)
    _regions: dict[Box | tuple[Box, ...] | WarpLayout | None, Region] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def item(self) -> Element:
        return self.storage.item

    def slice(self, offsets: Sequence[int], dims: Sequence[int], shape: Sequence[int]) -> View:
        """Return the sub-tensor of `shape` over `dims` at `offsets`; IndexError if it exceeds this view."""
        key = (tuple(offsets), tuple(dims), tuple(shape))
        if key not in self._slices:
            if len(self._slices) > 4096:
                self._slices.clear()
            self._slices[key] = self._slice(*key)
            self._slices[key].origin = self, View.slice, key
        return self._slices[key]

    def _slice(self, offsets: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]) -> View:
        extents = dict(zip(sorted(dims), shape, strict=True))
        picks: list[Any] = []
        for dim, offset in enumerate(offsets):
            extent = extents.get(dim, 1)
            if not 0 <= offset <= self.shape[dim] - extent:
                raise IndexError(
                    f"{self.storage.name}: {offset}:{offset + extent} lies outside of dimension {dim},"
                    f" which has {self.shape[dim]} elements"
                )
            picks.append(slice(offset, offset + extent) if dim in extents else int(offset))
        data = self.data[(*picks, ...)]  # a view also of a single element
        if self.index is not None:
            return _of_elements(self.storage, data, self.index[(*picks, ...)])
        base = list(self.base)
        for dim, offset in enumerate(offsets):
            base[self.dims[dim]] += offset
        return View(self.storage, data, tuple(base), tuple(self.dims[d] for d in sorted(dims)))

    def permute(self, dims: Sequence[int]) -> View:
        key = ("permute", tuple(dims))
        if key not in self._slices:
            kept = tuple(self.dims[d] for d in dims) if self.index is None else ()
            index = None if self.index is None else self.index.transpose(tuple(dims))
            self._slices[key] = View(self.storage, self.data.transpose(tuple(dims)), self.base, kept, index)
            self._slices[key].origin = self, View.permute, (dims,)
        return self._slices[key]

    def reshape(self, shape: Sequence[int]) -> View:
        """Return the same elements in row-major order in another shape, never a copy; raise ValueError if there is
        none."""
        key = ("reshape", tuple(shape))
        if key not in self._slices:
            data = self.data.reshape(tuple(shape))
            if not np.shares_memory(data, self.data):
                raise ValueError(f"{self.storage.name}: a view of shape {self.shape} cannot be reshaped to {shape}")
            self._slices[key] = View(self.storage, data, self.base, (), self.numbers().reshape(tuple(shape)))
            self._slices[key].origin = self, View.reshape, (shape,)
        return self._slices[key]

    def in_cta(self, cta: Any) -> View:
        """Return the view of the same part of the same shared tensor in another CTA."""
        if self.origin is None:
            return self.storage.in_cta(cta).root
        view, take, how = self.origin
        return take(view.in_cta(cta), *how)

    def close(self) -> None:
        """See Storage.close."""
        for taken in self._slices.values():
            taken.close()
        self._slices.clear()
        self._regions.clear()

    def numbers(self) -> np.ndarray:
        """Return the row-major number in the storage of each element."""
        if self.index is not None:
            return self.index
        box = [(begin, begin + 1) for begin in self.base]
        for dim, extent in zip(self.dims, self.shape, strict=True):
            box[dim] = self.base[dim], self.base[dim] + extent
        block = numbers_in(box, self.storage.shape)
        keep = [d for d in range(block.ndim) if d in self.dims]
        squeezed = block.reshape([block.shape[d] for d in keep])
        return squeezed.transpose([keep.index(d) for d in self.dims])

    def region(self, box: Box | None = None) -> Region:
        """Return the region of an access to `box` (in this view's coordinates; None: all of it) in the storage."""
        region = self._regions.get(box)
        if region is None:
            region = self._regions[box] = self._region(box)
        return region

    def part_of(self, boxes: tuple[Box, ...], holders: Callable[[], Holders]) -> Region:
        """Return the region of a warp's access to several rectangles, always the same object."""
        region = self._regions.get(boxes)
        if region is None:
            region = self._regions[boxes] = replace(joined([self.region(box) for box in boxes]), holders=holders)
        return region

    def part(self, layout: WarpLayout) -> Region:
        """Return the region of a warp that holds the view as registers of this layout, always the same object."""
        region = self._regions.get(layout)
        if region is None:
            whole = self.region(layout.box)
            numbers = functools.cache(lambda: self.numbers()[layout.coords])
            region = self._regions[layout] = Region(
                self.storage, whole.box, whole.elements if layout.dense else numbers,
                holders=lambda: layout.holders(numbers()),
            )  # fmt: skip
        return region

    def _region(self, box: Box | None) -> Region:
        if self.index is not None:
            part = self.index if box is None else self.index[tuple(slice(lo, hi) for lo, hi in box)]
            return Region(self.storage, tuple((0, extent) for extent in self.storage.shape), lambda: part)
        root = [(b, b + 1) for b in self.base]
        for i, dim in enumerate(self.dims):
            lo, hi = (0, self.shape[i]) if box is None else box[i]
            root[dim] = (self.base[dim] + lo, self.base[dim] + hi)
        return Region(self.storage, tuple(root))

    def read(self) -> np.ndarray:
        """Return its values, as images (types.py)."""
        self.storage.fill()
        return self.storage.read(self.data)

    def store(self, layout: WarpLayout, values: np.ndarray) -> None:
        """Write a warp's registers of this layout, as images."""
        self.storage.forget(self.region(layout.box).box)
        if not isinstance(self.storage, AliasedStorage):
            layout.store(self.data, values)
        else:  # the view holds addresses
            active = slice(layout.lane, layout.lane + layout.lanes)
            self.storage.write(layout.load(self.data)[active], values[active])

    def write(self, values: Any, box: Box) -> None:
        """Write images to `box`, in this view's coordinates."""
        self.storage.forget(self.region(box).box)
        self.storage.write(self.data[tuple([slice(lo, hi) for lo, hi in box])], values)
