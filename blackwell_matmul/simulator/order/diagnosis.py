"""Why two accesses are not ordered: the same question again with one edge assumed, until one of them would do.

Each candidate is a function of its own: it returns what is missing when its edge, and only that, would have ordered
the two. The first that does names the fault.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Access, Effect, Instruction, Proxy, Space, When
from blackwell_matmul.simulator.findings import Code, Finding, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of, by_line
from blackwell_matmul.simulator.machine.cta import Cta, Warp, number, spell, spell_warps
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.culprits import KEPT, small
from blackwell_matmul.simulator.order.drains import Drains
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import (
    Carried,
    LastWait,
    Operation,
    SemaphoreRelease,
    Telling,
    TooNew,
    Weak,
)
from blackwell_matmul.simulator.order.lines import ProgramLines, place_of, siblings
from blackwell_matmul.simulator.order.shadow import PastAccess
from blackwell_matmul.simulator.order.warpgroups import Warpgroups

READ: Final = "read-before-complete"
WRITTEN: Final = "overwritten-in-flight"
RACE: Final = "data-race"
FENCE: Final = "missing-proxy-fence"
PHASE: Final = "wrong-phase"
RELAXED: Final = "relaxed-wait"
UNPROMISED: Final = "order-not-promised"
BYTES: Final = "too-few-bytes"
OVERRUN: Final = "phase-overrun"
NOT_STARTED: Final = "mbarrier-not-initialised"
PEER: Final = "peer-not-started"
FREED_EARLY: Final = "dealloc-in-flight"
EXIT: Final = "exit-before-peer"
OVER: Final = "mbarrier-over-arrival"


class Knows(Protocol):
    """The one who knows the order: `HappensBefore`."""

    lanes: dict[Warp, dict[Any, Lanes]]
    carried: dict[Mbarrier, Carried]
    operations: dict[AsyncOperation, Operation]
    releases: dict[int, deque[SemaphoreRelease]]
    rounds: Counter[tuple[Warp, Instruction]]
    waited_at: dict[Warp, Instruction]
    warpgroups: Warpgroups
    threads: int

    def of(self, barrier: Mbarrier) -> Carried: ...


class EarlyRead(NamedTuple):
    """A read of on-chip memory that nothing had written. writer: the operation that came to write it later. wait: the
    last one of the warp, on a barrier of this name."""

    warp: Warp
    instruction: Instruction
    lanes: Lanes
    effect: Effect
    region: Region
    wait: tuple[str, LastWait] | None
    writer: Operation | None = None


@dataclass(frozen=True)
class Missing:
    """The edge that would have ordered the two. edge, at_fault: as in `Finding`."""

    edge: str
    advice: str
    code: Code | None = None
    severity: Severity = Severity.ERROR
    at_fault: Location | None = None


@dataclass(frozen=True)
class Conflict:
    """An access (of `lanes`, by `instruction`) and an earlier one (`other`) that nothing orders before it."""

    order: Knows
    lines: ProgramLines
    warp: Warp
    instruction: Instruction
    lanes: Lanes
    effect: Effect
    region: Region
    other: PastAccess
    early: bool = False  # the "earlier" one came later, but was meant to come first

    @property
    def write(self) -> bool:
        return self.effect.access is Access.WRITE

    @property
    def operation(self) -> Operation | None:
        """Return the earlier access, if an asynchronous operation made it."""
        return self.other.who if isinstance(self.other.who, Operation) else None

    @property
    def culprit(self) -> Lanes:
        """Return who made the earlier access, or issued the operation that did."""
        who = self.other.who
        lanes: Lanes = who.lanes if isinstance(who, Operation) else who[1]
        return lanes

    @property
    def other_instruction(self) -> Instruction:
        who = self.other.who
        found: Instruction = who.instruction if isinstance(who, Operation) else who[0]
        return found

    @property
    def other_location(self) -> Location | None:
        return self.other_instruction.location

    @property
    def other_name(self) -> str:
        return self.other_instruction.name

    def known_to(self, lanes: Lanes) -> bool:
        """Return whether a barrier of threads between these lanes and the access would order the access."""
        return bool(getattr(lanes, self.effect.path) & self.other.event)

    def barriers(self) -> Iterator[Carried]:
        yield from map(self.order.of, barriers_of(self.warp.cta))

    @property
    def telling(self) -> Telling | None:
        """Return the telling by whose mbarrier the warp is most likely meant to know the end of the operation."""
        tellings = [] if self.operation is None else self.operation.tellings
        return min(tellings, key=lambda each: self.lines.roles.rank(each.barrier, self.warp), default=None)

    def waits(self, of: Warp | None = None) -> list[tuple[Carried, LastWait]]:
        """Return the last wait of the warp, or of another one, on each mbarrier, the newest first."""
        warp = of or self.warp
        carried = map(self.order.of, barriers_of(warp.cta))
        mine = [(each, each.waits[warp.index]) for each in carried if warp.index in each.waits]
        return sorted(mine, key=lambda each: each[1].turn, reverse=True)

    @property
    def here(self) -> str:
        """Return the line of the access; in the next round, where it comes after the other one by a loop alone."""
        location = self.instruction.location
        return f"{location}{' of the next round' if self.lines.by_loop(self.other_location, location) else ''}"


# the candidates, most specific first


def hardware_alone(c: Conflict) -> Missing | None:
    """Find an order that the tensor core keeps and PTX does not promise: a copy after a product of its thread that
    reads the columns (PTX ISA, "tcgen05 Memory Consistency Model, Pipelined Instructions" lists the promised pairs)."""
    if not c.instruction.description.unpromised or not c.other.event & c.lanes.issued:
        return None
    advice = (
        "it relies on an order that PTX does not promise; columns of another stage, or a wait on a commit in between, "
        "would order the two"
    )
    return Missing("", advice, UNPROMISED, Severity.UNGUARANTEED)


def copied_twice(c: Conflict) -> Missing | None:
    """Find two copies of the same round that bring the bytes of the same phase to the same place: by two CTAs, by two
    warps, or by two lines."""
    op, mine = c.operation, next(reversed(c.order.operations.values()), None)
    if op is None or mine is None or (mine.instruction, mine.lanes) != (c.instruction, c.lanes):
        return None
    if op.tells is None or op.tells is not mine.tells or not (_brings(op.instruction) and _brings(c.instruction)):
        return None
    phase, later = op.tellings[0].during, op.lanes is mine.lanes and op.instruction is mine.instruction
    if later or op.round != mine.round or mine.tellings[0].during != phase:
        return None
    part = "one of them is for another place"
    if op.lanes.cta is not mine.lanes.cta:
        part = "each CTA has to copy a part of its own, or one of them all of it"
    advice = f"both copies bring their bytes to phase {phase} of {op.tells}: {part}"
    return Missing("", advice, at_fault=c.instruction.location)


def _brings(copy: Instruction) -> bool:
    """Return whether it tells an mbarrier of its bytes."""
    return "complete_tx" in copy.description.signalling(When.COMPLETION)


def copied_after(c: Conflict) -> Missing | None:
    """Find a copy to tensor memory that the thread issues behind the product that reads the columns: no wait helps."""
    op = c.operation
    if op is None or not c.early or op.lanes.warp is not c.warp or not op.instruction.description.unpromised:
        return None
    copied = f"{op.instruction.spoken} at {op.op.location}"
    return Missing("", f"{copied} comes after the product, and has to come before it", at_fault=op.op.location)


def proxy_fence(c: Conflict) -> Missing | None:
    """Ordered for the generic proxy, and the access is the async proxy's (PTX ISA, "Async proxy").

    After a generic read, an async write needs the fence by the letter as well; hardware has read by then.
    """
    if c.effect.proxy is not Proxy.ASYNC or not c.other.event & c.lanes.generic:
        return None
    space = c.effect.space.value
    where = f"after {c.other_location} by {c.culprit}, or before {c.instruction.location} by {c.lanes}"
    advice = f'the missing fence: fence.proxy_async(space="{space}") {where}'
    only_read = c.write and not c.other.write
    return Missing("fence", advice, FENCE, Severity.UNGUARANTEED if only_read else Severity.ERROR)


def lanes_of_one_warp(c: Conflict) -> Missing | None:
    """Find lanes of the same warp that know of the access; a barrier of threads would tell the others."""
    for lanes in c.order.lanes[c.warp].values():
        if lanes is not c.lanes and c.known_to(lanes):
            knows = lanes.name or "the other lanes"
            return Missing("sync", f"{knows} of warp {c.warp.index} may rely on it, {_lanes(c.lanes)} may not: the"
                           f" missing sync: self.sync() before {c.here}")  # fmt: skip
    return None


def relaxed_wait(c: Conflict) -> Missing | None:
    """Find a wait that was too weak, on a barrier that carries the knowledge; else it would have taken that along."""
    for carried in c.barriers():
        weak = carried.relaxed.get(c.warp.index)
        if weak is not None and weak.left & c.other.event:
            return _too_weak(c, f"the wait on {carried.barrier.name}", weak, "acquire")
    return None


def relaxed_arrival(c: Conflict) -> Missing | None:
    """Find an arrival that is too weak to publish the knowledge, on a barrier that this warp waited on."""
    for carried in c.barriers():
        if getattr(carried.loose, c.effect.path) & c.other.event and c.warp.index in carried.waits:
            if carried.loosened is not None and _weak_wait(c, carried) is None:
                return _too_weak(c, f"the arrival on {carried.barrier.name}", carried.loosened, "release")
    return None


def _weak_wait(c: Conflict, carried: Carried) -> Weak | None:
    """Return the last wait of the warp, if it was too weak: relaxed, or for its own CTA alone."""
    wait, weak = carried.waits[c.warp.index], carried.relaxed.get(c.warp.index)
    if weak is None or weak.location != wait.location:
        return None
    return weak if not weak.scope or c.culprit.cta is not c.lanes.cta else None


def relaxed_both(c: Conflict) -> Missing | None:
    """Find an arrival that does not publish the knowledge and a wait that would not take it along. After a read, a
    proxy fence may be missing besides (see `proxy_fence`)."""
    for carried in c.barriers():
        if carried.loosened is None or c.warp.index not in carried.waits or not carried.loose.generic & c.other.event:
            continue
        wait, fenced = _weak_wait(c, carried), getattr(carried.loose, c.effect.path) & c.other.event
        if wait is not None and (fenced or not c.other.write):
            return _both_too_weak(c, carried.barrier.name, carried.loosened, wait, bool(fenced))
    return None


def _both_too_weak(c: Conflict, name: str, arrival: Weak, wait: Weak, fenced: bool) -> Missing:
    scope = "" if c.culprit.cta is c.lanes.cta else ', both with scope="cluster"'
    fence = "" if fenced else f', and fence.proxy_async(space="{c.effect.space.value}") before the arrival'
    what = f"the arrival on {name} at {arrival.location} is too weak, and the wait at {wait.location} as well"
    advice = f'{what}; sem="release" and sem="acquire"{scope}{fence} would order the two'
    return replace(_too_weak(c, "", arrival, "release"), advice=advice)


def _too_weak(c: Conflict, what: str, weak: Weak, edge: str) -> Missing:
    """Between CTAs a store may still be on its way, or an old copy of what it wrote in the L1 of the other SM; what the
    async proxy brought is there when an mbarrier is told. Where only the scope is amiss: for tensor memory relaxed will
    do."""
    apart, of_tensor = c.culprit.cta is not c.lanes.cta, c.effect.space is Space.TENSOR
    narrow = weak.scope or (apart and of_tensor and "cta")
    is_so, better = (f"has scope {narrow}", 'scope="cluster"') if narrow else ("is relaxed", f'sem="{edge}"')
    section = "tcgen05 Memory Consistency Model" if of_tensor else "Morally strong operations"
    source = f' (PTX ISA, "{section}")' if apart else ""
    advice = f"{what} at {weak.location} {is_so}; with {better} it would order the two{source}"
    lost = apart and c.other.write and c.other.event & c.order.threads
    return Missing(edge, advice, RELAXED, Severity.ERROR if lost else Severity.UNGUARANTEED, weak.location)


def count_too_small(c: Conflict) -> Missing | None:
    """Find phases that ended without the warp that made the access, which arrives on that mbarrier as others do: none
    of them more often than there were phases, or one that ran ahead by a wait for a phase of before."""
    for carried, wait in c.waits():
        arrivals, who, arriving = carried.arrivals, c.culprit.warp, c.lines.roles.arriving(carried.barrier)
        before = arrivals[who] - bool(carried.known & c.other.event)
        if before > wait.phase or len(arriving) < 2 or who not in arriving or not _arrives(c, carried):
            continue
        ahead = max(arrivals, key=lambda each: arrivals[each], default=who)
        if arrivals[ahead] <= wait.phase + 1:
            return _small(carried.barrier, wait.phase, who, arriving)
        for passed, its in c.waits(ahead):
            if its.again:
                return _passed_before(passed.barrier, its)
    return None


def _arrives(c: Conflict, carried: Carried) -> bool:
    """Return whether the warp that made the access arrives there. Of another CTA a line of the program does not say
    so."""
    who, tellings = c.culprit.warp, [] if c.operation is None else c.operation.tellings
    commits = any(each.tracked and each.barrier is carried.barrier for each in tellings)
    return who.cta is carried.barrier.cta or commits or carried.arrivals[who] > 0


def _small(barrier: Mbarrier, phase: int, who: Warp, arriving: set[Warp]) -> Missing:
    advice = f"phase {phase} of {barrier} ended without an arrival of {spell([who])}: {small(barrier, arriving)}"
    return Missing("arrive", advice, at_fault=barrier.location)


def wrong_phase(c: Conflict) -> Missing | None:
    """Find a wait on the right barrier, after the operation had started, that passed on an older phase."""
    op, told = c.operation, c.telling
    if op is None or told is None or told.barrier.cta is not c.warp.cta:
        return None
    wait = c.order.of(told.barrier).waits.get(c.warp.index)
    phase = told.barrier.phase if told.phase is None else told.phase
    if wait is None or (wait.turn < op.turn and not c.early) or wait.phase >= phase:
        return None
    passed = f"the wait on {told.barrier.name} at {wait.location} passed on {_phase(wait.phase)}"
    if op.op.barrier is not None and (wait.phase >= told.during or _unannounced(op, told)):
        of_itself = "it announces them itself, and the arrivals have to come after it"
        announces = "expect_tx" in op.instruction.description.signalling(When.ISSUE)
        why = of_itself if announces else f"arrive_and_expect_tx announces too few{_balance(c, told, wait)}"
        advice = f"{passed}, which ended without the bytes of {op.op.name}: {why}"
        return Missing("bytes", advice, BYTES, at_fault=wait.location)
    ahead = _without_readers(c, told.barrier) if wait.phase >= 0 and not wait.again else None
    return ahead or _stale(wait, f"{passed}, and {op.op.name} is part of phase {phase}")


def _balance(c: Conflict, told: Telling, wait: LastWait) -> str:
    """Return a clause with the bytes of the phase that the wait passed on, and those of the copies under way."""
    barrier, before = told.barrier, told.barrier.bytes_before
    flying = [each for each in c.order.operations.values() if not each.op.done and each.tells is barrier]
    late = {each.op.location: each.op.count_bytes for each in flying if each.tellings[0].during <= wait.phase}
    if barrier.phase != wait.phase + 1 or not before.announced:
        return ""
    late.setdefault(c.other_location, c.operation.op.count_bytes if c.operation is not None else 0)
    return f" ({before}; to come: {by_line(late)})"


def _stale(wait: LastWait, what: str) -> Missing:
    kept = f" ({KEPT})" if wait.again else ""
    return Missing("phase", f"{what}: the parity that it waits for is wrong{kept}", PHASE, at_fault=wait.location)


def stale_wait(c: Conflict) -> Missing | None:
    """Find a last wait on a barrier that the issuer of the operation tells, or who waits for the operation, and that
    passed on a phase which was over before the operation began."""
    op, told, waits = c.operation, c.telling, c.waits()
    if op is None or not waits or (told is None and c.write):
        return None
    (carried, wait), roles = waits[0], c.lines.roles
    tells = {op.lanes.warp} if told is None else {op.lanes.warp} | roles.waiting(told.barrier)
    if any(siblings(each.barrier, carried.barrier) for each in op.tellings) or wait.ended > op.turn:
        return None
    if (roles.arriving(carried.barrier) - {c.warp}) & tells and (wait.turn > op.turn or wait.phase < 0):
        passed = f"the wait on {carried.barrier.name} at {wait.location} passed on {_phase(wait.phase)}"
        return _stale(wait, f"{passed}, which was over before {op.op.name} at {op.op.location} began")
    return None


def commit_tracks_none(c: Conflict) -> Missing | None:
    """Find a commit that the warp waited for and that tracks no mma: it is another thread's, or comes before what it is
    meant to track. Who commits knows of the access, or is to tell of it."""
    for _, wait in c.waits():
        commit = wait.commit
        if commit is None or commit.tracked or (c.operation is not None and commit in c.operation.tellings):
            continue
        late = _after(c, commit)
        if late is not None:
            why = f"it comes before {late.op.name} at {late.op.location}, and has to come after it"
        elif c.operation is not None and c.operation.op.pipe is not None:
            why = f"it tracks what its own thread issues, and {c.culprit} issues {c.other_name} at {c.other_location}"
        else:
            continue
        advice = f"the wait on {commit.barrier.name} at {wait.location} is for the commit at {commit.location} by"
        return Missing("commit", f"{advice} {commit.lanes}, which tracks none of them: {why}", at_fault=commit.location)
    return None


def _after(c: Conflict, commit: Telling) -> Operation | None:
    """Return the operation, or what the thread of a commit issued next of what a commit tracks and who issued it knows
    of the access. Each CTA of a cluster has its own such thread."""
    op = c.operation
    if op is not None and op.op.pipe is not None:
        return op if op.lanes.warp.index == commit.lanes.warp.index else None
    later = [each for each in c.order.operations.values() if each.lanes is commit.lanes and each.turn > commit.turn]
    later = [each for each in later if each.op.pipe is not None and not each.instruction.description.arrives_later]
    return min(later, key=lambda each: each.turn, default=None) if c.known_to(commit.lanes) else None


def _unannounced(op: Operation, told: Telling) -> bool:
    """Return whether too few bytes ended the phase that a copy was meant for before its issue: nobody has arrived in
    this one."""
    barrier = op.op.barrier
    return barrier is not None and told.during == barrier.phase and barrier.pending == barrier.expected


def arrival_tracks_none(c: Conflict) -> Missing | None:
    """Find a plain arrival after an mma, which the warp waited for: a commit was meant."""
    op, told = c.operation, c.telling
    if op is None or op.op.pipe != op.op.warp.tensor_core:
        return None
    if told is not None and c.lines.roles.rank(told.barrier, c.warp) < 2:
        return None
    for barrier, line in _arrivals(c):
        if op.turn < c.order.warpgroups.arrivals[c.culprit.warp][barrier].turn:
            what = f"the arrival on {barrier} at {line} does not track {op.op.name} at {op.op.location}"
            if told is not None and c.culprit.warp in c.lines.roles.waiting(told.barrier):
                return Missing("wait", f"{what}: the missing wait: {told.barrier.remedy} before that", at_fault=line)
            advice = f"{what}: the missing commit: tcgen05.commit(mbarrier={barrier.name}) in its place"
            return Missing("commit", advice, at_fault=line)
    return None


def arrival_comes_before(c: Conflict) -> Missing | None:
    """Find an arrival that the warp waited for, and that its own warp makes before the access, by the text."""
    for barrier, _ in _arrivals(c):
        line = _arrives_before(c, barrier, {c.culprit.warp}, c.other_instruction)
        if line is not None:
            return _before_it(c.culprit.warp, barrier, line, c.other_instruction)
    return None


def _arrives_before(c: Conflict, barrier: Mbarrier, warps: set[Warp], access: Instruction) -> Location | None:
    """Return the line at which the warps arrive on the barrier, if that is before an access in the same round, with no
    wait between the two, and none arrives after the access. A copy that brings bytes comes after the arrival."""
    lines, roles, indices, made = c.lines, c.lines.roles, {warp.index for warp in warps}, access.location
    arrivals = [each.location for each in roles.telling(barrier, "arrive") if {*each.who_tells(barrier)} & warps]
    waits = [each.location for each in roles.lines if "mbarrier" in each.kinds and indices & {*each.warps}]
    if _brings(access) or any(lines.leads_to(made, each) for each in arrivals):
        return None
    for line in arrivals:
        if lines.leads_to(line, made) and not any(lines.leads_to(line, w) and lines.leads_to(w, made) for w in waits):
            return line
    return None


def _before_it(warp: Warp, barrier: Mbarrier, line: Location, access: Instruction) -> Missing:
    what = f"{spell([warp])} arrives on {barrier} at {line} before {access.name} at {access.location}"
    return Missing("arrive", f"{what}: the arrival has to come after what it announces", at_fault=line)


def _arrivals(c: Conflict) -> Iterator[tuple[Mbarrier, Location | None]]:
    """Return the last arrival of the warp that made the access, on each mbarrier that this warp waited for, where that
    wait passed on a phase of its own; none that announces bytes."""
    arrivals = c.order.warpgroups.arrivals.get(c.culprit.warp, {})
    for carried, wait in c.waits():
        arrival = arrivals.get(carried.barrier)
        if arrival is not None and wait.phase >= 0 and not wait.again and not arrival.announces:
            yield carried.barrier, arrival.location


def came_too_early(c: Conflict) -> Missing | None:
    """Find what let the other warp go on too early, where its last wait was for this one: the parity of that wait, the
    count of the barrier, or an arrival of this warp before its access."""
    here = {c.warp.cta.warps[index] for index in c.instruction.group.warps}
    waits = [(each.again or each.turn, carried, each) for carried, each in c.waits(c.culprit.warp)]
    before = [each for each in waits if c.operation is None or each[0] <= c.operation.turn]
    for _, carried, wait in [max(before, key=lambda each: each[0])] if before else []:
        barrier, arriving = carried.barrier, c.lines.roles.arriving(carried.barrier)
        if wait.again and {warp.index for warp in arriving} & {*c.instruction.group.warps}:
            return _passed_before(barrier, wait)
        if c.warp in arriving and len(arriving) > 1 and carried.arrivals[c.warp] <= wait.phase:
            return _small(barrier, wait.phase, c.warp, arriving)
        line = _arrives_before(c, barrier, here, c.instruction) if wait.phase >= 0 else None
        if line is not None:
            return _before_it(c.warp, barrier, line, c.instruction)
    return None


def ran_ahead(c: Conflict) -> Missing | None:
    """Find a warp that writes again without a wait for the readers, or a wait of this one that passed on an older phase
    of the barrier that carries what the other wrote."""
    for carried, wait in c.waits()[:1] if c.operation is None or not c.operation.tellings else ():
        if not carried.known & c.other.event:
            continue
        if wait.phase < 0 or wait.again:
            return _passed_before(carried.barrier, wait)
        if c.other.write and not c.write and c.lines.in_loop(c.other_location):
            return _without_readers(c, carried.barrier)
    return None


def written_again(c: Conflict) -> Missing | None:
    """Find a read behind its wait, of memory that the next operation writes already: the issuer did not wait for the
    reader. The wait stands between the issue and the read in the text."""
    op, told = c.operation, c.telling
    if c.write or op is None or told is None or told.barrier.cta is not c.warp.cta or c.culprit.warp is c.warp:
        return None
    wait = c.order.of(told.barrier).waits.get(c.warp.index)
    if wait is None or None in (c.other_location, wait.location, c.instruction.location) or wait.turn >= op.turn:
        return None
    if not (_before(c.other_location, wait.location) and _before(wait.location, c.instruction.location)):
        return None
    where = f"between {c.here} and {c.other_location} of the next round"
    return Missing("sync", f"{c.culprit} has written again before that: {_meeting(c, c.culprit, where)}")


def _without_readers(c: Conflict, told: Mbarrier) -> Missing | None:
    ahead, roles = c.culprit.warp, c.lines.roles
    back = roles.told_by_readers(told, ahead)
    if not back or ahead in roles.waiting(back[0]):
        return None
    advice = f"{c.culprit} has written again before that: the missing wait: {back[0].remedy} before {c.other_location}"
    return Missing("wait", advice, at_fault=c.other_location)


def _passed_before(barrier: Mbarrier, wait: LastWait) -> Missing:
    again = ", which it had waited for before" if wait.again else ""
    return _stale(wait, f"the wait on {barrier.name} at {wait.location} passed on {_phase(wait.phase)}{again}")


def told_too_early(c: Conflict) -> Missing | None:
    """Find the arrival by which who issued the operation told this warp to go on before it had waited itself."""
    op = c.operation
    if op is None or c.order.warpgroups.let_go_early(op, c.warp, c.order.carried) is None:
        return None
    advice = c.order.warpgroups.advice(op, c.warp, c.instruction.location, c.order.carried)
    return Missing("commit" if "commit" in advice else "wait", f"the missing wait: {advice}")


def one_lane_arrived(c: Conflict) -> Missing | None:
    """Find one lane that arrived where the whole warp made the access: that publishes what this lane did, and no
    more."""
    if c.operation is not None or c.culprit.name or _another_lane_knows(c):
        return None
    for carried in c.barriers():
        if (c.culprit.cta, c.culprit.warp) in carried.alone and c.warp.index in carried.waits:
            where = carried.alone[c.culprit.cta, c.culprit.warp]
            advice = (
                f"one lane of {c.culprit} arrives on {carried.barrier.name} at {where} and publishes what it did"
                f" itself: the missing sync: self.sync() inside of {c.culprit} before that, or an arrival of all its"
                " lanes"
            )
            return Missing("sync", advice, at_fault=where)
    return None


def _another_lane_knows(c: Conflict) -> bool:
    """Return whether a sync inside of the warp that made the access came after it."""
    lanes = c.order.lanes[c.culprit.warp].values()
    return any(c.other.event & each.generic for each in lanes if each is not c.culprit)


def another_warp_knows(c: Conflict) -> Missing | None:
    """Find another warp that waited for the access, or made it: a barrier between the two warps is missing."""
    together = (warp for warp in c.order.lanes if warp.cta.cluster is c.warp.cta.cluster)
    for warp in together:
        for lanes in c.order.lanes[warp].values():
            made_it = c.operation is None and lanes.warp is c.culprit.warp
            if warp is not c.warp and c.known_to(lanes) and not made_it:
                done, op = "has waited for it" if c.operation is not None else "may rely on it", c.operation
                that = op.wait if op is not None and op.wait is not None else "that"
                return Missing("sync", f"{lanes} {done}: {_meeting(c, lanes, f'between {that} and {c.here}')}")
    return None


def barrier_carries_it(c: Conflict) -> Missing | None:
    """Find a barrier on which whoever made the access arrived afterwards; nobody here waited on that."""
    told = c.operation.tells if c.operation is not None else None
    carrying = [carried.barrier for carried in c.barriers() if carried.known & c.other.event]
    rank = c.lines.roles.rank
    found = min(carrying, key=lambda each: (rank(each, c.warp), (each is told) is c.write), default=None)
    return None if found is None else _wait(c, _meant(c, found))


def _wait(c: Conflict, barrier: Mbarrier) -> Missing:
    """Return the missing wait for a barrier. at_fault: the line of the access, where no line of its warp waits for
    that."""
    waiting, waits = c.lines.roles.waiting(barrier), c.waits()
    nowhere, advice = c.warp not in waiting, f"the missing wait: {barrier.remedy} before {c.here}"
    if waiting and nowhere and not c.write and _meet(c, c.culprit):
        advice += f", or self.sync() between that of {spell(sorted(waiting, key=number))} and that line"
    if waits and siblings(waits[0][0].barrier, barrier) and waits[0][0].barrier is not barrier:
        advice += f"; the wait at {waits[0][1].location} is on {waits[0][0].barrier.name}"
    return Missing("wait", advice, at_fault=c.instruction.location if nowhere else None)


def readers_tell(c: Conflict) -> Missing | None:
    """Find memory that is written again while a copy into it is under way. Others wait for its end, and tell when."""
    told = c.telling
    if told is None or told.barrier.cta is not c.warp.cta or not (c.write and c.other.write):
        return None
    if c.lines.roles.rank(told.barrier, c.warp) < 2:
        return None
    barriers = c.lines.roles.told_by_readers(told.barrier, c.warp)
    return (_readers_went_on(c, told) or _wait(c, barriers[0])) if barriers else None


def _readers_went_on(c: Conflict, told: Telling) -> Missing | None:
    """Find a reader whose wait on the barrier passed on a phase before that of the copy."""
    for warp in sorted(c.lines.roles.waiting(told.barrier), key=number):
        wait = c.order.of(told.barrier).waits.get(warp.index)
        if wait is not None and (wait.phase < told.during or wait.again):
            return _passed_before(told.barrier, wait)
    return None


def another_cta_was_told(c: Conflict) -> Missing | None:
    """Find an arrival, by who made the access, that tells its own CTA and not the one that relies on it, whose warp
    waits on its own such mbarrier."""
    for barrier, where in _told(c):
        waits = c.order.of(barrier.in_cta(c.warp.cta)).waits
        if barrier.cta is not c.warp.cta and c.order.of(barrier).known & c.other.event and c.warp.index in waits:
            who = f"CTA {c.culprit.cta.position} tells {barrier} at {where}"
            advice = f"the missing arrive: {who}, and not CTA {c.warp.cta.position}"
            return Missing("arrive", advice, at_fault=where)
    return None


def _told(c: Conflict) -> Iterator[tuple[Mbarrier, Location | None]]:
    """Return the mbarriers of the cluster that the end of an operation is told to, or that a lane of its warpgroup
    arrived on: others arrive for reasons of their own."""
    if c.operation is not None and c.operation.tells is not None and not c.other.write:
        yield c.operation.tells, c.order.of(c.operation.tells).last
    for cta in c.warp.cta.cluster.ctas:
        for carried in map(c.order.of, barriers_of(cta)):
            if c.operation is None or c.operation.tells is not carried.barrier or c.culprit.cta is not c.warp.cta:
                yield from ((carried.barrier, at) for (_, by), at in carried.alone.items() if _speaks_for(c, by))


def _speaks_for(c: Conflict, warp: Warp) -> bool:
    """Return whether it is the warp that made the access; of memory on the chip, used up together, any of its
    warpgroup."""
    who = c.culprit
    together = c.region.storage.space != "global" and warp.cta is who.cta and warp.index // 4 == who.warp.index // 4
    return together or warp is who.warp


def each_waits_for_its_own(c: Conflict) -> Missing | None:
    """Find a copy that both warps execute, each its part. This warp has not come to that copy yet, or has waited for
    its own part, as the other one does."""
    op, rounds = c.operation, c.order.rounds
    if op is None or op.tells is not None or op.lanes.warp is c.warp or c.early or not rounds[c.warp, op.instruction]:
        return None
    if rounds[c.warp, op.instruction] <= op.round:
        where = f"between {c.lines.between(c.instruction.location, c.other_location)}"
        return Missing("sync", f"{c.culprit} has gone on to that: {_meeting(c, c.culprit, where)}")
    flying = any(each.lanes.warp is c.warp and _same_copy(each, op) for each in c.order.operations.values())
    wait = c.order.waited_at.get(c.warp)
    if flying or wait is None or op.lanes.warp.index not in wait.group.warps:
        return None
    where = f"between {wait.location} and {c.here}"
    return Missing("sync", f"{c.lanes} has waited for what it copied itself: {_meeting(c, c.culprit, where)}")


def _same_copy(one: Operation, other: Operation) -> bool:
    return one.instruction is other.instruction and one.round == other.round


def waited_for_later(c: Conflict) -> Missing | None:
    """Find a read too early of what only the threads that issued the operation can wait for, and they did."""
    op = c.operation
    if op is None or not c.early or op.tells is not None or op.op in c.order.operations:
        return None
    return Missing("sync", f"{c.culprit} waits for it: {_meeting(c, c.culprit, f'between that and {c.here}')}")


def completion(c: Conflict) -> Missing | None:
    """Return the wait for the operation, which nobody made, or whose group number covers only groups before it."""
    op = c.operation
    if op is None:
        return None
    if op.passed is not None:
        return _no_group(c, op) or Missing(op.passed.edge, op.passed.advice, at_fault=op.passed.location)
    told = c.telling
    if told is not None and told.barrier.cta is not c.warp.cta:
        here = f"CTA {c.warp.cta.position} before {c.here}"
        return Missing(
            "wait", f"the missing wait: {told.barrier} is told of it, and whoever waits there has to tell {here}"
        )
    if told is not None:
        return _wait(c, _meant(c, told.barrier))
    advice = c.order.warpgroups.advice(op, c.warp, c.instruction.location, c.order.carried)
    return Missing("commit" if "commit" in advice else "wait", f"the missing wait: {advice}")


def _no_group(c: Conflict, op: Operation) -> Missing | None:
    """Find a commit that is missing: the wait counts right with one more group. What was copied after this copy is in
    no group, or in the same one though a loop parts the two."""
    passed = op.passed
    if not isinstance(passed, TooNew) or passed.newest < passed.n:
        return None
    mine = [each for each in c.order.operations.values() if each.lanes is op.lanes and each.op.name == op.op.name]
    open_ = [each.op.location for each in mine if passed.since < each.turn <= passed.turn]
    if open_:
        between = f"between {c.lines.between(open_[-1], passed.location)}"
    elif c.lines.round_of(passed.last) != c.lines.round_of(op.op.location):
        between = f"between {op.op.location} and {passed.last}"
    else:
        return None
    return Missing("commit", passed.lacks_commit(between), at_fault=open_[-1] if open_ else op.op.location)


def _meant(c: Conflict, told: Mbarrier) -> Mbarrier:
    """Return the mbarrier that is told, or, of an mma, one that the same warp tells further down and that is rather
    meant."""
    tracked = c.operation is not None and any(each.tracked for each in c.operation.tellings)
    roles, who = c.lines.roles, c.culprit.warp
    later = [each for each in barriers_of(c.warp.cta) if tracked and who in roles.arriving(each)]
    return min([told, *later], key=lambda each: roles.rank(each, c.warp))


def released_alone(c: Conflict) -> Missing | None:
    """Find a release of a semaphore in the CTA of the access, by a thread that does not know of the access; of an
    operation somebody there does."""
    cta = c.culprit.cta
    over = any(c.known_to(lanes) for warp in cta.warps for lanes in c.order.lanes.get(warp, {}).values())
    if c.operation is not None and not over:
        return None
    for release in chain.from_iterable(c.order.releases.values()):
        if release.lanes.cta is cta and c.lanes.generic & release.event:
            return _released(c, release)
    return None


def _released(c: Conflict, release: SemaphoreRelease) -> Missing:
    made, where = c.other_location, release.location
    behind = _before(made, where)
    sync = f"self.sync() between {made} and that" if behind else f"move it behind {made}, and self.sync() between them"
    who = f"release_semaphore at {where} by {release.lanes}"
    publishes = f"{who} publishes what these lanes did and were told of themselves"
    return Missing("sync", f"{publishes}: the missing sync: {sync}", at_fault=where)


def threads(c: Conflict) -> Missing:
    if c.culprit.cta.cluster is not c.lanes.cta.cluster:
        locks = [each for each in c.lines.roles.semaphores("acquire") if _before(each.location, c.instruction.location)]
        if locks and c.warp.index not in locks[-1].warps:
            lock = f"lock_semaphore at {locks[-1].location} is for {spell_warps(locks[-1].warps)} alone"
            return Missing("sync", f"{lock}: the missing sync: self.sync() between that and {c.here}")
        where = f"release_semaphore after {c.other_location}, and lock_semaphore before {c.instruction.location}"
        return Missing("sync", f"the missing sync: {where}, or two launches")
    where = f"between {c.lines.between(c.other_location, c.instruction.location)}"
    other = ", or an arrive and a wait on an mbarrier" * _meet(c, c.culprit)
    return Missing("sync", f"{_meeting(c, c.culprit, where)}{other}")


def _before(first: Location | None, then: Location | None) -> bool:
    return first is None or then is None or first.line < then.line


def _meeting(c: Conflict, lanes: Lanes, where: str) -> str:
    if not _meet(c, lanes):
        return f"the missing order: an mbarrier {where}, on which {lanes} arrives and {c.lanes} waits"
    return f"the missing sync: {_sync(lanes.cta, c.warp.cta)} {where}"


def _meet(c: Conflict, lanes: Lanes) -> bool:
    """Return whether there is a place that both come to. Warps that each go round a loop of their own meet nowhere in
    it."""
    apart = c.lines.apart(c.other_location, c.instruction.location)
    return not apart or lanes.warp.index in c.instruction.group.warps


def _sync(one: Cta, other: Cta) -> str:
    return "self.sync()" if one is other or one.cluster is not other.cluster else "self.cluster.sync()"


CANDIDATES: tuple[Callable[[Conflict], Missing | None], ...] = (
    hardware_alone, copied_twice, copied_after,
    proxy_fence, relaxed_wait, relaxed_arrival, relaxed_both, lanes_of_one_warp, commit_tracks_none, count_too_small,
    came_too_early, wrong_phase, stale_wait, arrival_tracks_none, arrival_comes_before, told_too_early,
    one_lane_arrived, ran_ahead, written_again, readers_tell, barrier_carries_it, another_cta_was_told, released_alone,
    another_warp_knows, waited_for_later, each_waits_for_its_own, completion,
)  # fmt: skip


def missing_edge(conflict: Conflict) -> Missing:
    for candidate in CANDIDATES:
        found = candidate(conflict)
        if found is not None:
            return found
    return threads(conflict)


class Diagnosis:
    """Turns conflicts into findings, once for each pair of lines."""

    def __init__(self, order: Knows, lines: ProgramLines) -> None:
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
        """Report the conflict, and return how severe it is."""
        conflict = Conflict(
            self.order, self.lines, warp, instruction, lanes, effect, region, other, early=other.event == 0
        )
        key = (instruction, conflict.other_location, conflict.other_name, other.write, effect.operand)
        if key not in self.known:
            self.known[key] = finding_of(conflict)
        warp.cta.grid.findings.add(self.known[key])
        return self.known[key].severity

    def too_early(self, read: EarlyRead) -> None:
        """Report a read of what nobody had written: its writer came later, or a wait passed before anything had
        happened."""
        if read.writer is not None:
            other = PastAccess(read.region.box, 0, True, read.writer, read.region)
            self.report(read.warp, read.instruction, read.lanes, read.effect, read.region, other)
        elif read.wait is not None and read.wait[1].phase < 0:
            name, wait = read.wait
            advice = (
                f"the wait on {name} at {wait.location} passed on {_phase(-1)}: the parity that it waits for is wrong"
            )
            what = f"{read.instruction.name} by {read.lanes} reads {read.region}, which nobody has written"
            read.warp.cta.grid.findings.add(
                Finding(
                    PHASE, Severity.ERROR, f"{what}; {advice}", read.warp.cta.position, read.instruction.location,
                    wait.location, missing="phase", at_fault=wait.location, tensor=read.region.name,
                    box=read.region.box, agents=(str(read.lanes),), advice=advice,
                )
            )  # fmt: skip

    def too_narrow(self, drains: Drains) -> None:
        """Report arrivals and waits that leave out the other CTA of a pair, where no conflict has named them."""
        named = {finding.at_fault for finding in self.known.values() if finding.code == RELAXED}
        for cta, finding in drains.found.values():
            if finding.at_fault not in named:
                cta.grid.findings.add(finding)

    def not_started(self, warp: Warp, instruction: Instruction, lanes: Lanes, cta: Cta) -> None:
        """Report lanes that reach into a CTA which may not have started yet."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by {lanes} signals an mbarrier of CTA {cta.position}, which that may not have"
            f" initialised yet; {advice}"
        )
        self._tell(NOT_STARTED, message, warp.cta, instruction, str(lanes), advice)

    def peer_not_started(self, warp: Warp, instruction: Instruction, cta: Cta) -> None:
        """Report a pair that does something together, and one of which may not have been launched (PTX ISA,
        tcgen05.alloc: the issuing warp must make sure that it is). The CTAs of a cluster start together, as a rule."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by warp {warp.index} of CTA {warp.cta.position} is done together with CTA"
            f" {cta.position}, which may not have started; {advice}"
        )
        self._tell(
            PEER, message, warp.cta, instruction, f"warp {warp.index}", advice, severity=Severity.UNGUARANTEED
        )  # fmt: skip

    def peer_not_allocated(self, warp: Warp, instruction: Instruction, cta: Cta) -> None:
        """Report a CTA that frees tensor memory of a pair, and the other one may not have allocated it yet: nothing
        says that tcgen05.alloc of both is over when that of one is. A GPU ends such a launch with a failure."""
        advice = f"the missing sync: self.cluster.sync() before {instruction.location}"
        message = (
            f"{instruction.name} by warp {warp.index} of CTA {warp.cta.position} gives back tensor memory of a CTA"
            f" pair, and CTA {cta.position} may not have allocated it yet; {advice}"
        )
        self._tell(FREED_EARLY, message, warp.cta, instruction, f"warp {warp.index}", advice)

    def exits_before(self, instruction: Instruction, lanes: Lanes, cta: Cta) -> None:
        """Report a CTA that may exit before these lanes of another one, or what they started, have reached into it."""
        advice = f"the missing sync: self.cluster.sync() after {instruction.location}, by all CTAs, before they exit"
        signals = instruction.description.signals and lanes.cta is not cta
        over = "has signalled it" if signals else "is over, which uses its memory"
        message = f"CTA {cta.position} may exit before {instruction.name} by {lanes} {over}; {advice}"
        self._tell(EXIT, message, cta, instruction, str(lanes), advice)

    def arrives_early(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction) -> None:
        """Report an arrival for a phase where nothing says that the one before is over."""
        here = f"CTA {lanes.cta.position} before {instruction.location}"
        advice = f"the missing wait: whoever waits there has to tell {here}"
        message = (
            f"{instruction.name} by {lanes} arrives on {barrier} for {_phase(barrier.phase)}, and maybe before the"
            f" bytes for {_phase(barrier.phase - 1)} are there, which has no arrival left; {advice}"
        )
        self._tell(OVER, message, lanes.cta, instruction, str(lanes), advice, edge="wait")

    @staticmethod
    def _tell(
        code: Code,
        message: str,
        cta: Cta,
        instruction: Instruction,
        who: str,
        advice: str,
        severity: Severity = Severity.ERROR,
        edge: str = "sync",
    ) -> None:
        where = instruction.location
        cta.grid.findings.add(
            Finding(code, severity, message, cta.position, where, missing=edge, agents=(who,), advice=advice)
        )

    def overrun(self, carried: Carried, phase: int, warp: int, wait: LastWait) -> None:
        """Report a phase that ends where nothing says that `warp` has seen the end of the one before."""
        barrier, last = carried.barrier, carried.last
        later = " of the next round" if self.lines.by_loop(wait.location, last) else ""
        between = f"between the wait at {wait.location} and the arrival at {last}{later}"
        sync = "" if self.lines.apart(wait.location, last) else "self.sync() or "
        advice, edge, at_fault = f"the missing sync: {between}, {sync}another barrier", "sync", None
        known = _passed_before(barrier, wait) if wait.again else self._another_stage(carried, phase)
        if known is not None:
            advice, edge, at_fault = known.advice, known.edge, known.at_fault
        message = (
            f"phase {phase} of {barrier.name} may end before warp {warp} has seen that {_phase(wait.phase)}"
            f" did, whose parity it waits for: it would wait for ever, or for the wrong phase; {advice}"
        )
        barrier.cta.grid.findings.add(
            Finding(
                OVERRUN, Severity.ERROR, message, barrier.cta.position, wait.location, last, missing=edge,
                at_fault=at_fault, agents=(f"warp {warp}",), advice=advice,
            )
        )  # fmt: skip

    def _another_stage(self, carried: Carried, phase: int) -> Missing | None:
        """Find that who ended the phase has waited for another stage of a ring, and not for the one that it tells."""
        turn, warp = self._last_to_tell(carried)
        if warp is None:
            return None
        barrier = carried.barrier.in_cta(warp.cta)
        every = [(each, each.waits.get(warp.index)) for each in map(self.order.of, barriers_of(warp.cta))]
        before = {each.barrier: wait for each, wait in every if wait is not None and wait.turn < turn}
        for back in self.lines.roles.told_by_readers(barrier, warp)[:1]:
            ring = [each for each in before if siblings(each, back)]
            newest = max(ring, key=lambda each: before[each].turn, default=back)
            early = back not in before or before[back].phase < phase - 1
            if newest is not back and place_of(back) == place_of(barrier) and early:
                told = f"the arrival at {carried.last} by {spell([warp])} tells {barrier}"
                after = (
                    f"after the wait for {newest} at {before[newest].location}: it is for a barrier of another stage"
                )
                return Missing("arrive", f"{told} {after}", at_fault=carried.last)
        return None

    def _last_to_tell(self, carried: Carried) -> tuple[int, Warp | None]:
        """Return when the barrier was told last, and by whom."""
        if carried.commit is not None and carried.commit.location == carried.last:
            return carried.commit.turn, carried.commit.lanes.warp
        arrivals = self.order.warpgroups.arrivals
        told = [(each[carried.barrier].turn, warp) for warp, each in arrivals.items() if carried.barrier in each]
        return max(told, key=lambda each: each[0], default=(0, None))

    @staticmethod
    def uninitialised(warp: Warp, instruction: Instruction, region: Region) -> None:
        message, advice = f"{instruction.name} reads {region}, part of which nothing has written", ""
        if "acquire" in instruction.description.awaited:
            advice = f"global_tensor(..., requires_clean=True) makes zeros of {region.name}"
            message = f"{instruction.name} reads {region}, which nothing is sure to have written; {advice}"
        warp.cta.grid.findings.add(
            Finding(
                "uninitialised-read", Severity.ERROR, message, warp.cta.position, instruction.location,
                tensor=region.name, box=region.box, advice=advice,
            )
        )  # fmt: skip

    @staticmethod
    def left_at_exit(operation: Operation) -> None:
        """Report an operation that nobody has waited for when its CTA exits."""
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
        return f"{what} through the async proxy, which {c.other_name} by {who} {_past(c.other)} through the generic one"
    if c.operation is not None:
        doing = "still reads" if not c.other.write else ("still accesses" if c.write else "has not finished writing")
        return f"{what}, which {c.other_name} (issued by {who}) {doing}"
    return f"{what}, which {c.other_name} by {who} {'writes' if c.other.write else 'reads'} without an order"


def _whose(c: Conflict) -> str:
    """Return the CTA that the memory is of, where it is another one of the cluster."""
    peers = [cta for cta in c.warp.cta.cluster.ctas if cta is not c.warp.cta]
    storage = c.region.storage
    mine = (cta for cta in peers if storage in cta.storages)
    return next((cta.among_others for cta in mine), "")


def _past(access: PastAccess) -> str:
    return "wrote" if access.write else "read"


def _phase(phase: int) -> str:
    return f"phase {phase}" if phase >= 0 else "the phase before the first"


def _lanes(lanes: Lanes) -> str:
    return lanes.name or "all lanes together"
