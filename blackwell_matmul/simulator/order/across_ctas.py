"""Faults that show only in the accesses of all CTAs to global memory together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory, GlobalStorage, ViewKey, Write
from blackwell_matmul.simulator.machine.memory import Box, Region


def merge(
    memory: GlobalMemory, grid: tuple[int, int, int], cluster: tuple[int, int, int], complete: bool, ordered: bool
) -> list[Finding]:
    """Return the faults that only the accesses of all CTAs together show. complete: every CTA has returned. ordered:
    the order of all accesses was checked during the run, and not only of those in one cluster.
    """
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
    findings = [] if ordered else [*findings, *_stale_reads(memory, owners, grid, leaders)]
    signals = [memory.segment_at(address) for address in memory.semaphores]
    for key, writes in by_key.items():
        storage = memory.view(key)
        assert storage is not None
        if complete and storage.segment.address not in memory.read and storage.segment not in signals:
            findings += _unwritten(_owner_view(owners, storage), writes, storage)
    return findings


def left_behind(memory: GlobalMemory) -> Iterator[Finding]:
    """Report workspaces with requires_clean=True that the kernel leaves with other bits than zero. This package clears
    them before each launch; tilus clears them once, at allocation (tilus 0.2.0, `Script.global_tensor`)."""
    for storage, location in memory.workspaces:
        if storage.defined and storage.segment.cells.any():  # by bits
            where, value = _first_left(storage)
            advice = "store zeros to it once nobody needs it any more, as the last release_semaphore of a tile can"
            message = (
                f"the kernel leaves {value} in {storage.name}[{where}], and a workspace with requires_clean=True is to"
                f" be zero again at the end: tilus clears it once, not for each launch; {advice}"
            )
            yield Finding(
                "workspace-left-dirty", Severity.UNGUARANTEED, message, location=location, tensor=storage.name,
                advice=advice,
            )  # fmt: skip


def semaphores_left(memory: GlobalMemory) -> Iterator[Finding]:
    """Report semaphores in tensors of the caller with which a second launch would not go as this one did: it would wait
    for the value of the start, or would not wait for a value that is there."""
    owned = [storage.segment for storage, _ in memory.workspaces]
    for address, semaphore in memory.semaphores.items():
        segment, cell = memory.segment_at(address), memory.word_at(address)
        if segment is None or cell is None or segment in owned or cell[0] == semaphore.found:
            continue
        if semaphore.found in semaphore.waits:
            lock, fate = semaphore.waits[semaphore.found], f"waits for {semaphore.found}"
        elif int(cell[0]) in semaphore.waits:
            lock, fate = semaphore.waits[int(cell[0])], "passes before anybody releases it"
        else:
            continue
        if not _is_stored(memory, address):
            advice = f"end with a release_semaphore of {semaphore.found}, or clear the tensor for each launch"
            message = (
                f"the kernel found {semaphore.found} in {memory.name_at(address)} and leaves {cell[0]}: unless"
                f" somebody clears it, the next launch {fate} at {lock}; {advice}"
            )
            yield Finding(
                "semaphore-left-dirty", Severity.UNGUARANTEED, message, location=semaphore.stored, other=lock,
                tensor=segment.name, advice=advice,
            )  # fmt: skip


def _is_stored(memory: GlobalMemory, address: int) -> bool:
    """Return True if a store other than a release writes to this address: a kernel may clear a semaphore so."""
    for write in memory.writes.values():
        storage = memory.view(write.key)
        if storage is not None and storage.segment is memory.segment_at(address):
            begins = storage.byte_ranges(Region(storage, write.box))
            if ((begins <= address) & (address < begins + storage.item.dtype.itemsize)).any():
                return True
    return False


def _first_left(storage: GlobalStorage) -> tuple[str, Any]:
    """Return the index of the first element that is not all zero bits, and its value."""
    values = np.ascontiguousarray(storage.read(storage.data))
    set_bits = values.view(np.uint8).reshape(*values.shape, values.itemsize).any(axis=-1)
    index = tuple(np.argwhere(set_bits)[0].tolist())
    return ", ".join(map(str, index)), values[index]


def _leaders(grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> np.ndarray | None:
    """Return, for each CTA, the number of the first CTA in its cluster; None if clusters have one CTA."""
    if cluster == (1, 1, 1):
        return None
    numbers = np.arange(math.prod(grid)).reshape(grid[::-1])
    z, y, x = (np.arange(extent) // size * size for extent, size in zip(grid[::-1], cluster[::-1], strict=True))
    return numbers[np.ix_(z, y, x)].reshape(-1)


def _foreign(part: np.ndarray, cta: int, leaders: np.ndarray | None) -> np.ndarray:
    """Return a mask of the elements whose owner (see `_owner_view`) is a CTA of another cluster."""
    foreign = (part != 0) & (part != cta + 1)
    return foreign if leaders is None else foreign & (leaders[part - 1] != leaders[cta])


MAX_CELLS = 2**20


def _is_tiled(memory: GlobalMemory, key: ViewKey, keys: list[ViewKey], writes: list[Write]) -> bool:
    """Return True for an output that a single view writes, each element once, and nobody reads. Such an output has no
    fault."""
    storage = memory.view(key)
    assert storage is not None
    alone = all(other is key or memory.segment_at(other.address) is not storage.segment for other in keys)
    rectangles = all(write.elements is None for write in writes)
    unread = storage.segment.address not in memory.read
    return alone and rectangles and unread and tiles([write.box for write in writes], storage.data.shape)


def tiles(boxes: list[Box], shape: tuple[int, ...]) -> bool:
    """Return True if the rectangles cover the shape and do not overlap. All edges together cut the shape into cells;
    each cell must lie in one rectangle."""
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
    """Return findings for reads of elements that another CTA of the same launch writes, because a launch does not
    order its CTAs."""
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
    """Return, for each element of the view, 1 + the number of the CTA that wrote the element; 0 if no CTA did."""
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
    """Report elements that two CTAs write, with one finding for the view: the first pair, and the number of pairs."""
    clashes: dict[tuple[int, int], tuple[int, Box]] = {}
    for write in writes:
        where: Any = tuple(slice(lo, hi) for lo, hi in write.box) if write.elements is None else write.elements
        part = owner[where]
        foreign = _foreign(part, write.cta, leaders)
        if foreign.any():
            pair = (int(part[foreign][0]) - 1, write.cta)
            count, box = clashes.get(pair, (0, write.box))
            clashes[pair] = (count + int(foreign.sum()), _around(box, write.box))
        owner[where] = write.cta + 1
    return [_clash(storage, clashes, grid)] if clashes else []


def _around(one: Box, other: Box) -> Box:
    """Return the smallest rectangle that contains both rectangles."""
    return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True))


def position_of(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return the block index of a CTA, x fastest."""
    x, y = grid[0], grid[1]
    return number % x, number // x % y, number // (x * y)


def _clash(
    storage: GlobalStorage, clashes: dict[tuple[int, int], tuple[int, Box]], grid: tuple[int, int, int]
) -> Finding:
    pair, (count, box) = next(iter(clashes.items()))
    first, second = (position_of(number, grid) for number in pair)
    others = f", as do {len(clashes) - 1} other pair(s) of CTAs" if len(clashes) > 1 else ""
    message = (
        f"CTA {first} and CTA {second} both write {count} element(s) of {storage.name}, in [{_spell(box)}]{others};"
        " nothing orders them"
    )
    return Finding("written-by-two-ctas", Severity.ERROR, message, second, count=len(clashes))


def _spell(box: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{lo}:{hi}" for lo, hi in box)


def _unwritten(owner: np.ndarray, writes: list[Write], storage: GlobalStorage) -> list[Finding]:
    """Return findings for elements of an output view that no CTA wrote, in tiles of the size that one CTA writes."""
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
    """Return the shape of the largest rectangle that one CTA writes."""
    spans: dict[int, list[list[int]]] = {}
    for write in writes:
        span = spans.setdefault(write.cta, [[2**62, 0] for _ in range(rank)])
        for dim, (lo, hi) in enumerate(write.box):
            span[dim] = [min(span[dim][0], lo), max(span[dim][1], hi)]
    return tuple(max(max(span[d][1] - span[d][0], 1) for span in spans.values()) for d in range(rank))
