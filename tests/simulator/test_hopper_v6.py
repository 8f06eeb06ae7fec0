"""HopperMatmulV6 and its clusters: right at every shape in every order; with one line changed, exposed.

The class is a plain script here, whose arguments are all given, so that no rule chooses a schedule.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tilus
import torch
from kernel_edits import DROP, PLAIN, Edit, edited

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.simulator import Run, simulate
from blackwell_matmul_studies import mutation

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "blackwell_matmul/kernels/hopper/v6.py").read_text()
SCHEDULE = {"block_m": 128, "block_n": 128, "block_k": 64, "e_block_n": 64, "stages": 3, "consumers": 2, "group_m": 16}
POLICIES = ("adversarial", "eager", "random")
SHAPES = [(200, 136, 264), (64, 128, 64), (40, 72, 136), (300, 264, 72), (392, 264, 200)]


def kernel(folder: Path, edits: Sequence[Edit] = ()) -> Any:
    """The class, from a file of its own."""
    return mutation.load(edited(SOURCE.replace(*PLAIN), edits), "HopperMatmulV6", folder)


@functools.cache
def built(*edits: Edit) -> Any:
    """The class, or one with lines changed; once, with its Programs."""
    return kernel(Path(tempfile.mkdtemp()), edits)


def execute(cls: Any, m: int, n: int, k: int, policy: str = "adversarial", **knobs: int) -> tuple[Run, bool]:
    """The run, and whether C is right."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    script = cls(**{"dtype": tilus.float16, **SCHEDULE, "cluster_m": 2, "sm_count": 4, **knobs})
    run = simulate(script, m, n, k, a, b, c, target="sm_90a", policy=policy, workers=1)
    return run, check_matmul(a, b, c).ok


@pytest.mark.slow
@pytest.mark.parametrize("cluster_m", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_right_in_every_order(shape: tuple[int, int, int], cluster_m: int) -> None:
    for policy in POLICIES:
        run, good = execute(built(), *shape, policy=policy, cluster_m=cluster_m)
        assert not run.findings, (policy, [str(finding) for finding in run.findings])
        assert good, policy


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {"consumers": 1, "block_m": 64, "stages": 2, "block_n": 64, "e_block_n": 32},
        {"cluster_m": 4, "sm_count": 8, "block_n": 256, "stages": 2},
        {"sm_count": 5, "group_m": 1},
    ],
)
def test_other_schedules(knobs: dict[str, int]) -> None:
    run, good = execute(built(), 520, 264, 136, **knobs)
    assert not run.findings and good


@pytest.mark.slow
@pytest.mark.parametrize(("sm_count", "clusters"), [(2, 1), (4, 2), (6, 2), (7, 2), (8, 4), (132, 4)])
def test_no_more_clusters_than_the_rounds_need(sm_count: int, clusters: int) -> None:
    run, good = execute(built(), 512, 256, 128, sm_count=sm_count)  # four tiles of two CTAs
    assert not run.findings and good and run.grid == (2 * clusters, 1, 1)


READ, WRITTEN, FEW, DEADLOCK = "read-before-complete", "overwritten-in-flight", "too-few-bytes", "deadlock"
START, EXIT, OVERRUN = "mbarrier-not-initialised", "exit-before-peer", "phase-overrun"
RELEASE = "transaction_bytes=0, multicast_mask=self.sharers"
TO_OWN: tuple[Edit, ...] = (
    ("self.mbarrier.arrive_and_expect_tx_multicast(", "self.mbarrier.arrive_and_expect_tx_remote(", 0),
    (RELEASE, "transaction_bytes=0, target_rank=self.cluster.blockRank", 0),
    ("with self.single_warp(0):", "with self.single_thread(0):", 0),
)
COUNT: Edit = ("empties=self.cluster_m * self.consumers", "empties=self.consumers", 0)
MUTANTS: dict[str, tuple[str, str, tuple[Edit, ...]]] = {
    "no sync at the start": (START, "self.cluster.sync()", (("self.cluster.sync()", DROP, 0),)),
    "no wait at the end": (EXIT, "self.cluster.sync()", (("ring.wait_empty()", DROP, 1),)),
    "a stage less at the end": (EXIT, "self.cluster.sync()", (("_ in range(self.stages)", "_ in range(1)", 0),)),
    "empty counts one CTA": (OVERRUN, "phase 1 of ring.empty_barriers[0]", (COUNT,)),
    "empty counts one CTA: the other still reads": (WRITTEN, "wgmma.mma_async", (COUNT,)),
    "told to rank 0 only": (DEADLOCK, "of CTA (1, 0, 0)", ((RELEASE, RELEASE.replace("self.sharers", "1"), 0),)),
    "told to its own CTA only": (DEADLOCK, "lacks 2 of 4 arrival(s)", TO_OWN),
    "told to its own CTA only, which counts that": (WRITTEN, "the missing arrival", (*TO_OWN, COUNT)),
    "the same share for all": ("values", "", (("offset_n + self.share * share_n", "offset_n", 0),)),
    "all shares at one place": (
        "uninitialised-read",
        "s_b",
        (("s_b_shares[stage, self.share]", "s_b_shares[stage, 0]", 0),),
    ),
    "bytes of its own share": (FEW, "s_b", (("self.block_n) * self.block_k", "share_n) * self.block_k", 0),)),
    "bytes of B twice": (DEADLOCK, "16384 bytes", (("self.block_n) * self", "2 * self.block_n) * self", 0),)),
    "a share is not multicast": (DEADLOCK, "8192 bytes", (("multicast_mask=self.sharers,", "", 0),)),
    "no wait on empty": (WRITTEN, "the missing wait", (("ring.wait_empty()", DROP, 0),)),
    "no wait on full": (READ, "mbarrier.wait on ring.full_barriers", (("ring.wait_full()", DROP, 0),)),
    "told before it is read": (WRITTEN, "wgmma.wait_group(0)", (("self.wgmma.wait_group(0)", DROP, 0),)),
    "a third CTA": ("no-such-cta", "rank 2", (("multicast_mask=self.sharers,", "multicast_mask=7,", 0),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_exposed_in_every_order(name: str) -> None:
    code, says, edits = MUTANTS[name]
    mutant = built(*edits)
    run, good = execute(mutant, 300, 136, 200)
    if code == "values":
        assert not good
    else:
        found = [finding.message for finding in run.findings if finding.code == code]
        assert any(says in message for message in found), [str(finding) for finding in run.findings]
    for policy in POLICIES[1:]:
        run, good = execute(mutant, 300, 136, 200, policy)
        assert not (run.ok and good), policy


# the rules by which the mutation study calls a mutant equivalent

ORDERS_LESS = [
    ("self.cluster.sync()", 0),
    ("ring.wait_empty()", 0),
    ("ring.wait_empty()", 1),
    ("ring.wait_full()", 0),
]


def changed(folder: Path, *edits: Edit) -> Any:
    """The rung, whose schedule the study gives, edited."""
    return mutation.load(edited(SOURCE, edits), "HopperMatmulV6", folder)


def test_the_rules_accept_the_kernel_itself() -> None:
    steps = mutation.kernel_steps("h6", mutation.cases("h6")[0])
    assert all(rule(steps, dict(steps)) for rule in mutation.RULES.values())


@pytest.mark.slow
@pytest.mark.parametrize(("line", "nth"), ORDERS_LESS)
def test_the_rules_tell_it_from_one_that_orders_less(tmp_path: Path, line: str, nth: int) -> None:
    case = mutation.cases("h6")[0]
    steps = mutation.kernel_steps("h6", case)
    less = mutation.steps(changed(tmp_path, (line, DROP, nth)), case)
    assert not any(rule(steps, less) for rule in mutation.RULES.values())


def test_what_reaches_into_another_cta_has_a_consequence_though_nobody_waits_for_it(tmp_path: Path) -> None:
    """One k-tile, no wait at the end: no stage is used again. An arrival less in the other CTA changes nothing; but
    those that are there must be over when it exits."""
    case = mutation.cases("h6")[2]
    no_wait, text = ("ring.wait_empty()", DROP, 1), "multicast_mask=self.sharers, scope"
    late = mutation.steps(changed(tmp_path, no_wait), case)
    fewer = mutation.steps(changed(tmp_path, no_wait, (text, "multicast_mask=1, scope", 0)), case)
    assert mutation.differs_where_nobody_waits(late, fewer)
    assert not mutation.differs_where_nobody_waits(fewer, late)
    assert not mutation.differs_where_nobody_waits(mutation.kernel_steps("h6", case), late)
