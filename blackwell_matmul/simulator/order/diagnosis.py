"""Findings of the order: unordered accesses, early reads, CTAs that start or exit too early, operations left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from blackwell_matmul.simulator.description import Effect, Instruction
from blackwell_matmul.simulator.findings import Code, Finding, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Cta, Warp, spell
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.order.culprits import ANOTHER_STAGE
from blackwell_matmul.simulator.order.drains import Drains
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import Carried, LastWait, Operation, SemaphoreRelease
from blackwell_matmul.simulator.order.lines import ProgramLines, place_of, siblings
from blackwell_matmul.simulator.order.missing.conflict import (
    PARITY,
    PHASE,
    Conflict,
    Missing,
    OrderState,
    passed_before,
    phase_name,
)
from blackwell_matmul.simulator.order.missing.handoff_chains import WarpLine
from blackwell_matmul.simulator.order.missing.handoffs import before_any_write
from blackwell_matmul.simulator.order.missing.search import missing_edge
from blackwell_matmul.simulator.order.missing.weak_edges import RELAXED
from blackwell_matmul.simulator.order.shadow import PastAccess

READ: Final = "read-before-complete"
WRITTEN: Final = "overwritten-in-flight"
RACE: Final = "data-race"
OVERRUN: Final = "phase-overrun"
NOT_STARTED: Final = "mbarrier-not-initialised"
PEER: Final = "peer-not-started"
FREED_EARLY: Final = "dealloc-in-flight"
EXIT: Final = "exit-before-peer"
OVER: Final = "mbarrier-over-arrival"


class EarlyRead(NamedTuple):
    """A read of unwritten on-chip memory. wait: the warp's last wait, with the mbarrier's name. adds: the instruction
    adds to the memory, an accumulator. writer: the operation that wrote there later."""

    warp: Warp
    instruction: Instruction
    lanes: Lanes
    effect: Effect
    region: Region
    wait: tuple[str, LastWait] | None
    adds: bool = False
    writer: Operation | None = None


class Diagnosis:
    """Turns conflicts into findings, once for each pair of lines."""

    def __init__(self, order: OrderState, lines: ProgramLines) -> None:
        self.order, self.lines = order, lines
        self.known: dict[Any, Finding] = {}

    def report(
        self,
        warp: Warp,
        instruction: Instruction,
        lanes: Lanes,
        effect: Effect,
        region: Region,
        other: PastAccess,
    ) -> Severity:
        """Report the conflict, and return its severity."""
        conflict = Conflict(
            self.order, self.lines, warp, instruction, lanes, effect, region, other, early=other.event == 0
        )
        key = (instruction, conflict.other_location, conflict.other_name, other.write, effect.operand)
        if key not in self.known:
            self.known[key] = finding_of(conflict)
        warp.cta.grid.findings.add(self.known[key])
        return self.known[key].severity

    def too_early(self, read: EarlyRead) -> None:
        """Report a read of unwritten memory. Its writer came later, or a wait passed before the first phase had
        ended."""
        if read.writer is not None:
            other = PastAccess(read.region.box, 0, True, read.writer, read.region)
            self.report(read.warp, read.instruction, read.lanes, read.effect, read.region, other)
        elif read.adds or self._before_the_sync(read) or self._before_any_write(read):
            return
        elif read.wait is not None and read.wait[1].phase < 0:
            name, wait = read.wait
            passed = f"the wait on {name} at {wait.location} passed on {phase_name(-1)}"
            missing = Missing("phase", f"{passed}: {PARITY}", PHASE, at_fault=wait.location)
            self._unwritten(read, "nobody has written", missing)

    def _before_the_sync(self, read: EarlyRead) -> bool:
        """Report the missing sync before a read of unwritten memory, if the reading warp is one of the warps that
        write there."""
        where, lines = read.instruction.location, self.lines
        read_there = {each.tensor for each in lines.roles.touches if each.location == where and not each.write}
        together = [each for each in lines.touched_by(read.warp) if each.write and len(each.warps) > 1]
        for touch in (each for each in together if each.tensor in read_there):
            if lines.leads_to(touch.location, where) and not lines.in_turn(touch.location, where, read.warp):
                between = f"between {touch.location} and {where}"
                writers = f"{spell([read.warp.cta.warps[each] for each in touch.warps])} write at {touch.location}"
                sync = f"the missing sync: self.sync() {between}"
                lacks = frozenset([("self.sync()", between)])
                self._unwritten(read, writers, Missing("sync", sync, at_fault=touch.location, lacks=lacks))
                return True
        return False

    def _before_any_write(self, read: EarlyRead) -> bool:
        """Report the wait that a read of unwritten memory lacks, if threads write the memory and signal an mbarrier."""
        where = read.instruction.location
        found = before_any_write(self.lines, WarpLine(read.warp, where))
        if found is not None:
            self._unwritten(read, *found)
        return found is not None

    @staticmethod
    def _unwritten(read: EarlyRead, writers: str, missing: Missing) -> None:
        """Report the edge that a read of unwritten memory lacks. writers: who writes it, a clause."""
        where, cta = read.instruction.location, read.warp.cta
        what = f"{read.instruction.name} by {read.lanes} reads {read.region}, which {writers}"
        other = missing.at_fault if missing.at_fault != where else None
        cta.report(
            missing.code or RACE, f"{what}; {missing.advice}", where, other,
            missing=missing.edge, at_fault=missing.at_fault, tensor=read.region.name, box=read.region.box,
            agents=(str(read.lanes),), advice=missing.advice, lacks=missing.lacks,
        )  # fmt: skip

    def too_narrow(self, drains: Drains) -> None:
        """Report arrivals and waits with a scope that leaves out the other CTA of a pair, unless a conflict has named
        them."""
        named = {finding.at_fault for finding in self.known.values() if finding.code == RELAXED}
        for cta, finding in drains.found.values():
            if finding.at_fault not in named:
                cta.grid.findings.add(finding)

    def not_started(self, warp: Warp, instruction: Instruction, lanes: Lanes, cta: Cta) -> None:
        """Report an access to a CTA that may not have started yet."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by {lanes} signals an mbarrier of CTA {cta.position}, which that may not have"
            f" initialised yet; {advice}"
        )
        warp.cta.report(NOT_STARTED, message, instruction.location, missing="sync", agents=(str(lanes),), advice=advice)

    def peer_not_started(self, warp: Warp, instruction: Instruction, cta: Cta) -> None:
        """Report a pair's operation at a time when one CTA may not have started (PTX ISA, tcgen05.alloc: the issuing
        warp must make sure that both run). CTAs of a cluster usually start together."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by warp {warp.index} of CTA {warp.cta.position} is done together with CTA"
            f" {cta.position}, which may not have started; {advice}"
        )
        warp.cta.report(
            PEER, message, instruction.location, severity=Severity.UNGUARANTEED,
            missing="sync", agents=(f"warp {warp.index}",), advice=advice,
        )  # fmt: skip

    def peer_not_allocated(self, warp: Warp, instruction: Instruction, cta: Cta) -> None:
        """Report tensor memory of a pair that one CTA frees before the other CTA has surely allocated it. The end of
        one CTA's tcgen05.alloc says nothing of the other's. On a GPU the launch fails."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by warp {warp.index} of CTA {warp.cta.position} gives back tensor memory of a CTA"
            f" pair, and CTA {cta.position} may not have allocated it yet; {advice}"
        )
        warp.cta.report(
            FREED_EARLY, message, instruction.location, missing="sync", agents=(f"warp {warp.index}",), advice=advice
        )

    def exits_before(self, instruction: Instruction, lanes: Lanes, cta: Cta) -> None:
        """Report a CTA that may exit before another CTA's lanes, or their operations, have accessed its memory."""
        advice = f"the missing sync: self.cluster.sync() after {instruction.location}, by all CTAs, before they exit"
        signals = instruction.description.signals and lanes.cta is not cta
        over = "has signalled it" if signals else "is over, which uses its memory"
        message = f"CTA {cta.position} may exit before {instruction.name} by {lanes} {over}; {advice}"
        cta.report(EXIT, message, instruction.location, missing="sync", agents=(str(lanes),), advice=advice)

    def arrives_early(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction) -> None:
        """Report an arrival for a phase, without an edge from the end of the phase before."""
        here = f"CTA {lanes.cta.position} before {instruction.location}"
        advice = f"the missing wait: whoever waits there has to signal {here}"
        message = (
            f"{instruction.name} by {lanes} arrives on {barrier} for {phase_name(barrier.phase)}, and maybe before the"
            f" bytes for {phase_name(barrier.phase - 1)} are there, which has no arrival left; {advice}"
        )
        lanes.cta.report(OVER, message, instruction.location, missing="wait", agents=(str(lanes),), advice=advice)

    def overrun(self, carried: Carried, phase: int, warp: int, wait: LastWait) -> None:
        """Report a phase that may end before `warp` has seen the end of the phase before."""
        barrier, last = carried.barrier, carried.last
        later = " of the next round" if self.lines.by_loop(wait.location, last) else ""
        between = f"between the wait at {wait.location} and the arrival at {last}{later}"
        sync = "" if self.lines.apart(wait.location, last) else "self.sync() or "
        advice, edge, at_fault = f"the missing sync: {between}, {sync}another barrier", "sync", None
        known = passed_before(barrier, wait) if wait.again else self._another_stage(carried, phase)
        known = known or self._waited_for_another(barrier, barrier.cta.warps[warp])
        if known is not None:
            advice, edge, at_fault = known.advice, known.edge, known.at_fault
        message = (
            f"phase {phase} of {barrier.name} may end before warp {warp} has seen that {phase_name(wait.phase)}"
            f" did, whose parity it waits for: it would wait for ever, or for the wrong phase; {advice}"
        )
        barrier.cta.report(
            OVERRUN, message, wait.location, last,
            missing=edge, at_fault=at_fault, agents=(f"warp {warp}",), advice=advice,
        )  # fmt: skip

    def _another_stage(self, carried: Carried, phase: int) -> Missing | None:
        """Find a warp that waited for one stage of a ring and arrived on the mbarrier of another stage."""
        turn, warp = self._last_arrival(carried)
        if warp is None:
            return None
        barrier = carried.barrier.in_cta(warp.cta)
        every = [(each, each.waits.get(warp.index)) for each in map(self.order.of, barriers_of(warp.cta))]
        before = {each.barrier: wait for each, wait in every if wait is not None and wait.turn < turn}
        for back in self.lines.roles.arrived_by_readers(barrier, warp)[:1]:
            ring = [each for each in before if siblings(each, back)]
            newest = max(ring, key=lambda each: before[each].turn, default=back)
            early = back not in before or before[back].phase < phase - 1
            if newest is not back and place_of(back) == place_of(barrier) and early:
                arrival = f"the arrival at {carried.last} by {spell([warp])} signals {barrier}"
                after = f"after the wait for {newest} at {before[newest].location}: {ANOTHER_STAGE}"
                return Missing("arrive", f"{arrival} {after}", at_fault=carried.last)
        return None

    def _waited_for_another(self, barrier: Mbarrier, warp: Warp) -> Missing | None:
        """Find a warp that waited for another stage of the ring than that on whose mbarrier it arrived then."""
        mine = self.order.warpgroups.arrivals.get(warp, {})
        arrived = max(mine, key=lambda each: mine[each].turn, default=None)
        waits = [(each.barrier, each.waits.get(warp.index)) for each in map(self.order.of, barriers_of(warp.cta))]
        before = {each: wait for each, wait in waits if wait and arrived and wait.turn < mine[arrived].turn}
        newest = max(before, key=lambda each: before[each].turn, default=None)
        if arrived is None or newest is None or not siblings(newest, barrier) or siblings(newest, arrived):
            return None
        if "" in (place_of(newest), place_of(arrived)) or place_of(newest) == place_of(arrived):
            return None
        at = before[newest].location
        advice = f"the wait for {newest} at {at} comes before the arrival on {arrived} at {mine[arrived].location}"
        return Missing("phase", f"{advice}: {ANOTHER_STAGE}", at_fault=at)

    def _last_arrival(self, carried: Carried) -> tuple[int, Warp | None]:
        """Return the turn of the last arrival on the mbarrier, and its warp."""
        if carried.commit is not None and carried.commit.location == carried.last:
            return carried.commit.turn, carried.commit.lanes.warp
        arrivals = self.order.warpgroups.arrivals
        arrived = [(each[carried.barrier].turn, warp) for warp, each in arrivals.items() if carried.barrier in each]
        return max(arrived, key=lambda each: each[0], default=(0, None))

    @staticmethod
    def uninitialised(warp: Warp, instruction: Instruction, region: Region, adds: bool = False) -> None:
        message, advice = f"{instruction.name} reads {region}, part of which nothing has written", ""
        if adds:
            advice = "the first product has to overwrite the accumulator: enable_input_d=False"
            message = f"{message}; {advice}"
        if "acquire" in instruction.description.awaited:
            advice = f"global_tensor(..., requires_clean=True) makes zeros of {region.name}"
            message = f"{instruction.name} reads {region}, which nothing is sure to have written; {advice}"
        warp.cta.report(
            "uninitialised-read", message, instruction.location, tensor=region.name, box=region.box, advice=advice
        )

    @staticmethod
    def waits_for_later(
        warp: Warp, instruction: Instruction, address: int, releases: Sequence[SemaphoreRelease]
    ) -> None:
        """Report a wait for a semaphore's value that only clusters of higher numbers store. A cluster that cancels
        others may wait for any cluster that works."""
        cta, stored = warp.cta, [(each.lanes.warp.cta, each.location) for each in releases]
        first = cta.cluster.ctas[0].number
        if not stored or cta.cluster.grants.asked or any(by.cluster.ctas[0].number <= first for by, _ in stored):
            return
        by, at = stored[-1]
        advice = "wait for CTAs of lower numbers, or launch no more CTAs than the GPU holds at once"
        message = (
            f"{instruction.name} by {spell([warp])} waits for a value of {cta.grid.memory.name_at(address)} that CTA"
            f" {by.position} stores at {at}: a full GPU starts that CTA after CTA {cta.position} has ended; {advice}"
        )
        cta.report(
            "waits-for-later-cta", message, instruction.location, at, severity=Severity.UNGUARANTEED, advice=advice
        )

    @staticmethod
    def left_at_exit(operation: Operation) -> None:
        """Report an operation without a wait at the exit of its CTA."""
        op = operation.op
        if op.source_free:
            return  # its writes may outlive the CTA (PTX ISA, cp.async.bulk.wait_group)
        lost = any(region.storage.space == "shared" for region in op.reads)
        lost |= operation.instruction.description.cancels
        wait = operation.passed.advice if operation.passed else operation.remedy
        op.cta.report(
            "in-flight-at-exit",
            f"{op.name} was not waited for: {wait}, and the CTA exits while it is in flight",
            op.location,
            severity=Severity.ERROR if lost else Severity.UNGUARANTEED,
        )

    @staticmethod
    def bytes_at_exit(barrier: Mbarrier) -> None:
        message = f"{barrier.name} still lacks {barrier.missing()} when the CTA exits, and no copy brings them"
        barrier.cta.report("tx-pending-at-exit", message, barrier.location, severity=Severity.UNGUARANTEED)


def finding_of(c: Conflict) -> Finding:
    missing = missing_edge(c)
    return Finding(
        c.instruction.description.conflict or missing.code or _code(c),
        missing.severity,
        f"{_sentence(c, missing)}; {missing.advice}",
        c.warp.cta.position,
        c.instruction.location,
        c.other_location,
        missing=missing.edge,
        at_fault=missing.at_fault,
        in_loop=c.lines.in_loop(c.instruction.location),
        tensor=c.region.name,
        box=c.region.box,
        agents=(str(c.lanes), str(c.culprit)),
        advice=missing.advice,
        lacks=missing.lacks,
    )


def _code(c: Conflict) -> Code:
    if c.operation is None:
        return RACE
    return WRITTEN if c.write else READ


def _sentence(c: Conflict, missing: Missing) -> str:
    verb = "frees" if c.instruction.description.conflict else "writes" if c.write else "reads"
    what = f"{c.instruction.name} by {c.lanes} {verb} {c.region}{_whose(c)}"
    apart = c.culprit.cta.cluster is not c.lanes.cta.cluster and not c.culprit.cta.among_others
    who = f"{c.culprit} of CTA {c.culprit.cta.position}" if apart else str(c.culprit)
    if missing.edge == "fence":
        past = "wrote" if c.other.write else "read"
        return f"{what} through the async proxy, which {c.other_name} by {who} {past} through the generic one"
    if c.operation is not None:
        doing = "still reads" if not c.other.write else ("still accesses" if c.write else "has not finished writing")
        return f"{what}, which {c.other_name} (issued by {who}) {doing}"
    return f"{what}, which {c.other_name} by {who} {'writes' if c.other.write else 'reads'} without an order"


def _whose(c: Conflict) -> str:
    """Return the name of the other CTA of the cluster that owns the memory; "" for the accessing CTA."""
    peers = [cta for cta in c.warp.cta.cluster.ctas if cta is not c.warp.cta]
    storage = c.region.storage
    mine = (cta for cta in peers if storage in cta.storages)
    return next((cta.among_others for cta in mine), "")
