"""Candidates: an arrival or a commit that does not cover the access, because it is too early, of one lane, or on
another CTA's mbarrier."""

from __future__ import annotations

from collections.abc import Iterator

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp, spell, spell_warps
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import Carried, EndSignal, Operation
from blackwell_matmul.simulator.order.lines import siblings
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, brings_bytes, stands_before
from blackwell_matmul.simulator.order.signallers import COMMIT


def commit_tracks_none(c: Conflict) -> Missing | None:
    """Find a commit that ended a wait of the warp and tracks no mma: another thread's commit, or one before its mma.
    The committing thread has observed the access, or is to signal it."""
    for _, wait in c.waits():
        commit = wait.commit
        if commit is None or commit.tracked or (c.operation is not None and commit in c.operation.end_signals):
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


def _after(c: Conflict, commit: EndSignal) -> Operation | None:
    """Return the operation, or the next one that the commit's thread issued after the commit and that the commit
    should track.

    None if that thread has not observed the access. Each CTA of a cluster has its own such thread.
    """
    op = c.operation
    if op is not None and op.op.pipe is not None:
        return op if op.lanes.warp.index == commit.lanes.warp.index else None
    later = [each for each in c.order.operations.values() if each.lanes is commit.lanes and each.turn > commit.turn]
    later = [each for each in later if each.op.pipe is not None and not each.instruction.description.arrives_later]
    return min(later, key=lambda each: each.turn, default=None) if c.known_to(commit.lanes) else None


def arrival_tracks_none(c: Conflict) -> Missing | None:
    """Find a plain arrival after an mma that ended a wait of the warp: a commit was meant."""
    op, signal = c.operation, c.end_signal
    if op is None or op.op.pipe != op.op.warp.tensor_core:
        return None
    if signal is not None and c.lines.roles.rank(signal.barrier, c.warp) < 2:
        return None
    for barrier, line in _arrivals(c):
        if op.turn < c.order.warpgroups.arrivals[c.culprit.warp][barrier].turn:
            what = f"the arrival on {barrier} at {line} does not track {op.op.name} at {op.op.location}"
            if signal is not None and c.culprit.warp in c.lines.roles.waiting(signal.barrier):
                return Missing("wait", f"{what}: the missing wait: {signal.barrier.remedy} before that", at_fault=line)
            advice = f"{what}: the missing commit: tcgen05.commit(mbarrier={barrier.name}) in its place"
            return Missing("commit", advice, at_fault=line)
    return None


def arrival_comes_before(c: Conflict) -> Missing | None:
    """Find an arrival that ended a wait of the warp, although its line is above the access."""
    for barrier, _ in _arrivals(c):
        line = arrives_before(c, barrier, {c.culprit.warp}, c.other_instruction)
        if line is not None:
            return early_arrival(c.culprit.warp, barrier, line, c.other_instruction)
    return None


def commit_comes_before(c: Conflict) -> Missing | None:
    """Find a commit that is above the mma in the same iteration, and above anything that the commit could track."""
    op, warp, made = c.operation, c.culprit.warp, c.other_location
    if op is None or op.op.pipe != op.op.warp.tensor_core:
        return None
    for line in c.lines.roles.lines:
        mine = line.name == COMMIT and warp.index in line.warps and c.lines.leads_to(line.location, made)
        if mine and not any(c.lines.leads_to(each.location, line.location) for each in c.lines.touched_by(warp)):
            what = f"{COMMIT} at {line.location} by {c.culprit} tracks nothing of its round"
            why = f"it comes before {op.op.name} at {made}, and has to come after it"
            return Missing("commit", f"{what}: {why}", at_fault=line.location)
    return None


def arrives_before(c: Conflict, barrier: Mbarrier, warps: set[Warp], access: Instruction) -> Location | None:
    """Return the line at which the warps arrive on the mbarrier before the access, in the same iteration.

    None if a wait is between, or an arrival follows the access. A copy that brings bytes comes after the arrival.
    """
    lines, roles, indices, made = c.lines, c.lines.roles, {warp.index for warp in warps}, access.location
    arrivals = [each.location for each in roles.signalling(barrier, "arrive") if {*each.warps_for(barrier)} & warps]
    waits = [each.location for each in roles.lines if "mbarrier" in each.kinds and indices & {*each.warps}]
    if brings_bytes(access) or any(lines.leads_to(made, each) for each in arrivals):
        return None
    for line in arrivals:
        if lines.leads_to(line, made) and not any(lines.leads_to(line, w) and lines.leads_to(w, made) for w in waits):
            return line
    return None


def early_arrival(warp: Warp, barrier: Mbarrier, line: Location, access: Instruction) -> Missing:
    """Return the arrival at `line` as the fault: it signals the access, but is above the access."""
    what = f"{spell([warp])} arrives on {barrier} at {line} before {access.name} at {access.location}"
    return Missing("arrive", f"{what}: the arrival has to come after what it announces", at_fault=line)


def _arrivals(c: Conflict) -> Iterator[tuple[Mbarrier, Location | None]]:
    """Return the last arrival of the accessing warp on each mbarrier that this warp waited for. Arrivals that announce
    bytes, and waits that passed on an old phase, are left out."""
    arrivals = c.order.warpgroups.arrivals.get(c.culprit.warp, {})
    for carried, wait in c.waits():
        arrival = arrivals.get(carried.barrier)
        if arrival is not None and wait.phase >= 0 and not wait.again and not arrival.announces:
            yield carried.barrier, arrival.location


def released_too_early(c: Conflict) -> Missing | None:
    """Find the arrival by which the operation's issuer released this warp before the issuer's own wait."""
    op = c.operation
    if op is None or c.order.warpgroups.let_go_early(op, c.warp, c.order.carried) is None:
        return None
    advice = c.order.warpgroups.advice(op, c.warp, c.instruction.location, c.order.carried)
    return Missing("commit" if "commit" in advice else "wait", f"the missing wait: {advice}")


def one_lane_arrived(c: Conflict) -> Missing | None:
    """Find an arrival of a single lane after an access of its whole warp, or of several warps.

    Such an arrival releases only what that lane has accessed or observed. It ended a wait of the warp that makes the
    other access.
    """
    op = c.operation
    over = op is None or (op.waited is not None and not op.end_signals)
    released = [carried for carried, _ in c.waits() if over and not _carried_besides(c, carried)]
    awaited = [carried for carried, _ in c.waits(c.culprit.warp)]
    first = _arrived_alone(c, c.other_instruction, c.culprit, released)
    return first or _arrived_alone(c, c.instruction, c.lanes, awaited)


def _carried_besides(c: Conflict, carried: Carried) -> bool:
    """Return True if the warp may have to wait for an mbarrier that carries the other access: this one, or one of
    another ring."""
    carrying = [each.barrier for each in c.barriers() if each.known & c.other.event]
    meant = [each for each in carrying if c.lines.roles.rank(each, c.warp) < 2]
    return any(each is carried.barrier or not siblings(each, carried.barrier) for each in meant)


def _arrived_alone(c: Conflict, access: Instruction, lanes: Lanes, awaited: list[Carried]) -> Missing | None:
    for carried in () if lanes.name else awaited:
        for (cta, warp), where in carried.alone.items():
            if cta is lanes.cta and _releases_a_part(c, access, lanes.warp, warp, where):
                alone = f"one lane of {spell([warp])} arrives on {carried.barrier.name} at {where}"
                sync = f"self.sync() inside of {spell_warps(access.group.warps)} before that"
                advice = f"publishes what it did itself: the missing sync: {sync}, or an arrival of all lanes"
                return Missing("sync", f"{alone} and {advice}", at_fault=where)
    return None


def _releases_a_part(c: Conflict, access: Instruction, accessing: Warp, warp: Warp, arrival: Location | None) -> bool:
    """Return True if lanes of `warp` arrive after the access, without a sync in between with the accessing warp."""
    made, both = access.location, {warp.index, accessing.index}
    syncs = [each for each in c.lines.roles.lines if "threads" in each.kinds and both <= {*each.warps}]
    synced = any(stands_before(made, each.location) and stands_before(each.location, arrival) for each in syncs)
    return warp.index in access.group.warps and not synced and stands_before(made, arrival)


def only_others_arrive(c: Conflict) -> Missing | None:
    """Find an mbarrier on which only other warps arrive after such a read, although the writing warp has waited for the
    mbarrier."""
    here, warps, roles = c.other_location, c.other_instruction.group.warps, c.lines.roles
    tensors = {each.tensor for each in roles.touches if each.location == here}
    reads = [each for each in roles.touches if each.tensor in tensors and not each.write]
    for carried, _ in c.waits() if c.write and not c.other.write else ():
        lines = roles.signalling(carried.barrier, "arrive")
        for line in lines if not any({*each.warps} & {*warps} for each in lines) else ():
            theirs = (each.location for each in reads if {*each.warps} & {*line.warps})
            if any(c.lines.above(each, line.location) for each in theirs):
                others = f"that at {line.location} is by {spell(line.warps_for(carried.barrier))}"
                advice = f"none on {carried.barrier} by {spell_warps(warps)} after the read at {here}; {others}"
                return Missing("arrive", f"the missing arrival: {advice}", at_fault=line.location)
    return None


def another_cta_signalled(c: Conflict) -> Missing | None:
    """Find an arrival on the accessing CTA's own mbarrier instead of the mbarrier of the CTA that waits."""
    for barrier, where in _signalled(c):
        waits = c.order.of(barrier.in_cta(c.warp.cta)).waits
        if barrier.cta is not c.warp.cta and c.order.of(barrier).known & c.other.event and c.warp.index in waits:
            who = f"CTA {c.culprit.cta.position} signals {barrier} at {where}"
            advice = f"the missing arrival: {who}, and not CTA {c.warp.cta.position}"
            return Missing("arrive", advice, at_fault=where)
    return None


def own_cta_alone_arrived(c: Conflict) -> Missing | None:
    """Find a wait for a line that arrives at a rank that depends on the CTA, if only the waiting CTA itself has
    arrived."""
    for carried, wait in c.waits() if c.operation is None and c.culprit.cta is not c.warp.cta else ():
        lines, barrier = c.lines.roles.signalling(carried.barrier, "arrive"), carried.barrier
        if wait.phase >= 0 and lines and all(each.ranks == -1 for each in lines):
            if {warp.cta for warp in carried.arrivals} == {c.warp.cta}:
                ended = f"phase {wait.phase} of {barrier} ended with arrivals of that CTA alone at {lines[0].location}"
                advice = f"{ended}: their rank, or the count of {barrier.expected} at {barrier.location}, is wrong"
                return Missing("arrive", advice, at_fault=lines[0].location)
    return None


def _signalled(c: Conflict) -> Iterator[tuple[Mbarrier, Location | None]]:
    """Return the mbarriers of the cluster that the operation's end signals, or on which a lane of the accessing
    warpgroup arrived."""
    if c.operation is not None and c.operation.mbarrier is not None and not c.other.write:
        yield c.operation.mbarrier, c.order.of(c.operation.mbarrier).last
    for cta in c.warp.cta.cluster.ctas:
        for carried in map(c.order.of, barriers_of(cta)):
            if c.operation is None or c.operation.mbarrier is not carried.barrier or c.culprit.cta is not c.warp.cta:
                yield from ((carried.barrier, at) for (_, by), at in carried.alone.items() if _speaks_for(c, by))


def _speaks_for(c: Conflict, warp: Warp) -> bool:
    """Return True for the warp that made the access; for on-chip memory, which a warpgroup shares, for all its
    warps."""
    who = c.culprit
    together = c.region.storage.space != "global" and warp.cta is who.cta and warp.index // 4 == who.warp.index // 4
    return together or warp is who.warp
