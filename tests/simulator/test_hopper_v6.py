"""HopperMatmulV6 and what its CTAs give each other: right at every shape in every order; with one line changed, exposed.

The class is a plain script here, whose arguments are all given, so that no rule chooses a schedule.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tilus
import torch

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.simulator import Run, simulate

SOURCE = (Path(__file__).resolve().parents[2] / "blackwell_matmul/kernels/hopper/v6.py").read_text()
PLAIN = (
    "from blackwell_matmul.kernels.matmul import MatmulScript",
    "from blackwell_matmul import Script as MatmulScript",
)
SCHEDULE = {"block_m": 64, "block_n": 64, "block_k": 32, "e_block_n": 16, "stages": 3, "consumers": 1, "group_m": 4}
POLICIES = ("adversarial", "eager", "random")
SHAPES = [(200, 136, 264), (64, 64, 32), (40, 72, 24), (136, 200, 104)]
"""Tails everywhere; one tile; one k-tile, so that of several parts all but one are empty; tiles for every place."""
CLUSTERS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4)]
NUMBERS = itertools.count()
DROP = "pass  #"

Edit = tuple[str, str, int]
"""In the nth line of code that has the first text, the second in its place."""


def kernel(folder: Path, edits: Sequence[Edit] = ()) -> Any:
    """The class, from a file of its own."""
    lines = SOURCE.replace(*PLAIN).splitlines(keepends=True)
    for old, new, nth in edits:
        hits = [i for i, line in enumerate(lines) if old in line and not line.lstrip().startswith("#")]
        lines[hits[nth]] = lines[hits[nth]].replace(old, f"{new} {old}" if new == DROP else new)
    path = folder / f"hopper_v6_{next(NUMBERS)}.py"
    path.write_text("".join(lines))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # tilus finds the source through it
    spec.loader.exec_module(module)
    return module.HopperMatmulV6


@functools.cache
def right() -> Any:
    return kernel(Path(tempfile.mkdtemp()))


def execute(cls: Any, m: int, n: int, k: int, policy: str = "adversarial", **knobs: int) -> tuple[Run, bool, Any]:
    """The run, whether C is right, and C."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    given = {"dtype": tilus.float16, **SCHEDULE, "cluster_m": 1, "split_k": 2, **knobs}
    script = cls(**{"sm_count": given["cluster_m"] * given["split_k"], **given})
    run = simulate(script, m, n, k, a, b, c, target="sm_90a", policy=policy, workers=1)
    return run, check_matmul(a, b, c).ok, c


@pytest.mark.parametrize(("cluster_m", "split_k"), CLUSTERS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_it_is_right_and_the_same_in_every_order(shape: tuple[int, int, int], cluster_m: int, split_k: int) -> None:
    results = []
    for policy in POLICIES:
        run, good, c = execute(right(), *shape, policy=policy, cluster_m=cluster_m, split_k=split_k)
        assert not run.findings, (policy, [str(finding) for finding in run.findings])
        assert good, policy
        results.append(c)
    assert all(torch.equal(c, results[0]) for c in results)
