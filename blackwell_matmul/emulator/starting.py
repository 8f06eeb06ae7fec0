"""Starts the clusters of a launch: CTAs, warps, their special registers and addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Builder
from blackwell_matmul.emulator.lanes import ALL, LANES, WORDS, Array
from blackwell_matmul.emulator.machine import ClusterState, CtaState, Row, Strand, WarpState
from blackwell_matmul.emulator.scheduler import Execution, Extents
from blackwell_matmul.emulator.spaces import RANK, RESERVED_BYTES, Memory, SharedBank


@dataclass(frozen=True)
class Places:
    """Addresses of variables that are equal in every CTA, and offsets of variables in shared and in local memory.

    start: index of the kernel's first instruction. dynamic_bytes: dynamic shared memory of the launch.
    """

    addresses: dict[str, int]
    shared: dict[str, int]
    shared_bytes: int
    local: dict[str, int]
    local_bytes: int
    start: int = 0
    dynamic_bytes: int = 0


class Starter:
    """Makes clusters of a launch, with the special registers of each warp."""

    def __init__(self, builder: Builder, grid: Extents, block: Extents, cluster: Extents, places: Places) -> None:
        self.builder, self.grid, self.block, self.cluster, self.places = builder, grid, block, cluster, places
        self.workspace: Memory | None = None

    def start(self, grid: Execution, origins: list[Extents], together: bool) -> tuple[list[ClusterState], list[Row]]:
        """Return new clusters and the rows of their warps. origins: index of each cluster's first CTA. together: True
        to put all warps into one row."""
        size = prod(self.cluster)
        bank = SharedBank(len(origins) * size, self.places.shared_bytes)
        clusters = [ClusterState(_each(int.__floordiv__, origin, self.cluster), grid) for origin in origins]
        for number, (made, origin) in enumerate(zip(clusters, origins)):
            made.ctas = [self._cta(made, rank, origin, bank, number * size + rank) for rank in range(size)]
        warps = [warp for made in clusters for cta in made.ctas for warp in cta.warps]
        return clusters, [self._row(some, bank) for some in ([warps] if together else [[warp] for warp in warps])]

    def most_clusters(self) -> int:
        """Return the maximum number of clusters whose warps execute in one row."""
        ctas = prod(self.cluster)
        warps = ctas * -(-prod(self.block) // LANES)
        nbytes = ctas * (CTA_BYTES + 2 * self.places.shared_bytes) + warps * LANES * self.places.local_bytes
        nbytes += warps * LANES * 8 * len(self.builder.slots)
        return max(1, min(ROW_WARPS // warps, ROW_BYTES // nbytes))

    def _cta(self, cluster: ClusterState, rank: int, origin: Extents, bank: SharedBank, number: int) -> CtaState:
        place = _each(int.__add__, origin, _unravelled(rank, self.cluster))
        cta, threads = CtaState(cluster, rank, place, bank, number), prod(self.block)
        cta.warps = [
            WarpState(cta, warp, threads - LANES * warp, self.places.local_bytes)
            for warp in range(-(-threads // LANES))
        ]
        return cta

    def _row(self, warps: list[WarpState], bank: SharedBank) -> Row:
        repeated = {
            id(each): _repeated(each, len(warps)) for each in self.builder.slots
        }  # several registers may share one array
        registers = [repeated[id(each)] for each in self.builder.slots]
        for (name, nbytes), slot in self.builder.specials.items():
            registers[slot] = self._specials(name, nbytes, warps)
        alive = sum(warp.alive << LANES * place for place, warp in enumerate(warps))
        return Row(warps, registers, [Strand(self.places.start, alive)], bank)

    def workspace_address(self, cta: CtaState) -> int:
        """Return the address of the memory for barriers of a cooperative launch's grid."""
        if self.workspace is None:
            data = np.zeros(WORKSPACE_BYTES, np.uint8)
            self.workspace = cta.cluster.grid.memory.add("the workspace of a cooperative launch", data)
        return self.workspace.base

    def _specials(self, name: str, nbytes: int, warps: list[WarpState]) -> Array:
        """Return the values of a special register in the lanes of warps."""
        same = name.partition("+")[0] in self.places.addresses
        values = [self._special(name, warp.cta, warp.index) for warp in (warps[:1] if same else warps)]
        if isinstance(values[0], np.ndarray):
            return np.concatenate([value.astype(WORDS[nbytes]) for value in values])
        words = [int(value) & (1 << 8 * nbytes) - 1 for value in values]
        return np.repeat(np.array(words, WORDS[nbytes]), LANES * len(warps) // len(words))

    def _special(self, name: str, cta: CtaState, warp: int) -> Any:
        """Return the value of a special register, or the address of a variable (PTX ISA, "Special Registers")."""
        name, _, offset = name.partition("+")
        places = self.places
        if name in places.shared:
            return (cta.rank << RANK) + places.shared[name] + int(offset or 0)
        if name in places.local:  # the address differs between lanes
            return _LANE * places.local_bytes + places.local[name] + int(offset or 0)
        if name in places.addresses:
            return places.addresses[name] + int(offset or 0)
        base, _, axis = name.partition(".")
        value = SPECIALS[base](self, cta, warp)
        return (*value, 0)["xyzw".index(axis)] if axis else value


ROW_WARPS, ROW_BYTES = 256, 256 << 20
"""Maximum warps of a row, and bytes of their state. Larger rows are no faster."""

CTA_BYTES = 512 << 10
"""Maximum bytes of a CTA's state in addition to shared memory, including tensor memory."""


def _repeated(content: Any, warps: int) -> Any:
    """Return a register's content, repeated for several warps."""
    if warps == 1 or content is None:
        return content
    return np.tile(content, warps) if isinstance(content, np.ndarray) else content * (((1 << LANES * warps) - 1) // ALL)


def _unravelled(index: Any, extents: Extents) -> Any:
    return index % extents[0], index // extents[0] % extents[1], index // (extents[0] * extents[1])


def _each(function: Callable[[int, int], int], a: Extents, b: Extents) -> Extents:
    return function(a[0], b[0]), function(a[1], b[1]), function(a[2], b[2])


WORKSPACE_BYTES = 256
"""Bytes of memory at %envreg1 and %envreg2. Cooperative groups use 8: a size and the barrier of the grid."""

_LANE = np.arange(LANES)
SPECIALS: dict[str, Callable[[Starter, CtaState, int], Any]] = {
    "%tid": lambda run, cta, warp: _unravelled(_LANE + LANES * warp, run.block),
    "%ntid": lambda run, cta, warp: run.block,
    "%ctaid": lambda run, cta, warp: cta.index,
    "%nctaid": lambda run, cta, warp: run.grid,
    "%laneid": lambda run, cta, warp: _LANE,
    "%warpid": lambda run, cta, warp: warp,
    "%nwarpid": lambda run, cta, warp: len(cta.warps),
    "%clusterid": lambda run, cta, warp: cta.cluster.index,
    "%nclusterid": lambda run, cta, warp: _each(int.__floordiv__, run.grid, run.cluster),
    "%cluster_ctaid": lambda run, cta, warp: _unravelled(cta.rank, run.cluster),
    "%cluster_nctaid": lambda run, cta, warp: run.cluster,
    "%cluster_ctarank": lambda run, cta, warp: cta.rank,
    "%cluster_nctarank": lambda run, cta, warp: run.cluster[0] * run.cluster[1] * run.cluster[2],
    "%is_explicit_cluster": lambda run, cta, warp: 1,
    "%nsmid": lambda run, cta, warp: 1,
    "%lanemask_eq": lambda run, cta, warp: 1 << _LANE,
    "%lanemask_lt": lambda run, cta, warp: (1 << _LANE) - 1,
    "%lanemask_le": lambda run, cta, warp: (2 << _LANE) - 1,
    "%lanemask_gt": lambda run, cta, warp: 0xFFFFFFFF & ~((2 << _LANE) - 1),
    "%lanemask_ge": lambda run, cta, warp: 0xFFFFFFFF & ~((1 << _LANE) - 1),
    "%envreg1": lambda run, cta, warp: run.workspace_address(cta) >> 32,
    "%envreg2": lambda run, cta, warp: run.workspace_address(cta),
    "%aggr_smem_size": lambda run, cta, warp: run.places.shared_bytes + RESERVED_BYTES,
    "%dynamic_smem_size": lambda run, cta, warp: run.places.dynamic_bytes,
    "%reserved_smem_offset_end": lambda run, cta, warp: RESERVED_BYTES,
    "%reserved_smem_offset_cap": lambda run, cta, warp: RESERVED_BYTES,
    "%total_smem_size": lambda run, cta, warp: run.places.shared_bytes,
    "WARP_SZ": lambda run, cta, warp: LANES,
}
_ZEROS = (
    "%smid", "%gridid", "%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi",
    "%current_graph_exec", "%reserved_smem_offset_begin", *(f"%envreg{index}" for index in (0, *range(3, 32))),
    *(f"%pm{index}{end}" for index in range(8) for end in ("", "_64")),
)  # fmt: skip
SPECIALS |= dict.fromkeys(_ZEROS, lambda run, cta, warp: 0)
