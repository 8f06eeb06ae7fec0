"""Strips of C on their way out of a persistent kernel: two buffers take turns, from one tile to the next too."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.kernels import rung
from blackwell_matmul.simulator import Run, simulate
from blackwell_matmul_studies import mutation

PERSISTENT = {
    "h5": {"block_m": 128, "block_k": 64, "stages": 2, "consumers": 2, "group_m": 4, "sm_count": 2},
    "h6": {"block_m": 64, "block_k": 64, "stages": 2, "consumers": 1, "group_m": 4, "cluster_m": 2, "sm_count": 2},
}
ODD = [{"block_n": 96, "e_block_n": 32}, {"block_n": 192, "e_block_n": 64}]
EVEN = {"block_n": 128, "e_block_n": 32}
SIZES = (520, 200, 72)
"""Each of the two CTAs computes several tiles."""

WAIT = "self.tma.wait_group(n=0, read=True)  # strips of the tile before"


def execute(cls: Any, knobs: dict[str, int], policy: str = "adversarial") -> tuple[Run, bool]:
    """The run, and whether C is right."""
    m, n, k = SIZES
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    run = simulate(cls(**knobs), m, n, k, a, b, c, target="sm_90a", policy=policy, workers=1)
    return run, check_matmul(a, b, c).ok


def without_the_wait(name: str, folder: Path) -> Any:
    source = Path(inspect.getfile(rung(name))).read_text()
    assert source.count(WAIT) == 1
    return mutation.load(source.replace(WAIT, "pass  #"), rung(name).__name__, folder)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["adversarial", "eager", "random"])
@pytest.mark.parametrize("strips", ODD, ids=str)
@pytest.mark.parametrize("name", PERSISTENT)
def test_an_odd_number_of_strips_is_right(name: str, strips: dict[str, int], policy: str) -> None:
    run, good = execute(rung(name), {**PERSISTENT[name], **strips}, policy)
    assert not run.findings, [str(finding) for finding in run.findings]
    assert good


@pytest.mark.slow
@pytest.mark.parametrize("strips", ODD, ids=str)
@pytest.mark.parametrize("name", PERSISTENT)
def test_with_an_odd_number_a_tile_starts_in_the_buffer_of_the_last_strip(
    tmp_path: Path, name: str, strips: dict[str, int]
) -> None:
    run, good = execute(without_the_wait(name, tmp_path), {**PERSISTENT[name], **strips})
    assert "overwritten-in-flight" in {finding.code for finding in run.findings}
    assert not good


@pytest.mark.parametrize("name", PERSISTENT)
def test_with_an_even_number_it_starts_in_the_other_one(tmp_path: Path, name: str) -> None:
    run, good = execute(without_the_wait(name, tmp_path), {**PERSISTENT[name], **EVEN})
    assert not run.findings and good
