"""mbarriers, the tensor core, tensor memory and the end of a CTA: each rule kept, and broken by one edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from barrier_scripts import Cycle, Exit, InStep, Ring, Scratch, TwoBarriers, TwoSteps
from orders import ORDERS, finding, run_in
from pairs import Pair

from blackwell_matmul.simulator import Severity

RACE, FENCE, WRITTEN, READ = "data-race", "missing-proxy-fence", "overwritten-in-flight", "read-before-complete"
PHASE, DEADLOCK, OVER, EXIT = "wrong-phase", "deadlock", "mbarrier-over-arrival", "in-flight-at-exit"
RELAXED, HINT = "relaxed-wait", Severity.UNGUARANTEED


def ring(tiles: int = 5) -> Any:
    x = (np.arange(tiles * 32 * 64) % 512).reshape(tiles * 32, 64).astype(np.float16)
    y = np.zeros_like(x)
    return (tiles, x, y), y, x + 1


def numbers() -> Any:
    y = np.zeros(64, np.int32)
    return (y,), y, np.arange(64, dtype=np.int32)


def rounds() -> Any:
    (y,), _, expected = numbers()
    return (4, y), y, expected


def product(tiles: int = 3) -> Any:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (extent, 32 * tiles)).astype(np.float16) for extent in (128, 16))
    d = np.zeros((128, 16), np.float32)
    return (tiles, a, b, d), d, (a.astype(np.float32) @ b.astype(np.float32).T)


def square() -> Any:
    x = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    y = np.zeros_like(x)
    return (x, y), y, x.copy()


def tile() -> Any:
    x = (np.arange(128 * 64) % 7).reshape(128, 64).astype(np.float16)
    y = np.zeros_like(x)
    return (x, y), y, x.copy()


def box() -> Any:
    x = (np.arange(32 * 64) % 512).reshape(32, 64).astype(np.float16)
    y = np.zeros_like(x)
    return (x, y), y, x.copy()


INPUTS = {TwoBarriers: box, Ring: ring, Cycle: numbers, InStep: rounds, TwoSteps: product, Scratch: square, Exit: tile}

PAIRS = [
    Pair(Ring, "the reader does not wait", "uninitialised-read", "", "load"),
    Pair(Ring, "the loader does not wait", WRITTEN, "wait", "copy", "copy", every=False),
    Pair(Ring, "the reader starts with 1", PHASE, "phase", "load", "wait"),
    Pair(Ring, "the reader never flips", PHASE, "phase", "load", "copy", every=False),
    Pair(Ring, "the reader flips each time", PHASE, "phase", "load", "copy", every=False),
    Pair(Ring, "the loader starts with 0", DEADLOCK, "phase", "room", "empty"),
    Pair(Ring, "the loader never flips", PHASE, "phase", "copy", "copy"),
    Pair(Ring, "the reader does not arrive", DEADLOCK, "arrive", "room", "empty", says="no line of the kernel"),
    Pair(Ring, "too many bytes", DEADLOCK, "", "wait", "full", says="still lacks 16 bytes"),
    Pair(Ring, "too few bytes", DEADLOCK, "", "wait", "full", says="expect_tx of 2048 bytes"),
    Pair(Ring, "nobody announces", DEADLOCK, "arrive", "wait", "full"),
    Pair(Ring, "the other barrier", DEADLOCK, "", "wait", "full"),
    Pair(Ring, "full counts two", DEADLOCK, "arrive", "wait", "full", says="the count of 2 at"),
    Pair(Ring, "empty counts 33", DEADLOCK, "arrive", "room", "empty", says="1 of 33 arrival(s)"),
    Pair(Ring, "empty counts 31", OVER, "", "arrive", "empty"),
    Pair(Ring, "each lane arrives twice", OVER, "", "arrive", "empty"),
    Pair(Ring, "one lane arrives", RACE, "sync", "copy", "load"),
    Pair(Ring, "no fence", FENCE, "fence", "copy", "load", HINT),
    Pair(Ring, "relaxed wait", RELAXED, "acquire", "load", "copy", HINT),
    Pair(Ring, "relaxed arrive", RELAXED, "release", "copy", "load", HINT),
    Pair(TwoBarriers, "the other barrier", DEADLOCK, "", "wait", "full", says="bytes"),
    Pair(Cycle, "a cycle", DEADLOCK, "", "first", "one", says="of two"),
    Pair(InStep, "no sync", "phase-overrun", "sync", "wait", "arrive", every=False),
    Pair(TwoSteps, "no wait for the operands", READ, "wait", "mma", "copy"),
    Pair(TwoSteps, "relaxed wait for the operands", RELAXED, "acquire", "mma", "copy", HINT),
    Pair(TwoSteps, "no wait before the next tile", WRITTEN, "wait", "copy", "mma"),
    Pair(TwoSteps, "commit before the last mma", READ, "commit", "load", "mma"),
    Pair(TwoSteps, "commit by another warp", READ, "commit", "load", "mma", every=False),
    Pair(TwoSteps, "no commit", DEADLOCK, "arrive", "last", "done"),
    Pair(TwoSteps, "no wait for the accumulator", READ, "wait", "load", "mma", every=False),
    Pair(TwoSteps, "only one warp waits", READ, "wait", "load", "mma"),
    Pair(TwoSteps, "no wait_load", READ, "wait", "use", "load"),
    Pair(Scratch, "no wait_store", READ, "wait", "load", "store"),
    Pair(Scratch, "no sync before dealloc", "dealloc-in-flight", "sync", "dealloc", "load", every=False),
    Pair(Scratch, "used after dealloc", "tensor-memory-not-allocated", "", "late", "dealloc"),
    Pair(Scratch, "relinquished early", "tensor-memory-permit", "", "second", "relinquish"),
    Pair(Scratch, "too many columns", "tensor-memory-exhausted", "", "second"),
    Pair(Scratch, "leaves early", "tensor-memory-leak", "", "alloc"),
    Pair(Exit, "a load", EXIT, "", "copy", severity=HINT),
    Pair(Exit, "a store", EXIT, "", "store"),
    Pair(Exit, "an mma", "dealloc-in-flight", "wait", "dealloc", "mma"),
    Pair(Exit, "bytes that never come", "tx-pending-at-exit", "", "barrier", severity=HINT),
]


@pytest.mark.parametrize("script", INPUTS, ids=lambda script: script.__name__)
def test_the_rule_is_kept(script: Any) -> None:
    Pair(script, "", "").keeps(INPUTS[script])


def test_a_relaxed_wait_orders_tensor_memory() -> None:
    """PTX ISA, tcgen05 memory model: with tcgen05.fence::after_thread_sync, which the compiler adds."""
    Pair(TwoSteps, "", "", flags={"relaxed": True}).keeps(product)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_one_edge_is_missing(pair: Pair) -> None:
    pair.breaks(INPUTS[pair.script])


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_bytes_on_the_wrong_barrier_are_named(order: tuple[str, int]) -> None:
    args, _, _ = box()
    message = finding(run_in(order, TwoBarriers("the other barrier"), *args), "deadlock").message
    assert "of full, which is in phase 0 (parity 0) and still lacks 4096 bytes" in message
    on_the_way, arrived = "which signals other, where nobody has announced", "other has got 4096 bytes that nobody"
    assert on_the_way in message or arrived in message, message
