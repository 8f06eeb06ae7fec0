"""An SM, as far as time can tell: its servers, and how long each kind of operation is with them.

All methods take the cycle at which an operation is issued, in the order of these cycles, and return when it is over as
its waiter sees it. What a measured latency includes is not added again: that of a tcgen05.mma runs from its issue until
a warp has seen the mbarrier, that of a TMA load from its issue until the last byte is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES, TimeFigures
from blackwell_matmul.simulator.timing.model.servers import Banks, Bucket, Pipe, TensorMemoryLock

SHARED_BYTES_PER_CYCLE = 128
"""What the tensor core reads of shared memory, as every other reader."""

SECTOR_BYTES = 32
"""What a warp's own load or store moves at a time, whatever part of it is asked for (CUDA C++ Best Practices
Guide); of a B300's L2 measured by ademeure/QuickRunCUDA, D3_L2_SECTOR_RIGOR.md."""

PARTS = 4
"""Of an SM, each with its warps and their arithmetic units."""

KIB = 1024


@dataclass(frozen=True)
class MemoryShare:
    """What an SM has of memory. loaded, stored: of what comes into it, and of what it stores, the part that passes
    there, as if it were read. later: as of `Conditions`, by the bytes that pass."""

    bytes_per_ns: float = math.inf
    loaded: float = 0.0
    stored: float = 0.0
    later: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Conditions:
    """What an SM meets. ghz: its clock. latency_ns: of a load. bytes_per_ns: its share of what the L2, or the memory
    behind it, delivers. later: (bytes, times), how much more that is once so many bytes have come into it, and others
    have no more to do. memory: what loads and stores share. few_sms: no more than half are at work."""

    figures: TimeFigures
    ghz: float
    latency_ns: float
    bytes_per_ns: float
    later: tuple[tuple[float, float], ...] = ()
    memory: MemoryShare = MemoryShare()
    few_sms: bool = False

    def cycles(self, ns: float) -> float:
        return ns * self.ghz


class Sm:
    """One SM. asked_bytes: of the L2; what a multicast of another one brings is not among them. stored_bytes: by TMA
    and threads. written: when the stores of its threads are in the L2."""

    def __init__(self, conditions: Conditions, tensor_memory_columns: int, passed_on: bool = False) -> None:
        self.conditions, self.figures = conditions, conditions.figures
        self.tensor = Pipe()
        self.tma = Pipe()
        self.fill = Pipe()
        self.drain = Pipe()
        self.lines = Pipe()
        self.port = Pipe()
        self.incoming = self._way(conditions.bytes_per_ns, conditions.later)
        self.memory = self._way(conditions.memory.bytes_per_ns, conditions.memory.later)
        self.shared = Banks()
        self.special = Pipe()
        self.shuffles = Pipe()
        self.lock = TensorMemoryLock(tensor_memory_columns, passed_on)
        self.asked_bytes = self.stored_bytes = 0.0
        self.written = 0.0

    def _way(self, bytes_per_ns: float, later: tuple[tuple[float, float], ...]) -> Bucket:
        share = bytes_per_ns / self.conditions.ghz
        return Bucket(share, self.figures.burst_bytes, [(count_bytes, times * share) for count_bytes, times in later])

    @property
    def pipes(self) -> dict[str, Pipe]:
        """Its parts that serve one after the other, as people call them."""
        return {
            "TMA loads": self.tma, "cp.async": self.fill, "tensor core": self.tensor, "TMA stores": self.drain,
            "loads and stores": self.lines, "shared memory": self.shared,
        }  # fmt: skip

    @property
    def ways(self) -> dict[str, Pipe | Bucket]:
        """Into it, and from it, which keep only who comes while they are full."""
        return {"L2": self.incoming, "port": self.port, "memory": self.memory}

    @property
    def over(self) -> float:
        """When what was begun is done, of all that nobody may wait for."""
        return max(way.free for way in (self.drain, self.lines, self.memory, self.special, self.shuffles))

    # tensor core

    def multiply(self, time: float, interval: float, steps: int, columns: float, pair: bool) -> float:
        """A chain of tcgen05.mma, one for each 32 bytes of k."""
        fixed = self.figures.pair_latency_cycles if pair else self.figures.mma_latency_cycles
        assert fixed is not None
        begin = self.tensor.start(time, steps * interval)
        return begin + (steps - 1) * interval + fixed + columns + self.figures.chain_cycles

    def end_chain(self) -> None:
        """tcgen05.commit."""
        self.tensor.free += self.figures.commit_gap_cycles

    def multiply_registers(self, time: float, interval: float, steps: int) -> float:
        """A chain of wgmma."""
        assert self.figures.wgmma_latency_cycles is not None
        return self.tensor.start(time, steps * interval) + steps * interval + self.figures.wgmma_latency_cycles

    def spill(self, time: float, count_bytes: float) -> float:
        """When sums that have no room in registers have gone to local memory and come from there, at the SM's share of
        the L2. How much of them the L1 keeps, and how a compiler orders that, nobody has published."""
        took = count_bytes * self.conditions.ghz / self.conditions.bytes_per_ns
        return self.lines.start(time, took) + took if took else time

    def multiply_sync(self, time: float, took: float) -> float:
        """mma.sync of a warp; time: after its latency."""
        return self.tensor.start(time, took) + took

    # copies

    def load(self, time: float, rows: int, count_bytes: int, pitch_bytes: int = ROW_BYTES) -> float:
        """A TMA load of so many rows of up to 128 bytes, so many bytes apart."""
        self.asked_bytes += count_bytes
        cut = self.figures.cut_row_cycles(pitch_bytes, self.conditions.few_sms)
        took = rows * max(self.figures.tma_row_cycles, cut)
        issued = self.tma.start(time, took)
        return max(issued + took + self._trip, self.arrive(issued, count_bytes))

    def arrive(self, time: float, count_bytes: int) -> float:
        """What a TMA load brings. Multicast brings as much into each SM as a load of its own would: SA has 13.7 TB/s
        of it, and 14.6 without, where four share."""
        took = count_bytes / self.figures.port_bytes_per_cycle
        given = self._given(time, count_bytes)
        return self.port.start(max(time, given - took) + self._trip, took) + took

    def _given(self, time: float, count_bytes: float) -> float:
        """When the L2, and the memory behind it, have given that many bytes."""
        given = self.incoming.take(time, count_bytes)
        return max(given, self._through_memory(time, count_bytes * self.conditions.memory.loaded))

    def _through_memory(self, time: float, count_bytes: float) -> float:
        return self.memory.take(time, count_bytes) if count_bytes else time

    def _left(self, time: float, count_bytes: float) -> float:
        """When memory has taken what is stored."""
        self.stored_bytes += count_bytes
        return self._through_memory(time, count_bytes * self.conditions.memory.stored)

    @property
    def _trip(self) -> float:
        return self.figures.tma_cycles + self.conditions.cycles(self.conditions.latency_ns)

    def copy(self, time: float, count_bytes: int) -> float:
        """cp.async of a warp."""
        self.asked_bytes += count_bytes
        there = self._given(time, count_bytes) + self.conditions.cycles(self.conditions.latency_ns)
        took = count_bytes / self.figures.fill_bytes_per_cycle
        return self.fill.start(there, took) + took

    def store(self, time: float, count_bytes: int) -> tuple[float, float]:
        """A TMA store: when its source is free, and when it has left."""
        figures, kib = self.figures, count_bytes / KIB
        took = kib * figures.drain_kib_cycles
        left = max(self.drain.start(time, took) + took, self._left(time, count_bytes))
        free = time + figures.store_cycles + kib * figures.store_kib_cycles
        return max(free, left - figures.store_buffer_kib * figures.drain_kib_cycles), left

    def store_lines(self, now: float, time: float, took: float, count_bytes: float) -> float:
        """Stores of a warp's own, which may be ahead of the others: their turn is by the cycle that all have come to,
        lest one that stores many times keeps them from storing meanwhile. took: cycles of their way; count_bytes: that
        reach the L2."""
        end = max(self.lines.start(now, took, ahead=time) + took, self._left(now, count_bytes))
        self.written = end + self.conditions.cycles(self.figures.l2_ns)
        return end

    def load_lines(self, now: float, time: float, took: float, count_bytes: float, own: bool = False) -> float:
        """Loads of a warp's own. It waits for them and is ahead of the others then, who are served meanwhile: their
        turn is by the cycle that all have come to. took: cycles of their way; count_bytes: that come from the L2. own:
        of what the launch has stored, which is there."""
        end = self.lines.start(now, took, ahead=time) + took
        if own:
            return end + self.conditions.cycles(self.figures.l2_ns)
        self.asked_bytes += count_bytes
        return max(end, self._given(now, count_bytes)) + self.conditions.cycles(self.conditions.latency_ns)

    def special_functions(self, now: float, time: float, results: float) -> float:
        """Of a warp, by the quarter of the units that is in its part of the SM; all together keep up with no more than
        all units do. As with lines, the turn is by the cycle that all have come to."""
        took = results / self.figures.special_results
        return self.special.start(now, took, ahead=time) + took * PARTS

    def shuffle(self, now: float, time: float, results: float) -> float:
        """Of a warp, likewise; all warps of the SM have one way for them."""
        took = results / self.figures.shuffle_results
        return self.shuffles.start(now, took, ahead=time) + took

    # tensor memory

    def read_tensor_memory(self, time: float, columns: int) -> float:
        """tcgen05.ld, by each of the warps that share the lanes."""
        figures = self.figures
        if columns <= 64:
            return time + figures.strip_load_cycles
        return time + figures.half_load_cycles * columns / 128
