"""What an arrival at a peer tells needs the scope of the cluster, and so does the wait there (PTX ISA, "Morally strong
operations", "tcgen05 Memory Consistency Model")."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import tilus
import torch
from kernel_edits import PLAIN, edited
from orders import ORDERS, line_of, run_in
from scope_scripts import LastMma, Reads

from blackwell_matmul.simulator import Finding, Run, Severity
from blackwell_matmul_studies import mutation

V6 = Path(__file__).parents[3] / "blackwell_matmul/kernels/blackwell/v6.py"
SCHEDULE = {"block_m": 256, "block_n": 64, "block_k": 32, "e_block_n": 32, "stages": 2, "group_m": 4}
TO = "transaction_bytes=0, target_rank=0, "
ACCUMULATOR, ANSWER = f"sums.empty(), {TO}", f"self.responses.empty(), {TO}"
CLUSTER, CTA = 'scope="cluster"', 'scope="cta"'


@functools.cache
def v6(old: str, new: str) -> type:
    source = V6.read_text().replace(*PLAIN).replace("self.type_of_c(dtype)", "dtype")
    return mutation.load(
        edited(source, [(old, new, 0)]) if old else source, "BlackwellMatmulV6", Path(tempfile.mkdtemp())
    )


def run_v6(old: str, new: str, order: Any = ORDERS[0]) -> Run:
    a, b, c = torch.ones(520, 40).half(), torch.ones(72, 40).half(), torch.zeros(520, 72).half()
    script = v6(old, new)(dtype=tilus.float16, **SCHEDULE)
    run = run_in(order, script, 520, 72, 40, a, b, c)
    assert torch.equal(c, torch.full_like(c, 40.0))
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "edge", "says"),
    [
        (ACCUMULATOR + CLUSTER, ACCUMULATOR + CTA, "release", "does not order for that CTA tcgen05.ld"),
        (ANSWER + CLUSTER, ANSWER + CTA, "release", "query_cancel by"),
        ("empties=2 * 128, " + CLUSTER, "empties=2 * 128", "acquire", "does not order tcgen05.ld"),
        ('"cta" if ctas == 1 else "cluster"', '"cta"', "acquire", "the wait on scheduler.responses.empty"),
    ],
    ids=["accumulator arrival", "answer arrival", "accumulator wait", "answer wait"],
)
def test_the_pairs_of_v6_say_which_scope_they_rely_on(old: str, new: str, edge: str, says: str) -> None:
    for order in (ORDERS[0], ORDERS[2]):
        run = run_v6(old, new, order)
        assert run.ok and {found.code for found in run.findings} == {"relaxed-wait"}
        found = run.findings[0]
        assert found.severity is Severity.UNGUARANTEED and found.missing == edge
        assert says in found.message and "has scope cta" in found.message and "PTX ISA" in found.message


@pytest.mark.slow
def test_v6_keeps_the_rule_and_tensor_memory_may_be_told_by_a_relaxed_arrival() -> None:
    assert not run_v6("", "").findings
    old = ACCUMULATOR + CLUSTER
    assert not run_v6(old, f'{ACCUMULATOR}sem="relaxed", {CLUSTER}').findings
    (found,) = run_v6(old, f'{ACCUMULATOR}sem="relaxed", {CTA}').findings
    assert "does not order for that CTA tcgen05.ld" in found.message


def only_of(script: Any, *args: Any) -> Finding:
    runs = [run_in(order, script, *args) for order in ORDERS]
    assert all({found.code for found in run.findings} == {"relaxed-wait"} for run in runs), [
        run.findings for run in runs
    ]
    return runs[0].findings[0]


@pytest.mark.parametrize(("told", "seen", "edge"), [("cta", "cluster", "release"), ("cluster", "cta", "acquire")])
def test_a_read_that_a_peer_is_told_of_before_it_overwrites(told: str, seen: str, edge: str) -> None:
    x, y = torch.arange(64.0).reshape(2, 32), torch.zeros(2, 32)
    found = only_of(Reads(told, seen), x, y)
    assert found.severity is Severity.UNGUARANTEED and found.missing == edge
    assert (found.location.line, found.other.line) == (line_of(Reads, "write anew"), line_of(Reads, "read it"))
    assert 'with scope="cluster" it would order the two (PTX ISA, "Morally strong operations")' in found.message


def test_a_local_arrival_for_the_cta_is_enough() -> None:
    for order in ORDERS:
        x, y = torch.arange(64.0).reshape(2, 32), torch.zeros(2, 32)
        run = run_in(order, Reads("cluster", "cluster"), x, y)
        assert not run.findings and torch.equal(y, x)


@pytest.mark.parametrize(("told", "seen", "edge"), [("cta", "cluster", "release"), ("cluster", "cta", "acquire")])
def test_a_store_to_tensor_memory_that_a_peer_adds_to_is_an_error(told: str, seen: str, edge: str) -> None:
    a, b, d = torch.ones(256, 32).half(), torch.ones(32, 32).half(), torch.zeros(256, 32)
    found = only_of(LastMma(told, seen), a, b, d)
    assert found.severity is Severity.ERROR and found.missing == edge and "tcgen05.st" in found.message
    assert found.at_fault.line == line_of(LastMma, "their stores" if edge == "release" else "hear")


def test_a_store_to_tensor_memory_told_to_the_cluster_is_right() -> None:
    for order in ORDERS:
        a, b, d = torch.ones(256, 32).half(), torch.ones(32, 32).half(), torch.zeros(256, 32)
        run = run_in(order, LastMma("cluster", "cluster"), a, b, d)
        assert not run.findings and torch.equal(d, torch.full_like(d, 33.0)), run.findings
