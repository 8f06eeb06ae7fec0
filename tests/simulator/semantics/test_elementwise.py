"""Register tensors, element by element, against numpy and torch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from clean import clean, only
from scripts_registers import (
    Binary,
    Bits,
    Broadcast,
    Cast,
    Constants,
    OneLaneAssigns,
    Shape,
    SharedBits,
    SliceOutside,
    Slices,
    SomeLeave,
    ThreadDependent,
    Unary,
)
from tilus import bfloat16, boolean, float16, float32, int4b, int8, int16, int32, uint4b, uint8, uint32

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.simulator import simulate

TORCH = {
    "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "uint32": torch.uint32,
}  # fmt: skip


def tile(dtype: str, seed: int, low: float = -4, high: float = 4, shape: tuple[int, ...] = (16, 32)) -> torch.Tensor:
    values = np.random.default_rng(seed).uniform(low, high, shape)
    return torch.from_numpy(values).to(TORCH[dtype])


EXACT = {
    "neg": lambda x: -x,
    "abs": torch.abs,
    "square": lambda x: x * x,
    "clip": lambda x: torch.clamp(x, -1, 2),
}
CLOSE = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
}


NO_CODE = [("abs", bfloat16), ("abs", int32), ("exp2", bfloat16), ("maximum", int8)]
"""Functions that tilus has no code for, on tensors of these types."""


def with_code(ops: Iterable[str], *dtypes) -> list[tuple]:
    return [(op, dtype) for op in ops for dtype in dtypes if (op, dtype) not in NO_CODE]


@pytest.mark.parametrize(("op", "dtype"), with_code(EXACT, float32, float16, bfloat16, int32))
def test_exact_unary(op: str, dtype) -> None:
    x = tile(dtype.name, 1, -9, 9)
    y = torch.empty_like(x)
    clean(Unary(op, dtype), x, y)
    assert torch.equal(y, EXACT[op](x))


@pytest.mark.parametrize(("op", "dtype"), with_code(CLOSE, float32, float16, bfloat16))
def test_transcendental(op: str, dtype) -> None:
    x = tile(dtype.name, 2, 0.25, 4)
    y = torch.empty_like(x)
    clean(Unary(op, dtype), x, y)
    torch.testing.assert_close(y, CLOSE[op](x.double()).to(x.dtype), rtol=2 * torch.finfo(x.dtype).eps, atol=0)


@pytest.mark.parametrize(("op", "dtype"), NO_CODE)
def test_what_has_no_code_is_refused_by_both(op: str, dtype) -> None:
    x = tile(dtype.name, 2, 1, 4)
    script, args = (Binary(op, dtype), (x, x, x)) if op == "maximum" else (Unary(op, dtype), (x, x))
    name, wide = op.replace("maximum", "max"), "int32" if op == "maximum" else "float32"
    instead = "self.where" if op == "abs" else f"cast to {wide} first"
    with pytest.raises(CompileError, match=f"no code for {name} of {dtype.name}; {instead}"):
        simulate(script, *args, workers=1)
    with pytest.raises(CompileError):
        compile(script, *args)


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16])
def test_round_takes_halves_as_the_generated_code_does(dtype) -> None:
    """roundf in float32: away from zero; hrint in the narrow types: to even."""
    x = (torch.arange(512).reshape(16, 32) - 256).to(TORCH[dtype.name]) / 4
    y = torch.empty_like(x)
    clean(Unary("round", dtype), x, y)
    wide = x.double()
    away = torch.trunc(wide + torch.copysign(torch.tensor(0.5), wide))
    assert torch.equal(y.double(), away if dtype is float32 else torch.round(wide))


def test_round_at_the_edges_of_float32() -> None:
    special = torch.tensor([0.49999997, -0.49999997, 8388609.0, -8388609.0, 4194304.5, float("inf"), float("-inf")])
    x = torch.zeros(16, 32)
    x.view(-1)[: len(special)] = special
    y = torch.empty_like(x)
    clean(Unary("round", float32), x, y)
    inf = float("inf")
    assert y.view(-1)[: len(special)].tolist() == [0, 0, 8388609, -8388609, 4194305, inf, -inf]


ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "maximum": torch.maximum,
}
COMPARISONS = {
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
}


@pytest.mark.parametrize(("op", "dtype"), with_code(ARITHMETIC, float32, float16, bfloat16, int32, int8))
def test_arithmetic(op: str, dtype) -> None:
    x, y = tile(dtype.name, 3, -50, 50), tile(dtype.name, 4, -50, 50)
    z = torch.empty_like(x)
    clean(Binary(op, dtype), x, y, z)
    assert torch.equal(z, ARITHMETIC[op](x, y))


@pytest.mark.parametrize("shape", [(16, 1), (1, 32), (1, 1), (32,), (1,), ()])
def test_broadcast(shape: tuple[int, ...]) -> None:
    x = tile("float32", 5)
    y, z = torch.empty_like(x), torch.empty_like(x)
    sizes = {2: shape, 1: (1, *shape), 0: (1, 1)}[len(shape)]
    clean(Broadcast(len(shape), *sizes), x, y, z)
    i, j = np.mgrid[: sizes[0], : sizes[1]]
    other = torch.from_numpy({2: i * 3 - j, 1: 5 - j, 0: np.full((1, 1), 7)}[len(shape)]).float()
    assert torch.equal(y, x * other)
    assert torch.equal(z, torch.where(y > x, other, x))


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparison(op: str) -> None:
    x, y = tile("int32", 7), tile("int32", 8)
    z = torch.empty(16, 32, dtype=torch.bool)
    clean(Binary(op, int32, out_dtype=boolean), x, y, z)
    assert torch.equal(z, COMPARISONS[op](x, y))


def test_maximum_ignores_nan() -> None:
    """fmaxf gives the operand that is a number."""
    x, y = tile("float32", 9), tile("float32", 10)
    x[0], y[1], x[2], y[2] = (float("nan"),) * 4
    z = torch.empty_like(x)
    clean(Binary("maximum", float32), x, y, z)
    np.testing.assert_array_equal(z, np.fmax(x.numpy(), y.numpy()))


@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_integer_division_truncates(op: str) -> None:
    x, y = tile("int32", 11, -100, 100), tile("int32", 12, 1, 9)
    x[0, 0] = -(2**31)
    y[0, 1:] = -3
    z = torch.empty_like(x)
    clean(Binary(op, int32), x, y, z)
    want = torch.div(x, y, rounding_mode="trunc") if op == "floordiv" else torch.fmod(x, y)
    assert torch.equal(z, want)


def test_float_division() -> None:
    x, y = tile("float32", 13), tile("float32", 14)
    y[0, 0] = 0
    z = torch.empty_like(x)
    clean(Binary("div", float32), x, y, z)
    assert torch.equal(z, x / y)


def test_unsigned_arithmetic_wraps() -> None:
    rng = np.random.default_rng(15)
    x, y = (rng.integers(0, 2**32, (16, 32), np.uint32) for _ in range(2))
    for op, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("xor", np.bitwise_xor)):
        z = np.zeros_like(x)
        clean(Binary(op, uint32), x, y, z)
        np.testing.assert_array_equal(z, function(x, y))


def test_functions_of_the_index() -> None:
    x, y = torch.empty(8, 16, dtype=torch.int32), torch.empty(8, 16)
    clean(Constants(), 5, x, y)
    i, j = np.mgrid[:8, :16]
    np.testing.assert_array_equal(x, i * 5 - j + 1)
    np.testing.assert_array_equal(y, np.where((i + j) % 3 == 0, 7.5, 1.5))


def cast(source, target, x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(256 * max(target.nbits, 8) // 8 // TORCH[target.name].itemsize, dtype=TORCH[target.name])
    clean(Cast(source, target), x, y)
    return y


@pytest.mark.slow
@pytest.mark.parametrize("target", [float32, float16, bfloat16, int32, int16, int8, uint8])
@pytest.mark.parametrize("source", [float32, float16, bfloat16, int32, int16, int8, uint8])
def test_cast(source, target) -> None:
    low = 0 if "uint8" in (source.name, target.name) else -120
    x = tile(source.name, 16, low, 120, (256,))
    assert torch.equal(cast(source, target, x), x.to(TORCH[target.name]))


def test_cast_of_a_large_float_saturates() -> None:
    x, y = torch.tensor([3e9, -3e9, float("nan"), float("inf")] * 64), torch.zeros(256, dtype=torch.int32)
    run = simulate(Cast(float32, int32), x, y, workers=1)
    assert y[:4].tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1]
    assert [f.code for f in run.findings] == ["conversion-range"]


def test_cast_rounds_to_nearest_even() -> None:
    x = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 65520.0, -65519.0] * 64)
    assert torch.equal(cast(float32, float16, x), x.half())


@pytest.mark.parametrize(("source", "low"), [(uint4b, 0), (int4b, -8)])
def test_cast_of_packed_integers(source, low: int) -> None:
    """Two in a byte, the first in the low bits."""
    packed = torch.from_numpy(np.random.default_rng(17).integers(0, 256, 128).astype(np.uint8))
    y = torch.zeros(256, dtype=torch.float16)
    clean(Cast(source, float16), packed, y)
    nibbles = np.stack([packed.numpy() & 15, packed.numpy() >> 4], axis=1).reshape(-1).astype(np.int64)
    np.testing.assert_array_equal(y, np.where(nibbles >= 8, nibbles - 16, nibbles) if low else nibbles)


def test_cast_to_packed_integers() -> None:
    x = torch.from_numpy(np.random.default_rng(18).integers(0, 16, 256)).to(torch.int32)
    y = torch.zeros(128, dtype=torch.uint8)
    clean(Cast(int32, uint4b), x, y)
    np.testing.assert_array_equal(y, x.numpy()[::2] | x.numpy()[1::2] << 4)


@pytest.mark.parametrize(
    ("source", "target", "count"),
    [(float32, int32, 4), (float32, uint8, 3), (uint8, float16, 8), (int16, uint32, 2), (uint8, uint8, 5)],
)
def test_view_keeps_the_bits(source, target, count: int) -> None:
    bits = np.random.default_rng(19).integers(0, 120, (32, count * source.nbits // 8), np.uint8)
    x = torch.from_numpy(bits).view(TORCH[source.name])
    y = torch.zeros(32, bits.shape[1] * 8 // target.nbits, dtype=TORCH[target.name])
    clean(Bits(source, target, count), x, y)
    np.testing.assert_array_equal(y.view(torch.uint8), bits)


def test_view_of_bytes_as_nibbles() -> None:
    bits = np.random.default_rng(20).integers(0, 256, (32, 6), np.uint8)
    y = torch.zeros(32 * 6, dtype=torch.uint8)
    clean(Bits(uint8, uint4b, 6), torch.from_numpy(bits), y)
    np.testing.assert_array_equal(y, bits.reshape(-1))


def test_a_view_shares_its_registers() -> None:
    y = torch.empty(32)
    clean(SharedBits(), y)
    np.testing.assert_array_equal(y.view(torch.int32), np.arange(32) + 1)


def test_transpose_squeeze_unsqueeze() -> None:
    x = tile("float16", 21)
    t, u = torch.empty(32, 16, dtype=torch.float16), torch.empty(1, 16, dtype=torch.float16)
    clean(Shape(), x, t, u)
    assert torch.equal(t, x.T)
    assert torch.equal(u[0], x[:, 3])


def test_slices() -> None:
    x = torch.arange(128, dtype=torch.int32).reshape(32, 4)
    y, z = torch.empty(32, dtype=torch.int32), torch.empty(32, 4, dtype=torch.int32)
    clean(Slices(), x, y, z)
    column = x[:, 2]
    assert torch.equal(y, column)
    assert torch.equal(z, torch.stack([column, column + 1, column + 2, x[:, 3]], dim=1))


def test_slice_inside_and_outside() -> None:
    y = torch.zeros(1, dtype=torch.int32)
    clean(SliceOutside(), 3, y)
    assert y.item() == 30
    finding = only(simulate(SliceOutside(), 4, y), "out-of-bounds")
    assert "index 4 of dimension 0 leaves x" in finding.message
    assert finding.location is not None
    assert finding.location.file.endswith("scripts_registers.py")


def test_item_of_a_value_that_differs_between_threads() -> None:
    finding = only(simulate(ThreadDependent(), torch.zeros(1, dtype=torch.int32)), "thread-dependent-scalar")
    assert "must be the same in all of its lanes" in finding.message
    assert finding.location is not None


def test_a_variable_that_some_lanes_assign_and_others_read() -> None:
    y = torch.zeros(32, dtype=torch.int32)
    finding = only(simulate(OneLaneAssigns(), 7, y), "thread-dependent-scalar")
    assert "1 of the lanes of warp 0 assigned a variable that is read here" in finding.message
    assert finding.location is not None
    assert simulate(OneLaneAssigns(readers=1), 7, y).ok
    assert y[0] == 9


@pytest.mark.parametrize("whole", [False, True])
def test_a_loop_or_kernel_that_some_lanes_leave(whole: bool) -> None:
    assert simulate(SomeLeave(leavers=32, whole=whole), 4).ok
    assert simulate(SomeLeave(leavers=8, whole=whole), 2).ok
    finding = only(simulate(SomeLeave(leavers=8, whole=whole), 4), "thread-dependent-scalar")
    assert f"some lanes of warp 0 {'return' if whole else 'break'} here" in finding.message
