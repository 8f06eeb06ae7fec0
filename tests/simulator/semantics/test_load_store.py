"""Loads and stores of global and shared memory, and what merging the CTAs' results finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clean import clean, only
from scripts_memory import (
    AddOne,
    Copy2D,
    CopyND,
    JoinedRows,
    NotAnAlias,
    Offset,
    Replicated,
    Reuse,
    Stride,
    ThroughShared,
    TooLarge,
    Uninitialised,
    WideTiles,
)
from tilus import bfloat16, float8_e4m3, float8_e5m2, float16, float32, int8, int32, int64

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator import Severity, simulate

TORCH = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "int32": torch.int32,
    "int64": torch.int64, "int8": torch.int8, "float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2,
}  # fmt: skip


def numbers(dtype: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(-8, 8, shape)).to(TORCH[dtype])


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, int32, int64, int8, float8_e4m3, float8_e5m2])
@pytest.mark.parametrize(("m", "n"), [(16, 32), (37, 65), (1, 1), (3, 100)])
def test_tiles_and_edges(dtype, m: int, n: int) -> None:
    x = numbers(dtype.name, m, n)
    y = torch.zeros_like(x)
    clean(Copy2D(dtype), m, n, n, 1, x, y)
    assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


@pytest.mark.parametrize(("m", "n"), [(37, 61), (8, 64), (5, 7)])
def test_warps_that_hold_parts_of_rows(m: int, n: int) -> None:
    """A warp's registers come from the first columns of a tile alone, whose rows are longer than those."""
    x = torch.arange(m * n, dtype=torch.int32).reshape(m, n)
    y = torch.zeros_like(x)
    clean(WideTiles(), m, n, x, y)
    assert torch.equal(x, y)


@pytest.mark.parametrize(("row", "column"), [(80, 1), (1, 37), (130, 2), (0, 1), (1, 0)])
def test_strides(row: int, column: int) -> None:
    memory = numbers("float32", 6000)
    want = torch.as_strided(memory, (37, 65), (row, column)).clone()
    y = torch.zeros(37, 65)
    clean(Copy2D(float32), 37, 65, row, column, memory, y)
    assert torch.equal(y, want)


@pytest.mark.parametrize(("rank", "shape"), [(1, (100,)), (3, (5, 8, 16)), (3, (3, 7, 11)), (4, (2, 3, 8, 16))])
def test_other_ranks(rank: int, shape: tuple[int, ...]) -> None:
    x = torch.arange(int(np.prod(shape)), dtype=torch.int32).reshape(shape)
    y = torch.zeros_like(x)
    clean(CopyND(rank), *shape, *(1,) * (4 - rank), x, y)
    assert torch.equal(x, y)


@pytest.mark.process
@pytest.mark.parametrize("workers", [1, 2])
def test_processes_do_not_change_the_result(workers: int) -> None:
    x = numbers("float16", 300, 200)
    y = torch.zeros_like(x)
    clean(Copy2D(float16), 300, 200, 200, 1, x, y, workers=workers)
    assert torch.equal(x, y)


def test_numpy_arrays() -> None:
    x = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    y = np.zeros_like(x)
    clean(Copy2D(float32), 16, 32, 32, 1, x, y)
    np.testing.assert_array_equal(x, y)


def test_a_tensor_that_starts_inside_its_storage() -> None:
    whole = numbers("float32", 4, 16, 32)
    y = torch.zeros(16, 32)
    clean(Copy2D(float32), 16, 32, 32, 1, whole[2], y)
    assert torch.equal(whole[2], y)


@pytest.mark.parametrize("start", [0, 5, 32])
def test_offset_pointer(start: int) -> None:
    x, y = torch.arange(64.0), torch.zeros(32)
    clean(Offset(), start, x, y)
    assert torch.equal(y, x[start : start + 32])


@pytest.mark.parametrize("start", [33, 64, -1])
def test_offset_pointer_outside(start: int) -> None:
    run = simulate(Offset(), start, torch.arange(64.0), torch.zeros(32))
    assert not run.ok
    assert run.findings[0].code == "out-of-bounds"
    assert run.findings[0].location is not None


def test_a_view_may_be_smaller_than_the_tile() -> None:
    x, y = torch.arange(64.0), torch.ones(64)
    clean(TooLarge(), 40, x, y)
    assert torch.equal(y, torch.where(x < 40, x, 0.0))


def test_a_view_larger_than_the_tensor() -> None:
    finding = only(simulate(TooLarge(), 64, torch.arange(40.0), torch.ones(64)), "out-of-bounds")
    assert finding.severity is Severity.ERROR
    assert "g_x" in finding.message
    assert "x_ptr (160 bytes)" in finding.message
    assert finding.location is not None
    assert finding.location.line > 0


def test_replicated_store() -> None:
    y = torch.zeros(8, dtype=torch.int32)
    clean(Replicated(), y)
    assert y.tolist() == [i * i for i in range(8)]


def test_two_ctas_write_one_element() -> None:
    finding = only(simulate(Stride(2, 16), 48, torch.zeros(48)), "written-by-two-ctas")
    assert finding.severity is Severity.ERROR
    assert "CTA (0, 0, 0) and CTA (1, 0, 0) both write 16 element(s) of g_y" in finding.message


def test_elements_that_nobody_writes() -> None:
    run = simulate(Stride(2, 64), 128, torch.zeros(128))
    finding = only(run, "never-written")
    assert finding.severity is Severity.UNGUARANTEED
    assert run.ok
    assert "nobody writes 64 of the 128 elements of g_y: tile(s) (1,), (3,)" in finding.message


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [float32, float16, bfloat16, int8])
def test_through_shared_memory(dtype, warps: int) -> None:
    x = numbers(dtype.name, 32, 64)
    y = torch.zeros(64, 32, dtype=x.dtype)
    clean(ThroughShared(dtype, warps), x, y)
    assert torch.equal(y, x.T)


def test_shared_memory_keeps_every_bfloat16() -> None:
    x = torch.arange(2048, dtype=torch.int32).mul(32).to(torch.int16).view(torch.bfloat16).reshape(32, 64)
    y = torch.zeros(64, 32, dtype=torch.bfloat16)
    clean(ThroughShared(bfloat16, 4), x, y)
    same = (y == x.T) | (y.isnan() & x.T.isnan())
    assert same.all()


def test_loaded_registers_are_a_copy() -> None:
    y = torch.zeros(32)
    clean(NotAnAlias(), y)
    assert torch.equal(y, torch.ones(32))


def test_memory_is_reused_after_free_shared() -> None:
    x, y = numbers("float32", 32, 32), torch.zeros(4096, dtype=torch.uint8)
    want = x + 1
    clean(Reuse(True), x, y)
    assert torch.equal(x, want)
    assert torch.equal(y, (torch.arange(4096) % 7).to(torch.uint8))


def test_reused_memory_still_holds_the_freed_bytes() -> None:
    """Nothing clears shared memory; reading it before the first write is the fault."""
    x, y = numbers("float32", 32, 32), torch.zeros(4096, dtype=torch.uint8)
    old = x.clone()
    only(simulate(Reuse(False), x, y), "uninitialised-read")
    assert torch.equal(y.view(torch.float32).sort().values, old.view(-1).sort().values)


def test_uninitialised_shared_memory() -> None:
    y = torch.zeros(2, 32)
    finding = only(simulate(Uninitialised(), y), "uninitialised-read")
    assert "load_shared reads s[0:2, 0:32]" in finding.message
    assert torch.equal(y[0], torch.ones(32))
    assert y[1].isnan().all()


@pytest.mark.parametrize(
    ("warps", "n", "code"), [(2, 64, "data-race"), (1, 128, "read-of-another-cta")], ids=["warps", "CTAs"]
)
def test_tensors_that_share_memory(warps: int, n: int, code: str) -> None:
    memory = torch.arange(256.0)
    assert simulate(AddOne(warps), n, memory[:n], memory[n : 2 * n]).ok  # beside each other
    assert simulate(AddOne(warps), n, memory[:n], memory[:n]).ok  # in place
    assert code in [each.code for each in simulate(AddOne(warps), n, memory[:n], memory[32 : 32 + n]).findings]
    assert code in [each.code for each in simulate(AddOne(warps), n, memory[32 : 32 + n], memory[:n]).findings]


def test_rows_of_parts_that_lie_apart_are_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedError, match=r"does not join permuted dimensions of s \(\S+:\d+\): take the parts"):
        simulate(JoinedRows, np.zeros((4, 8), np.float32))
