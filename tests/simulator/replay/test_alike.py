"""CTAs that do the same as an earlier one: their values, findings and records are those of a run in full."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tilus
import torch
from clc_scripts import Backwards, Doubles, DoublesInPairs, TakesOne
from orders import ORDERS, line_of
from pair_scripts import PairProduct
from replay_scripts import (
    COLUMNS,
    ROWS,
    ROWS_64,
    STEP,
    WIDTH,
    Apart,
    ApartInTensorMemory,
    Chosen,
    Crossing,
    FromMemory,
    Halves,
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
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import KNOBS
from blackwell_matmul.simulator import Run, Severity, parallel, simulate
from blackwell_matmul.simulator.lowering import scan
from blackwell_matmul.simulator.machine import global_memory
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory
from blackwell_matmul.simulator.machine.memory import Storage
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


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def launch(script: Any, args: tuple[Any, ...], full: bool, **options: Any) -> Seen:
    """Run on copies of the tensors."""
    copies = tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)
    kept: list[Any] = []
    repeated = 0
    run_again = log.Replayed.run

    def count(stage: Any, *where: Any) -> int:
        nonlocal repeated
        repeated += 1
        return run_again(stage, *where)

    with pytest.MonkeyPatch.context() as patch, records(kept):
        patch.setattr(log.Replayed, "run", count)
        patch.setattr(parallel, "Replays", InFull if full else alike.Replays)
        run = simulate(script, *copies, **{"workers": 1, **options})
    outputs = tuple(bytes_of(copy) for copy in copies if isinstance(copy, torch.Tensor))
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


@pytest.mark.slow
@pytest.mark.parametrize("policy, seed", ORDERS[:4])
@pytest.mark.parametrize("rung", RUNGS)
def test_a_matmul_is_the_same_bit_for_bit(rung: Any, policy: str, seed: int) -> None:
    """Inner tiles, and the edges at the right, below, and in the corner: four kinds, each in full once."""
    seen = both(rung, *operands(520, 200, 104), schedule=SMALL, policy=policy, seed=seed)
    assert seen.run.ok and seen.run.grid == (5, 4, 1)
    assert seen.repeated == 20 - 4


@pytest.mark.slow
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


@pytest.mark.process
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


def rows_of(script: Any, rows: int) -> tuple[Any, ...]:
    return script, rows, numbers(rows, 64, torch.int32), torch.zeros(rows, 64, dtype=torch.int32)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("script", [Doubles(stages=3), DoublesInPairs(), TakesOne(), Doubles("no fence")])
def test_ctas_that_take_over_the_work_of_others(script: Any, seed: int) -> None:
    """With few numbers of grants, each of which is a kind; and what TakesOne leaves."""
    seen = both(*rows_of(script, 160), seed=seed)
    assert seen.run.ok and seen.repeated > 12
    assert seen.outputs[1] == bytes_of(2 * numbers(160, 64, torch.int32))


def test_responses_that_are_not_read_in_turn() -> None:
    """What each one says is not foreseen."""
    seen = both(*rows_of(Backwards(), 40))
    assert seen.run.ok and seen.repeated == 0 and seen.outputs[1] == bytes_of(2 * numbers(40, 64, torch.int32))


def test_tiles_in_another_order_are_the_same_kind() -> None:
    """Each CTA begins with another tile; every fourth, with the same."""
    x = numbers(12 * ROWS, 4 * COLUMNS, torch.float16)
    seen = both(Ring(turn=True), 12 * ROWS, 4, x, nothing(12 * ROWS, 4 * COLUMNS, torch.float16))
    assert seen.run.ok and seen.repeated == 12 - 1


def test_the_traced_cta_runs_in_full() -> None:
    seen = both(Relay, 6, numbers(6 * ROWS), nothing(6 * ROWS), trace=True)
    assert seen.repeated == 5 and {event.cta for event in seen.run.events} == {(0, 0, 0)}


# --- every rung

POLICIES = (("adversarial", 0), ("eager", 0), ("random", 1))
SINGLE = [(name, 1) for name in ("v0", "v1", "v2", "g0", "h0", "h1", "h2", "h3")] + [("h4", 2)]
PERSISTENT = [("h5", 1, 1), ("h5", 2, 4), ("h6", 1, 4), ("h7", 2, 1), ("hopper", 1, 1), ("hopper", 2, 4)]
"""Each rung with one group of warps and with two, in either order of the tiles."""


def in_turn(cases: list[Any]) -> list[tuple[Any, Any]]:
    """Each case as late as legal, and in one of the other orders."""
    others = [POLICIES[1 + place % 2] for place in range(len(cases))]
    return [*((case, POLICIES[0]) for case in cases), *zip(cases, others, strict=True)]


@pytest.fixture
def put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies and products of small matrices are put off, as those of large ones."""
    monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", 1)


def of_rung(name: str, shape: tuple[int, int, int], sm_count: int = 0, policy: Any = POLICIES[0], **knobs: int) -> Seen:
    """Both ways, with small tiles and those of the knobs that the rung has."""
    cls = rung(name)
    tile = {"block_m": 64 * knobs.get("consumers", 1) if name[0] == "h" else 128, "block_n": 64, "block_k": 32}
    every = {**tile, "e_block_n": 32, "stages": 2, "consumers": 1, "group_m": 1}
    every |= {"cluster_m": 1, "cluster_n": 1, "split_k": 1, "neighbours": 2, "swap_ab": 0, **knobs}
    schedule = {name: value for name, value in every.items() if KNOBS[name].feature in ("", *cls.features)}
    script = cls(sm_count=sm_count) if sm_count else cls
    seen = both(script, *operands(*shape), schedule=schedule, policy=policy[0], seed=policy[1])
    assert seen.run.ok and not seen.run.findings
    return seen


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize(("name", "consumers", "policy"), [(*each, policy) for each, policy in in_turn(SINGLE)])
def test_a_rung_with_tails(name: str, consumers: int, policy: tuple[str, int]) -> None:
    """Four kinds at most: inner tiles, those at each edge, and the corner."""
    seen = of_rung(name, (264, 136, 104), policy=policy, consumers=consumers)
    x, y, _ = seen.run.grid
    assert seen.repeated == x * y - 4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "consumers"), SINGLE)
def test_a_rung_whose_products_are_not_put_off(name: str, consumers: int) -> None:
    assert of_rung(name, (264, 136, 104), consumers=consumers).repeated


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize(
    ("name", "consumers", "group_m", "policy"), [(*each, policy) for each, policy in in_turn(PERSISTENT)]
)
def test_several_tiles_for_each_cta(name: str, consumers: int, group_m: int, policy: tuple[str, int]) -> None:
    """What is repeated are clusters; those of the product have two CTAs at least."""
    seen = of_rung(name, (1024, 128, 104), 8, policy, consumers=consumers, group_m=group_m)
    assert seen.run.grid == (8, 1, 1) and seen.repeated == (3 if name == "hopper" else 7)


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize(("name", "consumers", "group_m"), PERSISTENT)
def test_several_tiles_with_tails(name: str, consumers: int, group_m: int) -> None:
    """Only those are alike whose tiles have the same tails in the same order."""
    assert of_rung(name, (1032, 264, 104), 48, consumers=consumers, group_m=group_m).repeated


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize(("name", "consumers"), [("h6", 1), ("h7", 2), ("hopper", 2)])
def test_clusters(name: str, consumers: int, policy: tuple[str, int]) -> None:
    shape = 1024 * consumers, 64, 104
    seen = of_rung(name, shape, 8, policy, consumers=consumers, cluster_m=2, group_m=4)
    assert seen.run.grid == (8, 1, 1) and seen.repeated == 3


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("name", ["h6", "h7", "hopper"])
def test_clusters_with_tails(name: str) -> None:
    assert of_rung(name, (776, 136, 104), 132, consumers=2, cluster_m=2).repeated == 8


@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_cta_pairs(policy: tuple[str, int]) -> None:
    """Inner tiles, and the edges at the right, below, and in the corner."""
    m, n, k, a, b, _ = operands(1064, 136, 104)
    seen = both(PairProduct(), m, n, k, a, b, nothing(m, n), policy=policy[0], seed=policy[1])
    assert seen.run.ok and seen.run.grid == (10, 5, 1)
    assert seen.repeated == 25 - 4


@pytest.mark.slow
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("name", ["h7", "hopper"])
def test_ctas_that_give_each_other_parts_run_together(name: str) -> None:
    """By way of a workspace in global memory, which belongs to no cluster."""
    assert of_rung(name, (256, 128, 104), 4, split_k=2).repeated == 0


# --- what is put together


def tiles(
    ctas: int, rows: int, dtype: torch.dtype = torch.float16, out: torch.dtype = torch.float32
) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    a, b = (20 * torch.randn(extent, 4 * STEP, generator=generator) for extent in (ctas * rows, WIDTH))
    return ctas, a.to(dtype), b.to(dtype), torch.zeros(ctas * rows, WIDTH, dtype=out)


@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("odd_first", [False, True])
@pytest.mark.parametrize(("script", "rows"), [(Apart, ROWS_64), (ApartInTensorMemory, 128)])
def test_k_tiles_that_are_neighbours_in_every_other_cta(script: Any, rows: int, odd_first: bool) -> None:
    """Their product is one, with bits of its own; whether the first CTA or the second is the one that has it."""
    seen = both(script(odd_first=odd_first), *tiles(6, rows))
    assert seen.run.ok and seen.repeated == 2


@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("odd_first", [False, True])
def test_halves_of_a_tile_that_are_neighbours_in_every_other_cta(odd_first: bool) -> None:
    ctas, a, b, d = tiles(6, 128)
    seen = both(Halves(odd_first=odd_first), ctas, a, b, d[: 6 * ROWS_64])
    assert seen.run.ok and seen.repeated == 2


@pytest.mark.parametrize("close", [1, 4])
def test_tiles_of_the_output_that_meet_in_one_cta(close: int) -> None:
    seen = both(TwoTiles(close=close, ordered=True), 8, nothing(8 * 2 * ROWS))
    assert seen.repeated == 6
    assert [finding.code for finding in seen.run.findings] == ["never-written"]
    found = np.frombuffer(seen.outputs[0], np.float32).reshape(8, -1, COLUMNS)[:, :: ROWS // 2, 0]
    assert found[0].tolist() == [1, 1, 2, 2] and found[close, :3].tolist() == [1, 2, 2]


TYPES = [
    (tilus.float16, tilus.float16, torch.float16, torch.float16),
    (tilus.int8, tilus.int32, torch.int8, torch.int32),
    (tilus.tfloat32, tilus.float32, torch.float32, torch.float32),
    (tilus.bfloat16, tilus.float32, torch.bfloat16, torch.float32),
]


@pytest.mark.parametrize(("dtype", "acc_dtype", "given", "out"), TYPES, ids=str)
def test_sums_in_registers_of_other_types(dtype: Any, acc_dtype: Any, given: Any, out: Any) -> None:
    seen = both(Apart(dtype=dtype, acc_dtype=acc_dtype), *tiles(6, ROWS_64, given, out))
    assert seen.run.ok and seen.repeated == 5


# --- a fault of every CTA


@pytest.mark.process
@pytest.mark.usefixtures("put_off")
@pytest.mark.parametrize("workers", [1, 3])
def test_what_nothing_guarantees_is_counted_in_each_cta(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "FORK_PAYS_SECONDS", 0)
    seen = both(Apart(fault="no fence"), *tiles(6, ROWS_64), workers=workers)
    (found,) = seen.run.findings
    assert (found.code, found.severity, found.count) == ("missing-wgmma-fence", Severity.UNGUARANTEED, 6 * 4)
    assert seen.run.ok and (seen.repeated == 5 or workers > 1)


@pytest.mark.usefixtures("put_off")
def test_a_cta_with_an_error_is_not_repeated() -> None:
    seen = both(Apart(fault="no wait"), *tiles(6, ROWS_64))
    assert not seen.run.ok and seen.repeated == 0


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
    assert [finding.code for finding in seen.run.findings] == ["written-by-two-ctas", "never-written"]
    assert seen.run.findings[0].count == 3 and "as do 2 other pair(s) of CTAs" in seen.run.findings[0].message


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


def test_a_log_that_becomes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_STEPS", 3)
    assert both(BlackwellMatmulV1, *operands(256, 128, 128), schedule=SMALL).repeated == 0


def test_misses_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "MAX_MISSED", 3)
    assert both(BlackwellMatmulV1, *operands(520, 200, 264), schedule=SMALL).repeated == 16


# --- afterwards


def machines() -> set[int]:
    return {id(thing) for thing in gc.get_objects() if issubclass(type(thing), (Cta, Storage))}


@pytest.mark.slow
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


@pytest.mark.slow
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
