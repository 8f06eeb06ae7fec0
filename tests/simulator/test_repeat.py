"""CTAs that do the same as an earlier one: their values, findings and records are those of a run in full."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from orders import ORDERS, line_of
from repeat_scripts import (
    COLUMNS,
    ROWS,
    Chosen,
    Crossing,
    FromMemory,
    Numbered,
    Relay,
    Ring,
    SameTile,
    Shifted,
    Signed,
    Turns,
    TwoTiles,
    Unwritten,
)

from blackwell_matmul import BlackwellMatmulV0, BlackwellMatmulV1, BlackwellMatmulV2, check
from blackwell_matmul.simulator import Run, parallel, simulate
from blackwell_matmul.simulator.lowering import scan
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory, GlobalStorage
from blackwell_matmul.simulator.replay import alike, log

RUNGS = (BlackwellMatmulV0, BlackwellMatmulV1, BlackwellMatmulV2)
SMALL = {"block_m": 128, "block_n": 64, "block_k": 32}


class InFull(alike.Replays):
    """Runs each CTA in full."""

    def __init__(self, simulation: Any) -> None:
        super().__init__(simulation)
        self.looking = False


@dataclass
class Seen:
    """What a launch leaves behind."""

    run: Run
    outputs: tuple[bytes, ...]
    records: tuple[Any, ...]
    repeated: int


@contextmanager
def records(kept: list[Any]) -> Iterator[None]:
    """The records of each launch's memory, which are dropped at its end."""
    close = GlobalMemory.close

    def keep(memory: GlobalMemory) -> None:
        accesses = [
            sorted(str((a.key.name, a.cta, a.box, a.elements)) for a in made.values())
            for made in (memory.writes, memory.reads)
        ]
        kept.append((*accesses, len(memory.read)))
        close(memory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlobalMemory, "close", keep)
        yield


def launch(script: Any, args: tuple[Any, ...], full: bool, **options: Any) -> Seen:
    """Run on copies of the tensors."""
    copies = tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)
    kept: list[Any] = []
    repeated = 0
    run_again = log.Replayed.run

    def count(stage: Any, *where: Any) -> None:
        nonlocal repeated
        repeated += 1
        run_again(stage, *where)

    with pytest.MonkeyPatch.context() as patch, records(kept):
        patch.setattr(log.Replayed, "run", count)
        patch.setattr(parallel, "Replays", InFull if full else alike.Replays)
        run = simulate(script, *copies, **{"workers": 1, **options})
    outputs = tuple(copy.numpy().tobytes() for copy in copies if isinstance(copy, torch.Tensor))
    return Seen(run, outputs, kept[0], repeated)


def both(script: Any, *args: Any, **options: Any) -> Seen:
    """With and without repetition, everything is the same."""
    full, seen = launch(script, args, full=True, **options), launch(script, args, full=False, **options)
    assert full.repeated == 0
    assert seen.outputs == full.outputs
    assert seen.run.findings == full.run.findings
    assert seen.run.events == full.run.events
    assert seen.run.counts == full.run.counts
    assert seen.records == full.records
    return seen


def numbers(rows: int, columns: int = COLUMNS, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(rows * columns) % 1021).reshape(rows, columns).to(dtype)


def nothing(rows: int, columns: int = COLUMNS, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((rows, columns), torch.nan, dtype=dtype)


def operands(m: int, n: int, k: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(m + n + k)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    return m, n, k, a, b, nothing(m, n, torch.float16)


# --- the same, but cheaper


@pytest.mark.parametrize("policy, seed", ORDERS)
@pytest.mark.parametrize("rung", RUNGS)
def test_a_matmul_is_the_same_bit_for_bit(rung: Any, policy: str, seed: int) -> None:
    """Inner tiles, and the edges at the right, below, and in the corner: four kinds, each in full once."""
    seen = both(rung, *operands(520, 200, 264), schedule=SMALL, policy=policy, seed=seed)
    assert seen.run.ok and seen.run.grid == (5, 4, 1)
    assert seen.repeated == 20 - 4


@pytest.mark.parametrize("shape", [(256, 128, 64), (130, 66, 34), (384, 64, 8), (128, 300, 1000)])
@pytest.mark.parametrize("rung", RUNGS)
def test_shapes_with_and_without_edges(rung: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape if rung is BlackwellMatmulV0 else tuple(-(-extent // 8) * 8 for extent in shape)
    assert both(rung, *operands(m, n, k), schedule=SMALL).run.ok


@pytest.mark.parametrize("rung", RUNGS)
def test_without_checks_too(rung: Any) -> None:
    assert both(rung, *operands(384, 128, 128), schedule=SMALL, checks=False).repeated == 5


def test_a_large_operand_is_converted_once_and_copies_are_put_off() -> None:
    seen = both(BlackwellMatmulV2, *operands(256, 256, 512), schedule=SMALL)
    assert seen.repeated == 7


def test_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds its own first of a kind, on the memory that all share."""
    monkeypatch.setattr(parallel, "FORK_PAYS_SECONDS", 0)
    full, forked = (launch(Relay, (9, numbers(9 * ROWS), nothing(9 * ROWS)), f, workers=w)
                    for f, w in ((True, 1), (False, 3)))  # fmt: skip
    assert forked.outputs == full.outputs and forked.run.counts == full.run.counts


@pytest.mark.parametrize("m", [320, 330])
def test_a_ring_of_slots(m: int) -> None:
    x = numbers(m, 4 * COLUMNS, torch.float16)
    seen = both(Ring, m, 4, x, nothing(m, 4 * COLUMNS, torch.float16))
    assert seen.run.ok and seen.repeated == -(-m // ROWS) - (1 if m % ROWS == 0 else 2)


def test_tiles_in_another_order_are_the_same_kind() -> None:
    """Each CTA begins with another tile; every fourth, with the same."""
    x = numbers(12 * ROWS, 4 * COLUMNS, torch.float16)
    seen = both(Ring(turn=True), 12 * ROWS, 4, x, nothing(12 * ROWS, 4 * COLUMNS, torch.float16))
    assert seen.run.ok and seen.repeated == 12 - 1


def test_the_traced_cta_runs_in_full() -> None:
    seen = both(Relay, 6, numbers(6 * ROWS), nothing(6 * ROWS), trace=True)
    assert seen.repeated == 5 and {event.cta for event in seen.run.events} == {(0, 0, 0)}


# --- a fault of one CTA


@pytest.mark.parametrize("policy, seed", ORDERS)
def test_a_race_of_the_fifth_cta_is_found(policy: str, seed: int) -> None:
    args = 8, numbers(8 * ROWS), nothing(8 * ROWS)
    seen = both(Relay(careless=4), *args, policy=policy, seed=seed)
    assert seen.repeated == 6
    assert not seen.run.ok and {finding.cta for finding in seen.run.findings} == {(4, 0, 0)}


def test_a_race_of_the_fifth_cta_in_the_report_of_check() -> None:
    args = 8, numbers(8 * ROWS), nothing(8 * ROWS)
    report = check(Relay(careless=4), *args, orders=3)
    assert not report.ok and report.findings[0].cta == (4, 0, 0) and report.findings[0].timeline
    assert report.findings[0].seeds == (0, 1, 2)
    assert check(Relay(), *args, orders=3).findings == ()


@pytest.mark.parametrize("close", [0, 4, 7])
def test_tiles_that_overlap_in_one_cta_race(close: int) -> None:
    """The sequence of steps is the same, but for one distance between two tiles."""
    seen = both(TwoTiles(close=close), 8, nothing(8 * 2 * ROWS))
    (race,) = [finding for finding in seen.run.findings if finding.code == "data-race"]
    assert (race.cta, race.count) == ((close, 0, 0), 1)
    assert race.location.line == line_of(TwoTiles, "# second") and race.other.line == line_of(TwoTiles, "# first")


def test_a_kind_with_findings_runs_in_full_each_time() -> None:
    """The count is of all CTAs."""
    seen = both(TwoTiles(apart=ROWS // 2), 5, nothing(5 * 2 * ROWS))
    assert seen.repeated == 0 and seen.run.findings[0].count == 5


def test_ctas_that_write_one_tile() -> None:
    seen = both(SameTile, 6, nothing(6 * ROWS))
    assert seen.repeated == 5
    assert [finding.code for finding in seen.run.findings] == ["written-by-two-ctas"] * 3 + ["never-written"]


# --- what is not repeated


def test_scalars_that_differ() -> None:
    assert both(Numbered, 5, nothing(5 * ROWS)).repeated == 0


def test_loops_of_other_extents() -> None:
    seen = both(Turns, 6, nothing(6 * ROWS))
    assert seen.repeated == 3
    assert np.frombuffer(seen.outputs[0], np.float32)[:: ROWS * COLUMNS].tolist() == [0, 0, 1, 1, 2, 2]


def test_each_cta_finds_its_memory_unwritten() -> None:
    """Which is a finding; without checks, and the poison in the memory of the first, nobody would know."""
    seen = both(Unwritten, 4, nothing(4 * 256, 32), checks=False)
    assert seen.run.ok and seen.repeated == 3
    assert np.isnan(np.frombuffer(seen.outputs[0], np.float32)).all()
    assert both(Unwritten, 4, nothing(4 * 256, 32)).repeated == 0


def test_a_box_between_multiples_of_16_bytes() -> None:
    """CTAs whose boxes TMA takes are like one another, and those in between like none of them."""
    seen = both(Shifted(6), 5, numbers(ROWS, 64), nothing(ROWS, 64))
    found = next(each for each in seen.run.findings if each.code == "tma-coordinate")
    assert (found.cta, found.count) == ((1, 0, 0), 2)
    assert seen.repeated == 2
    assert both(Shifted(8), 5, numbers(ROWS, 64), nothing(ROWS, 64)).repeated == 4


def test_zeros_of_either_sign() -> None:
    seen = both(Signed, 6, nothing(6 * ROWS))
    signs = np.signbit(np.frombuffer(seen.outputs[0], np.float32).reshape(6, -1))
    assert signs.all(axis=1).tolist() == [False] * 3 + [True] * 3


def test_scalars_from_memory() -> None:
    turns = torch.tensor([3, 1, 4, 1], dtype=torch.int32)
    seen = both(FromMemory, 4, turns, nothing(4 * ROWS))
    assert seen.run.ok and seen.repeated == 0
    assert np.frombuffer(seen.outputs[1], np.float32)[:: ROWS * COLUMNS].tolist() == turns.tolist()


def test_registers_that_are_written_later() -> None:
    seen = both(Chosen(filled=True), 5, numbers(5 * ROWS), nothing(5 * ROWS))
    assert seen.run.ok and seen.repeated == 4


def test_values_that_decide_whether_unwritten_registers_are_taken() -> None:
    """Only the last CTA takes one."""
    x = numbers(5 * ROWS)
    x[-1, -1] = -1
    seen = both(Chosen, 5, x, nothing(5 * ROWS))
    assert seen.repeated == 0
    assert [(f.code, f.cta, f.count) for f in seen.run.findings] == [("uninitialised-read", (4, 0, 0), 1)]


def test_views_of_one_tensor_that_move_apart() -> None:
    """The two warps meet in the CTA in the middle."""
    seen = both(Crossing, 5, nothing(5 * ROWS))
    assert seen.repeated == 0
    assert [(f.code, f.cta) for f in seen.run.findings if f.code == "data-race"] == [("data-race", (2, 0, 0))]


def test_one_tensor_as_two_arguments() -> None:
    x = numbers(6 * ROWS)
    run = simulate(Relay, 6, x, x, workers=1)
    assert run.ok and torch.equal(x, numbers(6 * ROWS))


@pytest.mark.parametrize("limit, value", [("MAX_LOG", 3), ("MAX_KINDS", 0), ("MAX_MISSED", 1)])
def test_limits(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(scan if limit == "MAX_LOG" else alike, limit, value)
    assert both(BlackwellMatmulV1, *operands(256, 128, 128), schedule=SMALL).repeated == 0


def test_a_tape_that_becomes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEPS", 3)
    assert both(BlackwellMatmulV1, *operands(256, 128, 128), schedule=SMALL).repeated == 0


def test_misses_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "MAX_MISSED", 3)
    assert both(BlackwellMatmulV1, *operands(520, 200, 264), schedule=SMALL).repeated == 16


# --- afterwards


def machines() -> set[int]:
    return {id(thing) for thing in gc.get_objects() if type(thing) in (Cta, GlobalStorage)}


@pytest.mark.parametrize("rung", RUNGS)
def test_a_launch_leaves_nothing_behind(rung: Any) -> None:
    """Also when the garbage collector does not run. What other tests left is frozen, and so not listed."""
    args = operands(256, 256, 512)
    gc.freeze()
    gc.disable()
    try:
        simulate(rung, *args, schedule=SMALL, workers=1)
        assert not machines()
    finally:
        gc.enable()
        gc.unfreeze()


def test_the_heap_is_as_it_was() -> None:
    for _ in range(2):  # what the first leaves is kept until the second
        simulate(Relay, 2, numbers(2 * ROWS), nothing(2 * ROWS), workers=1)
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        simulate(Relay, 2, numbers(2 * ROWS), nothing(2 * ROWS), workers=1)
        assert gc.get_freeze_count() >= frozen - 64
    finally:
        gc.unfreeze()
