"""Deferred work: copies of constant memory, and MMAs of such copies, performed when something reads the result.

A tile that TMA or cp.async brings from memory which nothing writes can be stored as a rectangle of its source
(`Patch`). The policy decides when an MMA of two such tiles reads them, but they cannot change. So its product may be
added later, and MMAs that follow each other along k become one large product. Any other access to the memory first
performs the deferred work (`fill`, `flush`).

Deferral depends only on the order of writes to the memory itself. So every policy and seed groups the products of a
kernel without races in the same way, and gives the same bits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.findings import nobody
from blackwell_matmul.simulator.machine.memory import Box, Storage, View, meet
from blackwell_matmul.simulator.machine.registers import WarpLayout
from blackwell_matmul.simulator.types import Element

Values = Callable[[], Iterable[np.ndarray]]
"""Function that reads the operands and yields the values to add, in order."""


def joined(a: Box, b: Box, dim: int) -> Box | None:
    """Return the rectangle of both if b begins where a ends in `dim` and they agree in the other dimensions."""
    if a[dim][1] != b[dim][0] or a[:dim] != b[:dim] or a[dim + 1 :] != b[dim + 1 :]:
        return None
    return (*a[:dim], (a[dim][0], b[dim][1]), *a[dim + 1 :])


@functools.cache
def order_of(wanted: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index of each wanted dimension in `dims`, or None if they differ."""
    return tuple(map(dims.index, wanted)) if sorted(wanted) == sorted(dims) else None


@functools.cache
def ranks(axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of each axis in sorted order."""
    return tuple(map(sorted(axes).index, axes))


def _clipped(lo: int, hi: int, limit: int) -> tuple[int, int]:
    """Return the part of a span in [0, limit); an empty span at the nearer end if there is none."""
    begin = min(max(lo, 0), hi)
    return begin, max(min(hi, limit), begin)


class Patch:
    """A rectangle of constant memory: `spans` of `image`, seen in the order of `axes`; other dimensions have extent 1.

    Elements outside of the image are zero. alone: the patch is never joined with neighbours, and its product is
    rounded separately.
    """

    __slots__ = ("alone", "axes", "image", "spans")

    def __init__(self, image: np.ndarray, spans: Box, axes: tuple[int, ...], alone: bool = False) -> None:
        self.image, self.spans, self.axes, self.alone = image, spans, axes, alone

    def values(self) -> np.ndarray:
        inside = [_clipped(lo, hi, limit) for (lo, hi), limit in zip(self.spans, self.image.shape, strict=True)]
        part = self.image[tuple([slice(lo, hi) if dim in self.axes else lo for dim, (lo, hi) in enumerate(inside)])]
        part = part.transpose(ranks(self.axes))
        if all(map(operator.eq, inside, self.spans)):
            return part
        pads = [(inside[axis][0] - self.spans[axis][0], self.spans[axis][1] - inside[axis][1]) for axis in self.axes]
        return np.pad(part, pads)

    def moved(self, distance: tuple[int, ...]) -> Patch:
        """Return the rectangle at this distance."""
        spans = tuple([(lo + by, hi + by) for (lo, hi), by in zip(self.spans, distance, strict=True)])
        return Patch(self.image, spans, self.axes, self.alone)

    def part(self, spans: list[tuple[int, int]]) -> Patch:
        """Return a rectangle inside: spans of the visible dimensions, from its beginning."""
        inside = list(self.spans)
        for axis, (begin, end) in zip(self.axes, spans, strict=True):
            inside[axis] = self.spans[axis][0] + begin, self.spans[axis][0] + end
        return Patch(self.image, tuple(inside), self.axes, alone=True)

    def seen(self, order: tuple[int, ...]) -> Patch:
        """Return the patch with its dimensions in another order."""
        return Patch(self.image, self.spans, tuple([self.axes[i] for i in order]), self.alone)

    def same(self, other: Patch) -> bool:
        return self.image is other.image and self.spans == other.spans and self.axes == other.axes

    def then(self, other: Patch, dim: int) -> Patch | None:
        """Return both patches as one if `other` follows this one along `dim`; else None."""
        if self.image is not other.image or self.axes != other.axes or self.alone or other.alone:
            return None
        spans = joined(self.spans, other.spans, self.axes[dim])
        return None if spans is None else Patch(self.image, spans, self.axes)


class Held:
    """A part of shared memory, `box` of a view, with the contents of `patch`. late: numpy's copy is not filled yet."""

    __slots__ = ("box", "late", "patch", "view")

    def __init__(self, view: View, box: Box, patch: Patch) -> None:
        self.view, self.box, self.patch, self.late = view, box, patch, True

    def then(self, other: Held, dim: int) -> Held | None:
        """Return both as one if `other` also follows this one in its source; else None. dim: of the storage."""
        if self.view.dims != other.view.dims or dim not in self.view.dims:
            return None
        patch = self.patch.then(other.patch, self.view.dims.index(dim))
        return None if patch is None else Held(self.view, (), patch)

    def part(self, spans: list[tuple[int, int]]) -> Held:
        """Return a part: spans of the view's dimensions, relative to its beginning."""
        return Held(self.view, (), self.patch.part(spans))

    def fill(self) -> None:
        if self.late:
            self.view.data[tuple([slice(lo, hi) for lo, hi in self.box])] = self.patch.values()
            self.late = False


class Parted(NamedTuple):
    """Neighbours in shared memory along `dim`, but not in their source, so that they form no patch."""

    first: Held
    second: Held
    dim: int


def tiling(place: Box, pieces: list[Box]) -> list[tuple[Box, int]]:
    """Return the pieces, each with the dimension along which it adjoins the pieces before; empty if they leave
    gaps."""
    done: list[tuple[Box, int]] = []
    whole: Box | None = None
    for piece in sorted(pieces):
        dim = 0 if whole is None else next(d for d, span in enumerate(piece) if span != whole[d])
        whole = piece if whole is None else joined(whole, piece, dim)
        if whole is None:
            return []
        done.append((piece, dim))
    return done if whole == place else []


class SharedStorage(Storage):
    """A shared tensor. held: deferred constant contents, by disjoint rectangles of the root."""

    def __init__(self, name: str, item: Element, data: np.ndarray) -> None:
        super().__init__("shared", name, item, data)
        self.held: dict[Box, Held] = {}
        self.tilings: dict[Box, list[tuple[Box, int]]] = {}  # valid while `held` has the same keys
        self.late = False

    def hold(self, place: Box, view: View, box: Box, patch: Patch) -> None:
        """Record that a copy wrote the patch to `box` of the view, at `place` in the root."""
        if place not in self.held:
            self.forget(place)
            self.tilings.clear()
        self.held[place] = Held(view, box, patch)
        self.late = True

    def fill(self) -> None:
        if self.late:
            for held in self.held.values():
                self._fill(held)
            self.late = False

    def _fill(self, held: Held) -> None:
        if held.late:
            self.performed(held)
        held.fill()

    def forget(self, box: Box) -> None:
        """Drop deferred contents of a box; an empty box is the whole storage."""
        for place in [p for p in self.held if not box or meet(p, box)]:
            self._fill(self.held.pop(place))
            self.tilings.clear()

    def clear(self) -> None:
        self.late = False
        self.held.clear()
        self.data.fill(self.item.poison)

    def close(self) -> None:
        super().close()
        self.held.clear()

    def patch(self, view: View) -> Patch | None:
        if not self.held or view.index is not None:
            return None
        place = view.region().box
        held = self.held.get(place) or self._assembled(place) or self._inside(place)
        order = None if held is None else order_of(view.dims, held.view.dims)
        if held is None or order is None:
            return None
        return held.patch if view.dims == held.view.dims else held.patch.seen(order)

    def _inside(self, place: Box) -> Held | None:
        """Return the part of a single piece at this place; None if no piece covers it."""
        for piece, held in self.held.items():
            if all(lo <= begin and end <= hi for (begin, end), (lo, hi) in zip(place, piece, strict=True)):
                return held.part([(place[d][0] - piece[d][0], place[d][1] - piece[d][0]) for d in held.view.dims])
        return None

    def _assembled(self, place: Box) -> Held | None:
        """Return the pieces at this place as one, if they are neighbours both here and in their source; else None."""
        if place not in self.tilings:
            self.tilings[place] = tiling(place, [p for p in self.held if meet(p, place)])
        whole: Held | None = None
        for piece, dim in self.tilings[place]:
            held = self.held[piece]
            joined = held if whole is None else whole.then(held, dim)
            if whole is not None and joined is None:
                self.performed(Parted(whole, held, dim))
                return None
            whole = joined
        return whole


class Product:
    """A deferred product a @ b that is added to (keep) or replaces an accumulator's cells."""

    __slots__ = ("a", "b", "cells", "keep")

    def __init__(self, cells: np.ndarray, a: Patch, b: Patch, keep: bool) -> None:
        self.cells, self.a, self.b, self.keep = cells, a, b, keep

    def extended(self, a: Patch, b: Patch) -> bool:
        """Append the next product along k; return False if it is not a neighbour."""
        left, right = self.a.then(a, 1), self.b.then(b, 0)
        if left is None or right is None:
            return False
        self.a, self.b = left, right
        return True

    def perform(self) -> None:
        if self.keep:
            self.cells += np.matmul(self.a.values(), self.b.values())
        else:
            np.matmul(self.a.values(), self.b.values(), out=self.cells)


class Latest:
    """Cache of the last computed product, as warps that hold parts of one tile need the same product."""

    __slots__ = ("product",)

    def __init__(self) -> None:
        self.product: Product | None = None

    def of(self, wanted: Product) -> np.ndarray:
        known = self.product
        if known is None or not (known.a.same(wanted.a) and known.b.same(wanted.b)):
            wanted.perform()
            self.product = known = wanted
        return known.cells


class Sum:
    """Products to be added to an accumulator, each warp's part of which is in `parts`.

    Products of constant memory that follow each other along k make one large one. The registers get the sum when an
    ordinary instruction is about to use them. at_once: add it now, as the registers are part of others. narrow:
    registers narrower than the sum get each product at once. performed: called for each term once its operands are
    read, and for the sum before the registers get it.
    """

    __slots__ = ("at_once", "latest", "layouts", "narrow", "parts", "performed", "product", "shape", "total")

    def __init__(self, layouts: Mapping[int, WarpLayout], parts: dict[int, np.ndarray], latest: Latest) -> None:
        self.layouts, self.parts, self.latest = layouts, parts, latest
        self.shape = layouts[min(parts)].shape
        self.at_once = any(registers.base is not None for registers in parts.values())
        self.narrow = any(registers.itemsize < 4 for registers in parts.values())
        self.product: Product | None = None
        self.total: np.ndarray | None = None
        self.performed: Callable[[Any], None] = nobody

    def defer(self, a: Patch, b: Patch) -> None:
        if self.product is not None and self.product.extended(a, b):
            return
        self.perform()
        self.product = Product(np.empty(self.shape, np.float32), a, b, keep=False)

    def take(self, term: Product | Values) -> None:
        self.perform()
        parts = (self.latest.of(term),) if isinstance(term, Product) else term()
        self.performed(Term(self, term))
        for values in parts:
            if self.narrow:
                self._round(values)
            else:
                self.total = values if self.total is None else self.total + values

    def _round(self, values: np.ndarray) -> None:
        for warp, registers in self.parts.items():
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(registers, self.layouts[warp].load(values), out=registers, casting="unsafe")

    def perform(self) -> None:
        if self.product is not None:
            product, self.product = self.product, None
            self.take(product)

    def flush(self) -> None:
        """Add the pending sum to the registers."""
        self.perform()
        if self.total is None:
            return
        self.performed(self)
        for warp, registers in self.parts.items():
            wide = registers.astype(self.total.dtype, copy=False) + self.layouts[warp].load(self.total)
            registers[...] = wide.astype(registers.dtype, copy=False)


class Term(NamedTuple):
    """A term of a sum: a deferred product, or one of tiles that may change."""

    total: Sum
    what: Product | Values


class TensorStorage(Storage):
    """A CTA's tensor memory. products: deferred products, by the accumulator's rectangle."""

    def __init__(self, item: Element, data: np.ndarray) -> None:
        super().__init__("tensor", "tensor memory", item, data)
        self.products: dict[Box, Product] = {}

    def poison(self, box: Box) -> None:
        """Set new columns to NaN, as their contents are unknown."""
        (top, bottom), (left, right) = box
        self.flush(box)
        self.data[top:bottom, left:right] = np.nan

    def multiply(self, box: Box, a: Patch, b: Patch, keep: bool) -> None:
        """Compute D = A @ B (+ D) for the float32 accumulator in that rectangle of (lane, column)."""
        product = self.products.get(box)
        if keep and product is not None and product.extended(a, b):
            return
        if not keep:
            self.products.pop(box, None)
        self.flush(box)
        (top, bottom), (left, right) = box
        self.products[box] = Product(self.data[top:bottom, left:right], a, b, keep)

    def clear(self) -> None:
        self.products.clear()
        self.data.fill(np.nan)

    def flush(self, box: Box) -> None:
        for place in [b for b in self.products if meet(b, box)]:
            product = self.products.pop(place)
            self.performed(product)
            product.perform()
