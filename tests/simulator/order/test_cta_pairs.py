"""CTA pairs: each rule kept, and broken by one edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from orders import ORDERS, run_in
from pair_scripts import PairFrees, PairProduct, PairRelay, PairTiles
from pairs import Pair

from blackwell_matmul.simulator import Severity

EXIT, FEW, WEAK = "exit-before-peer", "too-few-bytes", "relaxed-wait"
ODD = "pair-issued-by-odd-cta"


def product() -> Any:
    """Tails in m, n and k, and more k-tiles than stages."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 152)).astype(np.float16) for extent in (300, 40))
    c = np.zeros((300, 40), np.float32)
    return (300, 40, 152, a, b, c), c, a.astype(np.float32) @ b.astype(np.float32).T


def relay() -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 32)).astype(np.float16) for extent in (256, 32))
    d = np.zeros((256, 32), np.float32)
    return (a, b, d), d, a.astype(np.float32) @ b.astype(np.float32).T


def tiles() -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 96)).astype(np.float16) for extent in (256, 160))
    c = np.zeros((256, 160), np.float32)
    return (5, 96, a, b, c), c, a.astype(np.float32) @ b.astype(np.float32).T


INPUTS = {PairProduct: product, PairRelay: relay, PairTiles: tiles}
PAIRS = [
    Pair(PairProduct, "no sync at the start", "mbarrier-not-initialised", "sync", "load a"),
    Pair(PairProduct, "no sync at the start", "mbarrier-not-initialised", "sync", "read"),
    Pair(
        PairProduct,
        "no sync at the start",
        "peer-not-started",
        "sync",
        "alloc",
        severity=Severity.UNGUARANTEED,
        says="which may not have started",
    ),
    Pair(PairProduct, "the loader does not wait", "overwritten-in-flight", "wait", "load a", "load a", every=False),
    Pair(
        PairProduct,
        "bytes of one CTA",
        "overwritten-in-flight",
        "",
        "load a",
        "load a",
        every=False,
        says="follows from the finding above (too-few-bytes",
    ),
    Pair(
        PairProduct,
        "the mma does not wait",
        "read-before-complete",
        "wait",
        "mma",
        "load a",
        every=False,
        says="the missing wait: mbarrier.wait on full",
    ),
    Pair(PairProduct, "bytes of one CTA", FEW, "bytes", "mma", "load a", every=False, says="of CTA (1, 0, 0), which"),
    Pair(PairProduct, "each tells itself", "deadlock", "", "wait", "full", says="of CTA (0, 0, 0) waits"),
    Pair(
        PairProduct,
        "commit tells the even CTA only",
        "deadlock",
        "arrive",
        "room",
        "empty",
        every=False,
        says="signals those in the mask 0b1 alone; with multicast_mask=0b11 it signals every CTA's",
    ),
    Pair(PairProduct, "done tells the even CTA only", "deadlock", "", "finished", "done"),
    Pair(PairProduct, "the epilogue does not wait", "read-before-complete", "wait", "load t", "mma", every=False),
    Pair(PairProduct, "no sync of the pair", "tensor-memory-not-allocated", "", "load t", "dealloc", every=False),
    Pair(PairProduct, "one CTA frees", "deadlock", "", "dealloc", says="warp 0 of CTA (1, 0, 0) at the deallocation"),
    Pair(PairProduct, "the odd CTA issues", ODD, "", "mma", severity=Severity.UNGUARANTEED),
    Pair(
        PairProduct,
        "the epilogue does not wait",
        EXIT,
        "sync",
        "everything",
        says="CTA (1, 0, 0) may exit before tcgen05",
    ),
    Pair(PairProduct, "the odd CTA leaves", EXIT, "sync", "load a", says="CTA (1, 0, 0) may exit before cp.async.bulk"),
    Pair(PairProduct, "the odd CTA leaves", EXIT, "sync", "mma", says="CTA (1, 0, 0) may exit before tcgen05.mma"),
    Pair(
        PairTiles,
        "each epilogue tells its own CTA",
        "overwritten-in-flight",
        "arrive",
        "mma",
        "load",
        every=False,
        says="CTA (1, 0, 0) signals free[0] of CTA (1, 0, 0)",
    ),
    Pair(PairRelay, "an arrival for the CTA", WEAK, "release", "mma", "store", says="has scope cta"),
    Pair(PairRelay, "a wait for the CTA", WEAK, "acquire", "mma", "store", says="the wait on full"),
    Pair(PairRelay, "by cp.async", WEAK, "release", "mma", "copy", says="of CTA (1, 0, 0)"),
    Pair(PairRelay, "no fence", "missing-proxy-fence", "fence", "mma", "store"),
    Pair(PairRelay, "a plain arrival", "remote-mbarrier", "", "plain", says="PTX takes an mbarrier of the CTA itself"),
]


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_rule_kept_is_silent(script: Any) -> None:
    Pair(script, "", "").keeps(INPUTS[script])


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_rule_broken_is_found(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])


def test_what_a_later_commit_covers_needs_no_wait_of_its_own() -> None:
    """The last commits to the ring end with the one that all wait for, before the pair meets."""
    Pair(PairProduct, "", "", flags={"fault": "no drain"}).keeps(product)


def test_what_a_copy_brought_to_the_peer_is_there_when_an_mbarrier_is_told() -> None:
    """Nothing guarantees it after a relaxed wait, in both CTAs alike."""
    for order in ORDERS:
        args, output, expected = product()
        run = run_in(order, PairProduct("a relaxed wait"), *args)
        assert run.ok and {each.code for each in run.findings} == {WEAK}
        np.testing.assert_array_equal(output, expected)


def test_the_issuer_must_know_too() -> None:
    """The other CTA has waited for the mma; where nobody has, it is left in flight, which is told once."""
    Pair(PairProduct, "the even CTA leaves", EXIT, "sync", "mma", says="CTA (0, 0, 0) may exit").breaks(product)
    for order in ORDERS:
        run = run_in(order, PairProduct("both leave"), *product()[0])
        told = [each.message for each in run.findings if each.code == EXIT]
        assert told and not [message for message in told if message.startswith("CTA (0, 0, 0) may exit before tcgen05")]
        assert "in-flight-at-exit" in {each.code for each in run.findings}


def test_the_other_cta_has_allocated_before_one_gives_back() -> None:
    """NVIDIA/cutlass issue 3435: a GPU ends the launch with a failure if it has not."""
    for order in ORDERS:
        run = run_in(order, PairFrees(wide=False), np.zeros(1, np.float32))
        assert not run.ok and {each.code for each in run.findings} == {"dealloc-in-flight"}
        assert all("may not have allocated it yet" in each.message for each in run.findings)
        assert not run_in(order, PairFrees(wide=True), np.zeros(1, np.float32)).findings


def test_tensor_memory_is_ordered_by_a_relaxed_arrival_too() -> None:
    """PTX ISA, "tcgen05 Memory Consistency Model": with the fence that the compiler adds."""
    Pair(PairTiles, "", "", flags={"fault": "a relaxed arrival"}).keeps(tiles)
