"""One line changed where memory is handed back to its writer, or to the next CTA: what the first finding names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from changed_scripts import Marked, dropped, loaded, plain
from hand_back_scripts import ColumnsRead, LoadedRows, PassedOn, RowsAround, TwoReaders
from orders import ORDERS, run_in


def floats(rows: int) -> np.ndarray:
    return np.arange(rows * 64, dtype=np.float32).reshape(rows, 64) % 7


def around() -> Any:
    x = floats(48)
    return (6, x, np.zeros((40, 64), np.float32)), x[:-8] + x[8:]


def twice() -> Any:
    x = floats(80)
    return (5, x, np.zeros((2, 80, 64), np.float32)), np.stack([x - x.sum(1, keepdims=True)] * 2)


def rows() -> Any:
    x = floats(80)
    return (5, x, np.zeros_like(x)), x


def columns() -> Any:
    x = np.arange(128 * 32, dtype=np.int32).reshape(128, 32)
    return (x, np.zeros_like(x)), x


def passed_on() -> Any:
    x = np.arange(128, dtype=np.int32).reshape(4, 32)
    return (x, np.zeros((1, 32), np.int32), np.zeros_like(x)), x.cumsum(0)


INPUTS: dict[type, Any] = {
    RowsAround: around, TwoReaders: twice, LoadedRows: rows, ColumnsRead: columns, PassedOn: passed_on,
}  # fmt: skip
BACK, ALONE = "self.mbarrier.arrive(self.free)", "with self.single_thread(): self.mbarrier.arrive(self.free, count=32)"
CHANGED = [
    Marked(RowsAround, (("slots", "4", "3"),), "has gone on to that: the missing sync: self.sync() between {read} and"),
    Marked(
        TwoReaders, (("hand back", "self", "if which == 0: self"), ("free", "64", "32")),
        "the missing arrival: none on self.free by warp 1 after the read at {read}; that at {hand back} is by warp 0",
    ),
    Marked(
        TwoReaders, (("hand back", BACK, ALONE),),
        "one lane of warp 0 arrives on self.free at {hand back} and publishes what it did itself: the missing sync",
    ),
    Marked(LoadedRows, (("free", "128, 128", "32, 32"),), "the count of 32 at {free} is too small where warps 0..3"),
    dropped(ColumnsRead, "all", "the missing sync: self.sync() between {have stored} and {dealloc}"),
    dropped(PassedOn, "wait", 'the missing wait: mbarrier.wait on token, with scope="cluster", before {store}'),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_kernel_is_silent_and_right(script: Any) -> None:
    for order in ORDERS[:3]:
        args, expected = INPUTS[script]()
        run = run_in(order, script(), *args)
        assert not run.findings, (order, [str(each) for each in run.findings])
        np.testing.assert_array_equal(args[-1], expected)


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_the_first_finding_names_what_was_changed(changed: Marked) -> None:
    args, _ = INPUTS[changed.script]()
    first = run_in(ORDERS[0], loaded(changed.text, changed.script), *args).findings[0]
    assert changed.sentence() in plain(first), changed.sentence()


def test_ctas_that_wait_for_the_same_line_are_told_no_order() -> None:
    """Each signals its own mbarrier in place of the next CTA's: no wait is before another one's arrival."""
    args, _ = INPUTS[PassedOn]()
    changed = Marked(PassedOn, (("pass on", "rank + 1", "rank"),), "")
    first = run_in(ORDERS[0], loaded(changed.text, PassedOn), *args).findings[0]
    assert first.code == "deadlock" and "one of the two has to arrive first" not in first.message, str(first)
