"""Causes before symptoms: of one planted fault, the first finding is about the line that has it, and what follows from
that says so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import test_barrier_pairs
import test_cluster_pairs
import test_thread_pairs
import test_wgmma_pairs
from async_scripts import CpAsyncGroups
from barrier_scripts import InStep, Ring, TwoBarriers, TwoSteps
from cluster_scripts import Handshake, SharedOperand, SharedRing
from orders import ORDERS, line_of, run_in
from test_check import copied
from thread_scripts import CpAsyncThenTma, LeaderWaits, SameLine, SharedRace, Unwritten, WriteThenTma
from wgmma_scripts import Twice, TwoGroups

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator import Finding, Severity
from blackwell_matmul.simulator.order.causes import in_order
from blackwell_matmul.simulator.order.knowledge import TooNew
from blackwell_matmul.simulator.order.lines import ProgramLines
from blackwell_matmul.simulator.order.signallers import Signaller

INPUTS: dict[Any, Any] = {
    **test_barrier_pairs.INPUTS, **test_cluster_pairs.INPUTS, **test_thread_pairs.INPUTS, **test_wgmma_pairs.INPUTS,
    CpAsyncGroups: lambda: (copied(), None, None),
}  # fmt: skip
ERROR, HINT = Severity.ERROR, Severity.UNGUARANTEED


@dataclass(frozen=True)
class Planted:
    """A fault, the mark of the line that has it (or before which something is missing), and what the first finding
    says. follow: codes of findings that have to say that they follow."""

    script: type
    fault: str
    mark: str
    says: str
    follow: tuple[str, ...] = ()
    target: str = "sm_100a"
    flags: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.script.__name__}: {self.fault or self.flags}"

    def findings(self) -> tuple[Finding, ...]:
        fault = {"fault": self.fault} if self.fault else {}
        args, _, _ = INPUTS[(self.script, self.flags["kind"]) if "kind" in self.flags else self.script]()
        return run_in(ORDERS[0], self.script(**fault, **self.flags), *args, target=self.target).findings


EXIT, NOBODY, WRITTEN, RACE = "in-flight-at-exit", "uninitialised-read", "overwritten-in-flight", "data-race"
STUCK, OVERRUN, EARLY_ARRIVAL, FREE = "deadlock", "phase-overrun", "mbarrier-over-arrival", "dealloc-in-flight"
READ_EARLY = "read-before-complete"
PARITY, HOPPER = "the parity that it waits for is wrong", "sm_90a"

PLANTED = [
    Planted(Ring, "the reader starts with 1", "# wait", PARITY, (NOBODY, STUCK)),
    Planted(Ring, "the reader never flips", "# wait", PARITY, (OVERRUN, STUCK)),
    Planted(Ring, "the reader flips each time", "# wait", PARITY, (OVERRUN, STUCK)),
    Planted(Ring, "the reader does not wait", "# load", "mbarrier.wait on full[0] before", (NOBODY, STUCK)),
    Planted(Ring, "the loader does not wait", "# copy", "the missing wait: mbarrier.wait on", (STUCK, EARLY_ARRIVAL)),
    Planted(Ring, "one lane arrives", "self.mbarrier.arrive(empty[slot])", "the missing sync: self.sync() inside"),
    Planted(Ring, "each lane arrives twice", "# arrive", "gets 64 arrival(s) where phase 0 lacked 32", (STUCK,)),
    Planted(Ring, "empty counts 31", "# empty", "initialised with a count of 31"),
    Planted(Ring, "full counts two", "# full", "the count of 2 at"),
    Planted(Ring, "too many bytes", "# wait", "still lacks 16 bytes"),
    Planted(Ring, "the reader does not arrive", "# room", "still lacks 32 of 32 arrival(s)"),
    Planted(Ring, "relaxed arrive", "# arrive", 'with sem="release" it would order the two', ("relaxed-wait",)),
    Planted(TwoBarriers, "the other barrier", "# wait", "still lacks 4096 bytes"),
    Planted(InStep, "no sync", "# arrive", "of the next round, self.sync() or another barrier"),
    Planted(
        TwoSteps, "no wait for the operands", "# mma", "mbarrier.wait on loaded before",
        (READ_EARLY, WRITTEN, EXIT, EARLY_ARRIVAL),
    ),
    Planted(TwoSteps, "commit before the last mma", "# mma", "and has to come after it", (FREE, EXIT)),
    Planted(TwoSteps, "commit by another warp", "# load", "tracks none of them", (WRITTEN, FREE, EXIT)),
    Planted(TwoSteps, "no wait for the accumulator", "# load", "mbarrier.wait on done", (NOBODY, WRITTEN, FREE, EXIT)),
    Planted(TwoSteps, "only one warp waits", "# load", "the missing wait: mbarrier.wait", (NOBODY, WRITTEN)),
    Planted(TwoSteps, "no wait_load", "# use", "the missing wait: tcgen05.wait_load", (FREE, EXIT)),
    Planted(SharedRing, "tells its own CTA only", "arrive(empty[slot], count=2)", "the missing arrival:", (WRITTEN,)),
    Planted(SharedRing, "tells a third CTA", "# release", "names CTA rank 2"),
    Planted(SharedRing, "bytes of one half", "# wait", "announces too few", (WRITTEN, EXIT)),
    Planted(SharedOperand, "each tells its own CTA", "commit(mbarrier=free)", "the missing arrival:", (WRITTEN,)),
    Planted(Handshake, "a wait of the CTA", "# wait", 'with scope="cluster" it would order the two'),
    Planted(SharedRace, "no sync", "# store", "the missing sync: self.sync() between", flags={"kind": "raw"}),
    Planted(LeaderWaits, "no sync", "# store", "of the next round"),
    Planted(LeaderWaits, "no commit", "# copy", "the missing wait: tma.commit_group and tma.wait_group"),
    Planted(LeaderWaits, "wait for one less", "n=1, read=True", "its only group in flight: wait_group(0) does not"),
    Planted(WriteThenTma, "no fence", "# store", "the missing fence: fence.proxy_async"),
    Planted(CpAsyncThenTma, "no sync", "# copy", "waits for it: the missing sync: self.sync()", (NOBODY, WRITTEN)),
    Planted(CpAsyncThenTma, "wait for one less", "copy_async_wait_group(1)", "only group in flight: wait_group(0)"),
    Planted(
        CpAsyncGroups, "", "copy_async_wait_group(self.first)",
        "leaves all 2 groups in flight: wait_group(1) does not", flags={"first": 2, "second": 0},
    ),
    Planted(
        CpAsyncGroups, "", "copy_async_wait_group(self.second)",
        "leaves its only group in flight: wait_group(0) does not", follow=(EXIT,), flags={"first": 1, "second": 1},
    ),
    Planted(Twice, "one group less", "wait_group(1)", "newest 1 of 2 groups", (EXIT,), HOPPER),
    Planted(TwoGroups, "the other warpgroup waits", "# write", "mbarrier.wait on done before", (RACE,), HOPPER),
    Planted(Unwritten, "the wrong row", "# load", "part of which nothing has written"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=str)
def test_the_first_finding_names_the_line_of_the_fault(planted: Planted) -> None:
    first, *others = planted.findings()
    line = line_of(planted.script, planted.mark)
    assert line in {each.line for each in (first.location, first.other, first.at_fault) if each}, str(first)
    assert planted.says in first.message and first.follows is None, str(first)
    following = [each for each in others if each.follows is not None]
    assert {each.code for each in following} == set(planted.follow), [str(each) for each in others]
    for each in following:
        gives_no_advice_of_its_own(each, (first, *others))


def gives_no_advice_of_its_own(finding: Finding, told: tuple[Finding, ...]) -> None:
    above = told[: told.index(finding)]
    assert any(each.location == finding.follows and each.follows is None and _explains(each) for each in above)
    assert finding.missing == "" and finding.message.endswith(f"; {finding.advice}")
    assert finding.advice.startswith("follows from the finding above (")


def _explains(finding: Finding) -> bool:
    return bool(finding.missing or finding.at_fault)


# the rules, on findings made up


def at(line: int) -> Location:
    return Location("kernel.py", line)


def found(code: Any, line: int, other: int | None = None, **facts: Any) -> Finding:
    advice = f"do that before {line}"
    return Finding(code, facts.pop("severity", ERROR), f"it is so; {advice}", None, at(line), other and at(other),
                   **{"tensor": "s", "advice": advice, **facts})  # fmt: skip


EARLY = found(NOBODY, 20, advice="")
READ = found("read-before-complete", 20, 10, missing="wait")
LATE = found(WRITTEN, 10, 20, missing="sync", in_loop=True)


def told(*findings: Finding) -> list[tuple[str, int | None]]:
    return [(each.code, each.follows and each.follows.line) for each in in_order(findings)]


def test_a_read_of_nothing_follows_from_the_edge_that_it_lacks() -> None:
    assert told(EARLY, LATE, READ) == [("read-before-complete", None), (NOBODY, 20), (WRITTEN, 20)]
    assert told(EARLY, LATE) == [(WRITTEN, None), (NOBODY, 10)]
    assert told(EARLY, replace(READ, tensor="t"))[0] == (NOBODY, None)
    assert told(EARLY) == [(NOBODY, None)]
    both = [EARLY, replace(EARLY, location=at(10)), READ, replace(LATE, missing="wait")]
    assert told(*both)[:2] == [("read-before-complete", None), (WRITTEN, None)]


def test_of_two_orders_the_overwrite_is_the_cause_where_the_read_was_not_early() -> None:
    race = replace(READ, code=RACE, missing="sync")
    assert told(race, LATE) == [(WRITTEN, None), (RACE, 10)]
    assert told(race, replace(LATE, other=at(21))) == [(RACE, None), (WRITTEN, None)]
    once = replace(LATE, in_loop=False)
    assert told(READ, LATE) == [("read-before-complete", None), (WRITTEN, 20)]
    assert told(READ, once) == [("read-before-complete", None), (WRITTEN, None)]
    assert told(EARLY, READ, once)[2] == (WRITTEN, 20)  # it missed the one write that there is
    assert told(READ, replace(LATE, missing="wait")) == [("read-before-complete", None), (WRITTEN, None)]


def test_a_write_that_comes_round_follows_from_a_read_a_phase_too_early() -> None:
    phase = found("wrong-phase", 20, 10, missing="phase", at_fault=at(19))
    late = replace(LATE, missing="wait")
    assert told(phase, late) == [("wrong-phase", None), (WRITTEN, 20)]
    assert told(phase, replace(late, in_loop=False))[1] == (WRITTEN, None)
    assert told(phase, replace(late, tensor="t"))[1] == (WRITTEN, None)


def test_a_line_that_is_wrong_comes_before_what_is_missing_and_that_before_what_never_ends() -> None:
    phase = found("wrong-phase", 30, 10, missing="phase", at_fault=at(29))
    stuck, exit_ = found("deadlock", 5, advice=""), found(EXIT, 10, advice="")
    overrun, early = found("phase-overrun", 29, 9, missing="sync"), found("mbarrier-over-arrival", 4, advice="")
    assert told(exit_, early, stuck, overrun, READ, phase) == [
        ("wrong-phase", None), ("read-before-complete", None), ("phase-overrun", 30), ("deadlock", 30), (EXIT, 30),
        ("mbarrier-over-arrival", 30),
    ]  # fmt: skip
    assert told(stuck, found("out-of-bounds", 3, advice=""))[0] == ("out-of-bounds", None)


def test_a_use_of_what_was_freed_follows_from_the_dealloc_that_did_not_wait() -> None:
    freed, late = found("tensor-memory-not-allocated", 60, 70, advice=""), found("dealloc-in-flight", 70, 60)
    assert told(freed, replace(late, missing="sync")) == [(late.code, None), (freed.code, 70)]


def test_an_error_does_not_follow_from_what_is_unguaranteed() -> None:
    assert told(EARLY, replace(READ, severity=HINT)) == [(NOBODY, None), ("read-before-complete", None)]


def test_in_order_twice_is_in_order_once() -> None:
    once = in_order([EARLY, LATE, READ])
    assert in_order(once) == once


# words


@pytest.mark.parametrize(
    "n, groups, newest, text",
    [
        (
            2,
            3,
            2,
            "leaves the newest 2 of 3 groups in flight, and the one needed is the 2nd newest: wait_group(1) does",
        ),
        (
            3,
            5,
            3,
            "leaves the newest 3 of 5 groups in flight, and the one needed is the 3rd newest: wait_group(2) does",
        ),
        (1, 2, 1, "leaves the newest 1 of 2 groups in flight, and the one needed is the newest: wait_group(0) does"),
        (2, 2, 1, "leaves all 2 groups in flight: wait_group(0) does"),
        (4, 1, 1, "leaves its only group in flight: wait_group(0) does"),
    ],
)
def test_a_wait_that_covers_too_little(n: int, groups: int, newest: int, text: str) -> None:
    assert (
        TooNew("tma.wait_group", at(31), n, groups, newest).advice == f"tma.wait_group({n}) at kernel.py:31 {text} not"
    )


def test_lines_are_told_in_the_order_of_the_program() -> None:
    lines = ProgramLines.__new__(ProgramLines)
    lines.loops = [{at(20), at(25)}, {at(40)}]
    assert lines.between(at(34), at(24)) == lines.between(at(24), at(34)) == "kernel.py:24 and kernel.py:34"
    assert lines.between(at(25), at(20)) == "kernel.py:25 and kernel.py:20 of the next round"
    assert lines.between(at(20), at(25)) == "kernel.py:20 and kernel.py:25"
    assert lines.between(at(40), at(25)) == "kernel.py:40 and kernel.py:25"  # two loops, each with its own rounds
    assert lines.between(None, at(25)) == "None and kernel.py:25"


def lines_with(loops: list[set[int]], branches: list[set[int]], **found: tuple[Any, ...]) -> ProgramLines:
    """Lines 1 to 40. found: the kind, the line and the mbarrier's address of each that signals or waits."""
    lines = ProgramLines.__new__(ProgramLines)
    lines.places = {at(n): n for n in range(1, 41)}
    lines.loops, lines.branches = ([{at(n) for n in each} for each in sets] for sets in (loops, branches))
    each = [(kind, line, frozenset(address)) for kind, line, *address in found.values()]
    signallers = [Signaller(kind, frozenset([kind]), address, range(8), at(line), None) for kind, line, address in each]
    lines.roles = SimpleNamespace(lines=signallers)
    return lines


UPPER, LOWER = set(range(10, 20)), set(range(20, 30))


def test_a_sync_between_branches_hangs_where_the_upper_one_waits_for_the_lower_one() -> None:
    there, back = ("arrive", 15, 0), ("mbarrier", 25, 0)
    ahead, behind = ("mbarrier", 12, 8), ("arrive", 28, 8)
    forwards = lines_with([], [UPPER, LOWER], a=there, b=back)
    both = lines_with([], [UPPER, LOWER], a=there, b=back, c=ahead, d=behind)
    assert not forwards.apart(at(14), at(26)) and not forwards.apart(at(26), at(14))
    assert both.apart(at(14), at(26)) and both.apart(at(26), at(14))
    assert not both.apart(at(11), at(14)) and not both.apart(at(5), at(26)) and not both.apart(at(26), at(35))


def test_rounds_of_a_loop_around_branches_may_end_by_a_sync() -> None:
    ahead, behind, around = ("mbarrier", 12, 8), ("arrive", 28, 8), set(range(5, 35))
    free = lines_with([around], [UPPER, LOWER], a=ahead, b=behind)
    inner = lines_with([around, UPPER, LOWER], [UPPER, LOWER], a=ahead, b=behind)
    synced = lines_with([around, UPPER, LOWER], [UPPER, LOWER], a=ahead, b=behind, c=("threads", 32))
    middle = lines_with([around], [UPPER, LOWER], a=ahead, b=behind, c=("threads", 20))
    assert not free.apart(at(14), at(26)) and not free.apart(at(26), at(14))
    assert inner.apart(at(14), at(26))
    assert synced.in_step(at(26), at(14)) and not synced.follows(at(26), at(14)) and synced.follows(at(14), at(26))
    assert not middle.in_step(at(26), at(14)) and middle.follows(at(26), at(14))


def test_a_race_without_a_loop_is_told_forwards() -> None:
    args, _, _ = INPUTS[SameLine]()
    (race,) = run_in(ORDERS[0], SameLine(fault="no lock"), *args).findings
    assert "semaphore" in race.advice and "self.sync()" not in race.advice
