"""An SM's servers, and how long each kind of operation occupies them.

All methods take the cycle at which an operation is issued, in the order of these cycles, and return the cycle at which
its waiter sees its end. A measured latency includes the signal. That of a tcgen05.mma ends when a warp has seen the
mbarrier, that of a TMA load when the last byte is there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES, TimeFigures
from blackwell_matmul.hardware.gpus import SHARED_BYTES_PER_CYCLE
from blackwell_matmul.simulator.timing.model.servers import Banks, Bucket, Pipe, TensorMemoryLock

SECTOR_BYTES = 32
"""Bytes that a warp's load or store moves at least, even for a part of them (CUDA C++ Best Practices Guide; for a
B300's L2 ademeure/QuickRunCUDA, D3_L2_SECTOR_RIGOR.md)."""

PARTS = 4
"""Number of an SM's partitions. Each has its own warps and arithmetic units."""

KIB = 1024


@dataclass(frozen=True)
class MemoryShare:
    """An SM's share of the memory bandwidth. loaded, stored: fractions of its loads and stores that reach memory,
    counted as reads. later: as of `Conditions`, by the bytes that reach memory."""

    bytes_per_ns: float = math.inf
    loaded: float = 0.0
    stored: float = 0.0
    later: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Conditions:
    """Conditions of an SM. ghz: its clock. latency_ns: of a load. bytes_per_ns: its share of the L2's or the memory's
    bandwidth. later: (bytes, factor) by which the share grows after so many bytes, when other SMs have ended.
    memory: the share of loads and stores. few_sms: at most half of the SMs work."""

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
    """One SM. asked_bytes: requested from the L2, without other SMs' multicast. stored_bytes: by TMA and threads.
    written: when its threads' stores have reached the L2."""

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
        """Return the SM's parts that serve one operation at a time, by name."""
        return {
            "TMA loads": self.tma, "cp.async": self.fill, "tensor core": self.tensor, "TMA stores": self.drain,
            "loads and stores": self.lines, "shared memory": self.shared,
        }  # fmt: skip

    @property
    def ways(self) -> dict[str, Pipe | Bucket]:
        """Return the SM's paths of data by name. A path delays only operations that arrive while it is full."""
        return {"L2": self.incoming, "port": self.port, "memory": self.memory}

    @property
    def over(self) -> float:
        """Return the cycle at which all operations are complete, including those that no warp waits for."""
        return max(way.free for way in (self.drain, self.lines, self.memory, self.special, self.shuffles))

    # tensor core

    def multiply(self, time: float, interval: float, steps: int, columns: float, pair: bool) -> float:
        """Return the end of a chain of tcgen05.mma, one for each 32 bytes of k."""
        fixed = self.figures.pair_latency_cycles if pair else self.figures.mma_latency_cycles
        assert fixed is not None
        begin = self.tensor.start(time, steps * interval)
        return begin + (steps - 1) * interval + fixed + columns + self.figures.chain_cycles

    def copy_to_tensor_memory(self, time: float, count_bytes: int) -> float:
        """Return the end of copies from shared to tensor memory, in the order of the products."""
        took = count_bytes / SHARED_BYTES_PER_CYCLE
        return self.tensor.start(time, took) + took

    def end_chain(self) -> None:
        """End a chain, as tcgen05.commit does."""
        self.tensor.free += self.figures.commit_gap_cycles

    def multiply_registers(self, time: float, interval: float, steps: int) -> float:
        """Return the end of a chain of wgmma."""
        assert self.figures.wgmma_latency_cycles is not None
        return self.tensor.start(time, steps * interval) + steps * interval + self.figures.wgmma_latency_cycles

    def spill(self, time: float, count_bytes: float) -> float:
        """Return when spilled accumulators were stored to local memory and loaded, at the SM's share of the L2. The
        L1's part and the compiler's order are not published."""
        took = count_bytes * self.conditions.ghz / self.conditions.bytes_per_ns
        return self.lines.start(time, took) + took if took else time

    def multiply_sync(self, time: float, took: float) -> float:
        """Return the end of a warp's mma.sync; time: after its latency."""
        return self.tensor.start(time, took) + took

    # copies

    def load(self, time: float, rows: int, count_bytes: int, pitch_bytes: int = ROW_BYTES) -> float:
        """Return the end of a TMA load of rows of up to 128 bytes, pitch_bytes apart."""
        self.asked_bytes += count_bytes
        cut = self.figures.cut_row_cycles(pitch_bytes, self.conditions.few_sms)
        took = rows * max(self.figures.tma_row_cycles, cut)
        issued = self.tma.start(time, took)
        return max(issued + took + self._trip, self.arrive(issued, count_bytes))

    def arrive(self, time: float, count_bytes: int) -> float:
        """Return the cycle at which a TMA load's bytes have arrived; multicast takes as long in each SM as a load
        without it (SA)."""
        took = count_bytes / self.figures.port_bytes_per_cycle
        given = self._given(time, count_bytes)
        return self.port.start(max(time, given - took) + self._trip, took) + took

    def _given(self, time: float, count_bytes: float) -> float:
        """Return the cycle at which the L2, and memory on a miss, have delivered these bytes."""
        given = self.incoming.take(time, count_bytes)
        return max(given, self._through_memory(time, count_bytes * self.conditions.memory.loaded))

    def _through_memory(self, time: float, count_bytes: float) -> float:
        return self.memory.take(time, count_bytes) if count_bytes else time

    def _left(self, time: float, count_bytes: float) -> float:
        """Return when memory has received these stored bytes."""
        self.stored_bytes += count_bytes
        return self._through_memory(time, count_bytes * self.conditions.memory.stored)

    @property
    def _trip(self) -> float:
        return self.figures.tma_cycles + self.conditions.cycles(self.conditions.latency_ns)

    def copy(self, time: float, count_bytes: int) -> float:
        """Return the end of a warp's cp.async."""
        self.asked_bytes += count_bytes
        there = self._given(time, count_bytes) + self.conditions.cycles(self.conditions.latency_ns)
        took = count_bytes / self.figures.fill_bytes_per_cycle
        return self.fill.start(there, took) + took

    def store(self, time: float, count_bytes: int) -> tuple[float, float]:
        """Return when the source of a TMA store is free, and when the data have left."""
        figures, kib = self.figures, count_bytes / KIB
        took = kib * figures.drain_kib_cycles
        left = max(self.drain.start(time, took) + took, self._left(time, count_bytes))
        free = time + figures.store_cycles + kib * figures.store_kib_cycles
        return max(free, left - figures.store_buffer_kib * figures.drain_kib_cycles), left

    def store_lines(self, now: float, time: float, took: float, count_bytes: float) -> float:
        """Return the end of a warp's stores. They are served by the common cycle `now`, not the warp's own, so that
        other warps can store meanwhile. took: cycles out of the SM; count_bytes: that reach the L2."""
        end = max(self.lines.start(now, took, ahead=time) + took, self._left(now, count_bytes))
        self.written = end + self.conditions.cycles(self.figures.l2_ns)
        return end

    def load_lines(self, now: float, time: float, took: float, count_bytes: float, own: bool = False) -> float:
        """Return the end of a warp's loads, for which it waits. They are served by the common cycle `now`. took: cycles
        into the SM; count_bytes: that come from the L2. own: the launch has stored the data, which are in the L2."""
        end = self.lines.start(now, took, ahead=time) + took
        if own:
            return end + self.conditions.cycles(self.figures.l2_ns)
        self.asked_bytes += count_bytes
        return max(end, self._given(now, count_bytes)) + self.conditions.cycles(self.conditions.latency_ns)

    def special_functions(self, now: float, time: float, results: float) -> float:
        """Return the end of a warp's special functions on the units of its partition. All partitions together are
        limited by all units, in the order of the common cycle."""
        took = results / self.figures.special_results
        return self.special.start(now, took, ahead=time) + took * PARTS

    def shuffle(self, now: float, time: float, results: float) -> float:
        """Return the end of a warp's shuffles; all warps of the SM share one path."""
        took = results / self.figures.shuffle_results
        return self.shuffles.start(now, took, ahead=time) + took

    # tensor memory

    def read_tensor_memory(self, time: float, columns: int) -> float:
        """Return the end of a tcgen05.ld by each of the warps that share the lanes."""
        figures = self.figures
        if columns <= 64:
            return time + figures.strip_load_cycles
        return time + figures.half_load_cycles * columns / 128
