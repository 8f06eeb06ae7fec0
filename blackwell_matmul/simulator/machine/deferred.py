"""Work put off until somebody looks at its result: copies of constant memory, and the products of such copies.

A tile that TMA or cp.async brings from memory which nothing writes is the same whether it is copied or remembered as
a rectangle of its source (`Patch`). An MMA of two such tiles reads at its completion, as the policy decides, but what
it read cannot change any more; so its product may be added later, and MMAs that follow each other along k make one
large product. Who reads or overwrites the memory in any other way first gets what was put off (`fill`, `flush`).

What is remembered depends only on the order of the writes to the memory itself, so each policy and each seed groups
the products of a kernel without races alike, and gives the same bits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.machine.memory import Box, Storage, View, meet, nobody
from blackwell_matmul.simulator.machine.registers import WarpLayout
from blackwell_matmul.simulator.types import Element

Values = Callable[[], Iterable[np.ndarray]]
"""Reads its operands when it is called, and gives what is added one after the other."""


def joined(a: Box, b: Box, dim: int) -> Box | None:
    """The rectangle of both, when b begins where a ends in `dim` and they agree in the other dimensions."""
    if a[dim][1] != b[dim][0] or a[:dim] != b[:dim] or a[dim + 1 :] != b[dim + 1 :]:
        return None
    return (*a[:dim], (a[dim][0], b[dim][1]), *a[dim + 1 :])


@functools.cache
def order_of(wanted: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """Where each wanted dimension is among `dims`; None when they are others."""
    return tuple(map(dims.index, wanted)) if sorted(wanted) == sorted(dims) else None


@functools.cache
def ranks(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The place of each among them."""
    return tuple(map(sorted(axes).index, axes))


def _clipped(lo: int, hi: int, limit: int) -> tuple[int, int]:
    """The part of a span that lies in [0, limit); nothing, at one of the span's ends, when there is none."""
    begin = min(max(lo, 0), hi)
    return begin, max(min(hi, limit), begin)


class Patch:
    """A rectangle of constant memory: the spans of each dimension of `image`, seen in the order of `axes`; of a
    dimension that is not among these it has one place. What lies outside of the image is zero. alone: it is not put
    together with its neighbours, and its product is rounded by itself."""

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
        """The rectangle that lies so far from this one."""
        spans = tuple([(lo + by, hi + by) for (lo, hi), by in zip(self.spans, distance, strict=True)])
        return Patch(self.image, spans, self.axes, self.alone)

    def part(self, spans: list[tuple[int, int]]) -> Patch:
        """A rectangle in it: spans of the dimensions as they are seen, from its own beginning."""
        inside = list(self.spans)
        for axis, (begin, end) in zip(self.axes, spans, strict=True):
            inside[axis] = self.spans[axis][0] + begin, self.spans[axis][0] + end
        return Patch(self.image, tuple(inside), self.axes, alone=True)

    def seen(self, order: tuple[int, ...]) -> Patch:
        """Its dimensions in another order."""
        return Patch(self.image, self.spans, tuple([self.axes[i] for i in order]), self.alone)

    def same(self, other: Patch) -> bool:
        return self.image is other.image and self.spans == other.spans and self.axes == other.axes

    def then(self, other: Patch, dim: int) -> Patch | None:
        """Both as one, when `other` is the next one along `dim`."""
        if self.image is not other.image or self.axes != other.axes or self.alone or other.alone:
            return None
        spans = joined(self.spans, other.spans, self.axes[dim])
        return None if spans is None else Patch(self.image, spans, self.axes)


class Held:
    """The part `box` of a view of shared memory holds what `patch` does. late: numpy's copy was not filled yet."""

    __slots__ = ("box", "late", "patch", "view")

    def __init__(self, view: View, box: Box, patch: Patch) -> None:
        self.view, self.box, self.patch, self.late = view, box, patch, True

    def then(self, other: Held, dim: int) -> Held | None:
        """Both as one, when the other is the next one in its source too; `dim` is of the storage."""
        if self.view.dims != other.view.dims or dim not in self.view.dims:
            return None
        patch = self.patch.then(other.patch, self.view.dims.index(dim))
        return None if patch is None else Held(self.view, (), patch)

    def part(self, spans: list[tuple[int, int]]) -> Held:
        """What a part of it holds: spans of the view's dimensions, from its own beginning."""
        return Held(self.view, (), self.patch.part(spans))

    def fill(self) -> None:
        if self.late:
            self.view.data[tuple([slice(lo, hi) for lo, hi in self.box])] = self.patch.values()
            self.late = False


class Parted(NamedTuple):
    """Neighbours in shared memory along `dim`, but not in their source, so that what they make up is no patch."""

    first: Held
    second: Held
    dim: int


def tiling(place: Box, pieces: list[Box]) -> list[tuple[Box, int]]:
    """The pieces in the order in which each adjoins those before it, and along which dimension; nothing when they do
    not make up the place."""
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
    """A shared tensor. held: by rectangle of the root, disjoint ones, what is still as constant memory has it."""

    def __init__(self, name: str, item: Element, data: np.ndarray) -> None:
        super().__init__("shared", name, item, data)
        self.held: dict[Box, Held] = {}
        self.tilings: dict[Box, list[tuple[Box, int]]] = {}  # as long as `held` has the same keys
        self.late = False

    def hold(self, place: Box, view: View, box: Box, patch: Patch) -> None:
        """A copy wrote the patch to `box` of the view, which is at `place` in the root."""
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
        """An empty box: anything may be written."""
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
        """A part of one piece."""
        for piece, held in self.held.items():
            if all(lo <= begin and end <= hi for (begin, end), (lo, hi) in zip(place, piece, strict=True)):
                return held.part([(place[d][0] - piece[d][0], place[d][1] - piece[d][0]) for d in held.view.dims])
        return None

    def _assembled(self, place: Box) -> Held | None:
        """One piece for those that make up the place, when they are neighbours here and in their source."""
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
    """a @ b that is still to be added to (keep) or to replace what an accumulator's cells hold."""

    __slots__ = ("a", "b", "cells", "keep")

    def __init__(self, cells: np.ndarray, a: Patch, b: Patch, keep: bool) -> None:
        self.cells, self.a, self.b, self.keep = cells, a, b, keep

    def extended(self, a: Patch, b: Patch) -> bool:
        """Take in the next product along k; False when it is not a neighbour."""
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
    """The product that was computed last: warps that each hold a part of one tile ask for the same one."""

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
    """Products that are still to be added to an accumulator, each warp's part of which is in `parts`.

    Products of constant memory that follow each other along k make one large one (deferred.py), and the registers get
    the sum when an ordinary instruction is about to use them. at_once: or now, because they are part of others.
    narrow: registers narrower than the sum of the values and what they hold get each product at once. performed: told
    of each term once its operands are read, and of the sum before the registers get it.
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
        """Give the registers what they lack."""
        self.perform()
        if self.total is None:
            return
        self.performed(self)
        for warp, registers in self.parts.items():
            wide = registers.astype(self.total.dtype, copy=False) + self.layouts[warp].load(self.total)
            registers[...] = wide.astype(registers.dtype, copy=False)


class Term(NamedTuple):
    """What a sum takes in: a product that was put off, or one of tiles that may change."""

    total: Sum
    what: Product | Values


class TensorStorage(Storage):
    """A CTA's tensor memory. products: by the accumulator's rectangle, what is still to be added."""

    def __init__(self, item: Element, data: np.ndarray) -> None:
        super().__init__("tensor", "tensor memory", item, data)
        self.products: dict[Box, Product] = {}

    def poison(self, box: Box) -> None:
        """What new columns hold is not known."""
        (top, bottom), (left, right) = box
        self.flush(box)
        self.data[top:bottom, left:right] = np.nan

    def multiply(self, box: Box, a: Patch, b: Patch, keep: bool) -> None:
        """D = A @ B (+ D), for the float32 accumulator in that rectangle of (lane, column)."""
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
