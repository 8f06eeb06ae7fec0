"""`OrderListener`: hears a run of the emulator and tells each access that nothing orders.

An access is compared with the last accesses of the same bytes. It is ordered behind one that its agent knows.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.code import Order, order_of
from blackwell_matmul.emulator.lanes import LANES, indices
from blackwell_matmul.emulator.listener import Listener
from blackwell_matmul.emulator.order import judging, registers
from blackwell_matmul.emulator.order.agents import SCOPES, ClusterAgents, Flying, Lanes, Stream, WarpAgents
from blackwell_matmul.emulator.order.barriers import Flag, MbarrierOrder, Round
from blackwell_matmul.emulator.order.clocks import (
    AGENT_MASK,
    AGENT_SHIFT,
    ASYNC_ROWS,
    BEFORE,
    CLOCK_BITS,
    CLOCK_SHIFT,
    GLOBAL,
    ORDERED,
    SHARED,
    SITE_MASK,
    STRONG,
    TENSOR,
    WEAK,
    Array,
    Known,
    agent_of,
    cell,
    either,
)
from blackwell_matmul.emulator.order.findings import BENIGN, ERROR, UNPROMISED, Finding
from blackwell_matmul.emulator.order.judging import Access, Rule
from blackwell_matmul.emulator.order.shadow import ByteShadow, TensorShadow

GLOBAL_READERS = 2
"""Places for readers of a unit of global memory."""

SAME_VALUE = Rule("same-value", BENIGN, "", "", "")


class OrderListener(Listener):
    """A judge of order. findings: by their lines and codes, in the order in which they were found."""

    def __init__(self) -> None:
        self.findings: dict[Any, Finding] = {}
        self.certain: set[Any] = set()
        self.clusters: list[ClusterAgents] = []
        self.bases: list[int] = []
        self.living: dict[int, ClusterAgents] = {}
        self.warps: dict[Any, WarpAgents] = {}
        self.shadows: dict[Any, Any] = {}
        self.owners: dict[Any, Any] = {}
        self.finest: list[ByteShadow] = []
        self.mbarriers: dict[int, MbarrierOrder] = {}
        self.rounds: dict[Any, Round] = {}
        self.flags: dict[Any, dict[int, Flag]] = {}
        self.issuers: dict[int, Any] = {}
        self.sites: list[tuple[Any, Order]] = []
        self._site_of: dict[int, int] = {}

    # --- the run

    def began(self, grid: Any) -> None:
        self.grid = grid
        registers.watch(grid.steps, self._used)

    def started(self, cluster: Any) -> None:
        made = ClusterAgents(cluster, self.clusters[-1].end if self.clusters else 1)
        if made.end > AGENT_MASK:
            raise EmulationError("the order of a grid of so many threads is not checked; check a smaller one.")
        self.clusters.append(made)
        self.bases.append(made.base)
        self.living[id(cluster)] = made
        for cta in cluster.ctas:
            self.owners[cta.shared] = self.owners[cta.tensor] = cta
            for warp in cta.warps:
                first = made.base + (cta.rank * made.warps_of_cta + warp.index) * LANES
                agents = self.warps[warp] = WarpAgents(warp, made, first)
                agents.groups.append(Lanes((1 << LANES) - 1, made.start))

    def exited(self, warp: Any, mask: int) -> None:
        self._tell_early(self.warps[warp], ERROR)
        if not warp.alive & ~mask and all(not each.alive for each in warp.cta.warps if each is not warp):
            self._forget(warp.cta.cluster)

    def _forget(self, cluster: Any) -> None:
        """Drop the state of a cluster whose threads have all ended, but for its numbers."""
        ctas, flying = cluster.ctas, (each.warp.cta.cluster for each in self.grid.pending)
        if id(cluster) not in self.living or any(each is cluster for each in flying):
            return
        if any(warp.alive for cta in ctas for warp in cta.warps):
            return
        self.living.pop(id(cluster)).streams.clear()
        for cta in ctas:
            for memory in (cta.shared, cta.tensor):
                self.shadows.pop(memory, None)
                self.flags.pop(memory, None)
                self.owners.pop(memory, None)
            for warp in cta.warps:
                self.warps.pop(warp, None)
        self.owners = {
            key: each for key, each in self.owners.items() if key.__class__ is not tuple or key[0] not in ctas
        }
        self.mbarriers = {key: each for key, each in self.mbarriers.items() if each.cta not in ctas}
        self.rounds = {key: each for key, each in self.rounds.items() if each.cluster is not cluster}

    # --- threads

    def _site(self, step: Any) -> int:
        found = self._site_of.get(id(step))
        if found is None:
            found = self._site_of[id(step)] = len(self.sites) & SITE_MASK
            self.sites.append((step, order_of(step.source)))
        return found

    def _here(self) -> tuple[int, Order]:
        site = self._site(self.grid.current)
        return site, self.sites[site][1]

    def fenced(self, warp: Any, mask: int) -> None:
        agents, (site, order) = self.warps[warp], self._here()
        opcode = self.sites[site][0].source.opcode
        words = opcode.split(".")
        if words[0] == "wgmma":
            agents.registers.fresh, agents.registers.fenced = {}, True
        if opcode.startswith("tcgen05.fence"):
            if "before_thread_sync" in opcode:
                self._widen(agents, mask, [BEFORE], ORDERED)
            else:
                self._widen(agents, mask, [TENSOR], BEFORE)
        elif "proxy" in words:
            if "async" in words:
                spaces = {word.split("::")[0] for word in words}
                rows = [row for row, space in ((SHARED, "shared"), (GLOBAL, "global")) if space in spaces]
                self._widen(agents, mask, rows or [SHARED, GLOBAL], ORDERED)
        elif "mbarrier_init" in words:
            for each in self.mbarriers.values():
                each.fenced |= agents.first <= each.init[0] < agents.first + LANES
        elif words[0] in ("fence", "membar"):
            agents.fence(mask, order.scope)

    def _widen(self, agents: WarpAgents, mask: int, rows: list[int], source: int) -> None:
        """Add a row of what lanes know to others, with their own accesses until now."""
        lanes = np.array(indices(mask)) + agents.first
        for each in agents.parts(mask):
            known = each.known if source != ORDERED else each.known.told(rows, lanes, agents.clock)
            if source == ORDERED and agents.copied is not None:
                known = known.told(rows, agents.copies + lanes - agents.first, agents.copied[lanes - agents.first])
            each.known = known.widened(rows, source)
        agents.clock += 1

    def joined(self, barrier: Any, warp: Any, mask: int, waits: bool) -> None:
        agents, (_, order) = self.warps[warp], self._here()
        cluster = barrier.__class__ is tuple and barrier[0] is warp.cta.cluster
        round = self.rounds.setdefault(_key(barrier), Round(warp.cta.cluster, barrier))
        if not (cluster and waits):  # those who wait at barrier.cluster have arrived before
            if cluster and order.semantics == "relaxed":
                self._add_relaxed(round.add, agents, mask, 1)
            else:
                round.add(agents.sent(mask))
        if waits and round.over:
            assert round.known is not None
            agents.receive(mask, round.known)
        elif waits:
            round.waiters.append((agents, mask))

    def _add_relaxed(self, add: Callable[..., None], agents: WarpAgents, mask: int, level: int) -> None:
        """Add a relaxed arrival to a barrier: what the last fence released, and the rest weakly."""
        for each in agents.parts(mask):
            released = each.released[level]
            if released is not None:
                add(released)
        add(agents.sent(mask), strong=False)

    def ended(self, barrier: Any) -> None:
        cluster = barrier.__class__ is tuple and barrier[0].__class__.__name__ == "ClusterState"
        round = self.rounds[_key(barrier)] if cluster else self.rounds.pop(_key(barrier))
        assert round.known is not None
        round.over = True
        for agents, mask in round.waiters:
            if cluster:
                agents.receive(mask, round.known)
            else:
                agents.settle(mask, round.known)
        round.waiters = []
        if cluster:
            self.rounds.pop((id(barrier[0]), barrier[1] - 2), None)

    # --- asynchronous operations

    def issued(self, operation: Any) -> None:
        agents, (site, order) = self.warps[operation.warp], self._here()
        opcode = self.sites[site][0].source.opcode
        own = agents.known(operation.lanes)
        known = agents.sent(operation.lanes)
        made = operation.heard = Flying(known, agents, operation.lanes, agents.clock, site, order.proxy)
        lane, stream = operation.lanes.bit_length() - 1, agents.cluster.stream
        who, number = _name(operation.warp), agents.cluster.number(operation.warp)
        key = (operation.warp, lane)
        if opcode.startswith("cp.async.c"):
            if agents.copied is None:
                agents.copies = stream((operation.warp, "cp.async"), "cp.async", f"a cp.async of {who}", LANES, number)
                agents.copied = np.zeros(LANES, np.int64)
            made.agent = made.reader = agents.copies
            made.per_lane, made.known, made.copied = True, own, agents.copied.copy()
        elif opcode.startswith("wgmma"):
            made.agent = made.reader = stream((operation.warp, "wgmma"), "wgmma", f"a wgmma of {who}", 1, number)
            self._hold(agents, made.agent, site)
        elif opcode.startswith(("tcgen05.mma", "tcgen05.cp")):
            made.agent = made.reader = stream((*key, "tcgen05"), "tcgen05", f"a tcgen05 operation of {who}", 1, number)
            made.pipelined = made.agent
        elif opcode.startswith("tcgen05.st"):
            made.agent = made.reader = stream((operation.warp, "st"), "tcgen05.st", f"a tcgen05.st of {who}", 1, number)
        elif opcode.startswith(("cp.async.bulk", "cp.reduce")) and "mbarrier" not in opcode:
            made.agent = stream((*key, "bulk"), "cp.async.bulk", f"a bulk copy of {who}", 1, number)
            made.reader = stream((*key, "bulk read"), "cp.async.bulk.read", f"a bulk copy of {who}", 1, number)
        if self.grid.order != "eager":
            cluster = agents.cluster
            made.since = {cluster.number(each): self.warps[each].clock for each in self._warps_beside(operation.warp)}
        agents.clock += 1

    def _warps_beside(self, warp: Any) -> list[Any]:
        return [each for cta in warp.cta.cluster.ctas for each in cta.warps]

    def completed(self, operation: Any) -> None:
        operation.heard.pending = []
        if not operation.warp.alive:
            self._forget(operation.warp.cta.cluster)

    def waited(self, kind: str, operations: Any, warp: Any, mask: int) -> None:
        agents = self.warps[warp]
        if kind == "tcgen05.ld":
            self._learn(agents, mask, self._loads(agents), agents.clock, [ORDERED, WEAK])
            self._tell_early(agents, UNPROMISED)
            agents.clock += 1
            return
        words = self.grid.current.source.modifiers
        for operation in operations:
            found = operation.heard
            if found.per_lane:
                lanes = list(indices(found.lanes & mask))
                agents.copied[lanes] = np.maximum(agents.copied[lanes], found.clock)
                continue
            own = mask if kind in ("wgmma", "tcgen05.st") else mask & found.lanes
            rows = [ORDERED, WEAK] if kind == "tcgen05.st" else ASYNC_ROWS
            for agent in {found.reader} if "read" in words else {found.reader, found.agent}:
                if agent >= 0 and own:
                    self._learn(agents, own, agent, found.clock, rows)

    def _learn(self, agents: WarpAgents, mask: int, agent: int, clock: int, rows: list[int]) -> None:
        for each in agents.parts(mask):
            if not each.known.has(agent, clock, rows[-1]):
                each.known = each.known.told(rows, agent, clock)

    def _loads(self, agents: WarpAgents) -> int:
        name, number = _name(agents.warp), agents.cluster.number(agents.warp)
        return agents.cluster.stream((agents.warp, "ld"), "tcgen05.ld", f"a tcgen05.ld of {name}", 1, number)

    # --- mbarriers

    def initialised(self, barrier: Any, cta: Any, offset: int, warp: Any, lane: int, before: Any) -> None:
        agents = self.warps[warp]
        site, _ = self._here()
        if before is not None:
            self._double(self.mbarriers.pop(id(before)), site, agents, lane)
        stream = self.warps[cta.warps[0]].cluster.stream
        what = f"an operation that the mbarrier at {offset:,} counts"
        agent = stream((cta, offset), "mbarrier", what)
        base = self.owners.setdefault((cta, offset), 0)
        made = MbarrierOrder(barrier, cta, offset, agent, base, (agents.first + lane, agents.clock), site)
        self.mbarriers[id(barrier)] = made
        self._write_object(cta, offset, agents, lane, site)

    def _write_object(self, cta: Any, offset: int, agents: WarpAgents, lane: int, site: int) -> None:
        """Note that a thread writes an mbarrier's bytes."""
        place = np.array([cta.shared.base + offset])
        self.written(cta.shared, place, 8, agents.warp, 1 << lane)

    def _double(self, before: MbarrierOrder, site: int, agents: WarpAgents, lane: int) -> None:
        self.owners[before.cta, before.offset] = before.base + before.barrier.phase + 2
        first, second = judging.place_of(self.sites[before.init_site][0]), judging.place_of(self.sites[site][0])
        text = (
            f"the mbarrier at {before.offset:,} of shared memory of CTA {before.cta.index} is initialised at {first}, "
        )
        text += f"and again at {second}, with no mbarrier.inval in between"
        found = Finding(
            "mbarrier-initialised-twice", ERROR, text, first, second, "mbarrier.inval before the second",
            "initialise once, or invalidate first", "mbarrier.init",
        )  # fmt: skip
        self.findings.setdefault((before.init_site, site, found.code), found)

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        found, agents = self.mbarriers.pop(id(barrier), None), self.warps[warp]
        if found is None:
            return
        self.owners[found.cta, found.offset] = found.base + barrier.phase + 2
        site, _ = self._here()
        known = agents.known(1 << lane)
        for agent, (clock, used) in found.uses.items():
            if agent != agents.first + lane and not known.has(agent, clock):
                first, second = self._access(agent, used, False), self._access(agents.first + lane, site, True)
                rule = _rule(known, cell(clock, agent, used), first, second)
                self._tell(rule, first, second, used, site, f"the mbarrier at {found.offset:,} of shared memory")
        self._write_object(found.cta, found.offset, agents, lane, site)

    def _use(self, found: MbarrierOrder, agent: int, known: Known, site: int) -> None:
        """Check that who uses an mbarrier knows that it was initialised."""
        first, since = found.init
        if agent == first or known.has(first, since):
            return
        weak = known.has(first, since, WEAK)
        if weak and found.fenced:
            return
        a, b = self._access(first, found.init_site, True), self._access(agent, site, False)
        rule = judging.weakly_ordered(a)._replace(severity=UNPROMISED) if weak else judging.unordered(a, b)
        if not weak:
            rule = rule._replace(code="data-race")
        self._tell(rule, a, b, found.init_site, site, f"the mbarrier at {found.offset:,} of shared memory")

    def arrived(self, barrier: Any, warp: Any = None, mask: int = 0, nbytes: int | None = None) -> None:
        found = self.mbarriers.get(id(barrier))
        if found is None:
            return
        if warp is None:
            self._arrived_operation(found, self.grid.completing.heard, nbytes)
            return
        agents, (site, order) = self.warps[warp], self._here()
        lane = mask.bit_length() - 1
        known = agents.known(mask)
        self._use(found, agents.first + lane, known, site)
        found.uses[agents.first + lane] = (agents.clock, site)
        if nbytes is not None:
            return
        level = 0 if warp.cta is found.cta else 1
        phase = found.barrier.phase
        if order.semantics == "relaxed":
            self._add_relaxed(partial(found.add, phase), agents, mask, level)
        else:
            found.add(phase, agents.sent(mask), SCOPES.index(order.scope) >= level)

    def _arrived_operation(self, found: MbarrierOrder, flying: Flying, nbytes: int | None) -> None:
        phase, agents = found.barrier.phase, flying.warp
        self._use(found, agents.first + flying.lanes.bit_length() - 1, flying.known, flying.site)
        known = Known(flying.known.base, np.zeros_like(flying.known.clocks))
        if nbytes is not None:
            clock = found.base + phase + 1
            self._settle(flying, found.agent, found.agent, clock)
            found.uses[found.agent] = (clock, flying.site)
            found.add(phase, known.told(ASYNC_ROWS, found.agent, clock))
        elif self.sites[flying.site][0].source.opcode.startswith("cp.async"):
            if agents.copies:
                lanes = np.array(indices(flying.lanes))
                found.add(phase, known.told([ORDERED, WEAK], agents.copies + lanes, flying.clock))
        else:
            lane = flying.lanes.bit_length() - 1
            agent = agents.cluster.streams.get((agents.warp, lane, "tcgen05"))
            known = flying.known
            if agent is not None:
                known = known.told([*ASYNC_ROWS, BEFORE], agent, flying.clock)
                found.uses[agent] = (flying.clock, flying.site)
            found.add(phase, known)

    def _settle(self, flying: Flying, agent: int, reader: int, clock: int) -> None:
        """Write the cells of an operation, now that an mbarrier says what its stream is."""
        self.issuers[flying.site] = flying.warp.cluster.base, flying.warp.cluster.number(flying.warp.warp)
        for shadow, index, writes in flying.pending:
            word = cell(clock, agent if writes else reader, flying.site, writes and self._is_reduction(flying))
            if writes:
                shadow.writer[index] = word
                shadow.readers[index] = 0
            else:
                shadow.readers[index, agent % shadow.slots if shadow.slots == GLOBAL_READERS else -1] = word
        flying.pending = []

    def passed(self, barrier: Any, warp: Any, mask: int, phase: int) -> None:
        found = self.mbarriers.get(id(barrier))
        if found is None:
            return
        agents, (site, order) = self.warps[warp], self._here()
        self._use(found, agents.first + mask.bit_length() - 1, agents.known(mask), site)
        found.uses[agents.first + mask.bit_length() - 1] = (agents.clock, site)
        known = found.phases.get(phase)
        if known is None:
            return
        if order.semantics == "relaxed":
            for each in agents.parts(mask):
                each.known = each.known.weakly_joined(known)
                each.seen = either(each.seen, known)
        else:
            agents.receive(mask, known)

    # --- memory

    def read(self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0) -> None:
        self._accessed(memory, places, nbytes, warp, mask, False, None)

    def written(
        self, memory: Any, places: Any, nbytes: int, warp: Any = None, mask: int = 0, values: Any = None
    ) -> None:
        self._accessed(memory, places, nbytes, warp, mask, True, values)

    def _shadow(self, memory: Any) -> ByteShadow:
        found: ByteShadow | None = self.shadows.get(memory)
        if found is None:
            cta = self.owners.get(memory)
            slots = GLOBAL_READERS if cta is None else 2 * len(cta.warps) + 1
            shift = min((each.shift for each in self.finest), default=4) if cta is not None else 4
            found = self.shadows[memory] = ByteShadow(memory.nbytes, slots, shift)
            if cta is not None:
                self.finest = [*self.finest[-1:], found]
        return found

    def _accessed(
        self, memory: Any, places: Any, nbytes: int, warp: Any, mask: int, writes: bool, values: Any
    ) -> None:  # fmt: skip
        shadow = self._shadow(memory)
        offsets = places.astype(np.int64) - memory.base
        if offsets.min() < 0 or offsets.max() + nbytes > memory.nbytes:
            return  # the access itself stops the run, with its reason
        index, per = shadow.index(offsets, nbytes)
        if warp is None:
            flying = self.grid.completing.heard
            row = (SHARED if memory in self.owners else GLOBAL) if flying.proxy == "async" else -1
            self._by_operation(memory, shadow, index, per, flying, mask, writes, row)
            return
        agents, (site, order) = self.warps[warp], self._here()
        if self.sites[site][0].source.opcode.startswith("tcgen05.alloc"):
            self._by_allocation(memory, shadow, index, agents, site)
            return
        strong = order.semantics != "weak"
        lanes = _lanes(mask)
        if lanes.size != offsets.size:
            lanes = np.resize(lanes, offsets.size)
        if strong:
            self._synchronise(memory, offsets, agents, lanes, writes, order)
        elif writes and memory in self.flags:
            for offset in offsets.tolist():
                self.flags[memory].pop(offset, None)
        if per > 1:
            lanes = lanes.repeat(per)
        own = lanes + agents.first
        cells = (own << AGENT_SHIFT) + cell(agents.clock, 0, site, strong)
        old = shadow.writer[index]
        before = shadow.readers[index] if writes else None
        if old.any() or (before is not None and before.any()):
            for each in agents.groups:
                if not each.mask & mask:
                    continue
                some = slice(None) if not mask & ~each.mask else np.flatnonzero(each.mask >> lanes & 1)
                told = (memory, shadow, index, per, some, values)
                self._check(old[some], each.known, agents, own[some], lanes[some], site, strong, writes, True, told)
                if before is not None:
                    for slot in np.flatnonzero(before.any(axis=0)).tolist():
                        self._check(
                            before[some][:, slot], each.known, agents, own[some], lanes[some], site, strong, writes,
                            False, told,
                        )  # fmt: skip
        if writes:
            shadow.writer[index] = cells
            shadow.readers[index] = 0
        else:
            slot = warp.index if self.owners.get(memory) is warp.cta else -1
            if shadow.slots == GLOBAL_READERS:
                slot = agents.first // LANES % GLOBAL_READERS
            shadow.readers[index, slot] = cells

    def _check(
        self, old: Array, known: Known, agents: WarpAgents, own: Array, lanes: Array, site: int, strong: bool,
        writes: bool, wrote: bool, told: Any,
    ) -> None:  # fmt: skip
        """Tell the cells among `old` that an access does not know. wrote: they are writers."""
        live = np.flatnonzero(old)
        if not live.size:
            return
        cells = old[live]
        missing = known.missing(cells, ORDERED)
        if not missing.any():
            return
        live, cells = live[missing], cells[missing]
        theirs = cells >> AGENT_SHIFT & AGENT_MASK
        bad = theirs != own[live]
        if agents.copied is not None:
            mine = theirs - agents.copies == lanes[live]
            bad &= ~(mine & (cells >> CLOCK_SHIFT <= agents.copied[lanes[live]]))
        if strong and bad.any():
            bad &= ~np.array([self._both_strong(one, own[0], site) for one in cells.tolist()])
        for place in self._one_each(cells, bad):
            self._judge(int(cells[place]), known, int(own[live[place]]), site, writes, wrote, told, int(live[place]))

    def _one_each(self, cells: Array, bad: Array) -> list[int]:
        """Return one of the bad cells for each of their instructions."""
        found: dict[int, int] = {}
        for place in np.flatnonzero(bad).tolist():
            found.setdefault(int(cells[place]) & SITE_MASK, place)
        return list(found.values())

    def _both_strong(self, one: int, own: int, site: int) -> bool:
        """Return true if two strong accesses are of scopes that have both ("Morally strong operations")."""
        if not one & STRONG:
            return False
        a, b = self._cluster_of(agent_of(one)), self._cluster_of(own)
        level = 2
        if a is b:
            width = a.warps_of_cta * LANES
            level = 0 if (agent_of(one) - a.base) // width == (own - a.base) // width else 1
        scopes = self.sites[one & SITE_MASK][1].scope, self.sites[site][1].scope
        return all(SCOPES.index(scope) >= level for scope in scopes)

    def _judge(
        self, one: int, known: Known, own: int, site: int, writes: bool, wrote: bool, told: Any, unit: int
    ) -> None:  # fmt: skip
        memory, shadow, index, per, some, values = told
        first, second = self._access(agent_of(one), one & SITE_MASK, wrote), self._access(own, site, writes)
        units = np.arange(index.start, index.stop) if isinstance(index, slice) else index
        number = int(np.arange(units.size)[some][unit])
        start = shadow.place(int(units[number]))
        if (
            values is not None and wrote and writes and one & SITE_MASK == site and not first.kind
            and self._is_same(memory, shadow, units, number, per, values)
        ):  # fmt: skip
            self._tell(SAME_VALUE, first, second, site, site, self._where(memory, start, shadow.shift))
            return
        rule = _rule(known, one, first, second)
        self._tell(rule, first, second, one & SITE_MASK, site, self._where(memory, start, shadow.shift))

    def _is_same(self, memory: Any, shadow: Any, units: Array, number: int, per: int, values: Any) -> bool:
        """Return true if a store leaves a word as it is."""
        lane = number // max(per, 1)
        value = np.ascontiguousarray(values[lane : lane + 1]).view(np.uint8)
        start = shadow.place(int(units[lane * per]))
        return bool((memory.data[start : start + value.size] == value).all())

    def _by_allocation(self, memory: Any, shadow: ByteShadow, index: Any, agents: WarpAgents, site: int) -> None:
        """Note the address that tcgen05.alloc writes, which every proxy of the warp sees ("tcgen05.alloc")."""
        mask = agents.warp.alive
        number = agents.cluster.number(agents.warp)
        agent = agents.cluster.stream((agents.warp, "alloc"), "", f"lane 0 of {_name(agents.warp)}", 1, number)
        flying = Flying(agents.sent(mask), agents, mask, agents.clock, site, "generic", agent, agent)
        self._by_operation(memory, shadow, index, 1, flying, 0, True, -1)
        self._learn(agents, mask, agent, agents.clock, ASYNC_ROWS)
        agents.clock += 1

    def _where(self, memory: Any, start: int, shift: int) -> str:
        return f"bytes {start:,} to {start + (1 << shift) - 1:,} of {memory.name}"

    def _by_operation(
        self, memory: Any, shadow: ByteShadow, index: Any, per: int, flying: Flying, mask: int, writes: bool, row: int
    ) -> None:  # fmt: skip
        old = shadow.writer[index]
        self._check_operation(old, flying, row, writes, True, (memory, shadow, index), mask, per)
        if writes:
            before = shadow.readers[index]
            for slot in np.flatnonzero(before.any(axis=0)).tolist():
                told = (memory, shadow, index)
                self._check_operation(before[:, slot], flying, row, writes, False, told, mask, per)
        agent = flying.agent if writes else flying.reader
        if agent < 0:
            flying.pending.append((shadow, index, writes))
            return
        word: Any = cell(flying.clock, agent, flying.site, writes and self._is_reduction(flying))
        if flying.per_lane and mask:
            word = word + (_lanes(mask).repeat(max(per, 1)) << AGENT_SHIFT)
        if writes:
            shadow.writer[index] = word
            shadow.readers[index] = 0
            return
        warp = flying.warp.warp
        slot = -1
        if shadow.slots == GLOBAL_READERS:
            slot = flying.warp.first // LANES % GLOBAL_READERS
        elif memory in self.owners and self.owners[memory] is warp.cta:  # its own shared memory
            slot = len(warp.cta.warps) + warp.index
        shadow.readers[index, slot] = word

    def _check_operation(
        self, old: Array, flying: Flying, row: int, writes: bool, wrote: bool, told: Any, mask: int, per: int
    ) -> None:  # fmt: skip
        live = np.flatnonzero(old)
        if not live.size:
            return
        cells = old[live]
        unordered = missing = flying.known.missing(cells, ORDERED)
        if missing.any():
            if flying.per_lane and mask:  # a lane knows what it did, and its copies for which it has waited
                theirs, lanes = cells >> AGENT_SHIFT & AGENT_MASK, _lanes(mask).repeat(max(per, 1))[live]
                late = cells >> CLOCK_SHIFT >= flying.clock
                missing = missing & ((theirs != lanes + flying.warp.first) | late)
                missing = missing & ~((theirs == lanes + flying.agent) & (cells >> CLOCK_SHIFT <= flying.copied[lanes]))
            if writes and missing.any() and self._is_reduction(flying):
                own, site = flying.warp.first, flying.site
                missing = missing & ~np.array([self._both_strong(one, own, site) for one in cells.tolist()])
            for place in self._one_each(cells, missing):
                self._judge_operation(int(cells[place]), flying, writes, wrote, told, int(live[place]))
        if row < 0:
            return
        missing = flying.known.missing(cells, row) & ~unordered
        for place in self._one_each(cells, missing):
            one = int(cells[place])
            first = self._access(agent_of(one), one & SITE_MASK, wrote)
            second = self._of_operation(flying, writes)
            space = ".shared::cta" if row == SHARED else ".global"
            memory, shadow, index = told
            where = self._where(memory, self._start(shadow, index, int(live[place])), shadow.shift)
            rule = judging.other_proxy(first, space)
            self._tell(rule, first, second, one & SITE_MASK, flying.site, where)

    def _start(self, shadow: ByteShadow, index: Any, place: int) -> int:
        return shadow.place(index.start + place if isinstance(index, slice) else int(index[place]))

    def _judge_operation(
        self, one: int, flying: Flying, writes: bool, wrote: bool, told: Any, place: int
    ) -> None:  # fmt: skip
        memory, shadow, index = told
        first, second = self._access(agent_of(one), one & SITE_MASK, wrote), self._of_operation(flying, writes)
        where = self._where(memory, self._start(shadow, index, place), shadow.shift)
        sites = one & SITE_MASK, flying.site
        if self._is_later(one, flying):
            first, second, sites = second, first, (sites[1], sites[0])
        self._tell(_rule(flying.known, one, first, second), first, second, *sites, where)

    def _is_reduction(self, flying: Flying) -> bool:
        """Return true for cp.reduce, whose writes are relaxed atomics of the GPU ("cp.reduce.async.bulk")."""
        return self.sites[flying.site][1].semantics == "relaxed"

    def _is_later(self, one: int, flying: Flying) -> bool:
        """Return true if a thread accessed after an operation was issued, which took effect only now."""
        cluster = self._cluster_of(agent_of(one))
        if flying.since is None or cluster.stream_of(agent_of(one)) is not None:
            return False
        if cluster is not flying.warp.cluster:
            return False
        return one >> CLOCK_SHIFT >= flying.since.get(cluster.warp_of(agent_of(one)), 1 << CLOCK_BITS)

    def unwritten(self, told: str) -> None:
        step = self.grid.completing.step if self.grid.completing is not None else self.grid.current
        place = judging.place_of(step)
        rule = judging.UNINITIALISED
        found = Finding(rule.code, rule.severity, f"{place} {told}", place, None, rule.edge, rule.mend, rule.section)
        self.findings.setdefault((self._site(step), rule.code), found)

    # --- tensor memory

    def _tensor(self, memory: Any) -> TensorShadow:
        found: TensorShadow | None = self.shadows.get(memory)
        if found is None:
            lanes, columns = memory.words.shape
            slots = 2 * len(self.owners[memory].warps) + 1
            found = self.shadows[memory] = TensorShadow(lanes, columns, slots)
        return found

    def touched(self, memory: Any, rows: Any, columns: Any, writes: bool, warp: Any = None) -> None:
        shadow = self._tensor(memory)
        index = np.broadcast_arrays(rows, columns)
        rows, columns = index[0].reshape(-1), index[1].reshape(-1)
        if warp is not None:
            agents, (site, _) = self.warps[warp], self._here()
            known, agent, clock, pipelined = agents.known(warp.alive), self._loads(agents), agents.clock, -1
            slot = warp.index
            if not writes:
                self._hold(agents, agent, site)
        else:
            flying = self.grid.completing.heard
            known, agent, clock, site = flying.known, flying.agent, flying.clock, flying.site
            warp, pipelined = flying.warp.warp, flying.pipelined
            slot = len(warp.cta.warps) + warp.index
        if warp.cta is not self.owners[memory]:
            slot = -1
        word = cell(clock, agent, site)
        self._check_tensor(shadow.writer[rows, columns], known, agent, site, pipelined, writes, True, rows, columns)
        if not writes:
            shadow.readers[rows, columns, slot] = word
            return
        before = shadow.readers[rows, columns]
        if before.any():
            flat = before.reshape(-1)
            r, c = rows.repeat(shadow.readers.shape[2]), columns.repeat(shadow.readers.shape[2])
            self._check_tensor(flat, known, agent, site, pipelined, writes, False, r, c)
        shadow.writer[rows, columns] = word
        shadow.readers[rows, columns] = 0

    def _check_tensor(
        self, old: Array, known: Known, agent: int, site: int, pipelined: int, writes: bool, wrote: bool, rows: Array,
        columns: Array,
    ) -> None:  # fmt: skip
        live = np.flatnonzero(old)
        if not live.size:
            return
        cells = old[live]
        missing = known.missing(cells, ORDERED)
        theirs = cells >> AGENT_SHIFT & AGENT_MASK
        if pipelined >= 0:
            queued = missing & (theirs == pipelined)
            missing &= ~queued
            if queued.any():
                self._pipelined(cells, queued, agent, site, writes, wrote, live, rows, columns)
        for place in self._one_each(cells, missing):
            one = int(cells[place])
            first, second = self._access(agent_of(one), one & SITE_MASK, wrote), self._access(agent, site, writes)
            where = f"lane {rows[live[place]]}, column {columns[live[place]]} of tensor memory"
            self._tell(_rule(known, one, first, second), first, second, one & SITE_MASK, site, where)
        ordered = ~known.missing(cells, ORDERED)
        bare = ordered & known.missing(cells, TENSOR)
        for place in self._one_each(cells, bare & (theirs != agent)):
            one = int(cells[place])
            if self._warp_of(agent_of(one)) == self._warp_of(agent):
                continue
            first, second = self._access(agent_of(one), one & SITE_MASK, wrote), self._access(agent, site, writes)
            if self.findings.get("fence") is None:
                where = f"lane {rows[live[place]]}, column {columns[live[place]]} of tensor memory"
                self.findings["fence"] = judging.finding(judging.unfenced(), first, second, where)

    def _pipelined(
        self, cells: Array, queued: Array, agent: int, site: int, writes: bool, wrote: bool, live: Array, rows: Array,
        columns: Array,
    ) -> None:  # fmt: skip
        """Tell orders of a thread's tcgen05 operations that PTX does not list: an mma, then a cp."""
        if ".cp." not in self.sites[site][0].source.opcode:
            return
        for place in self._one_each(cells, queued):
            one = int(cells[place])
            if ".mma" in self.sites[one & SITE_MASK][0].source.opcode:
                first, second = self._access(agent_of(one), one & SITE_MASK, wrote), self._access(agent, site, writes)
                where = f"lane {rows[live[place]]}, column {columns[live[place]]} of tensor memory"
                self._tell(judging.pipelined(), first, second, one & SITE_MASK, site, where)

    def allocated(self, memory: Any, column: int, columns: int, warp: Any, gives_back: bool) -> None:
        shadow, agents, (site, _) = self._tensor(memory), self.warps[warp], self._here()
        part = slice(column, column + columns)
        if gives_back:
            known, own = agents.known(warp.alive), agents.first
            old = np.concatenate([shadow.writer[:, part].reshape(-1), shadow.readers[:, part].reshape(-1)])
            cells = old[np.flatnonzero(old)]
            if cells.size:
                for place in self._one_each(cells, known.missing(cells, ORDERED)):
                    one = int(cells[place])
                    first, second = self._access(agent_of(one), one & SITE_MASK, False), self._access(own, site, True)
                    rule = judging.unordered(first, second)._replace(code="dealloc-in-flight")
                    where = f"columns {column} to {column + columns - 1} of tensor memory"
                    self._tell(rule, first, second, one & SITE_MASK, site, where)
        shadow.writer[:, part] = 0
        shadow.readers[:, part] = 0

    # --- registers

    def _hold(self, agents: WarpAgents, agent: int, site: int) -> None:
        """Note the registers of a wgmma or a tcgen05.ld that is under way."""
        each, found = self.sites[site][0].source, agents.registers
        if site in found.early:
            self._tell_early(agents, ERROR)
        writes, reads = registers.held_by(each)
        if registers.is_wgmma(each):
            fresh = found.fresh.keys() & (writes | reads)
            if fresh or not found.fenced:
                first = found.fresh[min(fresh)] if fresh else site
                a, b = (self._access(agents.first, one, True) for one in (first, site))
                rule = judging.NO_WGMMA_FENCE._replace(severity=UNPROMISED if found.fenced else ERROR)
                self._tell(rule, a, b, 0, 0, "registers of the wgmma" if fresh else "its registers")
        found.held.update(dict.fromkeys(reads, (agent, agents.clock, site, False)))
        found.held.update(dict.fromkeys(writes, (agent, agents.clock, site, True)))

    def _used(self, warp: Any, step: Any, mask: int, writes: set[int], reads: set[int]) -> None:
        """Check an instruction that touches registers which a wgmma or a tcgen05.ld may still use."""
        agents = self.warps[warp]
        found = agents.registers
        if writes:
            found.fresh.update(dict.fromkeys(writes, self._site(self.grid.current)))
        if not found.held:
            return
        known, moves = agents.known(mask), step.source.opcode.startswith("mov")
        for slot in writes | reads:
            held = found.held.get(slot)
            if held is None:
                continue
            agent, clock, site, is_written = held
            if known.has(agent, clock):
                del found.held[slot]
            elif slot in writes or is_written:
                self._judge_register(agents, mask, agent, site, slot in writes and slot not in reads, moves)
        if moves:
            for slot in reads & found.held.keys():
                found.held.update(dict.fromkeys(writes, found.held[slot]))

    def _judge_register(self, agents: WarpAgents, mask: int, agent: int, held: int, writes: bool, moves: bool) -> None:
        site, _ = self._here()
        first = self._access(agent, held, not writes)
        second = self._access(agents.first + mask.bit_length() - 1, site, writes)
        rule = judging.unordered(first, second)
        if self.sites[held][0].source.opcode.startswith("tcgen05.ld") and not writes:
            if not moves:
                agents.registers.early.setdefault(held, (rule, first, second))
            return
        if moves:
            rule = rule._replace(severity=UNPROMISED)
        self._tell(rule, first, second, held, -1 if moves else site, "registers")

    def _tell_early(self, agents: WarpAgents, severity: str) -> None:
        """Tell results of tcgen05.ld that were used too early: an error if no wait came, else left to the assembler,
        which sees that the registers depend on the load. Triton relies on that.
        """
        for site, (rule, first, second) in agents.registers.early.items():
            key = (site, site) if severity == ERROR else (0, 1)
            self._tell(rule._replace(severity=severity), first, second, *key, "registers")
        agents.registers.early = {}

    # --- flags: strong accesses that synchronise

    def _synchronise(
        self, memory: Any, offsets: Array, agents: WarpAgents, lanes: Array, writes: bool, order: Order
    ) -> None:  # fmt: skip
        opcode = self.grid.current.source.opcode
        flags = self.flags.setdefault(memory, {})
        updates = opcode.startswith(("atom", "red"))
        for offset, lane in zip(offsets.tolist(), lanes.tolist()):
            flag = flags.get(offset)
            if flag is not None and not opcode.startswith(("st", "red")):
                self._acquire(flag, agents, 1 << lane, order)
        if writes:
            for offset, lane in zip(offsets.tolist(), lanes.tolist()):
                self._release(flags, offset, agents, 1 << lane, order, updates)

    def _acquire(self, flag: Flag, agents: WarpAgents, mask: int, order: Order) -> None:
        cta = agents.warp.cta
        level = 0 if flag.cta is cta else 1 if flag.cluster is cta.cluster else 2
        known = flag.known[level]
        if known is None or SCOPES.index(order.scope) < level:
            return
        for each in list(agents.parts(mask)):
            if order.semantics in ("acquire", "acq_rel"):
                each.known = each.known.joined(known)
            else:
                each.seen = either(each.seen, known)

    def _release(
        self, flags: dict[int, Flag], offset: int, agents: WarpAgents, mask: int, order: Order, updates: bool
    ) -> None:  # fmt: skip
        cta = agents.warp.cta
        if order.semantics in ("release", "acq_rel"):
            sent, level = agents.sent(mask), SCOPES.index(order.scope)
            known: list[Known | None] = [sent if place <= level else None for place in range(3)]
        else:
            known = list(next(each for each in agents.groups if each.mask & mask).released)
        before = flags.get(offset)
        if updates and before is not None:
            known = [either(a, b) for a, b in zip(known, before.known)]
        if any(each is not None for each in known):
            flags[offset] = Flag(known, cta, cta.cluster)
        else:
            flags.pop(offset, None)

    # --- words

    def _cluster_of(self, agent: int) -> ClusterAgents:
        return self.clusters[bisect.bisect_right(self.bases, agent) - 1]

    def _warp_of(self, agent: int) -> tuple[int, int]:
        cluster = self._cluster_of(agent)
        return cluster.base, cluster.warp_of(agent)

    def _access(self, agent: int, site: int, writes: bool) -> Access:
        cluster = self._cluster_of(agent)
        stream: Stream | None = cluster.stream_of(agent)
        place = judging.place_of(self.sites[site][0])
        if stream is not None:
            issuer = self.issuers.get(site) if stream.kind == "mbarrier" else self._warp_of(agent)
            return Access(place, stream.what, stream.kind, writes, issuer)
        number, lane = divmod(agent - cluster.base, LANES)
        return Access(place, f"lane {lane} of {cluster.name(number)}", "", writes, (cluster.base, number))

    def _of_operation(self, flying: Flying, writes: bool) -> Access:
        place = judging.place_of(self.sites[flying.site][0])
        agent = flying.agent if writes else flying.reader
        stream = self._cluster_of(agent).stream_of(agent) if agent >= 0 else None
        kind = stream.kind if stream else "mbarrier"
        cluster, warp = flying.warp.cluster, flying.warp.warp
        return Access(place, f"an operation of {_name(warp)}", kind, writes, (cluster.base, cluster.number(warp)))

    def _tell(self, rule: Rule, first: Access, second: Access, a: int, b: int, where: str) -> None:
        """Tell two instructions once: by accesses of one warp, whose order is certain, if there are such."""
        key, certain = (min(a, b), max(a, b), rule.severity), first.warp == second.warp
        before = self.findings.get(key)
        if before is None or (certain and key not in self.certain):
            self.findings[key] = judging.finding(rule, first, second, where)
        if certain:
            self.certain.add(key)


def _rule(known: Known, one: int, first: Access, second: Access) -> Rule:
    """Return the kind of finding of two accesses: of a cell `one`, and of an agent that does not know it."""
    weak = known.has(agent_of(one), one >> CLOCK_SHIFT, WEAK)
    return judging.weakly_ordered(first) if weak else judging.unordered(first, second)


def _key(barrier: Any) -> Any:
    return (id(barrier[0]), barrier[1]) if barrier.__class__ is tuple else id(barrier)


def _name(warp: Any) -> str:
    return f"warp {warp.index} of CTA {warp.cta.index}"


@lru_cache(maxsize=4096)
def _lanes(mask: int) -> Array:
    return np.array(indices(mask), np.int64)
