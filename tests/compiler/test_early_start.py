"""Where a kernel waits for the grids before it: once, after what needs no memory and before all that does."""

from __future__ import annotations

import dataclasses
import re

import pytest
from compiler_samples import EVERY_RUNG, rung_bundle, rung_program, script_bundle

from blackwell_matmul.compiler import Bundle
from blackwell_matmul.frontend.launch_order import GridDependencyInst
from blackwell_matmul.frontend.recording import instructions
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.host.matmul import EARLY_PRODUCTS, EARLY_WEIGHTS, MatmulScript

WAIT = 'asm volatile ("griddepcontrol.launch_dependents; griddepcontrol.wait;"'
MEMORY = re.compile(r"cp_async|shared_global|global_shared|ldmatrix|stmatrix|mbarrier_wait|gmem\w*\[|\*\(\(|tcgen05")
"""What touches memory, or waits for it, in the text of a kernel's body."""

EARLY = [name for name in EVERY_RUNG if rung(name).mma != "tcgen05"]


def body(bundle: Bundle) -> list[str]:
    lines = bundle.source[bundle.source.index('extern "C" __global__') :].splitlines()
    return [line for line in lines[1:] if not line.lstrip().startswith("//")]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_RUNG)
def test_both_views_wait_in_one_place(name: str) -> None:
    program = rung_program(name)
    for view in (program.tile, program.final):
        waits = [each for each in instructions(view) if isinstance(each, GridDependencyInst)]
        assert len(waits) == program.early_start == (name in EARLY)
    if program.early_start:
        (wait,) = (each for each in instructions(program.tile) if isinstance(each, GridDependencyInst))
        assert any(wait is each for each in waits) and program.location_of(wait) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", EARLY)
def test_a_kernel_waits_once_before_it_touches_memory(name: str) -> None:
    lines = body(rung_bundle(name))
    waits = [number for number, line in enumerate(lines) if "griddepcontrol" in line]
    assert len(waits) == 1 and lines[waits[0]].startswith(f"  {WAIT}")  # of every thread: not within a condition
    touching = [number for number, line in enumerate(lines) if MEMORY.search(line)]
    assert touching and waits[0] < touching[0]
    assert rung_bundle(name).plan.early_start != 0


@pytest.mark.parametrize("name", [name for name in EARLY if name != "h0"])
def test_barriers_are_ready_before_the_wait(name: str) -> None:
    before = "\n".join(body(rung_bundle(name))).split(WAIT)[0]
    assert "mbarrier_init_shared" in before and "__syncthreads" in before


@pytest.mark.parametrize("name", ["v0", "v1", "v2"])
def test_a_kernel_with_tensor_memory_starts_in_turn(name: str) -> None:
    bundle = rung_bundle(name)
    assert "griddepcontrol" not in bundle.ptx and not bundle.plan.early_start


@pytest.mark.parametrize(
    ("n", "k", "most"), [(4096, 4096, 512), (2048, 2048, 2048), (8192, 8192, 128), (8192, 8320, 0)]
)
def test_only_small_problems_start_early(n: int, k: int, most: int) -> None:
    assert EARLY_PRODUCTS == 2**33 and EARLY_WEIGHTS == 2**26
    condition = MatmulScript.starts_early({"m": "m", "n": n, "k": k})
    plan = dataclasses.replace(rung_bundle("h5").plan, early_start=condition)
    for m in (1, max(1, most), most + 1, 10**6):
        assert plan.evaluate([m, 1 << 12, 1 << 13, 1 << 14]).early_start is (m <= most)


def test_a_kernel_that_starts_early_takes_no_data_for_read_only() -> None:
    """The preceding grid, which has not ended, may write the data."""
    loads = script_bundle("SumOfTwo", *["array"] * 3)
    assert loads.plan.early_start == 1 and "griddepcontrol.wait" in loads.ptx
    assert "ld.global" in loads.ptx and "ld.global.nc" not in loads.ptx and "__restrict__" not in loads.source


def test_one_that_starts_in_turn_may() -> None:
    loads = script_bundle("SumOfTwo", *["array"] * 3, target="sm_80")
    assert loads.plan.early_start == 0 and "ld.global.nc" in loads.ptx


def test_a_rung_of_a_user_with_other_names_starts_early() -> None:
    assert MatmulScript.starts_early({"rows": "rows", "n": 8192, "k": 8192}) == 1


@pytest.mark.parametrize("name", ["h6", "h7"])
def test_the_first_meeting_of_a_cluster_releases_nothing(name: str) -> None:
    assert "".join(body(rung_bundle(name))).count("barrier.cluster.arrive.relaxed") == 1
    assert "fence.mbarrier_init.release.cluster" in rung_bundle(name).ptx


def test_only_the_first_is_relaxed() -> None:
    text = "\n".join(body(script_bundle("Clusters", 128, "array")))
    assert text.count("barrier.cluster.arrive.relaxed") == text.count("this_cluster().sync()") == 1
    assert text.index("arrive.relaxed") < text.index(WAIT) < text.index("this_cluster().sync()")


def test_a_meeting_after_a_store_releases_it() -> None:
    text = "\n".join(body(script_bundle("LateCluster", 128, "array")))
    assert "arrive.relaxed" not in text and text.index(WAIT) < text.index("this_cluster().sync()")
