"""`OrderListener`: a listener of the emulator that reports unordered accesses.

Each access is compared with the last accesses to the same bytes. The access is ordered after those that its agent has
observed. `rules` has the rules for each kind of event.
"""

from __future__ import annotations

from typing import Any

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.emulation_listener import EmulationListener
from blackwell_matmul.emulator.lanes import LANES
from blackwell_matmul.emulator.order import judging, touched_registers
from blackwell_matmul.emulator.order.agents import ClusterAgents, LaneGroup, WarpAgents
from blackwell_matmul.emulator.order.clocks import AGENT_MASK
from blackwell_matmul.emulator.order.ptx_findings import ERROR
from blackwell_matmul.emulator.order.rules.byte_accesses import ByteAccesses
from blackwell_matmul.emulator.order.rules.fences import Fences
from blackwell_matmul.emulator.order.rules.flags import Flags
from blackwell_matmul.emulator.order.rules.held_registers import RegisterUses
from blackwell_matmul.emulator.order.rules.lifetimes import Lifetimes
from blackwell_matmul.emulator.order.rules.mbarrier_phases import Mbarriers
from blackwell_matmul.emulator.order.rules.operations import Operations
from blackwell_matmul.emulator.order.rules.tensor_accesses import TensorAccesses
from blackwell_matmul.emulator.order.rules.tensor_maps import TensorMaps
from blackwell_matmul.emulator.order.rules.thread_barriers import ThreadBarriers
from blackwell_matmul.emulator.order.run_state import RunState


class OrderListener(EmulationListener):
    """A listener that checks the order of accesses. findings: by instructions and severity, as discovered."""

    def __init__(self) -> None:
        run = self.run = RunState()
        self.findings = run.findings
        self.living: dict[int, ClusterAgents] = {}
        self.registers = RegisterUses(run)
        self.lifetimes = Lifetimes(run)
        self.bytes = ByteAccesses(run, Flags(run), self.lifetimes)
        self.tensor = TensorAccesses(run, self.registers)
        self.threads = ThreadBarriers(run)
        self.operations = Operations(run, self.registers)
        self.mbarriers = Mbarriers(run, self.bytes, self.lifetimes)
        self.maps = TensorMaps(run, self.bytes)
        self.fences = Fences(run, self.mbarriers)
        for rule, events in {
            self.operations: ["waited"], self.tensor: ["touched", "allocated"], self.maps: ["described"],
            self.mbarriers: ["initialised", "invalidated", "arrived", "passed"], self.threads: ["joined", "ended"],
            self.fences: ["fenced"],
        }.items():  # fmt: skip
            for event in events:  # events of this rule alone
                setattr(self, event, getattr(rule, event))

    # --- the run

    def began(self, grid: Any) -> None:
        self.run.grid = grid
        touched_registers.watch(grid.steps, self.registers.used)

    def started(self, cluster: Any) -> None:
        run = self.run
        made = ClusterAgents(cluster, run.clusters[-1].end if run.clusters else 1)
        if made.end > AGENT_MASK:
            raise EmulationError("the order of a grid of so many threads is not checked; check a smaller one.")
        run.clusters.append(made)
        run.bases.append(made.base)
        self.living[id(cluster)] = made
        for cta in cluster.ctas:
            run.owners[cta.shared] = run.owners[cta.tensor] = cta
            for warp in cta.warps:
                first = made.base + (cta.rank * made.warps_of_cta + warp.index) * LANES
                agents = run.warps[warp] = WarpAgents(warp, made, first)
                agents.groups.append(LaneGroup((1 << LANES) - 1, made.start))

    def exited(self, warp: Any, mask: int) -> None:
        self.registers.tell_early(self.run.warps[warp], ERROR)
        cta = warp.cta
        if not warp.alive and all(not each.alive for each in cta.warps):
            mbarriers = [each for each in self.mbarriers.valid.values() if each.cta is cta]
            self.lifetimes.ended(cta, self.bytes.shadows.get(cta.shared), mbarriers)
            self._forget(cta.cluster)

    def _forget(self, cluster: Any) -> None:
        """Drop the state of a cluster without threads or operations in flight. Its agent numbers stay."""
        ctas, flying = cluster.ctas, (each.warp.cta.cluster for each in self.run.grid.pending)
        if id(cluster) not in self.living or any(each is cluster for each in flying):
            return
        if any(warp.alive for cta in ctas for warp in cta.warps):
            return
        self.living.pop(id(cluster)).streams.clear()
        for cta in ctas:
            self.lifetimes.over.pop(cta, None)
            self.bytes.forget(cta.shared)
            self.tensor.shadows.pop(cta.tensor, None)
            for memory in (cta.shared, cta.tensor):
                self.run.owners.pop(memory, None)
            self.tensor.pairs.pop(cta, None)
            for warp in cta.warps:
                self.run.warps.pop(warp, None)
        self.mbarriers.forget(ctas)
        self.maps.forget(ctas)
        self.threads.forget(cluster)

    # --- operations

    def issued(self, operation: Any) -> None:
        self.operations.issued(operation)
        self.maps.issued(operation.heard)

    def completed(self, operation: Any) -> None:
        operation.heard.pending = []
        if not operation.warp.alive:
            self._forget(operation.warp.cta.cluster)

    # --- memory

    def read(self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0) -> None:
        self.bytes.accessed(memory, places, nbytes, warp, mask, False, None)

    def written(
        self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0, values: Any = None
    ) -> None:
        self.bytes.accessed(memory, places, nbytes, warp, mask, True, values)

    def unwritten(self, text: str) -> None:
        grid, rule = self.run.grid, judging.UNINITIALISED
        step = grid.completing.step if grid.completing is not None else grid.current
        place = judging.place_of(step)
        self.run.tell_text(rule, f"{place} {text}", place)
