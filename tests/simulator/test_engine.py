"""The event loop itself: pipes, faults of one CTA among others, what a seed replays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilus
from async_scripts import AcrossCtas, Handoff, StripStore, TwoFaults
from orders import ORDERS, codes, faults, finding, line_of, lines, run_in
from tensor_core_scripts import Product

from blackwell_matmul.simulator import simulate
from blackwell_matmul.simulator.engine import Engine
from blackwell_matmul.simulator.machine.operation import AsyncOperation


def cta() -> Any:
    """The engine only asks which one it is."""
    return object()


def operation(done: list[str], name: str, cta: Any, pipe: object = None) -> AsyncOperation:
    warp: Any = None
    return AsyncOperation(cta, warp, name, "agent", None, lambda: done.append(name), pipe=pipe)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["adversarial", "eager", "random"])
def test_a_pipe_completes_in_the_order_of_issue(policy: str) -> None:
    for seed in range(20):
        done: list[str] = []
        here, engine = cta(), Engine(policy, seed)
        names = [f"{pipe}{i}" for i in range(4) for pipe in "ab"]
        ops = {name: operation(done, name, here, pipe=name[0]) for name in names}
        for op in ops.values():
            engine.start(op)
        for name in ("b2", "a3", "b3"):
            engine.finish(ops[name])
        assert sorted(done) == sorted(names)
        assert [name for name in done if name[0] == "a"] == ["a0", "a1", "a2", "a3"]
        assert [name for name in done if name[0] == "b"] == ["b0", "b1", "b2", "b3"]


def test_adversarial_completes_nothing_by_itself() -> None:
    done: list[str] = []
    here, engine = cta(), Engine("adversarial", 0)
    ops = [operation(done, str(i), here) for i in range(3)]
    for op in ops:
        engine.start(op)
    engine.finish(ops[1])
    engine.finish(ops[1])
    assert done == ["1"] and list(engine.in_flight(here)) == ops


def test_an_operation_is_in_flight_until_somebody_waited() -> None:
    here, engine = cta(), Engine("eager", 0)
    op = operation([], "x", here)
    engine.start(op)
    assert op.done and op in engine.in_flight(here)
    engine.settle(op)
    assert not engine.in_flight(here)


def test_one_cta_that_cannot_go_on_leaves_the_others_alone() -> None:
    x = np.arange(64, dtype=np.int32).reshape(2, 32)
    for order in ORDERS:
        y = np.full_like(x, -1)
        run = run_in(order, TwoFaults(), 24, x, y)
        assert "slice 24:40 leaves dimension 1 of t, which has 32 elements" in finding(run, "out-of-bounds").message
        assert finding(run, "out-of-bounds").cta == (0, 0, 0)
        np.testing.assert_array_equal(y, [[-1] * 32, x[1].tolist()])


def events(order: tuple[str, int]) -> list[tuple[str, str, str]]:
    a, b = np.ones((128, 96), np.float16), np.ones((16, 96), np.float16)
    run = run_in(order, Product(tilus.float16, tilus.float32), 3, a, b, np.zeros((128, 16), np.float32))
    return [(e.agent, e.kind, e.what) for e in run.events]


def test_a_seed_replays_and_seeds_differ() -> None:
    for order in (("adversarial", 7), ("random", 7), ("random", 0), ("adversarial", 0), ("eager", 7)):
        assert events(order) == events(order)
    assert len({tuple(events(("random", seed))) for seed in range(6)}) > 3
    assert len({tuple(events(("eager", seed))) for seed in range(6)}) > 1
    assert events(("adversarial", 0)) != events(("eager", 0))


def test_workers_change_nothing() -> None:
    x = np.arange(64, dtype=np.int32).reshape(2, 32)
    runs, outputs = [], []
    for workers in (1, 2):
        y = np.full_like(x, -1)
        runs.append(simulate(TwoFaults(), 24, x, y, policy="random", seed=3, workers=workers))
        outputs.append(y)
    assert faults(runs[0]) == faults(runs[1])
    np.testing.assert_array_equal(*outputs)


def test_a_deadlock_ends_the_run_and_names_its_lines() -> None:
    x = np.zeros((5, 32), np.float32)
    for order in ORDERS:
        found = finding(run_in(order, Handoff(count=33), 5, x, np.zeros_like(x)), "deadlock")
        waits = {line_of(Handoff, "wait(full"), line_of(Handoff, "wait(empty")}
        assert lines(found)[0] in waits and all(str(line) in found.message for line in waits)


def test_every_operation_leaves_its_storages() -> None:
    """Nothing is kept of operations that are over, however many there were."""
    x = np.zeros((40 * 32, 64), np.float16)
    y = np.zeros_like(x)
    run = run_in(ORDERS[0], StripStore(), 40, x, y)
    assert not run.findings
    assert (y == 1).all()


@pytest.mark.parametrize("read", [False, True])
def test_what_another_cta_still_writes(read: bool) -> None:
    """CTAs that talk to each other run together, and one must not read what the other's store has in flight."""
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float16)
    for order in ORDERS:
        t, semaphore, y = np.zeros_like(x), np.zeros(1, np.int32), np.zeros_like(x)
        run = run_in(order, AcrossCtas(read), x, t, semaphore, y)
        if not read:
            assert not run.findings
            np.testing.assert_array_equal(y, x)
            continue
        found = finding(run, "read-before-complete")
        assert codes(run) == {"read-before-complete"} and found.cta == (1, 0, 0)
        assert "(issued by the elected lane of warp 0 of CTA (0, 0, 0)) has not finished writing" in found.message
        assert lines(found) == (line_of(AcrossCtas, "self.load_global(g_t"), line_of(AcrossCtas, "shared_to_global"))
