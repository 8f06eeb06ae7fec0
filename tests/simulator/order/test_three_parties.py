"""One line changed where a tile goes through three or four warps: the first finding names that line, or the wait that
it takes away, and not one of another pair of warps."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import numpy as np
import pytest
from changed_scripts import DROP, Marked, assert_all_follow, dropped, loaded, plain
from orders import ORDERS, run_in
from three_party_scripts import COLUMNS, ROWS, WIDE, Quantised, Rescaled, StagedStore, TwoReaders

from blackwell_matmul.simulator import Finding
from blackwell_matmul.simulator.order.missing.handoff_chains import Handoffs


def tile(rows: int, columns: int) -> np.ndarray:
    return (np.arange(rows * columns) % 5 - 2).reshape(rows, columns).astype(np.float16)


def rescaled() -> Any:
    a, o = tile(ROWS, WIDE), np.zeros((ROWS, WIDE), np.float32)
    wide = a.astype(np.float32)
    return (4, a, o), [(o, 15 * (wide @ wide.T) @ wide)]


def quantised() -> Any:
    a, b, d = tile(ROWS, 5 * COLUMNS), tile(64, 5 * COLUMNS), np.zeros((ROWS, 64), np.float32)
    return (5, a, b, d), [(d, 2 * a.astype(np.float32) @ b.astype(np.float32).T)]


def both_read() -> Any:
    a, c, d = tile(ROWS, 5 * COLUMNS), np.zeros((ROWS, ROWS), np.float32), np.zeros((ROWS, ROWS), np.float32)
    wide = 2 * a.astype(np.float32)
    return (5, a, c, d), [(c, wide @ wide.T), (d, wide @ wide.T)]


def staged() -> Any:
    a, c = tile(5 * ROWS, COLUMNS), np.zeros((5 * ROWS, ROWS), np.float32)
    wide = a.astype(np.float32).reshape(5, ROWS, COLUMNS)
    return (5, a, c), [(c, (wide @ wide.transpose(0, 2, 1)).reshape(5 * ROWS, ROWS))]


INPUTS: dict[type, Any] = {Rescaled: rescaled, Quantised: quantised, TwoReaders: both_read, StagedStore: staged}


def turned(script: type, mark: str, old: str, new: str, says: str) -> Marked:
    """The other parity at a wait."""
    return Marked(script, ((mark, f"phase={old})", f"phase={new})"),), says)


EARLY = f"self.tcgen05.commit(mbarrier=empty[stage])  # early\n{16 * ' '}"
PARITY = "the parity that it waits for is wrong"
FIRST = f"passed on the phase before the first: {PARITY}"
PRODUCER = f"which warp 4 has still to fill: {PARITY}"
CHANGED = [
    dropped(Rescaled, "P", "the missing wait: mbarrier.wait on p_full before {second}"),
    turned(Rescaled, "P", "turn", "turn ^ 1", f"the wait on p_full at {{P}} {FIRST}"),
    turned(
        Rescaled,
        "room",
        "turn ^ 1",
        "turn",
        "the wait on s_empty at {room} by warp 4 is for phase 0, and warps 0..3 end that after phase 0 of s_full,"
        f" {PRODUCER}",
    ),
    turned(
        Rescaled,
        "O",
        "turn ^ 1",
        "turn",
        f"the wait on o_full at {{O}} by warp 0 is for phase 1, and it has not waited for phase 0, which is over:"
        f" {PARITY}",
    ),
    Marked(
        Rescaled,
        (("tells S", *DROP), ("P", "  # P", "  # P\n                self.tcgen05.commit(mbarrier=s_full)  # late")),
        "tcgen05.commit at {late} by warp 4 has to come before the wait on p_full at {P}: warps 0..3 end that only"
        " after phase 0 of s_full, which it signals",
    ),
    dropped(Quantised, "room for A", "the missing wait: mbarrier.wait on a_empty[0] before {A}"),
    dropped(Quantised, "room for B", "the missing wait: mbarrier.wait on taken["),
    dropped(Quantised, "2 A", "the missing wait: mbarrier.wait on q_full[0] before {multiply}"),
    turned(Quantised, "2 A", "phase", "phase ^ 1", "the wait on q_full[0] at {2 A} "),
    turned(Quantised, "room for B", "phase", "phase ^ 1", f"after phase 0 of b_full[0], {PRODUCER}"),
    dropped(Quantised, "room for 2 A", "the missing wait: mbarrier.wait on taken[0] before {write 2 A}"),
    dropped(TwoReaders, "room", "the missing wait: mbarrier.wait on empty[0] before {load}"),
    turned(
        TwoReaders,
        "room",
        "phase",
        "phase ^ 1",
        "the wait on empty[0] at {room} by warp 4 is for phase 0, and warps 5, 6 end that after phase 0 of ready[0],"
        f" {PRODUCER}",
    ),
    turned(TwoReaders, "loaded", "phase", "phase ^ 1", "the wait on full[0] at {loaded} "),
    dropped(TwoReaders, "ready for C", "the missing wait: mbarrier.wait on ready[0] before {multiply for C}"),
    dropped(TwoReaders, "ready for D", "the missing wait: mbarrier.wait on ready[0] before {multiply for D}"),
    turned(TwoReaders, "ready for D", "phase", "phase ^ 1", f"the wait on ready[0] at {{ready for D}} {FIRST}"),
    Marked(
        TwoReaders,
        (("ready for C", "ready[", "full["),),
        "the missing wait: mbarrier.wait on ready[0] before {multiply for C}",
    ),
    Marked(
        TwoReaders,
        (("multiply for C", "self.tcgen05.mma", f"{EARLY}self.tcgen05.mma"), ("read for C", *DROP)),
        "at {early} by the elected lane of warp 5",
    ),
    dropped(StagedStore, "room", "the missing wait: mbarrier.wait on empty[0] before {load}"),
    dropped(StagedStore, "columns", "the missing wait: mbarrier.wait on drained["),
    turned(StagedStore, "columns", "phase ^ 1", "phase", "after phase 0 of summed[0], which warp 5 has still to fill"),
    dropped(StagedStore, "stored", "the missing wait: mbarrier.wait on c_empty before {put}"),
    dropped(StagedStore, "C", "warps 0..3 write at {put}; the missing wait: mbarrier.wait on c_full before {store}"),
    turned(StagedStore, "C", "turn", "turn ^ 1", f"the wait on c_full at {{C}} {FIRST}"),
]  # fmt: skip


@functools.cache
def findings(changed: Marked, order: tuple[str, int]) -> tuple[Finding, ...]:
    args, _ = INPUTS[changed.script]()
    return run_in(order, loaded(changed.text, changed.script), *args).findings


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_kernel_is_silent_and_right(script: Any) -> None:
    for order in ORDERS:
        args, outputs = INPUTS[script]()
        assert run_in(order, script(), *args).findings == (), order
        for output, expected in outputs:
            np.testing.assert_array_equal(output, expected)


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_the_first_finding_names_what_was_changed(changed: Marked) -> None:
    for order in ORDERS[:3]:
        assert changed.sentence() in plain(findings(changed, order)[0]), (order, changed.sentence())


@pytest.mark.slow
@pytest.mark.parametrize("changed", CHANGED, ids=str)
def test_all_others_follow_from_that(changed: Marked) -> None:
    assert_all_follow(findings(changed, ORDERS[0]))


@pytest.mark.slow
def test_a_parity_that_is_kept_is_named_and_no_missing_wait() -> None:
    says = "the wait on drained[0] at {columns} passed on the phase before the first, which it had waited for before"
    changed = turned(StagedStore, "columns", "phase ^ 1", "1", says)
    assert changed.sentence() in plain(findings(changed, ORDERS[0])[0])


@pytest.mark.slow
def test_nothing_of_a_launch_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Handoffs]] = []
    build = Handoffs.__init__

    def noted(self: Handoffs, *args: Any) -> None:
        build(self, *args)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Handoffs, "__init__", noted)
    changed = CHANGED[0]
    args, _ = INPUTS[changed.script]()
    assert run_in(ORDERS[0], loaded(changed.text, changed.script), *args).findings
    gc.collect()
    assert made and all(each() is None for each in made)
