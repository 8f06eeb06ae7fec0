"""Clusters that hand out work and share products in other ways than the rungs do: silent, and with one line wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cooperating_scripts import COLUMNS, RelayedRows, ResidentOperand, RowsInTurn
from orders import run_in
from pairs import Pair

from blackwell_matmul.simulator import Severity

RACE, OVERWRITTEN, EARLY, EXIT = "data-race", "overwritten-in-flight", "read-before-complete", "exit-before-peer"
FENCE, WEAK, WEAKER = "missing-proxy-fence", "relaxed-wait", Severity.UNGUARANTEED


def rows(count: int = 37) -> Any:
    """An odd number, in clusters that go round the ring of two in every order."""
    x = np.arange(count * COLUMNS, dtype=np.int32).reshape(count, COLUMNS)
    y = np.full_like(x, -1)
    return (count, x, y), y, 3 * x


def product() -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 96)).astype(np.float16) for extent in (256, 96))
    c = np.zeros((256, 96), np.float32)
    return (3, a, b, c), c, a.astype(np.float32) @ b.astype(np.float32).T


UNHEARD = "warp 0 of CTA (1, 0, 0) has waited for it: the missing sync: self.cluster.sync()"
INPUTS = {RelayedRows: rows, ResidentOperand: product}


def relayed(fault: str, code: str, missing: str, at: str, other: str = "", **more: Any) -> Pair:
    return Pair(RelayedRows, fault, code, missing, at, other, **more)


def resident(fault: str, code: str, missing: str, at: str, other: str = "", **more: Any) -> Pair:
    return Pair(ResidentOperand, fault, code, missing, at, other, every=False, **more)


PAIRS = [
    relayed("does not wait for the takers", RACE, "wait", "post", "take to load", says="wait on taken"),
    relayed("the storing warps do not take", RACE, "wait", "post", "take to store"),
    relayed("posts too early", RACE, "arrive", "take to load", "post", says="before store_shared at"),
    relayed("one lane posts for all", RACE, "sync", "take to load", "post", says="publishes what it did itself"),
    relayed("frees a row before it is read", RACE, "arrive", "load", "read", every=False),
    relayed("the second CTA is not heard", OVERWRITTEN, "sync", "ask", "ask", says=UNHEARD, every=False),
    relayed(
        "announces too early", "mbarrier-over-arrival", "wait", "announce", says="maybe before the bytes for phase"
    ),
    relayed("no sync at the end", EXIT, "sync", "tell", says="CTA (0, 0, 0) may exit"),
    relayed("a relaxed arrival", WEAK, "release", "ask", "hear", severity=WEAKER, says="the arrival on heard"),
    relayed("no fence after the answer", FENCE, "fence", "ask", "hear", severity=WEAKER),
    relayed("no fence for the next row", FENCE, "fence", "load", "read", severity=WEAKER),
    resident("one CTA drains", OVERWRITTEN, "sync", "mma", "drain", says="t_acc[0:128, 0:32] of CTA (1, 0, 0)"),
    resident("nobody waits for the epilogue", OVERWRITTEN, "wait", "mma", "drain", says="wait on drained"),
    resident("drains before it has loaded", OVERWRITTEN, "arrive", "mma", "drain"),
    resident("drains while it loads", OVERWRITTEN, "wait", "mma", "drain", says="before the arrival at"),
    resident("A of the even CTA alone", EARLY, "sync", "mma", "load own a", says="warp 6 of CTA (1, 0, 0) has"),
    resident("no wait for A", EARLY, "wait", "mma", "load a", says="mbarrier.wait on whole"),
    resident("a relay that does not wait", EARLY, "wait", "mma", "load own a", flags={"relay": True}),
    resident("commits before the last mma", EARLY, "commit", "drain", "mma", says="has to come after it"),
    resident("waits for the first sum again", "wrong-phase", "phase", "mma", "drain", says="the wait on done"),
    resident("frees when its own CTA is done", "dealloc-in-flight", "sync", "free", "drain", says="cluster.sync()"),
]


@pytest.mark.slow
@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
@pytest.mark.parametrize("policy", ["adversarial", "eager", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_the_rule_kept_is_silent(script: Any, policy: str, seed: int) -> None:
    for flags in ({}, {"relay": True}) if script is ResidentOperand else ({},):
        args, output, expected = INPUTS[script]()
        run = run_in((policy, seed), script(**flags), *args)
        assert not run.findings, [str(f) for f in run.findings]
        np.testing.assert_array_equal(output, expected)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_rule_broken_is_found(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])


def test_a_cta_that_has_nothing_to_do_must_not_leave() -> None:
    pair = relayed("a CTA without a row returns", EXIT, "sync", "ask", says="CTA (1, 0, 0) may exit")
    pair.breaks(lambda: rows(1))


@pytest.mark.parametrize("ctas", [4, 3])
def test_rows_that_nobody_writes_where_ctas_signal_each_other(ctas: int) -> None:
    run = run_in(("adversarial", 0), RowsInTurn(), ctas, np.zeros(1, np.int32), np.zeros((4, 32), np.int32))
    assert [each.code for each in run.findings] == ["never-written"][: 4 - ctas]
