"""HopperMatmul in its plain form: right at every shape in every order; one line changed, exposed.

All arguments of the class are given, so that no rule chooses a schedule.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tilus
import torch
from kernel_edits import DROP, Edit, edited

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.simulator import Run, simulate
from blackwell_matmul_studies import mutation

SOURCE = (Path(__file__).resolve().parents[2] / "blackwell_matmul/kernels/products/hopper.py").read_text()
SCHEDULE = {
    "block_m": 64, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "consumers": 1, "group_m": 4,
    "swap_ab": 0,
}  # fmt: skip
POLICIES = ("adversarial", "eager", "random")
SHAPES = [(200, 136, 136), (40, 72, 24), (136, 200, 104), (72, 144, 40)]
"""Tails everywhere; one k-tile, so that of several parts all but one are empty; tiles for every place; a last column of
tiles that begins where all its rows of B are there."""
CLUSTERS = [(1, 1), (1, 4), (2, 1), (2, 2)]


def kernel(folder: Path, edits: Sequence[Edit] = (), replaced: tuple[str, str] = ("", "")) -> Any:
    """The class, from a file of its own; `replaced` are several lines, and what comes in their place."""
    assert replaced[0] in SOURCE
    source = SOURCE.replace(*replaced) if replaced[0] else SOURCE
    made = mutation.load(edited(source, edits), "HopperMatmul", folder)
    made.complete = classmethod(lambda cls, pins, args, target, gpu=None: dict(pins))
    return made


@functools.cache
def built(*edits: Edit) -> Any:
    """The class, or one with lines changed; once, with its Programs."""
    return kernel(Path(tempfile.mkdtemp()), edits)


def execute(cls: Any, m: int, n: int, k: int, policy: str = "adversarial", **knobs: int) -> tuple[Run, bool, Any]:
    """The run, whether C is right, and C."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    given = {"dtype": tilus.float16, **SCHEDULE, "cluster_m": 1, "cluster_n": 1, "split_k": 2, "neighbours": 2, **knobs}
    script = cls(**{"sm_count": given["cluster_m"] * given["cluster_n"] * given["split_k"], **given})
    run = simulate(script, m, n, k, a, b, c, target="sm_90a", policy=policy, workers=1)
    return run, check_matmul(a, b, c).ok, c


@pytest.mark.slow
@pytest.mark.parametrize(("cluster_m", "split_k"), CLUSTERS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_right_and_the_same_in_every_order(shape: tuple[int, int, int], cluster_m: int, split_k: int) -> None:
    results = []
    for policy in POLICIES:
        run, good, c = execute(built(), *shape, policy=policy, cluster_m=cluster_m, split_k=split_k)
        assert not run.findings, (policy, [str(finding) for finding in run.findings])
        assert good, policy
        results.append(c)
    assert all(torch.equal(c, results[0]) for c in results)


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {"consumers": 2, "block_m": 128, "e_block_n": 32},
        {"block_n": 128, "e_block_n": 64, "stages": 2, "group_m": 1},
        {"split_k": 8, "block_n": 128, "block_k": 16},
        {"sm_count": 7, "group_m": 1},  # of which one has no cluster
        {"block_m": 16, "block_n": 48, "block_k": 64},
        {"block_m": 32, "block_n": 16, "block_k": 64, "split_k": 1, "sm_count": 9},
        {"split_k": 1, "neighbours": 1, "sm_count": 5},
        {"swap_ab": 1, "split_k": 1, "block_n": 72, "e_block_n": 24, "sm_count": 5},
        {"swap_ab": 1, "split_k": 1, "block_n": 104, "e_block_n": 104, "consumers": 2, "block_m": 128},
        {"swap_ab": 1, "split_k": 4, "block_n": 64, "sm_count": 8},
        {"swap_ab": 1, "cluster_m": 2, "block_n": 80, "sm_count": 8},
        {"cluster_m": 4, "split_k": 1, "sm_count": 8},
        {"swap_ab": 1, "cluster_m": 4, "split_k": 1, "block_n": 96, "e_block_n": 48, "sm_count": 9},
        {"cluster_n": 4, "split_k": 1, "sm_count": 8},
        {"cluster_m": 2, "cluster_n": 2, "split_k": 1, "stages": 2},
        {"cluster_m": 2, "cluster_n": 4, "split_k": 1, "sm_count": 9},
        {"cluster_n": 2, "sm_count": 8},
        {"block_k": 128, "stages": 2},  # a k-tile in two boxes
        {"block_k": 128, "stages": 2, "cluster_m": 2, "split_k": 1, "consumers": 2, "block_m": 128},
        {"cluster_n": 2, "split_k": 1, "block_m": 16, "block_k": 64},
        {"consumers": 3, "block_m": 192, "e_block_n": 32, "cluster_n": 2, "split_k": 1},
        {"swap_ab": 1, "consumers": 3, "block_m": 192, "block_n": 80, "e_block_n": 40, "cluster_n": 2, "split_k": 1},
    ],
    ids=str,
)
def test_other_schedules(knobs: dict[str, int]) -> None:
    run, good, _ = execute(built(), 200, 200, 136, **knobs)
    assert not run.findings and good


@pytest.mark.slow
@pytest.mark.parametrize(("sm_count", "clusters"), [(4, 1), (11, 2), (12, 3), (132, 3)])
def test_no_more_clusters_than_the_rounds_need(sm_count: int, clusters: int) -> None:
    run, good, _ = execute(built(), 64, 192, 128, sm_count=sm_count, split_k=4)  # three tiles of four CTAs
    assert not run.findings and good and run.grid == (4 * clusters, 1, 1)


RACE, WEAK, DEADLOCK, OVERRUN = "data-race", "relaxed-wait", "deadlock", "phase-overrun"
START, EXIT, WRITTEN = "mbarrier-not-initialised", "exit-before-peer", "overwritten-in-flight"
UNWRITTEN = "uninitialised-read"
WAIT = 'self.mbarrier.wait(self.given[which], phase=turn, scope="cluster")'
TO = "target_rank=rank"
ITSELF = "self.mbarrier.arrive(self.given[which])"
GIVER = "(rank + other * self.mine.tiles)"
STORE, LOAD = "[turn, self.blockIdx.x, which", "[turn, giver, which"
LAST = "(of_k + 1) // parts - first_k"
COUNT = "counts=[self.split_k for"
TELL = SOURCE[
    SOURCE.index("                with self.single_thread(0):\n") : SOURCE.index(
        "                # After this wait every CTA"
    )
]
LATE = ("                self.sync()\n" + TELL, TELL + "                self.sync()\n")
"""The arrival, before the sync instead of after it."""

MUTANTS: dict[str, tuple[str, str, tuple[Edit, ...]]] = {
    "no wait": (RACE, "the missing wait: mbarrier.wait on self.given", ((WAIT, DROP, 0),)),
    "no wait: the place is still read": (RACE, "store_global by warp", ((WAIT, DROP, 0),)),
    "no sync before the arrival": (RACE, "one lane of warp", (("self.sync()", DROP, 0),)),
    "a relaxed arrival": (WEAK, "the arrival on self.given", ((TO, f'{TO}, sem="relaxed"', 0),)),
    "a relaxed wait": (WEAK, "the wait on self.given", ((WAIT, f'{WAIT[:-1]}, sem="relaxed")', 0),)),
    "an arrival for the CTA alone": (WEAK, 'scope cta; with scope="cluster"', ((TO, f'{TO}, scope="cta"', 0),)),
    "a wait for the CTA alone": (WEAK, 'scope cta; with scope="cluster"', ((', scope="cluster")', ")", 0),)),
    "one place": (
        RACE,
        "the missing sync: self.cluster.sync()",
        ((STORE, STORE.replace("turn", "0"), 0), (LOAD, LOAD.replace("turn", "0"), 0)),
    ),
    "the place of the next tile": (RACE, "g_parts", ((LOAD, LOAD.replace("turn", "1 - turn"), 0),)),
    "no turn": (OVERRUN, "of self.given", (("turn ^= 1", "pass", 0),)),
    "the first turn is the second": (DEADLOCK, "of self.given", (("turn: uint32 = 0", "turn: uint32 = 1", 0),)),
    "the other parity": (OVERRUN, "of self.given", (("phase=turn, scope", "phase=turn ^ 1, scope", 0),)),
    "an arrival less": (RACE, "g_parts", ((COUNT, COUNT.replace("split_k", "split_k - 1"), 0),)),
    "an arrival more": (DEADLOCK, "lacks 1 of 3 arrival(s)", ((COUNT, COUNT.replace("split_k", "split_k + 1"), 0),)),
    "one CTA is told nothing": (
        DEADLOCK,
        "of self.given",
        (("in range(1, self.split_k, 1)", "in range(2, self.split_k, 1)", 0),),
    ),
    "not told to itself": (DEADLOCK, "lacks 1 of 2 arrival(s)", ((ITSELF, DROP, 0),)),
    "told to itself": (RACE, "the missing arrival", ((TO, "target_rank=self.cluster.blockRank", 0),)),
    "told to another row": (DEADLOCK, "of self.given", ((TO, "target_rank=other * self.cluster_m", 0),)),
    "from another row": (RACE, "g_parts", ((GIVER, "(rank + other)", 0),)),
    "from itself": (UNWRITTEN, "self.g_parts", ((GIVER, "(rank)", 0),)),
    "its own strips given away": (
        UNWRITTEN,
        "self.g_parts",
        (("strip % self.split_k != self.part", "strip % self.split_k == self.part", 0),),
    ),
    "all finish the same strips": (
        WRITTEN,
        "g_c",
        (("strip % self.split_k == self.part:", "strip % self.split_k == 0:", 0),),
    ),
    "a buffer by the number of the strip": (WRITTEN, "s_c", (("strip // self.split_k % self", "strip % self", 0),)),
    "a k-tile in two parts": ("values", "", ((LAST, f"{LAST} + 1", 0),)),
    "no sync at the start": (START, "signals an mbarrier", (("self.cluster.sync()", DROP, 0),)),
    "no wait at the end": (EXIT, "signalled it", (("ring.wait_empty()", DROP, 1),)),
}


MUTATED = (136, 72, 136)
"""What mutants multiply: two rows of two CTAs that share K, with two tiles for each."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_exposed(name: str) -> None:
    code, says, edits = MUTANTS[name]
    exposed(lambda policy: ran(policy, *edits), code, says)


@functools.cache
def ran(policy: str, *edits: Edit) -> tuple[Run, bool]:
    """The run, and whether C is right; once for all that has to be said of a mutant."""
    return execute(built(*edits), *MUTATED, policy, cluster_m=2)[:2]


def exposed(execution: Callable[[str], tuple[Run, bool]], code: str, says: str) -> None:
    run, good = execution(POLICIES[0])
    if code == "values":
        assert not good
    else:
        found = [finding.message for finding in run.findings if finding.code == code]
        assert any(says in message for message in found), [str(finding) for finding in run.findings]
    for policy in POLICIES[1:2]:
        run, good = execution(policy)
        assert not (run.ok and good), policy


@pytest.mark.parametrize("by_element", [1, 0])
def test_what_the_tile_before_stores_is_left_out(by_element: int) -> None:
    mutant = built(("at_m, at_n, tile_m, tile_n)", "at_m, at_n, tile_m, 0)", 1 - by_element))
    run, _, _ = execute(mutant, 72, 144, 40, split_k=1, by_element=by_element, sm_count=6)
    assert {finding.code for finding in run.findings} == {"written-by-two-ctas"}
    assert all(("g_rows" if by_element else "g_c") in finding.message for finding in run.findings)


@pytest.mark.parametrize(("m", "stored"), [(64, 1), (128, 2), (72, 1 + 1), (100, 1 + 5), (200, 3 + 1)])
def test_nearly_all_rows_of_a_tile_are_there(m: int, stored: int) -> None:
    """Of 72 rows the second tile of 64 begins in row 8, and stores the last 8; of 100 in row 40, and stores 40."""
    run, good, _ = execute(built(), m, 64, 32, split_k=1, e_block_n=64)
    assert good and run.counts["cp.async.bulk.tensor (store)"] == stored


@pytest.mark.parametrize(("by_element", "code"), [(1, RACE), (0, WRITTEN)])
def test_rows_that_the_tile_above_stores_are_left_out(by_element: int, code: str) -> None:
    mutant = built(("at_m, at_n, tile_m, tile_n)", "at_m, at_n, 0, tile_n)", 1 - by_element))
    run, _, _ = execute(mutant, 72, 64, 40, split_k=1, by_element=by_element)
    assert {finding.code for finding in run.findings} == {code}


@pytest.mark.parametrize("n", [80, 72])
def test_nearly_all_columns_of_a_tile_are_there(n: int) -> None:
    """The second tile of 64 begins in column 16, and stores its last strip of 16, be it half of one."""
    run, good, _ = execute(built(), 64, n, 32, split_k=1)
    assert good and run.counts["cp.async.bulk.tensor (store)"] == 4 + 1


TRANSPOSED = {"swap_ab": 1, "split_k": 1, "block_n": 72, "e_block_n": 24}


@pytest.mark.parametrize(
    ("m", "n", "stored"), [(72, 64, 3), (80, 64, 3 + 1), (100, 64, 3 + 1 + 1), (64, 72, 2 * 3), (64, 128, 2 * 3)]
)
def test_of_c_transposed_nearly_all_columns_are_there(m: int, n: int, stored: int) -> None:
    """Tiles are 64 of N by 72 of M. Of 80 rows of C the second tile begins in row 8, and stores 8; of 100 in row 32,
    and stores 8 of one strip and a whole one, of which 4 rows lie outside."""
    run, good, _ = execute(built(), m, n, 32, **TRANSPOSED)
    assert good and run.counts["cp.async.bulk.tensor (store)"] == stored


@pytest.mark.parametrize(
    ("edit", "shape"), [("tile_m, 0)", (80, 64, 40)), ("0, tile_n)", (64, 192, 40))], ids=["rows", "columns"]
)
def test_of_c_transposed_what_the_tile_before_stores_is_left_out(edit: str, shape: tuple[int, int, int]) -> None:
    mutant = built(("at_m, at_n, tile_m, tile_n)", f"at_m, at_n, {edit}", 1))
    knobs = {**TRANSPOSED, "consumers": 2, "block_m": 128}
    run, _, _ = execute(mutant, *shape, **knobs)
    assert {finding.code for finding in run.findings} == {WRITTEN}


def test_an_arrival_before_the_sync_is_exposed(tmp_path: Path) -> None:
    mutant = kernel(tmp_path, replaced=LATE)
    exposed(lambda policy: execute(mutant, *MUTATED, policy, cluster_m=2)[:2], RACE, "load_global by")


WRONG = ["no wait", "the place of the next tile", "an arrival less", "told to itself", "from another row"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_comes_too_early_gives_wrong_numbers(name: str) -> None:
    assert not all(ran(policy, *MUTANTS[name][2])[1] for policy in POLICIES)


def test_with_one_row_what_is_given_keeps_the_ctas_together() -> None:
    """The last waits are for those who share B: a CTA has all arrivals of its own `given` before it exits."""
    mutant = built(*MUTANTS["no wait at the end"][2])
    for policy in POLICIES:
        run, good, _ = execute(mutant, 136, 72, 264, policy, split_k=4)
        assert not run.findings and good


@pytest.mark.slow
@pytest.mark.parametrize("stages", [2, 3])
def test_each_box_of_a_k_tile_is_announced(stages: int) -> None:
    mutant = built(("self.block_n) * self.block_k", "self.block_n) * self.box_k", 0))
    run, _, _ = execute(mutant, 200, 136, 264, block_k=128, stages=stages)
    assert "too-few-bytes" in {finding.code for finding in run.findings}


def test_the_boxes_of_a_k_tile_have_places_of_their_own() -> None:
    run, good, _ = execute(
        built(("box = stage * self.boxes + part", "box = stage * self.boxes", 0)), 200, 136, 264, block_k=128, stages=2
    )
    assert run.findings and not good
