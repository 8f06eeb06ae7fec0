"""Checks of accesses to shared and global memory. Each access is compared with the last accesses to the same bytes."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.emulator.lanes import LANES, Array
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import SCOPES, Flying, WarpAgents, lanes_of
from blackwell_matmul.emulator.order.barriers import MbarrierOrder
from blackwell_matmul.emulator.order.clocks import (
    AGENT_MASK,
    AGENT_SHIFT,
    ASYNC_ROWS,
    CLOCK_BITS,
    CLOCK_SHIFT,
    GLOBAL,
    ORDERED,
    SHARED,
    SITE_MASK,
    STRONG,
    VectorClock,
    agent_of,
    cell,
    one_each,
)
from blackwell_matmul.emulator.order.judging import Rule
from blackwell_matmul.emulator.order.last_accesses import ByteShadow, occupied
from blackwell_matmul.emulator.order.ptx_findings import BENIGN, UNPROMISED
from blackwell_matmul.emulator.order.rules.flags import Flags
from blackwell_matmul.emulator.order.rules.lifetimes import Lifetimes
from blackwell_matmul.emulator.order.run_state import RunState

GLOBAL_READERS = 2
"""Number of reader slots of a unit of global memory."""

COLLECTIVE = ("tcgen05.alloc", "tensormap.cp_fenceproxy")
"""Prefixes of instructions whose accesses belong to the whole warp."""

SAME_VALUE = Rule("same-value", BENIGN, "", "", "")


class Range(NamedTuple):
    """Bytes that an access touches, as units of the memory's shadow. index: of the units. per: units of each lane.
    values: stored values."""

    memory: Any
    shadow: ByteShadow
    index: Any
    per: int
    values: Any = None

    def where(self, place: int) -> str:
        start, nbytes = self.start(place), 1 << self.shadow.shift
        return f"bytes {start:,} to {start + nbytes - 1:,} of {self.memory.name}"

    def start(self, place: int) -> int:
        unit = self.index.start + place if isinstance(self.index, slice) else int(self.index[place])
        return self.shadow.place(unit)

    def is_same(self, place: int) -> bool:
        """Return True if a store does not change a lane's word."""
        lane = place // max(self.per, 1)
        value = np.ascontiguousarray(self.values[lane : lane + 1]).view(np.uint8)
        start = self.start(lane * self.per)
        return bool((self.memory.data[start : start + value.size] == value).all())


class ByteAccesses:
    """Rules for reads and writes of bytes. objects: valid mbarriers by memory and offset."""

    def __init__(self, run: RunState, flags: Flags, lifetimes: Lifetimes) -> None:
        self.run, self.flags, self.lifetimes = run, flags, lifetimes
        self.objects: dict[Any, dict[int, MbarrierOrder]] = {}
        self.shadows: dict[Any, ByteShadow] = {}
        self.finest: list[ByteShadow] = []

    def _shadow(self, memory: Any) -> ByteShadow:
        cta = self.run.owners.get(memory)
        slots = GLOBAL_READERS if cta is None else 2 * len(cta.warps) + 1
        shift = min((each.shift for each in self.finest), default=4) if cta is not None else 4
        found = self.shadows[memory] = ByteShadow(memory.nbytes, slots, shift)
        if cta is not None:
            self.finest = [*self.finest[-1:], found]
        return found

    def accessed(self, memory: Any, places: Any, nbytes: int, warp: Any, mask: int, writes: bool, values: Any) -> None:
        shadow = self.shadows.get(memory) or self._shadow(memory)
        offsets = places.view(np.int64) - memory.base
        if offsets.min() < 0 or offsets.max() + nbytes > memory.nbytes:
            return  # the emulator raises Undefined for this access
        index, per = shadow.index(offsets, nbytes)
        range = Range(memory, shadow, index, per, values)
        if memory in self.objects:
            self._check_objects(range, offsets, nbytes, warp, mask, writes)
        if warp is None:
            self.by_operation(range, self.run.grid.completing.heard, mask, writes)
        elif self.run.here()[1].opcode.startswith(COLLECTIVE):
            self._by_warp(range, self.run.warps[warp], writes)
        else:
            self._by_threads(range, offsets, self.run.warps[warp], mask, writes)

    def _check_objects(self, range: Range, offsets: Array, nbytes: int, warp: Any, mask: int, writes: bool) -> None:
        """Report data accesses to a valid mbarrier ("Contents of the mbarrier object"). The next mbarrier operation on
        the object makes them an error."""
        run, objects = self.run, self.objects[range.memory]
        if not objects or offsets.min() >= max(objects) + 8 or offsets.max() + nbytes <= min(objects):
            return
        flying = run.grid.completing.heard if warp is None else None
        site = flying.site if flying else run.here()[0]
        hit = next((at for at in objects if ((offsets < at + 8) & (offsets + nbytes > at)).any()), None)
        if hit is None or run.sites[site].opcode.startswith("mbarrier"):
            return
        own = flying or run.warps[warp].first + mask.bit_length() - 1
        access, found = run.access(own, site, writes), objects[hit]
        found.spoiled = access if writes else found.spoiled
        text = f"{access.who} {access.verb} bytes of {found.place} at {access.place}, which is still valid"
        rule = judging.MBARRIER_AS_DATA._replace(severity=UNPROMISED)
        run.tell_text(rule, text, access.place, run.place(found.init_site))

    # --- by threads

    def _by_threads(self, range: Range, offsets: Array, agents: WarpAgents, mask: int, writes: bool) -> None:
        memory, shadow, index, per, _ = range
        site, at = self.run.here()
        strong, lanes = at.order.semantics != "weak", lanes_of(mask)
        if lanes.size != offsets.size:
            lanes = np.resize(lanes, offsets.size)
        if strong:
            self.flags.synchronise(memory, offsets, agents, lanes, writes, at)
        elif writes:
            self.flags.overwritten(memory, offsets)
        if per > 1:
            lanes = lanes.repeat(per)
        before = shadow.cells[index] if writes else shadow.cells[index, :1]
        if before.any():
            for each in agents.groups:
                if each.mask & mask:
                    some = slice(None) if not mask & ~each.mask else np.flatnonzero(each.mask >> lanes & 1)
                    self._check(range, before, some, each.known, agents, lanes, strong, writes)
        cta = self.run.owners.get(memory)
        if cta is not None and cta is not agents.warp.cta:
            own = agents.first + mask.bit_length() - 1
            self.lifetimes.reached(cta, agents.known(mask), own, site, writes, lambda: memory.name)
        word = cell(agents.clock, agents.first, site, strong) + (lanes << AGENT_SHIFT)
        if writes:
            shadow.write(index, word)
        else:
            shadow.cells[index, 1 + self._reader(memory, agents)] = word

    def _reader(self, memory: Any, agents: WarpAgents) -> int:
        """Return the reader slot of a warp."""
        cta = self.run.owners.get(memory)
        if cta is None:
            return agents.first // LANES % GLOBAL_READERS
        return int(agents.warp.index) if cta is agents.warp.cta else -2

    def _check(
        self, range: Range, before: Array, some: Any, known: VectorClock, agents: WarpAgents, lanes: Array,
        strong: bool, writes: bool,
    ) -> None:  # fmt: skip
        """Report the earlier accesses that lanes of one group have not observed."""
        cells, units, slots = occupied(before[some])
        if not units.size:
            return
        missing = known.missing(cells, ORDERED)
        if not missing.any():
            return
        units, slots, cells = units[missing], slots[missing], cells[missing]
        own = lanes[some][units]
        bad = self._is_other(cells, own, agents)
        site, _ = self.run.here()
        if strong and bad.any():
            bad &= ~np.array([self._both_strong(one, agents.first, site) for one in cells.tolist()])
        for place in one_each(cells, slots, bad):
            unit = int(units[place]) if isinstance(some, slice) else int(some[units[place]])
            self._judge(
                range, int(cells[place]), known, agents.first + int(own[place]), slots[place] == 0, writes, unit
            )

    def _is_other(self, cells: Array, own: Array, agents: WarpAgents) -> Array:
        """Return a mask of the cells that are neither the lane's own nor a cp.async that the lane has waited for."""
        theirs = cells >> AGENT_SHIFT & AGENT_MASK
        bad: Array = theirs != own + agents.first
        if agents.copied is not None:
            bad &= (theirs - agents.copies != own) | (cells >> CLOCK_SHIFT > agents.copied[own])
        return bad

    def _both_strong(self, one: int, own: int, site: int) -> bool:
        """Return True if the scopes of two strong accesses include both agents ("Morally strong operations")."""
        if not one & STRONG:
            return False
        a, b = self.run.cluster_of(agent_of(one)), self.run.cluster_of(own)
        level = 2
        if a is b:
            width = a.warps_of_cta * LANES
            level = 0 if (agent_of(one) - a.base) // width == (own - a.base) // width else 1
        scopes = self.run.sites[one & SITE_MASK].order.scope, self.run.sites[site].order.scope
        return all(SCOPES.index(scope) >= level for scope in scopes)

    def _judge(
        self, range: Range, one: int, known: VectorClock, own: int, wrote: bool, writes: bool, unit: int
    ) -> None:
        run, (site, _) = self.run, self.run.here()
        if wrote and writes and one & SITE_MASK == site and range.values is not None and range.is_same(unit):
            first, second = run.access(agent_of(one), site, True), run.access(own, site, True)
            if not first.kind:
                run.tell(SAME_VALUE, first, second, site, site, range.where(unit))
                return
        run.tell_unknown(known, one, wrote, own, site, writes, partial(range.where, unit))

    def _by_warp(self, range: Range, agents: WarpAgents, writes: bool) -> None:
        """Record an access by a whole warp, such as tcgen05.alloc's write of the address. All proxies of the warp
        observe it."""
        mask, (site, _) = agents.warp.alive, self.run.here()
        agent = agents.stream("warp", "", "lane 0")
        flying = Flying(agents.sent(mask), agents, mask, agents.clock, site, "", agent, agent)
        self.by_operation(range, flying, 0, writes)
        agents.learn(mask, agent, agents.clock, ASYNC_ROWS)
        agents.clock += 1

    # --- by operations

    def by_operation(self, range: Range, flying: Flying, mask: int, writes: bool) -> None:
        """Check and record an access by an operation. mask: lanes, if its stream has an agent for each lane."""
        memory, shadow, index, per, _ = range
        if not writes:
            flying.sources.add((memory, range.start(0)))
        self._check_operation(range, shadow.cells[index] if writes else shadow.cells[index, :1], flying, mask, writes)
        cta = self.run.owners.get(memory)
        if cta is not None and cta is not flying.warp.warp.cta:
            self.lifetimes.reached(cta, flying.known, flying, flying.site, writes, lambda: memory.name)
        self._note(memory, shadow, index, flying, writes, lanes_of(mask).repeat(max(per, 1)) if mask else None)

    def read_by_operation(self, memory: Any, index: Any, flying: Flying) -> None:
        """Record a read by an asynchronous operation whose order was checked already."""
        self._note(memory, self.shadows[memory], index, flying, False)

    def _note(
        self, memory: Any, shadow: ByteShadow, index: Any, flying: Flying, writes: bool, lanes: Array | None = None
    ) -> None:
        agent = flying.agent if writes else flying.reader
        if agent < 0:
            flying.pending.append((shadow, index, writes))
            return
        word: Any = cell(flying.clock, agent, flying.site, writes and self._is_reduction(flying))
        if flying.per_lane and lanes is not None:
            word = word + (lanes << AGENT_SHIFT)
        if writes:
            shadow.write(index, word)
        else:
            shadow.cells[index, self._reader_of(memory, flying)] = word

    def _reader_of(self, memory: Any, flying: Flying) -> int:
        warp = flying.warp.warp
        cta = self.run.owners.get(memory)
        if cta is None:
            return 1 + flying.warp.first // LANES % GLOBAL_READERS
        return 1 + len(warp.cta.warps) + int(warp.index) if cta is warp.cta else -1

    def _check_operation(self, range: Range, before: Array, flying: Flying, mask: int, writes: bool) -> None:
        cells, units, slots = occupied(before)
        if not units.size:
            return
        unordered = flying.known.missing(cells, ORDERED)
        if unordered.any():
            missing = self._is_unordered(range, cells, units, unordered, flying, mask, writes)
            for place in one_each(cells, slots, missing):
                self._judge_operation(range, int(cells[place]), flying, slots[place] == 0, writes, int(units[place]))
        if flying.proxy != "async":
            return
        row = SHARED if range.memory in self.run.owners else GLOBAL
        missing = flying.known.missing(cells, row) & ~unordered
        for place in one_each(cells, slots, missing) if missing.any() else ():
            wrote, unit = bool(slots[place] == 0), int(units[place])
            rule = judging.other_proxy(wrote, ".shared::cta" if row == SHARED else ".global")
            self.run.tell_unknown(
                flying.known, int(cells[place]), wrote, flying, flying.site, writes,
                partial(range.where, unit), rule=rule,
            )  # fmt: skip

    def _is_unordered(
        self, range: Range, cells: Array, units: Array, missing: Array, flying: Flying, mask: int, writes: bool
    ) -> Array:
        """Return a mask of the unobserved cells that are faults. A lane's own accesses are no faults, nor are two
        reductions."""
        if flying.per_lane and mask:
            agents, lanes = flying.warp, lanes_of(mask).repeat(max(range.per, 1))[units]
            theirs, clocks = cells >> AGENT_SHIFT & AGENT_MASK, cells >> CLOCK_SHIFT
            missing = missing & ((theirs != lanes + agents.first) | (clocks >= flying.clock))
            missing = missing & ~((theirs == lanes + flying.agent) & (clocks <= flying.copied[lanes]))
        if writes and len(flying.sources) == 1:
            missing = missing & ~self._is_same_copy(cells, flying)
        if writes and missing.any() and self._is_reduction(flying):
            own, site = flying.warp.first, flying.site
            missing = missing & ~np.array([self._both_strong(one, own, site) for one in cells.tolist()])
        return missing

    def _is_same_copy(self, cells: Array, flying: Flying) -> Array:
        """Return a mask of the cells of equal copies: the same bytes, by other lanes of the instruction."""
        same = (cells & SITE_MASK == flying.site) & (cells >> CLOCK_SHIFT >= flying.begin)
        warps = [self.run.warp_of(agent_of(one)) if same.any() else None for one in cells.tolist()]
        return same & np.array([each == self.run.warp_of(flying.warp.first) for each in warps])

    def _judge_operation(self, range: Range, one: int, flying: Flying, wrote: bool, writes: bool, unit: int) -> None:
        later = self._is_later(one, flying)
        where = partial(range.where, unit)
        self.run.tell_unknown(flying.known, one, wrote, flying, flying.site, writes, where, later)

    def _is_reduction(self, flying: Flying) -> bool:
        """Return True for cp.reduce, whose writes are relaxed atomics of GPU scope ("cp.reduce.async.bulk")."""
        return self.run.sites[flying.site].order.semantics == "relaxed"

    def _is_later(self, one: int, flying: Flying) -> bool:
        """Return True if a thread accessed after the issue of an operation that completes only now."""
        agent = agent_of(one)
        cluster = self.run.cluster_of(agent)
        if flying.since is None or cluster is not flying.warp.cluster or cluster.stream_of(agent) is not None:
            return False
        return one >> CLOCK_SHIFT >= flying.since.get(cluster.warp_of(agent), 1 << CLOCK_BITS)

    def settle(self, flying: Flying, agent: int, clock: int) -> None:
        """Record the pending accesses of an operation once an mbarrier has determined its stream."""
        self.run.issuers[flying.site] = flying.warp.cluster.base, flying.warp.cluster.number(flying.warp.warp)
        for shadow, index, writes in flying.pending:
            word = cell(clock, agent, flying.site, writes and self._is_reduction(flying))
            if writes:
                shadow.write(index, word)
            else:
                shadow.cells[index, 1 + agent % shadow.slots if shadow.slots == GLOBAL_READERS else -1] = word
        flying.pending = []

    def forget(self, memory: Any) -> None:
        self.shadows.pop(memory, None)
        self.objects.pop(memory, None)
        self.flags.flags.pop(memory, None)
