"""CTAs, the warps in them and the clusters around them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Code, Finding, Severity, Stop
from blackwell_matmul.simulator.machine.deferred import Latest, TensorStorage
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.machine.memory import Storage
from blackwell_matmul.simulator.machine.tensor_memory import Columns, tensor_memory


@dataclass(eq=False)
class Rendezvous:
    """A meeting of a thread group's warps, as at bar.sync. brought: by warp number, or warp in a cluster's barrier.
    result: of the meeting. over: all have arrived."""

    needed: frozenset[Any]
    brought: dict[Any, Any] = field(default_factory=dict)
    result: Any = None
    over: bool = False

    def complete(self) -> bool:
        return self.over


class Warp:
    """Thirty-two threads that execute as one agent.

    groups: its asynchronous operations that it can wait for, by instruction family (operation.py). filling: registers
    that an operation may still fill or read, by id; kept alive so that ids stay unique. wgmmas: MMAs of its warpgroup
    that it has issued; None before a wgmma.fence. sums: pending sums by the id of their registers
    (semantics/accumulators.py). registers: those of a thread after setmaxnreg; 0 before. tensor_core: the pipe of MMAs
    and copies that its elected lane issues. returned: it has reached the end of the program.
    """

    __slots__ = ("cta", "filling", "groups", "index", "registers", "returned", "sums", "tensor_core", "wgmmas")

    def __init__(self, cta: Cta, index: int) -> None:
        self.cta, self.index = cta, index
        self.returned = False
        self.tensor_core = ("tensor core", index, id(cta))
        self.groups: dict[str, Any] = {}
        self.filling: dict[int, np.ndarray] = {}
        self.wgmmas: int | None = None
        self.sums: dict[int, Any] = {}
        self.registers = 0

    def __str__(self) -> str:
        return f"warp {self.index} of CTA {self.cta.position}"

    def clear(self) -> None:
        """Drop the warp's references to its operations."""
        self.groups.clear()
        self.filling.clear()
        self.wgmmas = None
        self.sums.clear()
        self.registers = 0


@dataclass(eq=False)
class Cluster:
    """CTAs that run together and access each other's shared memory; without clusters, one CTA.

    shape: its extents, in CTAs. ctas: by rank. meeting: the barrier.cluster at which warps wait. grants: clusters that
    it takes over.
    """

    shape: tuple[int, int, int]
    ctas: list[Cta] = field(default_factory=list)
    meeting: Rendezvous | None = None
    grants: Grants = field(default_factory=Grants)


class Cta:
    """A thread block: its warps, shared memory, tensor memory and barriers. rank: its number in its cluster.

    engine: the engine that runs it. barriers: each `Mbarrier` by address. meetings: open meetings of its warps. latest:
    the last MMA result for one of its accumulators.
    """

    def __init__(self, grid: Grid, position: Position, cluster: Cluster, engine: Any) -> None:
        self.grid, self.engine = grid, engine
        self.cluster, self.rank = cluster, len(cluster.ctas)
        cluster.ctas.append(self)
        self.move(position)
        self.warps = [Warp(self, i) for i in range(grid.num_warps)]
        self.shared: dict[int, Storage] = {}
        self.shared_bytes: np.ndarray | None = None
        self.barriers: dict[int, Any] = {}
        self.meetings: dict[Any, Rendezvous] = {}
        self.columns = Columns()
        self.latest = Latest()
        self.stopped = False

    @functools.cached_property
    def tensor_memory(self) -> TensorStorage:
        """Return the tensor memory, which is allocated at its first use because it is large."""
        made = tensor_memory()
        made.performed = self.engine.tell.performed
        return made

    @property
    def storages(self) -> Iterator[Storage]:
        """Return the storages that were used."""
        if "tensor_memory" in self.__dict__:
            yield self.tensor_memory
        yield from self.shared.values()

    def move(self, position: Position) -> None:
        self.position, self.number = position, self.grid.number_of(position)

    @property
    def peer(self) -> Cta | None:
        """Return the other CTA of the pair, whose rank differs in the last bit (PTX ISA, "CTA Pair"); None without a
        pair."""
        other = self.rank ^ 1
        return self.cluster.ctas[other] if other < len(self.cluster.ctas) else None

    @property
    def among_others(self) -> str:
        """Return the suffix of a part's name with its CTA, if the cluster has several; else ""."""
        return f" of CTA {self.position}" if len(self.cluster.ctas) > 1 else ""

    def report(
        self,
        code: Code,
        message: str,
        location: Location | None = None,
        other: Location | None = None,
        severity: Severity = Severity.ERROR,
        **more: Any,
    ) -> None:
        """Add a finding; the run continues. more: other fields of the finding."""
        self.grid.findings.add(Finding(code, severity, message, self.position, location, other, **more))

    def stop(self, code: Code, message: str, location: Location | None, other: Location | None = None) -> Stop:
        """Return an exception with a finding after which this CTA cannot continue."""
        return Stop(Finding(code, Severity.ERROR, message, self.position, location, other, fatal=True))

    def clear(self, position: Position) -> None:
        """Restore the initial memory, for a run at another position."""
        self.move(position)
        if self.shared_bytes is not None:
            self.shared_bytes.fill(0xFF)
        for storage in self.storages:
            storage.clear()
        for warp in self.warps:
            warp.clear()

    def close(self) -> None:
        """Break reference cycles through this CTA, so that its memory is free without the garbage collector."""
        for storage in self.storages:
            storage.close()
        for warp in self.warps:
            warp.clear()
        for parts in (self.warps, self.shared, self.barriers, self.meetings, self.cluster.ctas):
            parts.clear()
        self.cluster.grants.close()
        self.cluster.meeting = self.engine = None


# --- in words


def number(warp: Warp) -> tuple[int, int]:
    """Return the warp's place in the cluster: CTA rank and warp index."""
    return warp.cta.rank, warp.index


def spell(warps: Iterable[Warp]) -> str:
    """Name warps: `warps 0..7`, or in a cluster `warp 3 of CTA (0, 0, 0), warps 0, 2 of CTA (1, 0, 0)`."""
    by_cta: dict[Cta, list[int]] = {}
    for warp in warps:
        by_cta.setdefault(warp.cta, []).append(warp.index)
    return ", ".join(f"{spell_warps(sorted(indices))}{cta.among_others}" for cta, indices in by_cta.items())


def spell_warps(indices: Sequence[int]) -> str:
    """Name warps of a CTA: `warp 3`, `warps 0, 2`, `warps 0..7`."""
    if len(indices) == 1:
        return f"warp {indices[0]}"
    if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
        return f"warps {indices[0]}..{indices[-1]}"
    return f"warps {', '.join(map(str, indices))}"
