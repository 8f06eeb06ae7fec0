"""Races between warps, CTAs and proxies: each rule kept, and broken by one edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pairs import Pair
from thread_scripts import (
    Bounds,
    CpAsyncThenTma,
    Divergent,
    Freed,
    GlobalRace,
    GlobalThenTma,
    Interleaved,
    LeaderWaits,
    SameLine,
    Semaphores,
    SharedRace,
    SharedRows,
    Spin,
    TwoCtas,
    Unwritten,
    WriteThenTma,
)

RACE, FENCE, WRITTEN, READ = "data-race", "missing-proxy-fence", "overwritten-in-flight", "read-before-complete"
SYNC = "no sync"


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape).astype(dtype)


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def one_row(row: int, *between: Callable[[], np.ndarray]) -> Any:
    """x of two rows, what lies between, and y, which becomes one of the rows."""

    def inputs() -> Any:
        x, y = numbers(4, 32), zeros(32)
        return (x, *(make() for make in between), y), y, x[row].copy()

    return inputs


def copied(rows: int, columns: int, dtype: Any, *between: Callable[[], np.ndarray]) -> Any:
    """y becomes x."""

    def inputs() -> Any:
        x, y = numbers(rows, columns, dtype=dtype), zeros(rows, columns, dtype=dtype)
        return (x, *(make() for make in between), y), y, x.copy()

    return inputs


def interleaved() -> Any:
    x, y = numbers(2, 32), zeros(64)
    return (x, y), y, x.T.reshape(-1).copy()


def divergent() -> Any:
    y = zeros(64, dtype=np.int32)
    return (y,), y, np.arange(64, dtype=np.int32)


def spin() -> Any:
    y = zeros(32, dtype=np.int32)
    return (5, y), y, np.full(32, 5, np.int32)


def bounds() -> Any:
    x, y = numbers(4, 32), zeros(32)
    return (4, x, y), y, x[3].copy()


def row() -> np.ndarray:
    return zeros(32)


def flag() -> np.ndarray:
    return zeros(1, dtype=np.int32)


def half_tile() -> np.ndarray:
    return zeros(32, 64, dtype=np.float16)


INPUTS: dict[Any, Any] = {
    (SharedRace, "raw"): one_row(0),
    (SharedRace, "war"): one_row(0),
    (SharedRace, "waw"): one_row(1),
    (GlobalRace, "raw"): one_row(0, row),
    (GlobalRace, "war"): one_row(0, row),
    (GlobalRace, "waw"): one_row(1, row),
    Interleaved: interleaved,
    SharedRows: copied(8, 32, np.float32),
    LeaderWaits: copied(64, 64, np.float16),
    WriteThenTma: copied(32, 64, np.float16),
    CpAsyncThenTma: copied(32, 64, np.float16),
    GlobalThenTma: copied(32, 64, np.float16, half_tile),
    Semaphores: one_row(0, row, flag),
    SameLine: one_row(1, flag),
    TwoCtas: copied(2, 32, np.float32, lambda: zeros(2, 32)),
    Bounds: bounds,
    Freed: copied(64, 64, np.float16),
    Unwritten: one_row(1),
    Divergent: divergent,
    Spin: spin,
}

PAIRS = [
    Pair(SharedRace, SYNC, RACE, "sync", "load", "store", flags={"kind": "raw"}),
    Pair(SharedRace, SYNC, RACE, "sync", "again", "load", flags={"kind": "war"}),
    Pair(SharedRace, SYNC, RACE, "sync", "after", "store", flags={"kind": "waw"}),
    Pair(GlobalRace, SYNC, RACE, "sync", "load", "store", flags={"kind": "raw"}),
    Pair(GlobalRace, SYNC, RACE, "sync", "again", "load", flags={"kind": "war"}),
    Pair(GlobalRace, SYNC, RACE, "sync", "after", "store", flags={"kind": "waw"}),
    Pair(Interleaved, "one element off", RACE, "sync", "after", "store"),
    Pair(SharedRows, "a row too many", RACE, "sync", "after", "store"),
    Pair(LeaderWaits, SYNC, WRITTEN, "sync", "store", "copy", says="the elected lane"),
    Pair(LeaderWaits, "no wait", WRITTEN, "wait", "store", "copy"),
    Pair(LeaderWaits, "wait for one less", WRITTEN, "wait", "store", "copy"),
    Pair(LeaderWaits, "no commit", WRITTEN, "commit", "store", "copy"),
    Pair(WriteThenTma, "no fence", FENCE, "fence", "copy", "store", flags={"side": "writer"}),
    Pair(WriteThenTma, "no fence", FENCE, "fence", "copy", "store", flags={"side": "reader"}),
    Pair(WriteThenTma, "fence before the write", FENCE, "fence", "copy", "store"),
    Pair(WriteThenTma, "fence by one warp", FENCE, "fence", "copy", "store", says="by warp 0"),
    Pair(WriteThenTma, "fence of the wrong space", FENCE, "fence", "copy", "store"),
    Pair(CpAsyncThenTma, "no fence", FENCE, "fence", "copy", "store"),
    Pair(CpAsyncThenTma, "wait for one less", READ, "wait", "copy", "store"),
    Pair(CpAsyncThenTma, "wait by the reader", READ, "wait", "copy", "store"),
    Pair(CpAsyncThenTma, SYNC, READ, "sync", "copy", "store", every=False),
    Pair(GlobalThenTma, "no fence", FENCE, "fence", "copy", "store", says='space="global"'),
    Pair(GlobalThenTma, "fence of the wrong space", FENCE, "fence", "copy", "store", says='space="global"'),
    Pair(Semaphores, "released before the write", RACE, "sync", "load", "store", every=False),
    Pair(Semaphores, "no lock", RACE, "sync", "load", "store", every=False),
    Pair(SameLine, "no lock", RACE, "sync", "store", "store"),
    Pair(TwoCtas, "reads the other's row", "read-of-another-cta"),
    Pair(TwoCtas, "writes the other's row", "written-by-two-ctas"),
    Pair(Bounds, "a shared row that is not there", "out-of-bounds", "", "shared"),
    Pair(
        Bounds, "a barrier that is not there", "out-of-bounds", "", "register", says="leaves full, which has 4 barriers"
    ),
    Pair(Bounds, "a view larger than the tensor", "out-of-bounds", "", "global"),
    Pair(Freed, "no wait", WRITTEN, "wait", "store", "copy"),
    Pair(Unwritten, "the wrong row", "uninitialised-read", "", "load"),
    Pair(Divergent, "one warp leaves", "deadlock", "", "sync"),
    Pair(Spin, "no progress", "livelock", "", "loop"),
]


@pytest.mark.parametrize("key", INPUTS, ids=str)
def test_the_rule_is_kept(key: Any) -> None:
    script, flags = (key[0], {"kind": key[1]}) if isinstance(key, tuple) else (key, {})
    Pair(script, "", "", flags=flags).keeps(INPUTS[key])


def test_a_fence_on_the_side_of_the_reader() -> None:
    Pair(WriteThenTma, "", "", flags={"side": "reader"}).keeps(INPUTS[WriteThenTma])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_one_edge_is_missing(pair: Pair) -> None:
    kind = pair.flags.get("kind")
    pair.breaks(INPUTS[pair.script, kind] if kind else INPUTS[pair.script])
