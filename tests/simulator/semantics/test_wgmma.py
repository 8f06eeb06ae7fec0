"""wgmma: values, types and shapes; the kernels for Hopper in bench/gpu, right, clean, and with one line changed."""

from __future__ import annotations

import functools
import inspect
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tilus
import torch
from orders import ORDERS, finding, run_in
from wgmma_scripts import FromRegisters, Onto, Product, Ring

from blackwell_matmul import check, simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.simulator import Run
from blackwell_matmul_studies import mutation

TARGET = "sm_90a"
SAMPLE = 4
"""Generated mutants of each kernel that are run here."""


def integers(rows: int, k: int, numpy_type: Any = np.float16, seed: int = 0) -> np.ndarray:
    """Small ones: every product and sum is exact."""
    return np.random.default_rng(seed).integers(-3, 4, (rows, k)).astype(numpy_type)


# values

KINDS = {
    ("float16", "float32"): np.float16,
    ("float16", "float16"): np.float16,
    ("bfloat16", "float32"): ml_dtypes.bfloat16,
    ("float8_e4m3", "float32"): ml_dtypes.float8_e4m3fn,
    ("float8_e5m2", "float32"): ml_dtypes.float8_e5m2,
    ("tfloat32", "float32"): np.float32,
    ("int8", "int32"): np.int8,
}


def product(shape: tuple[int, int, int], kind: tuple[str, str] = ("float16", "float32"), **groups: int) -> None:
    """In every order: no finding, and the exact product."""
    m, n, k = shape
    a, b = integers(m, k, KINDS[kind]), integers(n, k, KINDS[kind], seed=1)
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    script = Product(getattr(tilus, kind[0]), getattr(tilus, kind[1]), list(shape), **groups)
    for order in ORDERS:
        d = np.zeros((m, n), kind[1])
        run = run_in(order, script, a, b, d, target=TARGET)
        assert not run.findings, (order, [str(f) for f in run.findings])
        np.testing.assert_array_equal(d, expected, err_msg=str(order))


@pytest.mark.parametrize("shape", [(64, 8, 16), (64, 256, 64), (128, 192, 64), (192, 24, 32), (64, 32, 64)], ids=str)
def test_a_tile_of_several_instructions(shape: tuple[int, int, int]) -> None:
    product(shape)


@pytest.mark.parametrize("kind", KINDS, ids=" to ".join)
def test_every_type_that_code_generation_takes(kind: tuple[str, str]) -> None:
    product((64, 32, 32 if kind[0] == "tfloat32" else 64), kind)


@pytest.mark.parametrize("warps, begin", [(8, 4), (12, 8)])
def test_any_warpgroup_of_the_cta(warps: int, begin: int) -> None:
    product((64, 32, 64), warps=warps, begin=begin)


@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_one_fence_is_enough_while_only_mma_touch_the_registers(tiles: int) -> None:
    a, b = integers(64 * tiles, 64), integers(32 * tiles, 64, seed=1)
    parts = [a[64 * i :][:64].astype(np.float32) @ b[32 * i :][:32].astype(np.float32).T for i in range(tiles)]
    for order in ORDERS:
        d = np.zeros((64, 32), np.float32)
        assert not run_in(order, Ring(), tiles, a, b, d, target=TARGET).findings
        np.testing.assert_array_equal(d, sum(parts))


def test_an_accumulator_that_memory_fills() -> None:
    a, b, c = integers(64, 64), integers(32, 64, seed=1), integers(64, 32, np.float32, seed=2)
    for order in ORDERS:
        d = np.zeros_like(c)
        assert not run_in(order, Onto(), a, b, c, d, target=TARGET).findings
        np.testing.assert_array_equal(d, c + a.astype(np.float32) @ b.astype(np.float32).T)


# what is refused


def refusal(script: Any, *args: Any) -> str:
    with pytest.raises(CompileError) as caught:
        run_in(ORDERS[0], script, *args, target=TARGET)
    return str(caught.value)


@pytest.mark.parametrize("groups", [{"begin": 2}, {"count": 8}, {"count": 2}], ids=str)
def test_a_part_of_a_warpgroup_does_not_compile(groups: dict[str, int]) -> None:
    script = Product(tilus.float16, tilus.float32, [64, 32, 64], warps=8, **groups)
    a, b, d = integers(64, 64), integers(32, 64), np.zeros((64, 32), np.float32)
    assert "wgmma is for 128 threads, four neighbouring warps" in refusal(script, a, b, d)


@pytest.mark.parametrize("m, n", [(96, 32), (64, 20)])
def test_a_shape_that_no_instruction_has(m: int, n: int) -> None:
    script = Product(tilus.float16, tilus.float32, [m, n, 32])
    assert "does not compile" in refusal(script, integers(m, 32), integers(n, 32), np.zeros((m, n), np.float32))


def test_a_in_registers_does_not_compile() -> None:
    """tilus 0.2.0 has the instruction and neither a layout rule nor code generation for it."""
    told = refusal(FromRegisters(), integers(64, 64), np.zeros((64, 64), np.float32))
    assert "finds no layout for WgmmaMmaRS" in told


def test_other_targets_do_not_compile() -> None:
    script = Product(tilus.float16, tilus.float32, [64, 32, 64])
    with pytest.raises(CompileError):
        run_in(ORDERS[0], script, integers(64, 64), integers(32, 64), np.zeros((64, 32), np.float32))


# kernels

SIZES = [(200, 72, 264), (256, 136, 136), (100, 40, 16)]
SCHEDULES: dict[str, list[dict[str, int]]] = {
    "wgmma": [{}, {"block_m": 64, "block_n": 96, "block_k": 32}],
    "wgmma_pipelined": [{}, {"block_m": 64, "block_n": 64, "block_k": 32, "stages": 4}],
    "wgmma_specialised": [{"num_ctas": 3}, {"block_n": 64, "block_k": 32, "stages": 2, "num_ctas": 2}],
}
CASES = [(name, schedule) for name, schedules in SCHEDULES.items() for schedule in schedules]


def operands(m: int, n: int, k: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    return m, n, k, a, b, torch.full((m, n), float("nan")).half()


@pytest.mark.slow
@pytest.mark.parametrize("name, schedule", CASES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_kernel_is_right_and_clean(name: str, schedule: dict[str, int], size: tuple[int, int, int]) -> None:
    args = operands(*size)
    report = check(mutation.kernel(name), *args, schedule=schedule, target=TARGET, orders=4, strict=True)
    assert report.ok and not report.findings, str(report)
    assert check_matmul(*args[3:]).ok


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_order_gives_the_same_bits(name: str) -> None:
    results = []
    for policy, seed in ORDERS:
        args = operands(200, 72, 264)
        simulate(mutation.kernel(name), *args, policy=policy, seed=seed, target=TARGET)
        results.append(args[-1])
    assert all(torch.equal(results[0], other) for other in results[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_kernel_compiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", "off")
    bundle = compile(mutation.kernel(name), *operands(384, 256, 256), target=TARGET)
    assert "wgmma.mma_async" in bundle.ptx and bundle.resources.spill_bytes == 0


# mutants

READ, WRITTEN, EXIT, DEADLOCK = "read-before-complete", "overwritten-in-flight", "in-flight-at-exit", "deadlock"
FENCE, PROXY, OVERRUN, PHASE = "missing-wgmma-fence", "missing-proxy-fence", "phase-overrun", "wrong-phase"
DROP = "pass  #"

MUTANTS: dict[str, list[tuple[str, str, int, str]]] = {
    "wgmma": [
        ("self.wgmma.fence()", DROP, 0, FENCE),
        ("self.wgmma.commit_group()", DROP, 0, READ),
        ("self.wgmma.commit_group()", DROP, 0, WRITTEN),
        ("self.wgmma.wait_group(0)", DROP, 0, READ),
        ("self.wgmma.wait_group(0)", DROP, 0, WRITTEN),
        ("self.wgmma.wait_group(0)", DROP, 0, EXIT),
        ("self.mbarrier.wait(", DROP, 0, READ),
        ("phase ^= 1", DROP, 0, PHASE),
        ("self.mbarrier.arrive_and_expect_tx(", DROP, 0, DEADLOCK),
    ],
    "wgmma_pipelined": [
        ("self.wgmma.fence()", DROP, 0, FENCE),
        ("self.wgmma.commit_group()", DROP, 0, WRITTEN),
        ("self.wgmma.wait_group(1)", DROP, 0, WRITTEN),
        ("wait_group(1)", "wait_group(2)", 0, WRITTEN),
        ("wait_group(1)", "wait_group(2)", 0, OVERRUN),
        ("self.wgmma.wait_group(0)", DROP, 0, READ),
        ("self.mbarrier.wait(", DROP, 0, READ),
        ("refill = stage", DROP, 0, DEADLOCK),
        ("self.fence.proxy_async(", DROP, 0, PROXY),
        ("self.sync()", DROP, -1, "uninitialised-read"),
        ("self.tma.commit_group()", DROP, 0, EXIT),
        ("self.tma.wait_group(", DROP, 0, EXIT),
    ],
    "wgmma_specialised": [
        ("self.wgmma.fence()", DROP, 0, FENCE),
        ("self.wgmma.commit_group()", DROP, 0, WRITTEN),
        ("self.wgmma.wait_group(1)", DROP, 0, WRITTEN),
        ("wait_group(1)", "wait_group(2)", 0, WRITTEN),
        ("self.wgmma.wait_group(0)", DROP, 0, READ),
        ("self.wgmma.wait_group(0)", DROP, 0, WRITTEN),
        ("self.mbarrier.wait(full", DROP, 0, READ),
        ("self.mbarrier.wait(empty", DROP, 0, WRITTEN),
        ("self.mbarrier.arrive(empty", DROP, 0, DEADLOCK),
        ("self.mbarrier.arrive(empty", DROP, 1, DEADLOCK),
        ("counts=[2 for", "counts=[1 for", 0, WRITTEN),
        ("counts=[2 for", "counts=[3 for", 0, DEADLOCK),
        ("phase: uint32 = 1", "phase: uint32 = 0", 0, DEADLOCK),
        ("self.fence.proxy_async(", DROP, 0, PROXY),
        ("self.sync()", DROP, 0, "uninitialised-read"),
        ("self.tma.wait_group(", DROP, 0, WRITTEN),
    ],
}
DROPPED = [(name, *mutant) for name, mutants in MUTANTS.items() for mutant in mutants]


def mutated(folder: Path, name: str, old: str, new: str, nth: int) -> type:
    """The kernel's class with the nth line that has `old` changed."""
    cls = mutation.kernel(name)
    lines = Path(inspect.getfile(cls)).read_text().splitlines(keepends=True)
    hit = [i for i, line in enumerate(lines) if old in line][nth]
    lines[hit] = lines[hit].replace(old, f"{new} {old}" if new == DROP else new)
    return mutation.load("".join(lines), cls.__name__, folder)


@functools.cache
def ran(name: str, *edit: Any) -> Run:
    """Once for all that has to be said of it."""
    with tempfile.TemporaryDirectory() as folder:
        return mutation.execute(mutated(Path(folder), name, *edit), mutation.cases(name)[0])[0]


@pytest.mark.slow
@pytest.mark.parametrize("name, old, new, nth, code", DROPPED)
def test_a_mutant_is_exposed(name: str, old: str, new: str, nth: int, code: str) -> None:
    run = ran(name, old, new, nth)
    assert not run.ok and code in {f.code for f in run.findings}, [str(f) for f in run.findings]


def test_registers_of_the_next_tile_need_a_fence_too(tmp_path: Path) -> None:
    """The accumulator is cleared for each tile: one fence before all of them is not enough."""
    cls = mutation.kernel("wgmma_specialised")
    source = Path(inspect.getfile(cls)).read_text().replace("self.wgmma.fence()", "pass")
    early = source.replace("        for tile in range", "        self.wgmma.fence()\n        for tile in range", 1)
    run, _ = mutation.execute(mutation.load(early, cls.__name__, tmp_path), mutation.cases("wgmma_specialised")[0])
    found = finding(run, FENCE)
    assert found.missing == "fence" and "acc, which register_tensor has written" in found.message


def test_the_group_that_would_have_to_be_waited_for_is_counted(tmp_path: Path) -> None:
    cls = mutated(tmp_path, "wgmma_specialised", "wait_group(1)", "wait_group(2)", 0)
    run, _ = mutation.execute(cls, mutation.cases("wgmma_specialised")[0])
    assert "the missing wait: wgmma.wait_group(1) before the arrival at" in finding(run, WRITTEN).message


def sample() -> Iterator[tuple[mutation.Mutant, mutation.Case]]:
    draw = random.Random(3)
    for name in SCHEDULES:
        for mutant in draw.sample(mutation.mutants(name), SAMPLE):
            yield mutant, draw.choice(mutation.cases(name))


@pytest.mark.slow
@pytest.mark.parametrize("mutant, case", list(sample()), ids=str)
def test_a_generated_mutant_does_not_survive(tmp_path: Path, mutant: mutation.Mutant, case: mutation.Case) -> None:
    assert mutation.judge(mutant, case, tmp_path).verdict in ("killed", "equivalent")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rules_tell_a_kernel_from_one_that_orders_less(tmp_path: Path, name: str) -> None:
    case = mutation.cases(name)[0]
    kernel, source = mutation.kernel_steps(name, case), Path(inspect.getfile(mutation.kernel(name))).read_text()
    assert all(rule(kernel, dict(kernel)) for rule in mutation.RULES.values())
    for line in ("self.wgmma.wait_group(", "self.mbarrier.wait(full"):
        if line in source:
            faulty = mutation.steps(mutated(tmp_path, name, line, DROP, 0), case)
            assert not any(rule(kernel, faulty) for rule in mutation.RULES.values()), line
