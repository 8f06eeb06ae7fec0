"""HopperMatmulV7 and what its CTAs give each other: right at every shape in every order; one line changed, exposed.

The class is a plain script here, whose arguments are all given, so that no rule chooses a schedule.
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
from kernel_edits import DROP, PLAIN, Edit, edited

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.simulator import Run, simulate
from blackwell_matmul_studies import mutation

SOURCE = (Path(__file__).resolve().parents[2] / "blackwell_matmul/kernels/hopper/v7.py").read_text()
SCHEDULE = {"block_m": 64, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "consumers": 1, "group_m": 4}
POLICIES = ("adversarial", "eager", "random")
SHAPES = [(200, 136, 136), (40, 72, 24), (136, 200, 104)]
"""Tails everywhere; one k-tile, so that of several parts all but one are empty; tiles for every place."""
CLUSTERS = [(1, 1), (1, 4), (2, 1), (2, 2)]


def kernel(folder: Path, edits: Sequence[Edit] = (), replaced: tuple[str, str] = PLAIN) -> Any:
    """The class, from a file of its own; `replaced` are several lines, and what comes in their place."""
    assert replaced[0] in SOURCE
    source = SOURCE.replace(*PLAIN).replace(*replaced)
    return mutation.load(edited(source, edits), "HopperMatmulV7", folder)


@functools.cache
def built(*edits: Edit) -> Any:
    """The class, or one with lines changed; once, with its Programs."""
    return kernel(Path(tempfile.mkdtemp()), edits)


def execute(cls: Any, m: int, n: int, k: int, policy: str = "adversarial", **knobs: int) -> tuple[Run, bool, Any]:
    """The run, whether C is right, and C."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    given = {"dtype": tilus.float16, **SCHEDULE, "cluster_m": 1, "split_k": 2, **knobs}
    script = cls(**{"sm_count": given["cluster_m"] * given["split_k"], **given})
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
WAIT = 'self.mbarrier.wait(self.given[which], phase=turn, scope="cluster")'
TO = "target_rank=self.share + other * self.cluster_m"
GIVER = "(rank + other * self.cluster_m)"
STORE, LOAD = "[turn, self.blockIdx.x, which", "[turn, giver, which"
LAST = "(self.part + 1) // self.split_k - first_k"
COUNT = "counts=[self.split_k for"
TELL = SOURCE[
    SOURCE.index(
        "                with self.single_thread(0):\n                    for other in range(self.split_k)"
    ) : SOURCE.index("                # After this wait every CTA has read")
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
        (("for other in range(self.split_k)", "for other in range(1)", 0),),
    ),
    "told to itself": (RACE, "the missing arrival", ((TO, "target_rank=self.cluster.blockRank", 0),)),
    "told to another row": (DEADLOCK, "of self.given", ((TO, "target_rank=other * self.cluster_m", 0),)),
    "from another row": (RACE, "g_parts", ((GIVER, "(rank + other)", 0),)),
    "from itself": ("values", "", ((GIVER, "(rank)", 0),)),
    "its own strips given away": (
        "values",
        "",
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


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_exposed(name: str) -> None:
    """Two rows of two CTAs that share K; several tiles for each."""
    code, says, edits = MUTANTS[name]
    exposed(lambda policy: ran(policy, *edits), code, says)


@functools.cache
def ran(policy: str, *edits: Edit) -> tuple[Run, bool]:
    """The run, and whether C is right; once for all that has to be said of a mutant."""
    return execute(built(*edits), 136, 72, 136, policy, cluster_m=2)[:2]


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


def test_an_arrival_before_the_sync_is_exposed(tmp_path: Path) -> None:
    mutant = kernel(tmp_path, replaced=LATE)
    exposed(lambda policy: execute(mutant, 136, 72, 136, policy, cluster_m=2)[:2], RACE, "load_global by")


WRONG = ["no wait", "the place of the next tile", "an arrival less", "told to itself", "from another row"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_what_comes_too_early_gives_wrong_numbers(name: str) -> None:
    assert not all(ran(policy, *MUTANTS[name][2])[1] for policy in POLICIES)


def test_with_one_row_what_is_given_keeps_the_ctas_together() -> None:
    """The last waits are for those who share B: a CTA has all arrivals of its own `given` before it exits."""
    mutant = built(*MUTANTS["no wait at the end"][2])
    for policy in POLICIES:
        run, good, _ = execute(mutant, 200, 136, 264, policy, split_k=4)
        assert not run.findings and good
