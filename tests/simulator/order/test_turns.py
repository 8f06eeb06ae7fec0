"""One line changed where groups of warps take turns, or in a ring of stages: the first finding names that line, or both
of two lines that do not fit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from changed_scripts import Marked, dropped, loaded, plain
from orders import ORDERS, run_in
from turn_scripts import DEPTH, ROWS, PingPong, TilesInTurn, TwoRings

from blackwell_matmul.simulator import Finding

TARGET = "sm_90a"


def products() -> Any:
    a = (np.arange(6 * ROWS * 7 * DEPTH) % 5 - 2).reshape(6 * ROWS, 7 * DEPTH).astype(np.float16)
    wide = a.astype(np.float32)
    return (6, 7, a, np.zeros((6 * ROWS, ROWS), np.float32)), wide @ wide[:ROWS].T


def sums() -> Any:
    x = np.arange(13 * 16 * 64, dtype=np.float32).reshape(13 * 16, 64)
    return (13, x, np.zeros_like(x)), x + 1


def parts() -> Any:
    x = np.arange(9 * 64, dtype=np.float32).reshape(9, 64)
    return (x, np.zeros((3, 64), np.float32)), x.reshape(3, 3, 64).sum(0)


INPUTS: dict[type, Any] = {PingPong: products, TwoRings: sums, TilesInTurn: parts}


def changed(script: type, mark: str, old: str, new: str, says: str) -> Marked:
    return Marked(script, ((mark, old, new),), says)


def next_stage(mark: str, tensor: str, says: str) -> Marked:
    index, size = ("stage", 4) if tensor in ("s_x", "full", "empty") else ("slot", 2)
    return changed(TwoRings, mark, f"{tensor}[{index}]", f"{tensor}[({index} + 1) % {size}]", says)


OTHER, HAND_ON = "one of the two is of another stage", "self.mbarrier.arrive(self.turn[1 - which])"
CHANGED = [
    dropped(PingPong, "my turn", "the missing wait: mbarrier.wait on self.turn[0] before {loaded}"),
    changed(
        PingPong, "second", "consumer", "producer",
        "the waits on self.turn[0] at {my turn} and on self.turn[1] at {my turn} passed on the phase before the first",
    ),
    changed(
        PingPong, "first", "producer", "consumer",
        "the waits on self.turn[0] at {my turn} by warp 0 and self.turn[1] at {my turn} by warp 4 are each for",
    ),
    Marked(
        PingPong,
        (("first", "producer", "consumer"), ("second", "consumer", "producer")),
        "or warps 4..7 must not take the first turn, by the wait on self.turn[1] at {my turn}",
    ),
    dropped(PingPong, "flips", "at {my turn} passed on the phase before the first, which it had waited for", "mine"),
    changed(
        PingPong, "my turn", "[which]", "[1 - which]",
        "at {my turn} is for mbarrier.arrive at {your turn}, by warps 4..7 as well: one of the two is for the barrier",
    ),
    changed(
        PingPong, "your turn", "1 - which", "which",
        "at {my turn} is for mbarrier.arrive at {your turn}, by warps 4..7 as well: one of the two is for the barrier",
    ),
    Marked(
        PingPong,
        (("your turn", "self", "pass  # self"), ("flips", "mine ^= 1", f"{HAND_ON}  # early\n            mine ^= 1")),
        "by warps 4..7 hands the turn on before the arrival on self.empty[1] at {release}: it has to come after that",
    ),
    changed(PingPong, "empty", "128, 128, 128", "64, 64, 64", "the count of 64 at {empty} is too small"),
    changed(
        PingPong, "empty", "128, 128, 128", "256, 256, 256",
        "the count of 256 at {empty} is too large: each phase of self.empty[0] gets 128, from warps 0..3; those of",
    ),
    changed(PingPong, "turn", "128, 128", "1, 1", "the count of 1 at {turn} is too small"),
    dropped(PingPong, "skip", "by the wait at {loaded}, and one came too early: the stage or the parity", "done"),
    next_stage("load", "s_x", "the wait at {loaded} is on full[0] and cp.async.bulk.tensor (load) at {load} signals"),
    next_stage(
        "loaded", "full",
        f"at {{loaded}} is on full[1] and cp.async.bulk.tensor (load) at {{load}} signals full[0]: {OTHER}",
    ),
    next_stage(
        "release", "empty",
        f"at {{release}} by warp 3 signals empty[1] after the wait for full[0] at {{loaded}}: {OTHER}",
    ),
    next_stage(
        "store", "s_y",
        f"at {{slot}} is on free[1] and cp.async.bulk.tensor (store) at {{store}} reads what free[0] guards: {OTHER}",
    ),
    next_stage(
        "hand back", "free",
        "at {hand back} by warp 5 has signalled free[1], and not free[0], after a wait for ready[0] at {there}:",
    ),
    next_stage(
        "slot", "free",
        "at {hand on} by warp 0 has signalled ready[0], and not ready[1], after a wait for free[1] at {slot}:",
    ),
    changed(TwoRings, "loader goes on", "% 4", "% 3", "{announce} has signalled full[0] 2 times and full[3] 0"),
    changed(TwoRings, "reader goes on", "% 4", "% 3", "{release} has signalled empty[0] 2 times and empty[3] 0"),
    next_stage(
        "room", "empty", f"empty[0] at {{room}} comes before the arrival on full[3] at {{announce}}: {OTHER}"
    ),
    next_stage(
        "there", "ready", f"ready[0] at {{there}} comes before the arrival on free[1] at {{hand back}}: {OTHER}"
    ),
    dropped(TilesInTurn, "lock", "sync: lock_semaphore before {add}, for the release_semaphore at {release}"),
    changed(TilesInTurn, "turn", "[tile]", "[0]", "lock_semaphore before {release}, or a semaphore for each of"),
]  # fmt: skip


@functools.cache
def findings(changed: Marked) -> tuple[Finding, ...]:
    args, _ = INPUTS[changed.script]()
    return run_in(ORDERS[0], loaded(changed.text, changed.script), *args, target=TARGET).findings


@pytest.mark.slow
@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_kernel_is_silent_and_right(script: Any) -> None:
    for order in ORDERS:
        args, expected = INPUTS[script]()
        assert run_in(order, script(), *args, target=TARGET).findings == (), order
        np.testing.assert_array_equal(args[-1], expected)


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_the_first_finding_names_what_was_changed(changed: Marked) -> None:
    assert changed.sentence() in plain(findings(changed)[0]), changed.sentence()
