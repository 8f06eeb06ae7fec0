"""The line that causes a deadlock. Most of the warps that wait for each other are not at fault.

Each candidate is a function, the clearest evidence first: a barrier without an arrival, a count that no phase reaches,
a wait that other warps ran past, a wait for a wrong phase.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.engine import Agent, Blocked
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp, number, spell
from blackwell_matmul.simulator.order.announcements import Announcements
from blackwell_matmul.simulator.order.lines import ProgramLines, Roles, place_of, same_ring, siblings
from blackwell_matmul.simulator.order.signallers import COMMIT, Signaller

ANOTHER_STAGE = "one of the two is of another stage"
"""What is wrong with a wait and an arrival, or two waits, of different places in their rings."""

KEPT = "it is the one of the wait before, and has to flip with each phase of the mbarrier"
"""Clause on a parity that does not change, so that the warp waits again for the preceding phase."""


class Stuck(NamedTuple):
    """A warp that waits for an mbarrier for ever. seen: the last phase that the warp waited for; -1 if none."""

    warp: Warp
    wait: Blocked
    barrier: Mbarrier
    seen: int


class Culprit(NamedTuple):
    """A wrong line. stuck: the warp that shows the fault. missing, at_fault: as in `Finding`."""

    stuck: Stuck
    text: str
    missing: str
    at_fault: Location | None


@dataclass(frozen=True)
class Scene:
    """State of a deadlock: the warps that wait for mbarriers, the program's lines, and the counts of each mbarrier."""

    stuck: list[Stuck]
    lines: ProgramLines
    known: Announcements
    places: dict[Warp, Location | None]  # where each warp waits, for an mbarrier or for other warps

    def all_arrive(self, barrier: Mbarrier) -> str:
        """Return a clause: the lines that arrive on an mbarrier, and the warps that execute them."""
        arriving = self.lines.roles.signalling(barrier, "arrive")
        return ", ".join(f"{each.name} at {each.location} by {spell(each.warps_for(barrier))}" for each in arriving)


def scene_of(stuck: Sequence[Agent], lines: ProgramLines, known: Announcements) -> Scene:
    waits = [(each.warp, each.wait, each.wait.barrier) for each in stuck if each.wait is not None]
    found = [Stuck(warp, wait, it, known.seen.get((it, warp), -1)) for warp, wait, it in waits if it is not None]
    return Scene(found, lines, known, {each.warp: each.wait.location for each in stuck if each.wait is not None})


# the candidates


def count_too_large(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a count that no phase reaches: every warp has arrived as often as its lines say."""
    barrier, roles = stuck.barrier, scene.lines.roles
    arrived, lines = scene.known.arrivals[barrier], roles.signalling(barrier, "arrive")
    expected = {warp: _times_a_round(scene, lines, barrier, warp) for warp in roles.arriving(barrier)}
    if not expected or not barrier.pending or any(arrived[warp] < times for warp, times in expected.items()):
        return None
    short = next((each for each in lines if each.leaves_out(barrier)), None)
    other = "" if short is None else f", or {short.misses(barrier)}"
    came = f"{barrier} gets {barrier.expected - barrier.pending}, from {scene.all_arrive(barrier)}"
    text = f"the count of {barrier.expected} at {barrier.location} is too large: each phase of {came}{other}"
    return Culprit(stuck, text, "arrive", barrier.location)


def counts_both_turns(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a count for two groups of warps that arrive in turn, so that each phase gets arrivals of one group."""
    barrier, arrived = stuck.barrier, scene.known.arrivals[stuck.barrier]
    came = {warp for warp in arrived if arrived[warp]}
    for turn, giving, taking in taken_in_turn(barrier, scene.lines.roles) if barrier.pending else ():
        if giving == came and any(each.barrier is turn for each in scene.stuck):
            who, later = (spell(sorted(warps, key=number)) for warps in (giving, taking))
            text = f"the count of {barrier.expected} at {barrier.location} is too large: each phase of {barrier} gets"
            text += f" {barrier.expected - barrier.pending}, from {who}; those of {later} come after a wait for {turn}"
            return Culprit(stuck, text, "arrive", barrier.location)
    return None


def taken_in_turn(barrier: Mbarrier, roles: Roles) -> Iterator[tuple[Mbarrier, set[Warp], set[Warp]]]:
    """Yield each mbarrier by which one of two groups that arrive on `barrier` hands the turn to the other one, with
    the group that arrives on it, and the group that waits for it."""
    ring = barriers_of(barrier.cta)
    for turn in ring:
        giving, taking = roles.arriving(turn), roles.waiting(turn)
        back = [each for each in ring if siblings(each, turn) and roles.waiting(each) == giving != taking]
        if giving | taking == roles.arriving(barrier) and any(roles.arriving(each) == taking for each in back):
            yield turn, giving, taking


def _times_a_round(scene: Scene, lines: list[Signaller], barrier: Mbarrier, warp: Warp) -> int:
    """Return the number of arrivals of the warp in one round of a loop. A prologue counts as a round of its own."""
    rounds = [scene.lines.round_of(line.location) for line in lines if warp in line.warps_for(barrier)]
    return max(rounds.count(each) for each in rounds)


def count_too_small(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find an mbarrier that is phases ahead of the waiting warp, although each warp arrived in fewer phases
    than ended."""
    barrier, arrivals, roles = stuck.barrier, scene.known.all_arrivals[stuck.barrier], scene.lines.roles
    if not _overtaken(scene, stuck) or len(arrivals) < 2 or max(arrivals.values()) >= barrier.phase:
        return None
    if any(taken_in_turn(barrier, roles)) and not ends_too_often(barrier, arrivals, roles):
        return None
    return Culprit(stuck, small(barrier, set(arrivals)), "arrive", barrier.location)


def ends_too_often(barrier: Mbarrier, arrivals: Counter[Warp], roles: Roles) -> bool:
    """Return True if more phases ended than lines arrived, of which each ends at most one with all of its warps."""
    groups = {
        (warp.cta, line.warps) for line in roles.signalling(barrier, "arrive") for warp in line.warps_for(barrier)
    }
    return sum(max(arrivals[cta.warps[each]] for each in warps) for cta, warps in groups) < barrier.phase


def small(barrier: Mbarrier, arriving: set[Warp]) -> str:
    everybody = spell(sorted(arriving, key=number))
    return f"the count of {barrier.expected} at {barrier.location} is too small where {everybody} arrive"


def nobody_arrives(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find an mbarrier on which no line arrives. Name the line that was probably meant: one of two lines that arrive
    on another mbarrier."""
    barrier, roles = stuck.barrier, scene.lines.roles
    if not barrier.pending or roles.arriving(barrier):
        return None
    waiting = f"for which {spell([stuck.warp])} waits at {stuck.wait.location}"
    text = f"the missing arrival: no line of the kernel arrives on {barrier}, {waiting}"
    for line in roles.leaving_out(barrier, "arrive"):
        return Culprit(stuck, f"{text}; {line.misses(barrier)}", "arrive", line.location)
    for line, stage in _of_the_ring(scene, barrier):
        text += f"; {line.name} at {line.location} signals {stage} in each round"
        return Culprit(stuck, text, "arrive", line.location)
    wrong = min(_doubled(scene, stuck), key=lambda each: each[0], default=None)
    if wrong is None:
        return Culprit(stuck, text, "arrive", None)
    _, line, instead = wrong
    text += f"; {line.name} at {line.location} signals {instead}, as another line does, and may be meant for {barrier}"
    return Culprit(stuck, text, "arrive", line.location)


def _of_the_ring(scene: Scene, barrier: Mbarrier) -> Iterator[tuple[Signaller, Mbarrier]]:
    """Yield lines in a loop that arrive on exactly one mbarrier of the same ring."""
    ring = [each for each in barriers_of(barrier.cta) if siblings(each, barrier)]
    for line in scene.lines.roles.lines if len(ring) > 1 else ():
        stages = [each for each in ring if "arrive" in line.kinds and line.warps_for(each)]
        if len(stages) == 1 and scene.lines.in_loop(line.location):
            yield line, stages[0]


def waits_for_itself(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a wait for arrivals that only the waiting warps make, and only after the wait."""
    barrier, here, roles = stuck.barrier, stuck.wait.location, scene.lines.roles
    lines, waiting = roles.signalling(barrier, "arrive"), roles.waiting(barrier)
    plain = all(each.name != COMMIT and "expect_tx" not in each.kinds for each in lines)
    if not barrier.pending or not plain or not roles.arriving(barrier) <= waiting or barrier.phase != stuck.seen + 1:
        return None
    line = next((each for each in lines if stuck.warp in each.warps_for(barrier)), None)
    if line is None or not scene.lines.above(here, line.location):
        return None
    who = spell(line.warps_for(barrier))
    text = f"the wait on {barrier} at {here} is for {line.name} at {line.location}, by {who} as well"
    return Culprit(stuck, f"{text}: one of the two is for the barrier of other warps", "arrive", line.location)


def stage_left_out(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a mbarrier of a ring that has got fewer arrivals than a round of the ring explains."""
    barrier, lines = stuck.barrier, scene.lines.roles.signalling(stuck.barrier, "arrive")
    arriving = scene.lines.roles.arriving(barrier)
    ring = [each for each in barriers_of(barrier.cta) if siblings(each, barrier)]
    times = {each: sum(scene.known.issued_arrivals[each, warp] for warp in arriving) for each in ring}
    most = max(ring, key=lambda each: times[each])
    round_ = sum(_times_a_round(scene, lines, barrier, warp) for warp in arriving)
    if not barrier.pending or not round_ or times[most] - times[barrier] < 2 * round_:
        return None
    often, seldom = (times[each] // round_ for each in (most, barrier))
    text = f"{lines[0].name} at {lines[0].location} has signalled {most} {often} times and {barrier} {seldom} times"
    return Culprit(stuck, f"{text}: its stages do not go round the ring of {len(ring)}", "arrive", lines[0].location)


def another_stage(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a warp that waited for one stage and arrived on the mbarrier of another stage."""
    cta, roles = stuck.barrier.cta, scene.lines.roles
    ring = [each for each in barriers_of(cta) if siblings(each, stuck.barrier)]
    pairs = [each for each in itertools.permutations(ring, 2) if stuck.barrier in each and stuck.barrier.pending]
    for (barrier, other), here in itertools.product(pairs, barriers_of(cta)):
        there = next((each for each in barriers_of(cta) if same_ring(here, each, other)), None)
        if there is None or siblings(here, barrier) or place_of(here) != place_of(barrier):
            continue
        waited, arrived = scene.known.passes, scene.known.issued_arrivals
        for warp in sorted(roles.arriving(barrier), key=number):
            late = waited[here, warp] > arrived[barrier, warp] and arrived[other, warp] > waited[there, warp]
            if late and warp.cta is cta:
                return _arrived_on_another(scene, stuck, warp, here, barrier, other)
    return None


def _arrived_on_another(
    scene: Scene, stuck: Stuck, warp: Warp, here: Mbarrier, barrier: Mbarrier, other: Mbarrier
) -> Culprit:
    roles = scene.lines.roles
    line = next(each for each in roles.signalling(other, "arrive") if warp in each.warps_for(other))
    wait = next(each for each in roles.signalling(here, "mbarrier") if warp in each.warps_for(here))
    what = f"{line.name} at {line.location} by {spell([warp])} has signalled {other}, and not {barrier}"
    text = f"{what}, after a wait for {here} at {wait.location}: {ANOTHER_STAGE}"
    return Culprit(stuck, text, "arrive", line.location)


def _doubled(scene: Scene, stuck: Stuck) -> Iterator[tuple[tuple[bool, bool], Signaller, Mbarrier]]:
    """Yield lines that share an mbarrier with another arriving line. Lines of warps that wait for that mbarrier come
    first, then lines at the loop depth of the wait."""
    roles, depth = scene.lines.roles, scene.lines.depth
    for barrier in stuck.barrier.cta.barriers.values():
        arriving = roles.signalling(barrier, "arrive")
        for line in arriving if len({each.location for each in arriving}) > 1 else ():
            if "expect_tx" not in line.kinds:
                itself = bool(set(line.warps_for(barrier)) & roles.waiting(barrier))
                yield (not itself, depth(line.location) != depth(stuck.wait.location)), line, barrier


def bytes_differ(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a phase whose announced bytes (expect_tx) differ from the bytes of its copies."""
    barrier = stuck.barrier
    if not barrier.tx_bytes:
        return None
    text = f"phase {barrier.phase} of {barrier} cannot end: {barrier.bytes}"
    out = scene.lines.roles.leaving_out(barrier, "complete_tx")
    return Culprit(stuck, f"{text}{''.join(f'; {each.misses(barrier)}' for each in out)}", "", None)


def run_past(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a phase that ended, together with the next one, before the warp began to wait: the arriving warp did not
    wait."""
    barrier, roles = stuck.barrier, scene.lines.roles
    if not _overtaken(scene, stuck):
        return None
    for ahead in sorted(roles.arriving(barrier) - {stuck.warp}, key=number):
        back = roles.arrived_by_readers(barrier, ahead)
        again = next((each for each in back if (each, ahead) in scene.known.again), None)
        if again is not None:
            return _passed_again(stuck, again, ahead, scene.known.again[again, ahead])
        if back and ahead not in roles.waiting(back[0]):
            return _never_waits(scene, stuck, back[0], ahead)
    return None


def _overtaken(scene: Scene, stuck: Stuck) -> bool:
    return stuck.barrier.phase > stuck.seen + 2 or (stuck.barrier, stuck.warp) in scene.known.late


def _passed_again(stuck: Stuck, barrier: Mbarrier, ahead: Warp, line: Location | None) -> Culprit:
    passed = f"the wait on {barrier} at {line} by {spell([ahead])} passed on a phase that it had waited for before"
    text = f"{passed}, and {stuck.barrier} went on without {spell([stuck.warp])}: the parity that it waits for is wrong"
    return Culprit(stuck, text, "phase", line)


def _never_waits(scene: Scene, stuck: Stuck, back: Mbarrier, ahead: Warp) -> Culprit:
    roles, lines = scene.lines.roles, scene.lines
    arrival = next(each for each in roles.signalling(stuck.barrier, "arrive") if ahead in each.warps_for(stuck.barrier))
    made = [each for each in lines.touched_by(ahead) if each.location in lines.round_of(arrival.location)]
    made = [each for each in made if each.write] or made
    line, write = (made[0].location, made[0].write) if made else (arrival.location, True)
    does, lacks = ("writes", "read") if write else ("reads", "written")
    again = f"{spell([ahead])} {does} again at {line} and arrives on {stuck.barrier} at {arrival.location}"
    text = f"{again} before {spell([stuck.warp])} has {lacks}: the missing wait: {back.remedy} before {line}"
    return Culprit(stuck, text, "wait", line)


def skips_a_phase(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a wait for the present phase by a warp that has not waited for the phase before, at this line or another."""
    barrier, here = stuck.barrier, stuck.wait.location
    if barrier.phase != stuck.seen + 2:
        return None
    why = f"and it has not waited for phase {barrier.phase - 1}, which is over"
    waits = [
        each for each in scene.lines.roles.signalling(barrier, "mbarrier") if stuck.warp in each.warps_for(barrier)
    ]
    besides = next((each.location for each in waits if scene.lines.may_precede(each.location, here)), None)
    if besides is None:
        kept = (barrier, stuck.warp) in scene.known.seen
        return _wrong_parity(stuck, why, f" ({KEPT})" if kept else "")
    return Culprit(stuck, f"{_waits(stuck, why)}: the missing wait: that at {besides}, or one like it", "wait", besides)


def starts_too_late(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a warp that waits before its first write, for arrivals that only follow that write."""
    lines, first_wait = scene.lines, not scene.known.passes[stuck.barrier, stuck.warp]
    written = {each.tensor for each in lines.touched_next(stuck.warp, stuck.wait.location) if each.write}
    for other in _in_a_circle(scene, stuck) if _untouched(stuck) and first_wait else ():
        read = {each.tensor for each in lines.touched_next(other.warp, other.wait.location) if not each.write}
        if written & read and _untouched(other):
            after = f"after phase 0 of {other.barrier}, which {spell([stuck.warp])} has still to fill"
            hint = " (mbarrier.producer_initial_phase is the first)"
            return _wrong_parity(stuck, f"and {_enders(scene, stuck)} that {after}", hint)
    return None


def signals_too_late(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a signal that its warp makes after the wait, although the announced data were written before the wait. The
    wait is for a warp that needs this signal first."""
    lines, here = scene.lines, stuck.wait.location
    for other in _in_a_circle(scene, stuck):
        read = {each.tensor for each in lines.touched_next(other.warp, other.wait.location) if not each.write}
        written = [each.location for each in lines.touched_by(stuck.warp) if each.write and each.tensor in read]
        for late in lines.roles.signalling(other.barrier, "arrive"):
            told = [each for each in written if lines.above(each, late.location)]
            mine = stuck.warp in late.warps_for(other.barrier) and lines.above(here, late.location)
            if mine and told and all(lines.leads_to(each, here) for each in told):
                return _too_late(scene, stuck, other, late)
    return None


def all_wait_first(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find two warps that each wait first for the arrival that the other one makes after its own wait."""
    for other in _in_a_circle(scene, stuck) if _untouched(stuck) else ():
        if _untouched(other) and other.warp.cta is stuck.warp.cta and stuck in _needed(scene, other)[:1]:
            pair = [f"{each.barrier} at {each.wait.location} by {spell([each.warp])}" for each in (stuck, other)]
            text = f"the waits on {' and '.join(pair)} are each for an arrival that comes after the other wait"
            remedy = "one of the two has to arrive first, or to begin with mbarrier.producer_initial_phase"
            return Culprit(stuck, f"{text}: {remedy}", "", None)
    return None


def goes_on_alone(scene: Scene, stuck: Stuck) -> Culprit | None:
    """Find a warp that goes on in a loop, although each warp that arrives has left the loop in which it arrives."""
    barrier, here, lines = stuck.barrier, stuck.wait.location, scene.lines
    arrived = scene.known.all_arrivals[barrier]
    often = max(arrived.values(), default=0)
    if not lines.in_loop(here) or often == 0 or often != barrier.phase:
        return None
    ring = [each for each in barriers_of(barrier.cta) if siblings(each, barrier)]
    begun = any(each.pending != each.expected or each.tx_bytes for each in ring)
    if begun or any(scene.known.seen.get((each, stuck.warp), -1) != each.phase - 1 for each in ring):
        return None  # a stage is in use, or the warp has not waited for all that came
    arrivals = [each.location for each in lines.roles.signalling(barrier, "arrive")]
    loops = [loop - {None} for loop in lines.loops if arrivals and loop.issuperset(arrivals) and here not in loop]
    if not loops or any(scene.places.get(each) in loop for each in arrived for loop in loops):
        return None
    others = f"{spell(sorted(arrived, key=number))} {'has' if len(arrived) == 1 else 'have'}"
    text = f"{spell([stuck.warp])} goes on in the loop of the wait at {here}, and {others} left that of the arrival at"
    return Culprit(stuck, f"{text} {arrivals[0]}: the two loops have to end after the same round", "", None)


def _too_late(scene: Scene, stuck: Stuck, other: Stuck, late: Signaller) -> Culprit:
    what = f"{late.name} at {late.location} by {spell([stuck.warp])} has to come before the wait on {stuck.barrier} at"
    why = f"{_enders(scene, stuck)} that only after phase {other.barrier.phase} of {other.barrier}, which it signals"
    return Culprit(stuck, f"{what} {stuck.wait.location}: {why}", "arrive", late.location)


def _in_a_circle(scene: Scene, stuck: Stuck) -> list[Stuck]:
    """Return the other warps for which the warp waits, directly or not, and which wait for it."""
    return [each for each in _needed(scene, stuck) if each.warp is not stuck.warp and stuck in _needed(scene, each)]


def _needed(scene: Scene, stuck: Stuck) -> list[Stuck]:
    found = [stuck]
    for each in found:
        by = scene.lines.roles.arriving(each.barrier)
        found += [other for other in scene.stuck if other.warp in by and other not in found[1:]]
    return found[1:]


def _enders(scene: Scene, stuck: Stuck) -> str:
    ending = sorted(scene.lines.roles.arriving(stuck.barrier) - {stuck.warp}, key=number)
    return f"{spell(ending)} {'ends' if len(ending) == 1 else 'end'}"


def _untouched(stuck: Stuck) -> bool:
    """Return True if nobody has arrived on the mbarrier yet, and the warp has not waited for it."""
    barrier = stuck.barrier
    return (barrier.phase, stuck.seen) == (0, -1) and barrier.pending == barrier.expected and not barrier.tx_bytes


def _wrong_parity(stuck: Stuck, why: str, hint: str = "") -> Culprit:
    text = f"{_waits(stuck, why)}: the parity that it waits for is wrong{hint}"
    return Culprit(stuck, text, "phase", stuck.wait.location)


def _waits(stuck: Stuck, why: str) -> str:
    waits = f"the wait on {stuck.barrier} at {stuck.wait.location} by {spell([stuck.warp])} is for phase"
    return f"{waits} {stuck.barrier.phase}, {why}"


CANDIDATES: tuple[Callable[[Scene, Stuck], Culprit | None], ...] = (
    nobody_arrives, stage_left_out, another_stage, count_too_large, counts_both_turns, waits_for_itself,
    count_too_small, run_past, skips_a_phase, starts_too_late, signals_too_late, all_wait_first, goes_on_alone,
)  # fmt: skip


def culprit_of(scene: Scene) -> Culprit | None:
    """Return the first candidate that some warp shows; None if no line is at fault."""
    lacking = any(each.barrier.tx_bytes for each in scene.stuck)
    candidates = (nobody_arrives, bytes_differ) if lacking else CANDIDATES
    found = (candidate(scene, stuck) for candidate in candidates for stuck in scene.stuck)
    return next((each for each in found if each is not None), None)
