"""Bugs that others met: found, with the code and both lines; and the corrected script is silent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from barrier_scripts import Ring
from corpus_scripts import (
    LateWait,
    NoWork,
    OneArrivalForTwo,
    OneLaneArrives,
    PackedColumns,
    SecondReader,
    TwoLoadsOneBarrier,
    UnrelatedLoads,
)
from pairs import Pair

NOT_YET = {
    "NVIDIA/cutlass 3643, 3647": "the leader of a CTA pair waits on its own barrier only: CTA pairs",
    "NVIDIA/cutlass 3316": "tensor memory of a CTA pair, allocated before the peer has started: CTA pairs",
    "NVIDIA/cutlass 2364": "expect_tx before mbarrier.init: tilus initialises every barrier at the kernel's entry",
    "accel-sim/accel-sim-framework 561": "a fault of a simulator's try_wait, and not of a kernel",
}
"""What tilus 0.2.0 cannot express, or the simulator does not run yet."""

RACE, WRITTEN, READ, DEADLOCK = "data-race", "overwritten-in-flight", "read-before-complete", "deadlock"


def row() -> Any:
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    return (x, y), y, x.copy()


def tiles(rows: int, *first: Any) -> Any:
    def inputs() -> Any:
        x = (np.arange(rows * 64) % 512).reshape(rows, 64).astype(np.float16)
        y = np.zeros_like(x)
        return (*first, x, y), y, x.copy()

    return inputs


def small(rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, (rows, 64)).astype(np.float16)


def square(*first: Any) -> Any:
    def inputs() -> Any:
        a, d = small(128), np.zeros((128, 128), np.float32)
        wide = a.astype(np.float32)
        return (*first, a, d), d, wide @ wide.T

    return inputs


def thrice() -> Any:
    a, d = small(256), np.zeros((128, 128), np.float32)
    one, two = a[:128].astype(np.float32), a[128:].astype(np.float32)
    return (a, d), d, 2 * (one @ one.T) + two @ two.T


def rounds() -> Any:
    x, y = np.arange(128, dtype=np.float32).reshape(4, 32), np.zeros((4, 32), np.float32)
    return (4, x, y), y, x[[0, 0, 2, 2]]


def ones() -> Any:
    y = np.zeros((128, 32), np.float32)
    return (small(128), small(32), y), y, np.ones((128, 32), np.float32)


def ring() -> Any:
    args, y, x = tiles(160, 5)()
    return args, y, x + 1


INPUTS = {
    OneLaneArrives: row,
    SecondReader: thrice,
    TwoLoadsOneBarrier: tiles(64),
    NoWork: rounds,
    OneArrivalForTwo: tiles(128, 4),
    PackedColumns: ones,
    LateWait: square(100),
    UnrelatedLoads: square(),
    Ring: ring,
}

PAIRS = [
    Pair(OneLaneArrives, "one lane arrives", RACE, "sync", "load", "store", says="one lane of warp 0 arrives on full"),
    Pair(SecondReader, "no second wait", WRITTEN, "wait", "copy", "second"),
    Pair(TwoLoadsOneBarrier, "bytes of one load", "too-few-bytes", "bytes", "load", "second"),
    Pair(TwoLoadsOneBarrier, "bytes of three loads", DEADLOCK, "", "wait", "full", says="still lacks 4096 bytes"),
    Pair(NoWork, "no wait without work", DEADLOCK, "wait", "room", "both"),
    Pair(OneArrivalForTwo, "counts one warp", RACE, "arrive", "copy", "load"),
    Pair(PackedColumns, "columns overlap", WRITTEN, "sync", "mma", "load", every=False),
    Pair(LateWait, "the wait after the mma", READ, "wait", "mma", "copy"),
    Pair(LateWait, "a loop instead of the wait", READ, "wait", "mma", "copy"),
    *(Pair(UnrelatedLoads, "no wait", READ, "wait", "load", "mma", flags={"loads": n}) for n in (1, 4, 5)),
    Pair(Ring, "the loader starts with 0", DEADLOCK, "phase", "room", "empty"),  # mirage: the same first phase for both
]


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_corrected_script_is_silent(script: Any) -> None:
    Pair(script, "", "").keeps(INPUTS[script])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_bug_is_found(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])
