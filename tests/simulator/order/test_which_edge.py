"""The edge that its author forgot: of several that would have ordered two accesses, the one that is named first."""

from __future__ import annotations

import functools
import inspect
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import role_scripts
import torch
from kernel_edits import DROP, Edit, edited
from orders import ORDERS, run_in
from role_scripts import InTurn, NextAnswer, PartsInTurn

from blackwell_matmul.simulator import Finding
from blackwell_matmul.simulator.check import check
from blackwell_matmul_studies import mutation

SCHEDULE = {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3}


@functools.cache
def first(*edits: Edit) -> Finding:
    """The first finding on V3, of lines changed."""
    source = mutation.source_of("v3")
    script = mutation.load(edited(source, edits), mutation.kernel("v3").__name__, Path(tempfile.mkdtemp()))
    m, n, k = 128, 64, 160
    a, b, c = torch.zeros(m, k).half(), torch.zeros(n, k).half(), torch.zeros(m, n).half()
    return check(script, m, n, k, a, b, c, schedule=SCHEDULE, target="sm_100a", workers=1).findings[0]


EMPTY, FULL = "self.mbarrier.wait(empty[stage], phase=phase)", "self.mbarrier.wait(full[stage], phase=phase)"
COMPLETE = "self.mbarrier.wait(complete, phase=0)"
COMMIT = "self.tcgen05.commit(mbarrier=empty[stage])"
MMA = "self.tcgen05.mma(s_a[stage]"
LAP = "phase ^= stage == 0"


class Changed(NamedTuple):
    """Lines changed, and what is then missing: the code, the edge, and words of the advice."""

    edits: tuple[Edit, ...]
    code: str
    missing: str
    says: str

    def __str__(self) -> str:
        return f"{self.edits[0][0]} -> {self.edits[0][1]}"


READ, WRITTEN, PHASE = "read-before-complete", "overwritten-in-flight", "wrong-phase"
CHANGED = [
    Changed(((COMPLETE, DROP, 0),), READ, "wait", "mbarrier.wait on complete before"),
    Changed(((COMPLETE, COMPLETE.replace("0", "1"), 0),), PHASE, "phase", "the wait on complete at"),
    Changed(
        (("    self.tcgen05.commit(mbarrier=complete)", "with self.single_warp(2):", 0),
         ("        " + COMPLETE, "            self.tcgen05.commit(mbarrier=complete)\n        " + COMPLETE, 0)),
        READ, "commit", "by the elected lane of warp 2, which tracks none of them",
    ),
    Changed(((EMPTY, DROP, 0),), WRITTEN, "wait", "mbarrier.wait on empty[0] before"),
    Changed(((LAP, DROP, 0),), PHASE, "phase", "the wait on empty[0] at"),
    Changed(((FULL, DROP, 0),), READ, "wait", "mbarrier.wait on full[0] before"),
    Changed(((FULL, FULL.replace("[stage]", "[(stage + 1) % self.stages]"), 0),), READ, "wait", "is on full[1]"),
    Changed(((MMA, f"{COMMIT}; {MMA}", 0), (COMMIT, DROP, 1)), WRITTEN, "commit", "and has to come after it"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_a_line_of_a_rung(changed: Changed) -> None:
    found = first(*changed.edits)
    assert (found.code, found.missing) == (changed.code, changed.missing), str(found)
    assert changed.says in found.message, str(found)


def test_a_sync_is_advised_where_both_come_to_it_alone() -> None:
    """Warps that go round loops of their own meet nowhere."""
    ahead = first((EMPTY, EMPTY.replace("[stage]", "[(stage + 1) % self.stages]"), 0))
    assert ahead.code == "phase-overrun" and "self.sync()" not in ahead.message, str(ahead)


# turns


def turns() -> tuple[Any, ...]:
    return torch.ones(3, 4096), torch.zeros(1, dtype=torch.int32), torch.zeros(4096)


def test_turns_without_a_fault() -> None:
    args = turns()
    run = run_in(ORDERS[0], InTurn(), *args)
    assert not run.findings, [str(each) for each in run.findings]
    np.testing.assert_array_equal(args[2].numpy(), 3.0)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("no sync before the release", "publishes only what these lanes have accessed or observed: the missing sync"),
        ("releases before it stores", "self.sync() between them"),
        ("one warp locks", "is for warp 0 alone: the missing sync: self.sync() between that and"),
        ("nobody locks", "the missing sync: lock_semaphore before"),
    ],
)
def test_turns_by_a_semaphore(fault: str, says: str) -> None:
    found = run_in(ORDERS[0], InTurn(fault), *turns()).findings[0]
    assert found.code == "data-race" and found.missing == "sync" and says in found.message, str(found)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("no sync before the release", "the missing sync: self.sync() between"),
        ("releases before it stores", "the missing sync: move it behind"),
    ],
)
def test_the_release_of_the_writer_is_named(fault: str, says: str) -> None:
    """Another CTA has released the semaphore since, and another line releases it further down."""
    assert not run_in(ORDERS[0], PartsInTurn(), *turns()).findings
    found = run_in(ORDERS[0], PartsInTurn(fault), *turns()).findings[0]
    source, first = inspect.getsourcelines(PartsInTurn)
    release = first + next(i for i, text in enumerate(source) if "self.release_semaphore" in text)
    assert found.code == "data-race" and says in found.message, str(found)
    assert f"release_semaphore at {role_scripts.__file__}:{release} by" in found.message, str(found)


def test_a_release_over_that_of_another_part_is_named() -> None:
    """The part between does not wait for the part before: the last one has not waited for both."""
    found = check(PartsInTurn, *turns(), target="sm_100a", schedule={"fault": "takes no turn"}, orders=8, workers=1)
    source, first = inspect.getsourcelines(PartsInTurn)
    release = first + next(i for i, text in enumerate(source) if "self.release_semaphore" in text)
    line = f"release_semaphore at {role_scripts.__file__}:{release}"
    says = f"{line} of CTA (1, 0, 0) stores 2 over that of CTA (0, 0, 0)"
    told = next(each for each in found.findings if each.code == "data-race")
    assert run_in(("eager", 0), PartsInTurn("takes no turn"), *turns()).findings, "the turns come right by chance"
    assert f"{says}: the missing wait: lock_semaphore before" in told.message, str(told)


def test_a_read_behind_its_wait_lacks_a_sync_and_no_wait() -> None:
    """One warp asks again before another one has read the answer, which it has waited for."""
    written = torch.zeros(6, dtype=torch.int32)
    assert not check(NextAnswer, written, target="sm_100a", orders=4, workers=1).findings
    report = check(NextAnswer, written, target="sm_100a", schedule={"in_step": False}, orders=4, workers=1)
    assert report.findings
    for found in report.findings:
        assert "missing wait" not in found.message, str(found)
    assert "self.sync() between" in report.findings[0].message, str(report.findings[0])
