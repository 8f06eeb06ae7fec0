"""mbarrier objects (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.cta import Cta

BARRIER_BYTES = 8  # PTX ISA, "Size and alignment of mbarrier object"
MAX_TX_COUNT = 2**20 - 1  # PTX ISA, "mbarrier / Tx-Count": -(2^20 - 1) to 2^20 - 1


@dataclass(eq=False, repr=False, slots=True)
class PhaseBytes:
    """Bytes of a phase, by line: bytes announced by expect_tx, and bytes that copies brought."""

    announced: Counter[Location | None] = field(default_factory=Counter)
    brought: Counter[Location | None] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.announced or self.brought)

    def __str__(self) -> str:
        text = " and ".join(f"{count} bytes are announced at {line}" for line, count in self.announced.items())
        came = f"{self.brought.total()} have come{f' ({by_line(self.brought)})' if self.brought else ''}"
        return f"{text or 'no bytes are announced'}, and {came}"


def by_line(counts: Mapping[Location | None, int]) -> str:
    """Return `8192 at k.py:7, 4096 at k.py:8`, in the order of the lines."""
    lines = sorted(counts.items(), key=lambda each: each[0].line if each[0] is not None else 0)
    return ", ".join(f"{count} at {line}" for line, count in lines)


@dataclass(eq=False, repr=False, slots=True)
class Mbarrier:
    """An mbarrier object with its full phase number.

    expected: arrivals a phase needs. pending: arrivals it still lacks. tx_bytes: signed tx-count.
    A phase completes when both are zero; the next one then starts with `expected` pending arrivals.
    initialise: makes it, and its neighbours, in another CTA. bytes, bytes_before: of the present phase, and of the last
    one that had any.
    """

    cta: Cta
    name: str
    address: int
    expected: int
    location: Location | None
    initialise: Callable[[Cta], None]
    pending: int = field(init=False)
    phase: int = 0
    tx_bytes: int = 0
    bytes: PhaseBytes = field(default_factory=PhaseBytes)
    bytes_before: PhaseBytes = field(default_factory=PhaseBytes)

    def __post_init__(self) -> None:
        self.pending = self.expected

    def __str__(self) -> str:
        return f"{self.name}{self.cta.among_others}"

    @property
    def remedy(self) -> str:
        """Wait that ends operations which signal this mbarrier."""
        return f"mbarrier.wait on {self.name}"

    def in_cta(self, cta: Cta) -> Mbarrier:
        """Return the mbarrier at the same address in another CTA, which initialises it when it starts."""
        if self.address not in cta.barriers:
            self.initialise(cta)
        found: Mbarrier = cta.barriers[self.address]
        return found

    def arrive(self, count: int, location: Location | None) -> Iterator[int]:
        """Count arrivals, and yield the phases that end. More arrivals than are pending belong to the following phases,
        as when 32 lanes arrive where one was expected."""
        if count > self.pending:
            self._report_over_arrival(count, location)
        while count > 0 and self.pending > 0:
            taken = min(count, self.pending)
            self.pending -= taken
            count -= taken
            yield from self._maybe_end()

    def _report_over_arrival(self, count: int, location: Location | None) -> None:
        message = (
            f"{self.name} gets {count} arrival(s) where phase {self.phase} lacked {self.pending}; it was initialised"
            f" with a count of {self.expected}{self._advice(count)}"
        )
        alone = self.location if count > self.expected else None  # otherwise it came too early, for another reason
        self.cta.report("mbarrier-over-arrival", message, location, self.location, at_fault=alone)

    def _advice(self, count: int) -> str:
        """Return the remedy if every lane of a warp arrives, or a thread for several."""
        if count <= self.expected:
            return ""
        lanes = count % 32 == 0 and self.expected < 32
        one = "put the arrival under `with self.single_thread():`, or " if lanes else ""
        return f"; {one}give it a count of {count}"

    def expect_tx(self, count_bytes: int, location: Location | None) -> None:
        """Add these bytes to the tx-count of the phase (expect-tx)."""
        self.bytes.announced[location] += count_bytes
        self._add_tx(count_bytes, location)

    def complete_tx(self, count_bytes: int, location: Location | None) -> Iterator[int]:
        """Count delivered bytes of a bulk copy (complete-tx), and yield the phase that ends."""
        self.bytes.brought[location] += count_bytes
        self._add_tx(-count_bytes, location)
        yield from self._maybe_end()

    def _add_tx(self, count_bytes: int, location: Location | None) -> None:
        self.tx_bytes += count_bytes
        if abs(self.tx_bytes) > MAX_TX_COUNT:
            message = f"the tx-count of {self.name} becomes {self.tx_bytes} bytes; it holds {MAX_TX_COUNT} at most"
            self.cta.report("tx-count-overflow", message, location, self.location)

    def _maybe_end(self) -> Iterator[int]:
        if self.pending == 0 and self.tx_bytes == 0:
            self.phase += 1
            self.pending = self.expected
            if self.bytes:
                self.bytes, self.bytes_before = PhaseBytes(), self.bytes
            yield self.phase - 1

    def passed(self, parity: int) -> bool:
        """Return True if the phase of that parity, and not the current one, is over (mbarrier.try_wait.parity)."""
        return (self.phase ^ parity) & 1 == 1

    def missing(self) -> str:
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.expected} arrival(s)")
        if self.tx_bytes:
            parts.append(f"{self.tx_bytes} bytes" if self.tx_bytes > 0 else f"an expect_tx of {-self.tx_bytes} bytes")
        return " and ".join(parts) or "nothing"


def barriers_of(cta: Cta) -> list[Mbarrier]:
    return list(cta.barriers.values())


WINDOW_BYTES = 2**24
"""Bytes of a CTA's part of the shared::cluster window."""


def mapped(address: Any, rank: int) -> Any:
    """Return the address of the same variable in the CTA with that rank (PTX ISA, "mapa"). The given address may have
    a rank."""
    return address % WINDOW_BYTES + (rank + 1) * WINDOW_BYTES


def barrier_in_cluster(cta: Cta, address: int, location: Location | None) -> Mbarrier:
    """Return the mbarrier at an address of the shared::cluster window."""
    rank, place = divmod(address, WINDOW_BYTES)
    if rank == 0 or rank - 1 == cta.rank:
        return _at(cta, place, location)
    mine: Mbarrier | None = cta.barriers.get(place)
    return _at(cta, place, location) if mine is None else mine.in_cta(cta.cluster.ctas[rank - 1])


def barrier_at(cta: Cta, address: int, location: Location | None) -> Mbarrier:
    """Return the mbarrier at an address of the shared::cta window, which belongs to the CTA itself."""
    barrier = barrier_in_cluster(cta, address, location)
    if barrier.cta is not cta:
        raise cta.stop(
            "remote-mbarrier",
            f"{barrier} is used by CTA {cta.position}, where PTX takes an mbarrier of the CTA itself alone; for another"
            " CTA's there are arrive_and_expect_tx_remote, tcgen05.commit and tma.global_to_shared with cta_group=2",
            location,
        )
    return barrier


def _at(cta: Cta, address: int, location: Location | None) -> Mbarrier:
    barrier: Mbarrier | None = cta.barriers.get(address)
    if barrier is None:
        raise cta.stop(
            "mbarrier-not-initialised",
            f"shared address {address} holds no mbarrier; the kernel has {len(cta.barriers)} of them",
            location,
        )
    return barrier
