"""Reductions add in the order of the generated code and round at each step: against the same steps in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clean import clean
from scripts_reduce import Exchange, Reduction
from tilus import bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64, int8, int32, int64
from tilus.ir.layout.ops import local, spatial

from blackwell_matmul.simulator import simulate

NUMPY: dict[str, Any] = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2, "int8": np.int8, "int32": np.int32,
    "int64": np.int64,
}  # fmt: skip
FP8 = {"float8_e4m3": 448.0, "float8_e5m2": 57344.0}
SUMMED = [float64, float32, float16, bfloat16, int8, int32, int64]
LANES = local(2, 1).spatial(4, 16).local(1, 2)  # 8 x 32 over two warps; a row of threads is half a warp
WARPS = local(4, 1).spatial(2, 32)  # 8 x 32; each warp has every other row


def added(name: str, a: Any, b: Any) -> Any:
    """One addition, in float64 or in integers, brought to the type."""
    kind = NUMPY[name]
    if name in FP8:
        with np.errstate(over="ignore"):
            half = float(np.float16(float(a) + float(b)))
        return kind(min(max(half, -FP8[name]), FP8[name]))
    if name.startswith("int"):
        bits = np.iinfo(kind).bits
        return kind((int(a) + int(b) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)))
    return kind(float(a) + float(b))


Add = Callable[[Any, Any], Any]


def row_sum(add: Add, zero: Any, row: np.ndarray) -> Any:
    """Two neighbours in each of sixteen threads; then pairs, pairs of pairs ..."""
    parts = [add(add(zero, row[2 * t]), row[2 * t + 1]) for t in range(16)]
    for step in (1, 2, 4, 8):
        parts = [add(parts[t], parts[t | step]) for t in range(16)]
    return parts[0]


def column_sum(add: Add, zero: Any, column: np.ndarray) -> Any:
    """Rows s and s + 4 in a thread, the two halves of a warp, the second warp to the first."""
    parts = [add(add(zero, column[s]), column[4 + s]) for s in range(4)]
    return add(add(parts[2], parts[3]), add(parts[0], parts[1]))


def striped_sum(add: Add, zero: Any, column: np.ndarray) -> Any:
    parts = [zero, zero]
    for i, value in enumerate(column):
        parts[i % 2] = add(parts[i % 2], value)
    return add(parts[1], parts[0])


ORDERS = {"rows": (1, LANES, row_sum), "columns": (0, LANES, column_sum), "warps": (0, WARPS, striped_sum)}


def tile(name: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if name.startswith("int"):
        info = np.iinfo(NUMPY[name])
        return rng.integers(info.min, info.max, (8, 32), NUMPY[name], endpoint=True)
    large = 200 if name in FP8 else 1000
    values = rng.standard_normal((8, 32)) * np.where(rng.random((8, 32)) < 0.3, large, 1)
    return values.clip(-448, 448).astype(NUMPY[name]) if name in FP8 else values.astype(NUMPY[name])


def simulated(op: str, dim: int, x: np.ndarray, dtype: Any, layout: Any, out: Any = None) -> np.ndarray:
    out = out or dtype
    y = np.zeros(x.shape[1 - dim], NUMPY[out.name])
    clean(Reduction(op, dim, dtype, out, list(x.shape), len(y), layout.spatial_size // 32, layout), x, y)
    return y


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", SUMMED, ids=lambda t: t.name)
def test_sums_step_by_step(dtype: Any, order: str) -> None:
    dim, layout, model = ORDERS[order]
    x, name = tile(dtype.name, 1), dtype.name
    want = [model(lambda a, b: added(name, a, b), NUMPY[name](0), line) for line in (x if dim else x.T)]
    np.testing.assert_array_equal(simulated("sum", dim, x, dtype, layout), np.array(want))


@pytest.mark.parametrize("dtype", [float8_e4m3, float8_e5m2], ids=lambda t: t.name)
def test_sums_of_fp8_saturate(dtype: Any) -> None:
    x, name = tile(dtype.name, 2), dtype.name
    x[:, 0] = NUMPY[name](FP8[name])
    want = [striped_sum(lambda a, b: added(name, a, b), NUMPY[name](0), column) for column in x.T]
    got = simulated("sum", 0, x, dtype, WARPS)
    np.testing.assert_array_equal(got, np.array(want))
    assert got[0] == FP8[name]


def test_cancellation_in_float16() -> None:
    """One thread adds 2048 and seven times 1, and the other takes 2048 away: 0, and 7 when rounded once."""
    x = np.zeros((32, 16), np.float16)
    x[:, 0], x[:, 1:8], x[:, 8] = 2048, 1, -2048
    assert (simulated("sum", 1, x, float16, spatial(16, 2).local(2, 8)) == 0).all()
    assert (simulated("sum", 1, x, float16, spatial(16, 2).local(2, 8), out=float32) == 7).all()


def test_a_wider_result_adds_in_its_own_type() -> None:
    x = tile("int8", 3)
    np.testing.assert_array_equal(simulated("sum", 1, x, int8, LANES, out=int32), x.sum(1, dtype=np.int32))


def test_a_narrower_result_rounds_in_each_thread() -> None:
    """(half)((float)half + float), then float16."""
    x = tile("float32", 4)
    half = lambda a, b: np.float16(np.float32(a) + np.float32(b))
    want = [striped_sum(half, np.float16(0), column) for column in x.T]
    np.testing.assert_array_equal(simulated("sum", 0, x, float32, WARPS, out=float16), np.array(want))


def test_float32_denormals_are_zeros() -> None:
    tiny = np.float32(1e-39)
    x = np.full((8, 32), tiny)
    assert (simulated("sum", 1, x, float32, LANES) == 0).all()
    assert (simulated("max", 1, x, float32, LANES) == 0).all()
    x[:, 1] = np.finfo(np.float32).smallest_normal
    x[:, 0] = -x[:, 1] * np.float32(1.5)
    assert (simulated("sum", 1, x, float32, LANES) == 0).all()  # the difference is one


@pytest.mark.parametrize("dtype", [float32, bfloat16])
def test_extremes_of_infinities_and_nan(dtype: Any) -> None:
    """fmaxf starts from -inf and passes NaN over."""
    x = np.full((8, 32), -np.inf, NUMPY[dtype.name])
    x[1:] = np.nan
    x[2, 5], x[3, 7], x[3, 9] = 3, -0.0, 0.0
    got = simulated("max", 1, x, dtype, LANES)
    np.testing.assert_array_equal(got.astype(np.float32)[:4], [-np.inf, -np.inf, 3, 0])
    assert not np.signbit(got[3])
    low = simulated("min", 1, -x, dtype, LANES)
    np.testing.assert_array_equal(low.astype(np.float32)[:4], [np.inf, np.inf, -3, 0])
    assert np.signbit(low[3])


def test_a_reduction_inside_of_warps_is_no_barrier() -> None:
    """Where each warp has whole rows the code has no bar.sync; the scratch memory is what needs one."""
    x, y, z = tile("float32", 5), np.zeros(32, np.float32), np.zeros((8, 32), np.float32)
    clean(Exchange(0, 32, LANES, WARPS), x, y, z)
    run = simulate(Exchange(1, 8, LANES, WARPS), x, y[:8].copy(), z)
    assert not run.ok
    assert "data-race" in {finding.code for finding in run.findings}
