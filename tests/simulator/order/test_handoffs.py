"""One line of a handoff changed: in every order the first finding names that line, or the edge that it takes away."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import handoff_scripts
import numpy as np
import pytest
from changed_scripts import assert_all_follow, loaded, numbered, plain
from handoff_scripts import (
    DoubleBuffer,
    HalvedBetween,
    HalvesToBoth,
    PartsInTurn,
    RefilledByOne,
    ThreadsInBetween,
    ThreadsToTensorCore,
    ThreadsToThreads,
    ThreeInARow,
    TmaToThreads,
)
from kernel_edits import DROP, Edit, edited
from orders import ORDERS, run_in

from blackwell_matmul.simulator import Finding

SOURCE = inspect.getsource(handoff_scripts)


def tiles_of(count: int) -> np.ndarray:
    return (np.arange(count * 32 * 64) % 61).reshape(count * 32, 64).astype(np.float16)


def added() -> Any:
    x = tiles_of(6)
    return (6, x, np.zeros((32, 64), np.float16)), x.reshape(6, 32, 64).sum(0, dtype=np.float16)


def each(change: Callable[[np.ndarray], np.ndarray]) -> Any:
    x = tiles_of(7)
    return (7, x, np.zeros_like(x)), change(x)


def multiplied() -> Any:
    a = (np.arange(128 * 192) % 5).reshape(128, 192).astype(np.float16)
    wide = 2 * a.astype(np.float32)
    return (6, a, np.zeros((128, 128), np.float32)), wide @ wide.T


def doubled() -> Any:
    a = (np.arange(128 * 192) % 5).reshape(128, 192).astype(np.float16)
    wide = a.astype(np.float32)
    return (6, a, np.zeros((128, 128), np.float32)), 2 * wide @ wide.T


def halved() -> Any:
    a = (np.arange(128 * 128) % 5).reshape(128, 128).astype(np.float16)
    wide, d = a.astype(np.float32), np.zeros((128, 128), np.float32)
    for i in range(0, 128, 32):
        d = d / 2 + wide[:, i : i + 32] @ wide[:, i : i + 32].T
    return (4, a, np.zeros((128, 128), np.float32)), d


def multiplied_by_both() -> Any:
    a = (np.arange(128 * 224) % 5).reshape(128, 224).astype(np.float16)
    wide = a.astype(np.float32)
    return (7, a, np.zeros((256, 128), np.float32)), np.tile(wide @ wide.T, (2, 1))


def multiplied_by_one() -> Any:
    a, b = ((np.arange(rows * 160) % 7).reshape(rows, 160).astype(np.float16) for rows in (128, 64))
    return (5, a, b, np.zeros((128, 64), np.float32)), a.astype(np.float32) @ b.astype(np.float32).T


INPUTS: dict[type, Callable[[], Any]] = {
    DoubleBuffer: added,
    TmaToThreads: lambda: each(lambda x: x + 1),
    ThreeInARow: lambda: each(lambda x: x + 1),
    ThreadsToThreads: lambda: each(lambda x: 2 * x + 1),
    ThreadsToTensorCore: multiplied,
    ThreadsInBetween: doubled,
    HalvedBetween: halved,
    HalvesToBoth: multiplied_by_both,
    RefilledByOne: multiplied_by_one,
    PartsInTurn: added,
}


class Changed(NamedTuple):
    """Lines changed, by their comments, and what the first finding says, with `{mark}` for the line of that mark."""

    script: type
    edits: tuple[Edit, ...]
    says: str

    def __str__(self) -> str:
        return f"{self.script.__name__}: {' and '.join(f'{old} -> {new}' for old, new, _ in self.edits)}"

    @property
    def text(self) -> str:
        return edited(SOURCE, [_within(self.script, edit) for edit in self.edits])

    def sentence(self) -> str:
        return numbered(self.says, self.text, self.script)


def _within(script: type, edit: Edit) -> Edit:
    """The same edit, its line counted from the first of the file and not of the class."""
    old, new, nth = edit
    before = SOURCE[: SOURCE.index(f"class {script.__name__}")].splitlines()
    return old, new, nth + sum(old in line and not line.lstrip().startswith("#") for line in before)


def early(arrival: str, access: str, mark: str) -> tuple[Edit, Edit]:
    """The arrival moved in front of an access of the same round."""
    return (access, f"{arrival}  # early\n                {access}", 0), (f"{arrival}  {mark}", DROP, 0)


FLIP = "phase ^= stage == 0"
ROOM, RELEASE = "self.mbarrier.wait(empty[stage], phase=phase)", "self.mbarrier.arrive(empty[stage])"
READ, FILL = "r = self.load_shared(s[stage])", "self.store_shared(s[stage]"
COMMIT = "self.tcgen05.commit(mbarrier=empty[stage])"


def arrive(barrier: str, indent: str) -> str:
    return f"with self.single_thread():\n{indent}    self.mbarrier.arrive({barrier})"


def alone(barrier: str, count: int, mark: str) -> tuple[Edit]:
    """An arrival of one lane for all of a group."""
    arrival = f"self.mbarrier.arrive({barrier})"
    one = f"with self.single_thread():\n                    {arrival[:-1]}, count={count})"
    return ((f"{arrival}  # {mark}", f"{one}  # {mark}", 0),)


PARITY = "the parity that it waits for is wrong"
CHANGED = [
    Changed(
        DoubleBuffer,
        (("self.sync()  # all have read", DROP, 0),),
        "sync: self.sync() between {read} and {next copy} of the next round",
    ),
    Changed(
        DoubleBuffer, (("self.sync()  # all have waited", DROP, 0),), "sync: self.sync() between {wait} and {read}"
    ),
    Changed(
        DoubleBuffer,
        (("self.copy_async_commit_group()  # next group", DROP, 0),),
        "commit: copy_async_commit_group between {next copy} and {wait}",
    ),
    Changed(
        DoubleBuffer,
        (("self.copy_async_commit_group()  # first group", DROP, 0),),
        "commit: copy_async_commit_group between {first copy} and {next copy}",
    ),
    Changed(DoubleBuffer, (("wait_group(1)", "wait_group(2)", 0),), "wait_group(1) does not"),
    Changed(TmaToThreads, early(RELEASE, READ, "# release"), "at {early} before load_shared at {read}"),
    Changed(ThreadsToThreads, early(RELEASE, READ, "# release"), "at {early} before load_shared at {read}"),
    Changed(
        ThreadsToThreads,
        early("self.mbarrier.arrive(full[stage])", FILL, "# filled"),
        "at {early} before store_shared at",
    ),
    Changed(
        ThreadsToTensorCore,
        (("self.tcgen05.commit(mbarrier=done)", arrive("done", " " * 12), 0),),
        "commit: tcgen05.commit(mbarrier=done) in its place",
    ),
    Changed(
        ThreadsToTensorCore, ((COMMIT, arrive("empty[stage]", " " * 16), 0),), "commit: tcgen05.commit(mbarrier=empty["
    ),
    Changed(ThreadsToThreads, ((ROOM, DROP, 0),), "the missing wait: mbarrier.wait on empty[0] before"),
    Changed(ThreadsToTensorCore, ((ROOM, DROP, 0),), "the missing wait: mbarrier.wait on empty["),
    Changed(TmaToThreads, ((ROOM, DROP, 0),), "the missing wait: mbarrier.wait on empty["),
    Changed(
        ThreadsToThreads,
        ((f"{FLIP}  # the writer flips", DROP, 0),),
        "{room} by warp 0 passed on a phase that it had waited for",
    ),
    Changed(
        ThreadsToThreads,
        ((f"{FLIP}  # the reader flips", DROP, 0),),
        "{wait} by warp 1 passed on a phase that it had waited for",
    ),
    Changed(
        ThreadsToThreads,
        (("counts=[32, 32])  # empty", "counts=[64, 64])  # empty", 0),),
        "the count of 64 at {empty} is too large",
    ),
    Changed(
        ThreadsToThreads,
        (("counts=[32, 32])  # full", "counts=[33, 33])  # full", 0),),
        "the count of 33 at {full} is too large",
    ),
    Changed(TmaToThreads, (("counts=[64, 64]", "counts=[32, 32]", 0),), "the count of 32 at {empty} is too small"),
    Changed(
        ThreadsToTensorCore, (("counts=[128, 128]", "counts=[32, 32]", 0),), "the count of 32 at {full} is too small"
    ),
    Changed(
        ThreadsToThreads,
        ((f"{FLIP}  # the reader flips", "phase ^= 1", 0),),
        "{wait} by warp 1 is for phase 1, and it has not waited for phase 0",
    ),
    Changed(ThreadsToTensorCore, ((f"{FLIP}  # the writer flips", "phase ^= 1", 0),), PARITY),
    Changed(
        ThreadsToThreads,
        (("producer_initial_phase", "consumer_initial_phase", 0),),
        "the wait on empty[0] at {room} by warp 0",
    ),
    Changed(
        TmaToThreads,
        (("producer_initial_phase", "consumer_initial_phase", 0),),
        "the wait on empty[0] at {room} by warp 2",
    ),
    Changed(
        ThreadsToTensorCore,
        (("producer_initial_phase", "consumer_initial_phase", 0),),
        "the wait on empty[0] at {room} by warp 4",
    ),
    Changed(
        ThreadsToTensorCore,
        (("commit(mbarrier=done)", "commit(mbarrier=empty[0])", 0),),
        "tcgen05.commit at {last} signals empty[0], as another line does",
    ),
    Changed(
        ThreadsToThreads,
        ((RELEASE, "self.mbarrier.arrive(full[stage])", 0),),
        "mbarrier.arrive at {release} signals full[0], as another line does",
    ),
    Changed(ThreadsToThreads, ((RELEASE, DROP, 0),), "no line of the kernel arrives on empty[0]"),
    Changed(
        ThreadsToTensorCore,
        (("wait(done, phase=0)", "wait(done, phase=1)", 0),),
        "the wait on done at {sum} passed on the phase before the first",
    ),
    Changed(
        ThreadsInBetween,
        (("counts=[128, 128])", "counts=[32, 32])", 0),),
        "the count of 32 at {doubled} is too small",
    ),
    # one lane arrives for warps that have accessed together
    Changed(
        ThreadsInBetween,
        alone("doubled[stage]", 128, "filled"),
        "] at {filled} and publishes what it did itself: the missing sync: self.sync() inside of warps 0..3 before",
    ),
    Changed(
        ThreadsToTensorCore,
        alone("full[stage]", 128, "filled"),
        "] at {filled} and publishes what it did itself: the missing sync: self.sync() inside of warps 4..7 before",
    ),
    Changed(
        TmaToThreads,
        alone("empty[stage]", 64, "release"),
        "one lane of warp 0 arrives on empty[0] at {release} and publishes what it did itself: the missing sync:"
        " self.sync() inside of warps 0, 1 before",
    ),
    Changed(
        HalvedBetween,
        alone("halved", 128, "ready"),
        "one lane of warp 0 arrives on halved at {ready} and publishes what it did itself: the missing sync:"
        " self.sync() inside of warps 0..3 before that, or an arrival of all lanes",
    ),
    Changed(
        ThreeInARow,
        alone("empty", 64, "release"),
        "one lane of warp 0 arrives on empty at {release} and publishes what it did itself: the missing sync:"
        " self.sync() inside of warps 0, 1 before",
    ),
    Changed(
        ThreeInARow,
        (("self.mbarrier.wait(added, phase=j & 1)", DROP, 0),),
        "the missing wait: mbarrier.wait on added before {store}",
    ),
    # the last read is not waited for
    Changed(
        HalvedBetween,
        (("self.mbarrier.wait(summed, phase=phase)  # last", DROP, 0),),
        "tcgen05.ld at {result} has to come after that: the missing wait: mbarrier.wait on summed for phase 3 before"
        " {result}",
    ),
    # an accumulator that no product overwrites
    Changed(
        HalvedBetween,
        (("enable_input_d=i != 0", "enable_input_d=True", 0),),
        "reads t_d[0:128, 0:128], part of which nothing has written; the first product has to overwrite the"
        " accumulator: enable_input_d=False",
    ),
    # the value of a semaphore
    Changed(
        PartsInTurn,
        (("value=part)", "value=part + 1)", 0),),
        "of CTA (1, 0, 0) wait at {lock} for the semaphore turns[0, 1] to become 2; it is 1, which release_semaphore at"
        " {release} by warp 0 of CTA (0, 0, 0) stored last",
    ),
    Changed(
        PartsInTurn,
        (("value=(part + 1) % tiles", "value=part", 0),),
        "to become 1; it is 0, which release_semaphore at {release} by warp 0 of CTA (0, 0, 0) stored last",
    ),
    Changed(
        PartsInTurn,
        (("if part > 0:", "if part >= 0:", 0), ("value=part)", "value=part + 1)", 0)),
        "to become 1; it is 0, which no CTA has changed yet (release_semaphore at {release} would)",
    ),
    Changed(
        PartsInTurn,
        (("self.release_semaphore(", DROP, 0),),
        "for the semaphore turns[0, 1] to become 1; it is 0, and no line of the kernel releases one",
    ),
    Changed(
        PartsInTurn,
        (("value=part)  # lock", "value=part // 2)  # lock", 0),),
        " only after {store}: the value of the semaphore is wrong",
    ),
    Changed(
        PartsInTurn,
        (("value=part)  # lock", "value=1)  # lock", 0),),
        "waits for the value 1, which release_semaphore at {release} of CTA (0, 0, 0) stores, and release_semaphore at"
        " {release} of CTA (",
    ),
    # two copies into one place
    Changed(
        HalvesToBoth,
        (("s[stage, rank], [rank * 64,", "s[stage, 0], [0,", 0),),
        "both copies bring their bytes to phase 0 of full[0] of CTA (0, 0, 0): each CTA has to copy a part of its own",
    ),
    Changed(
        HalvesToBoth,
        (("s[stage, rank],", "s[stage, 1],", 0),),
        "both copies bring their bytes to phase 0 of full[0] of CTA (0, 0, 0): each CTA has to copy a part of its own",
    ),
    # the barrier of another stage
    Changed(
        HalvesToBoth,
        (("mbarrier=empty[stage]", "mbarrier=empty[0]", 0),),
        "no line of the kernel arrives on empty[1] of CTA (0, 0, 0), for which warp 0 of CTA (0, 0, 0) waits at {room};"
        " tcgen05.commit at {release} signals empty[0] of CTA (0, 0, 0) in each round",
    ),
    Changed(
        HalvesToBoth,
        (("mbarrier=empty[stage]", "mbarrier=empty[(stage + 1) % 3]", 0),),
        "one of the two is of another stage",
    ),
    Changed(
        ThreadsToTensorCore,
        (("mbarrier=empty[stage]", "mbarrier=empty[1]", 0),),
        "tcgen05.commit at {release} signals empty[1] in each round",
    ),
    Changed(
        RefilledByOne,
        (("mbarrier=done[stage])", "mbarrier=done[1 - stage])", 0),),
        "tcgen05.commit at {commit} by warp 0 has signalled done[1], and not done[0], after a wait for full[0]",
    ),
    Changed(
        ThreadsToThreads,
        ((RELEASE, "self.mbarrier.arrive(empty[1 - stage])", 0),),
        "the arrival at {release} by warp 1 signals empty[1] after the wait for full[0] at {wait}: one of the two is"
        " of another stage",
    ),
    # a phase that is kept
    Changed(
        HalvesToBoth,
        ((f"{FLIP}  # the loader flips", DROP, 0),),
        "the wait on empty[0] at {room} passed on the phase before the first, which was over before"
        f" cp.async.bulk.tensor (load) at {{fill}} began: {PARITY} (it is the one of the wait before",
    ),
    Changed(
        HalvesToBoth,
        ((f"{FLIP}  # the reader flips", DROP, 0),),
        "at {wait} passed on phase 0",
    ),
    Changed(
        RefilledByOne, (("full[stage], phase=phase", "full[stage], phase=0", 0),), "the wait on full[0] at {wait} "
    ),
    Changed(
        RefilledByOne, (("done[stage], phase=phase", "done[stage], phase=0", 0),), "the wait on done[0] at {room} "
    ),
    # a count that nobody reaches
    Changed(
        RefilledByOne,
        (("counts=[1, 1])  # full", "counts=[2, 2])  # full", 0),),
        "the count of 2 at {full} is too large: each phase of full[0] gets 1, from mbarrier.arrive.expect_tx at"
        " {announce} by warp 0, mbarrier.arrive.expect_tx at {announce again} by warp 0",
    ),
    Changed(
        HalvesToBoth,
        (("counts=[2, 2, 2]", "counts=[3, 3, 3]", 0),),
        "the count of 3 at {empty} is too large: each phase of empty[0] of CTA (0, 0, 0) gets 2, from tcgen05.commit at"
        " {release} by warp 1 of CTA (0, 0, 0), warp 1 of CTA (1, 0, 0)",
    ),
    # a count that is reached before all have arrived
    Changed(
        HalvesToBoth,
        (("counts=[2, 2, 2]", "counts=[1, 1, 1]", 0),),
        "the count of 1 at {empty} is too small where warp 1 of CTA (0, 0, 0), warp 1 of CTA (1, 0, 0) arrive",
    ),
    # bytes that are announced and not brought, or brought and not announced
    Changed(
        RefilledByOne,
        (("tile_bytes =", "tile_bytes = 16 +", 0),),
        "phase 0 of full[0] cannot end: 12304 bytes are announced at {announce}, and 12288 have come (8192 at"
        " {first A}, 4096 at {first B})",
    ),
    Changed(
        ThreadsInBetween,
        (("=2 * s_a[0].nbytes", "=s_a[0].nbytes", 0),),
        "arrive_and_expect_tx announces too few (8192 bytes are announced at {announce}, and 8192 have come (8192 at ",
    ),
    Changed(
        RefilledByOne,
        ((" + s_b[0].nbytes", "", 0),),
        "8192 bytes are announced at {announce}, and ",
    ),
    Changed(
        HalvesToBoth,
        (("tile_bytes = s[0].nbytes", "tile_bytes = 3 * s[0].nbytes // 2", 0),),
        "phase 0 of full[0] of CTA (0, 0, 0) cannot end: 12288 bytes are announced at {announce}, and 8192 have come"
        " (8192 at {fill})",
    ),
    Changed(
        HalvesToBoth,
        (("multicast_mask=3)  # fill", "multicast_mask=1)  # fill", 0),),
        "phase 0 of full[0] of CTA (1, 0, 0) cannot end: 8192 bytes are announced at {announce}, and 0 have come;"
        " cp.async.bulk.tensor (load) at {fill} signals those in the mask 0b1 alone",
    ),
]


@functools.cache
def findings(changed: Changed, order: tuple[str, int]) -> tuple[Finding, ...]:
    args, _ = INPUTS[changed.script]()
    return run_in(order, loaded(changed.text, changed.script), *args).findings


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_kernel_is_silent_and_right(script: Any) -> None:
    for order in ORDERS:
        args, expected = INPUTS[script]()
        assert run_in(order, script(), *args).findings == (), order
        np.testing.assert_array_equal(args[-1], expected)


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_the_first_finding_names_what_was_changed(changed: Changed) -> None:
    for order in ORDERS:
        assert changed.sentence() in plain(findings(changed, order)[0]), (order, changed.sentence())


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_all_others_follow_from_that(changed: Changed) -> None:
    assert_all_follow(findings(changed, ORDERS[0]))


@pytest.mark.slow
def test_a_value_of_a_semaphore_that_is_there_from_the_start() -> None:
    changed = Changed(
        PartsInTurn,
        (("value=part)  # lock", "value=part - 1)  # lock", 0),),
        "lock_semaphore at {lock} of CTA (1, 0, 0) waits for the value 0, which is there before any release, and"
        " release_semaphore at {release} of CTA (0, 0, 0) comes only after {store}: the value of the semaphore is"
        " wrong",
    )
    found = findings(changed, ORDERS[0])
    assert changed.sentence() in plain(found[0])
    assert_all_follow(found)
