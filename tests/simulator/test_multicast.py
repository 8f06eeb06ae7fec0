"""`ClusterOfTiles`: each CTA loads its share of A and of B for all that need it. What must not be left out is found."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from kernel_edits import DROP, Edit
from test_hopper_product import execute, kernel

from blackwell_matmul.kernels.parts import multicast

INLINED = (
    "from blackwell_matmul.kernels.parts.multicast import ClusterOfTiles\n",
    Path(multicast.__file__).read_text().split('"""\n', 1)[1],
)
"""The import of `ClusterOfTiles`, and the class in its place, whose lines are changed as those of a kernel."""

SIZES = 136, 72, 136
TILES = {
    "block_m": 64,
    "block_n": 64,
    "block_k": 32,
    "e_block_n": 32,
    "consumers": 1,
    "stages": 2,
    "cluster_m": 2,
    "cluster_n": 2,
    "split_k": 1,
}
TELL = "self.mbarrier.arrive_and_expect_tx_remote(empty, transaction_bytes=0, target_rank=rank"

MUTANTS: dict[str, tuple[str, Edit]] = {
    "those that share A are told nothing": ("deadlock", (TELL, DROP, 1)),
    "those that share B are told nothing": ("deadlock", (TELL, DROP, 0)),
    "one waits for too few": ("overwritten-in-flight", ("self.writers = m + n - 1", "self.writers = m", 0)),
    "one waits for too many": ("deadlock", ("self.writers = m + n - 1", "self.writers = m + n", 0)),
    "A for those that follow each other": ("deadlock", ("((1 << m * n) - 1) // ((1 << m) - 1)", "((1 << n) - 1)", 0)),
    "a row is told, not a column": ("deadlock", ("% self.n * self.m", "% self.n", 0)),
    "both compute the same column": ("values", ("column * self.n + self.place_n", "column * self.n", 0)),
}


@functools.cache
def built(*edits: Edit) -> Any:
    """The product, with its class of clusters."""
    return kernel(Path(tempfile.mkdtemp()), edits, INLINED)


def test_it_is_right_as_it_stands() -> None:
    run, good, _ = execute(built(), *SIZES, **TILES)
    assert good and not run.findings


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_exposed(name: str) -> None:
    says, edit = MUTANTS[name]
    run, good, _ = execute(built(edit), *SIZES, **TILES)
    assert not good if says == "values" else says in {finding.code for finding in run.findings}
