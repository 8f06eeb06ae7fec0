"""Tensor memory and the tensor core: values, waits, commits, allocation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tilus
from orders import ORDERS, codes, faulty, finding, line_of, lines, never_ok, run_in, silent
from tensor_core_scripts import CopyToTensorMemory, LastMma, Product, TensorMemory, Twice

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.semantics.tcgen05 import accumulate, multiply, products
from blackwell_matmul.simulator.types import element_by_name


@pytest.mark.parametrize("name", ["float32", "int32", "float16", "bfloat16"])
def test_through_tensor_memory_and_back(name: str) -> None:
    numpy_type = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    x = (np.random.default_rng(0).standard_normal((128, 32)) * 50).astype(numpy_type)
    y = np.zeros_like(x)
    silent(TensorMemory(getattr(tilus, name)), (x, y), y, x)
    silent(TensorMemory(getattr(tilus, name), column=32), (x, y), y, x)


def floats() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((128, 32)).astype(np.float32)
    return x, np.zeros_like(x)


def test_a_store_that_nobody_waited_for() -> None:
    x, y = floats()
    run = faulty(TensorMemory(tilus.float32, wait_store=False), x, y)
    found = finding(run, "read-before-complete")
    assert lines(found) == (line_of(TensorMemory, "tcgen05.load"), line_of(TensorMemory, "tcgen05.store"))
    assert "the missing wait: tcgen05.wait_store" in found.message
    assert np.isnan(y).all()


def test_registers_used_before_wait_load() -> None:
    x, y = floats()
    run = faulty(TensorMemory(tilus.float32, wait_load=False), x, y)
    found = finding(run, "read-before-complete")
    assert lines(found) == (line_of(TensorMemory, "self.store_global"), line_of(TensorMemory, "tcgen05.load"))
    assert "reads r, which tcgen05.ld has not finished" in found.message and "tcgen05.wait_load" in found.message
    assert np.isnan(y).all()


def test_freed_while_a_load_is_in_flight() -> None:
    x, y = floats()
    run = faulty(TensorMemory(tilus.float32, dealloc="early"), x, y)
    assert codes(run) == {"dealloc-in-flight"}
    message = finding(run, "dealloc-in-flight").message
    assert "tcgen05.dealloc by warp 0 frees t_all[0:128, 0:128], which tcgen05.ld (issued by warp" in message


def test_never_freed_does_not_compile() -> None:
    with pytest.raises(CompileError, match="tensor memory is not deallocated before the end of the kernel: t_all"):
        run_in(ORDERS[0], TensorMemory(tilus.float32, dealloc="never"), *floats())


@pytest.mark.parametrize("column", [33, 64])
def test_a_slice_out_of_bounds(column: int) -> None:
    found = finding(faulty(TensorMemory(tilus.float32, column=column), *floats()), "out-of-bounds")
    assert f"slice {column}:{column + 32} leaves dimension 2 of t_all, which has 64 elements" in found.message
    assert lines(found)[0] == line_of(TensorMemory, "tcgen05.slice")


def test_columns_that_are_allocated_again_hold_nothing() -> None:
    y = np.zeros((128, 32), np.float32)
    silent(Twice(), (y,), y, np.full((128, 32), 2.0, np.float32))
    run = faulty(Twice(write=False), y)
    assert codes(run) == {"uninitialised-read"} and np.isnan(y).all()


def test_use_after_free() -> None:
    run = never_ok(Twice(late=True), np.zeros((128, 32), np.float32))
    assert run == {"tensor-memory-not-allocated", "dealloc-in-flight"}
    found = finding(run_in(ORDERS[0], Twice(late=True), np.zeros((128, 32), np.float32)), "tensor-memory-not-allocated")
    assert lines(found) == (line_of(Twice, "store(t_0", 1), line_of(Twice, "dealloc(t_0"))


def test_copy_from_shared_memory() -> None:
    x = np.arange(4096, dtype=np.int32).reshape(128, 32)
    y = np.zeros_like(x)
    silent(CopyToTensorMemory(), (x, y), y, x)
    run = faulty(CopyToTensorMemory(wait_cp_async=False), x, y)
    assert lines(finding(run, "read-before-complete")) == (
        line_of(CopyToTensorMemory, "tcgen05.copy"),
        line_of(CopyToTensorMemory, "self.copy_async(src"),
    )
    assert not np.array_equal(y, x)
    run = faulty(CopyToTensorMemory(overwrite=True), x, y)
    assert lines(finding(run, "overwritten-in-flight")) == (
        line_of(CopyToTensorMemory, "self.store_shared"),
        line_of(CopyToTensorMemory, "tcgen05.copy"),
    )
    assert never_ok(CopyToTensorMemory(wait_copy=False), x, y) >= {"dealloc-in-flight", "in-flight-at-exit"}


# the tensor core

KINDS = {
    "float16": (np.float16, tilus.float32),
    "bfloat16": (ml_dtypes.bfloat16, tilus.float32),
    "float8_e4m3": (ml_dtypes.float8_e4m3fn, tilus.float32),
    "float8_e5m2": (ml_dtypes.float8_e5m2, tilus.float32),
}


def operands(numpy_type: Any = np.float16, k: int = 96, n: int = 16) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Small integers: every product and sum is exact."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-3, 4, (128, k)), rng.integers(-3, 4, (n, k))
    return a.astype(numpy_type), b.astype(numpy_type), (a @ b.T).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("block_n", [16, 32, 48])
def test_a_product_in_k_tiles(name: str, block_n: int) -> None:
    numpy_type, acc = KINDS[name]
    a, b, expected = operands(numpy_type, n=block_n)
    d = np.zeros_like(expected)
    silent(Product(getattr(tilus, name), acc, block_n=block_n), (3, a, b, d), d, expected)


@pytest.mark.parametrize("names", [("int8", "int32"), ("tfloat32", "float32"), ("float32", "float32")])
def test_kinds_that_code_generation_refuses(names: tuple[str, str]) -> None:
    a, b, _ = operands(np.int8 if names[0] == "int8" else np.float32)
    d = np.zeros((128, 16), names[1])
    with pytest.raises(CompileError, match="MMA kind"):
        run_in(ORDERS[0], Product(*(getattr(tilus, name) for name in names)), 3, a, b, d)


def test_the_arithmetic_of_the_tensor_core() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (8, 64)), rng.integers(-128, 128, (64, 8))
    int8 = element_by_name("int8", 8)
    np.testing.assert_array_equal(multiply(a.astype(np.int8), b.astype(np.int8), int8), a @ b)
    one = np.full((1, 1), 1 + 2.0**-12, np.float32)  # tf32 has ten bits of fraction
    assert multiply(one, one, element_by_name("tfloat32", 32)) == 1.0
    wide = np.full((1, 1), 1 + 2.0**-10, np.float32)
    assert multiply(wide, np.ones((1, 1), np.float32), element_by_name("tfloat32", 32)) == wide


def product(**flags: Any) -> tuple[Any, ...]:
    a, b, expected = operands()
    return Product(tilus.float16, tilus.float32, **flags), 3, a, b, np.zeros_like(expected)


def test_an_mma_that_reads_what_tma_still_writes() -> None:
    script, *args = product(wait_tma=False)
    assert never_ok(script, *args) >= {"read-before-complete", "overwritten-in-flight"}
    run = run_in(ORDERS[0], script, *args)
    found = [lines(f) for f in run.findings if f.code == "read-before-complete"]
    mma, loads = line_of(Product, "tcgen05.mma"), [line_of(Product, "global_to_shared", i) for i in (0, 1)]
    assert found == [(mma, loads[0]), (mma, loads[1])]
    assert "the missing wait: mbarrier.wait on tma_barrier" in run.findings[0].message
    assert np.isnan(args[-1]).all()


def test_tma_that_overwrites_what_an_mma_still_reads() -> None:
    script, *args = product(wait_mma=False)
    run = faulty(script, *args)
    assert codes(run) == {"overwritten-in-flight"}
    loads = [line_of(Product, "global_to_shared", i) for i in (0, 1)]
    assert sorted(lines(f)[0] for f in run.findings) == loads
    assert all(lines(f)[1] == line_of(Product, "tcgen05.mma") for f in run.findings)
    assert "still reads; the missing wait: mbarrier.wait on mma_barrier" in run.findings[0].message
    assert not np.array_equal(args[-1], operands()[2])


def test_an_accumulator_that_is_loaded_too_early() -> None:
    script, *args = product(wait_last=False)
    assert never_ok(script, *args) <= {
        "uninitialised-read", "read-before-complete", "overwritten-in-flight", "in-flight-at-exit",
    }  # fmt: skip
    assert np.isnan(args[-1]).any() or not np.array_equal(args[-1], operands()[2])


def test_a_commit_that_is_missing() -> None:
    script, *args = product(commit=False)
    found = finding(faulty(script, *args), "deadlock")
    assert "warps 0, 1, 2, 3 wait at" in found.message
    assert "parity 0 of done, which is in phase 0 (parity 0) and still lacks 1 of 1 arrival(s)" in found.message


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"early": True}, "the missing wait: mbarrier.wait on mma_barrier"),
        ({"other_warp": True}, "which tracks none of them"),
    ],
)
def test_a_commit_tracks_the_prior_operations_of_its_thread(flags: dict[str, Any], said: str) -> None:
    """Neither a later MMA nor another warp's. Nobody waits for the commit that tracks a later one."""
    a, b, expected = operands(k=32)
    d = np.zeros_like(expected)
    run = faulty(Product(tilus.float16, tilus.float32, wait_mma=False, **flags), 1, a, b, d)
    found = [f for f in run.findings if f.code in ("read-before-complete", "dealloc-in-flight")]
    assert {lines(f)[1] for f in found} == {line_of(Product, "tcgen05.mma")}
    assert all(said in f.message for f in found if f.follows is None)
    assert [f.code for f in found if f.follows is not None] == ["dealloc-in-flight"]
    assert not np.array_equal(d, expected)


def test_registers_of_an_accumulator_before_wait_load() -> None:
    script, *args = product(wait_load=False)
    run = faulty(script, *args)
    assert codes(run) == {"read-before-complete", "dealloc-in-flight", "in-flight-at-exit"}
    assert np.isnan(args[-1]).all()


def test_an_accumulator_that_nobody_cleared() -> None:
    script, *args = product(clear=False)
    run = faulty(script, *args)
    assert codes(run) == {"uninitialised-read"} and np.isnan(args[-1]).all()


@pytest.mark.parametrize("more_bytes, lacks", [(32, "32 bytes"), (-32, "an expect_tx of 32 bytes")])
def test_the_wrong_number_of_bytes(more_bytes: int, lacks: str) -> None:
    script, *args = product(more_bytes=more_bytes)
    assert f"of tma_barrier, which is in phase 0 (parity 0) and still lacks {lacks}" in (
        finding(faulty(script, *args), "deadlock").message
    )


def test_bytes_announced_by_every_lane() -> None:
    script, *args = product(lanes=32)
    run = faulty(script, *args)
    assert codes(run) >= {"mbarrier-over-arrival", "deadlock"}
    assert f"and still lacks {31 * (128 + 16) * 64} bytes" in finding(run, "deadlock").message


def test_a_phase_that_is_never_flipped() -> None:
    script, *args = product(flip=False)
    assert never_ok(script, *args) & {"deadlock", "read-before-complete"}
    run_in(ORDERS[0], script, *args)
    assert not np.array_equal(args[-1], operands()[2])


def test_an_mma_in_flight_at_the_end() -> None:
    a = np.ones((128, 64), np.float16)
    for order in ORDERS:
        assert not run_in(order, LastMma(), a).findings
    run = faulty(LastMma(wait=False), a)
    found = finding(run, "dealloc-in-flight")
    assert lines(found) == (line_of(LastMma, "dealloc"), line_of(LastMma, "tcgen05.mma"))
    assert "mbarrier.wait on mma_barrier" in found.message
    run = faulty(LastMma(commit=False, wait=False), a)
    assert "tcgen05.commit to an mbarrier and mbarrier.wait on it" in finding(run, "dealloc-in-flight").message
    message = finding(faulty(LastMma(commit=False), a), "deadlock").message
    assert "warps 1, 2, 3 wait" in message and "for warp(s) 0 at sync()" in message
    assert "in flight, but signalling none of these barriers: tcgen05.mma" in message


@pytest.mark.parametrize("half", [0, 64])
def test_products_of_different_shapes_in_the_same_columns(half: int) -> None:
    for order in ORDERS:
        (found,) = run_in(order, LastMma(half=half), np.ones((128, 64), np.float16)).findings
        assert (found.code, found.severity) == ("order-not-promised", Severity.UNGUARANTEED)
        assert lines(found) == (line_of(LastMma, "# again"), line_of(LastMma, "t_d, enable_input_d=False"))


@pytest.mark.parametrize(("name", "nbits", "k"), [("float16", 16, 16), ("float8_e4m3", 8, 32)])
def test_float16_is_rounded_by_each_mma(name: str, nbits: int, k: int) -> None:
    """2048 and 1 is 2048; rounded once, 2048 and 1 and -2048 are 1."""
    half, item = element_by_name("float16", 16), element_by_name(name, nbits)
    a, b = np.zeros((1, 3 * k), np.float32), np.ones((3 * k, 1), np.float32)
    a[0, :k], a[0, k], a[0, 2 * k :] = 2048 / k, 1, -2048 / k
    cells = np.full((1, 1), 7, np.float16)
    accumulate(cells, products(a, b, item, half), keep=False)
    assert cells == 0
    wide = np.zeros((1, 1), np.float32)
    accumulate(wide, products(a, b, item, element_by_name("float32", 32)), keep=True)
    assert wide == 1
