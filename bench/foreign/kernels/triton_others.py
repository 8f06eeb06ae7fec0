"""Kernels of Triton that are no plain matmul: attention, rows, moves, atomics, conversions and arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import triton
import triton.language as tl
from case import Argument, Case, Constant, Descriptor, Tensor
from kernels.triton_matmuls import output, schedule

# --- kernels


@triton.jit
def attended(
    q, k, v, o, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """softmax(Q K^T scale) V for one head a program, online over blocks of K and V."""
    row, head = tl.program_id(0) * BM, tl.program_id(1) * length
    rows = row + tl.arange(0, BM)
    queries = q.load([head + row, 0])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = row + BM if CAUSAL else length
    for at in tl.range(0, end, BN, warp_specialize=SPECIALIZE):
        scores = tl.dot(queries, k.load([head + at, 0]).T) * (scale * 1.44269504)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (at + tl.arange(0, BN))[None, :], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(largest - now)
        total = total * shrink + tl.sum(weights, 1)
        acc = tl.dot(weights.to(v.dtype), v.load([head + at, 0]), acc * shrink[:, None])
        largest = now
    o.store([head + row, 0], (acc / total[:, None]).to(o.dtype))


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, (powers / tl.sum(powers, 0)).to(y.dtype.element_ty), mask=at < columns)


@triton.jit
def layernorm(x, weight, bias, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0).to(tl.float32)
    apart = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    normal = apart * tl.rsqrt(tl.sum(apart * apart, 0) / columns + 1e-5)
    scaled = normal * tl.load(weight + at, mask=inside).to(tl.float32) + tl.load(bias + at, mask=inside).to(tl.float32)
    tl.store(y + row * columns + at, scaled.to(y.dtype.element_ty), mask=inside)


@triton.jit
def reduced(x, y, rows, columns, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr):
    """One number for each row: sum, max or the place of the max."""
    row, at = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    inside = (row[:, None] < rows) & (at[None, :] < columns)
    values = tl.load(x + row[:, None] * columns + at[None, :], mask=inside, other=0 if HOW == "sum" else float("-inf"))
    if HOW == "sum":
        found = tl.sum(values.to(tl.float32), 1)
    elif HOW == "max":
        found = tl.max(values, 1)
    else:
        found = tl.argmax(values, 1)
    tl.store(y + row, found.to(y.dtype.element_ty), mask=row < rows)


@triton.jit
def along_rows(x, y, BM: tl.constexpr, BN: tl.constexpr, HOW: tl.constexpr):
    """Prefix sums or sorted rows."""
    at = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None] * BN + tl.arange(0, BN)[None, :]
    values = tl.load(x + at)
    tl.store(y + at, tl.cumsum(values, 1) if HOW == "cumsum" else tl.sort(values, 1))


@triton.jit
def transposed(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row[:, None] < m) & (column[None, :] < n)
    values = tl.load(x + row[:, None] * n + column[None, :], mask=inside)
    tl.store(y + column[:, None] * m + row[None, :], tl.trans(values), mask=tl.trans(inside))


@triton.jit
def transposed_by_maps(x, y, BM: tl.constexpr, BN: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    y.store([column, row], x.load([row, column]).T)


@triton.jit
def boxed(x, y, first, second, BM: tl.constexpr, BN: tl.constexpr):
    """The box at (first, second), which leaves the tensor on each side."""
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(y + at, x.load([first, second]))


@triton.jit
def copied_3d(x, y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    at = [tl.program_id(0) * A, tl.program_id(1) * B, tl.program_id(2) * C]
    y.store(at, x.load(at))


@triton.jit
def copied_by_device_maps(x, y, m, n, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [m, n], [n, 1], [BM, BN])
    target = tl.make_tensor_descriptor(y, [m, n], [n, 1], [BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at))


@triton.jit
def gathered(x, index, y, columns, BM: tl.constexpr, BN: tl.constexpr):
    """Rows by an index, with loads of pointers."""
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN)
    taken = tl.load(index + row)
    values = tl.load(x + taken[:, None] * columns + column[None, :], mask=column[None, :] < columns)
    tl.store(y + row[:, None] * columns + column[None, :], values, mask=column[None, :] < columns)


@triton.jit
def gathered_in_registers(x, index, y, BM: tl.constexpr, BN: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(y + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@triton.jit
def gathered_by_map(x, index, y, BM: tl.constexpr, BN: tl.constexpr):
    """Rows by an index, by TMA."""
    rows = tl.load(index + tl.arange(0, BM))
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(y + at, x.gather(rows, 0))


@triton.jit
def scattered_by_map(x, index, y, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.load(index + tl.arange(0, BM))
    at = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    y.scatter(tl.load(x + at), rows, 0)


@triton.jit
def counted(x, bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """A histogram in each program, then added up with atomics."""
    values = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(bins + tl.arange(0, BINS), tl.histogram(values, BINS))


@triton.jit
def counted_by_atomics(x, bins, BLOCK: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_add(bins + values, 1)


@triton.jit
def added_up(x, lock, y, BLOCK: tl.constexpr):
    """One number from all programs, under a lock of compare-and-swap."""
    found = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(y, tl.load(y) + found)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def converted(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at).to(y.dtype.element_ty))


@triton.jit
def computed(x, y, BLOCK: tl.constexpr, HOW: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    if HOW == "exp":
        values = tl.exp(values)
    elif HOW == "log":
        values = tl.log(values)
    elif HOW == "sin":
        values = tl.sin(values)
    elif HOW == "sqrt":
        values = tl.sqrt_rn(values)
    elif HOW == "rsqrt":
        values = tl.rsqrt(values)
    else:
        values = 1.0 / values
    tl.store(y + at, values.to(y.dtype.element_ty))


@triton.jit
def integers(x, y, divide, modulo, shift, high, unsigned_high, minimum, xor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(divide + at, a // b)
    tl.store(modulo + at, a % b)
    tl.store(shift + at, a >> (b & 31))
    tl.store(high + at, ((a.to(tl.int64) * b.to(tl.int64)) >> 32).to(tl.int32))
    tl.store(unsigned_high + at, tl.umulhi(a, b))
    tl.store(minimum + at, tl.minimum(a, b))
    tl.store(xor + at, a ^ b)


# --- cases


def normal(shape: tuple[int, ...], dtype: str, seed: int = 1, deviation: float = 1.0) -> Tensor:
    return Tensor(shape, dtype, {"integers": [-3, 3], "seed": seed}, {"normal": deviation, "seed": seed})


def constants(**values: Any) -> dict[str, Argument]:
    return {name: Constant(value) for name, value in values.items()}


def case(
    name: str, family: str, kernel: Any, grid: tuple[int, ...], tensors: Mapping[str, Tensor],
    arguments: Mapping[str, Argument], reference: tuple[str, Mapping[str, Any]], warps: int = 4, **more: Any,
) -> Case:  # fmt: skip
    options = {**schedule(more.pop("stages", 2), warps), **more.pop("options", {})}
    return Case(name, family, kernel, grid, tensors, arguments, reference, options=options, **more)


def of_attention(d: int, dtype: str, causal: bool, apart: bool = False, **more: Any) -> Case:
    heads, length, bm, bn = 2, 128, more.pop("bm", 64), more.pop("bn", 64)
    shape = (heads * length, d)
    scale = d**-0.5
    folded = {"q": "q", "k": "k", "v": "v", "out": "o", "scale": scale, "causal": causal, "heads": heads}
    return case(
        f"attention_{dtype}_{d}_{bm}x{bn}{'_causal' if causal else ''}{'_specialized' if apart else ''}",
        "attention",
        attended,
        (length // bm, heads),
        {**{name: normal(shape, dtype, seed) for seed, name in enumerate("qkv", 1)}, "o": output(shape, dtype)},
        {
            "q": Descriptor("q", (bm, d)), "k": Descriptor("k", (bn, d)), "v": Descriptor("v", (bn, d)),
            "o": Descriptor("o", (bm, d)), "length": length, "scale": scale,
            **constants(BM=bm, BN=bn, D=d, CAUSAL=causal, SPECIALIZE=apart),
        },
        ("attention", folded),
        exact=False,
        **more,
    )  # fmt: skip


def of_rows() -> Iterator[Case]:
    for dtype, columns, warps in (("float16", 200, 4), ("bfloat16", 512, 8)):
        yield case(
            f"softmax_{dtype}_{columns}", "rows", softmax, (3,),
            {"x": normal((3, columns), dtype), "y": output((3, columns), dtype)},
            {"x": "x", "y": "y", "columns": columns, **constants(BLOCK=1 << (columns - 1).bit_length())},
            ("rowwise", {"source": "x", "out": "y", "function": "softmax"}), warps, exact=False,
        )  # fmt: skip
    yield case(
        "layernorm_float16_300", "rows", layernorm, (3,),
        {
            "x": normal((3, 300), "float16"), "weight": normal((300,), "float16", 2), "bias": normal((300,), "float16", 3),
            "y": output((3, 300), "float16"),
        },
        {"x": "x", "weight": "weight", "bias": "bias", "y": "y", "columns": 300, **constants(BLOCK=512)},
        ("rowwise", {"source": "x", "out": "y", "function": "layernorm", "weight": "weight", "bias": "bias"}), exact=False,
    )  # fmt: skip
    for how, dtype in (("sum", "float32"), ("max", "float16"), ("argmax", "int32")):
        yield case(
            f"row_{how}", "rows", reduced, (2,),
            {"x": Tensor((21, 77), "float16", {"permutation": True, "seed": 1}, {"normal": 1.0, "seed": 1}), "y": output((21,), dtype)},
            {"x": "x", "y": "y", "rows": 21, "columns": 77, **constants(BM=16, BN=128, HOW=how)},
            ("rowwise", {"source": "x", "out": "y", "function": how}),
        )  # fmt: skip
    for how in ("cumsum", "sort"):
        yield case(
            f"row_{how}", "rows", along_rows, (2,),
            {"x": normal((16, 64), "float32"), "y": output((16, 64), "float32")},
            {"x": "x", "y": "y", **constants(BM=8, BN=64, HOW=how)},
            ("rowwise", {"source": "x", "out": "y", "function": how}),
        )  # fmt: skip


BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "float8_e5m2": 8, "int8": 8, "int32": 32}


def of_moves() -> Iterator[Case]:
    for dtype in ("float16", "int8", "float32"):
        yield case(
            f"transpose_{dtype}", "moves", transposed, (2, 2),
            {"x": normal((60, 100), dtype) if dtype != "int8" else Tensor((60, 100), dtype, {"bytes": True, "seed": 1}), "y": output((100, 60), dtype)},
            {"x": "x", "y": "y", "m": 60, "n": 100, **constants(BM=32, BN=64)},
            ("same", {"y": "x.T"}), targets=(90,),
        )  # fmt: skip
    yield case(
        "transpose_maps_float16", "moves", transposed_by_maps, (2, 2),
        {"x": normal((120, 72), "float16"), "y": output((72, 120), "float16")},
        {"x": Descriptor("x", (64, 64)), "y": Descriptor("y", (64, 64)), **constants(BM=64, BN=64)},
        ("same", {"y": "x.T"}),
    )  # fmt: skip
    for dtype, box, padding in (
        ("float16", (32, 64), "zero"), ("float16", (16, 32), "nan"), ("float32", (16, 16), "nan"), ("float8_e5m2", (64, 16), "zero"),
        ("int8", (8, 128), "zero"), ("bfloat16", (8, 16), "zero"), ("float32", (64, 128), "zero"), ("int32", (16, 64), "zero"),
    ):  # fmt: skip
        step = 128 // BITS[dtype]  # a box starts at a multiple of 16 bytes in a row
        for offset in ((-3, -step), (20, -(-40 // step) * step)):
            kind = {"bytes": True, "seed": 1} if dtype in ("int8", "int32") else {"normal": 1.0, "seed": 1}
            yield case(
                f"box_{dtype}_{box[0]}x{box[1]}_{padding}_{'low' if offset[0] < 0 else 'high'}", "boxes", boxed, (1,),
                {"x": Tensor((40, 80), dtype, kind), "y": output(box, dtype)},
                {"x": Descriptor("x", box, padding=padding), "y": "y", "first": offset[0], "second": offset[1], **constants(BM=box[0], BN=box[1])},
                ("padded", {"source": "x", "out": "y", "offset": offset, "shape": box, "fill": padding}), warps=1, targets=(90,),
            )  # fmt: skip
    yield case(
        "copy_3d_float16", "moves", copied_3d, (2, 2, 2),
        {"x": normal((5, 12, 48), "float16"), "y": output((5, 12, 48), "float16")},
        {"x": Descriptor("x", (4, 8, 32)), "y": Descriptor("y", (4, 8, 32)), **constants(A=4, B=8, C=32)},
        ("same", {"y": "x"}), targets=(90,),
    )  # fmt: skip
    for dtype in ("float32", "int8", "bfloat16"):
        yield case(
            f"copy_device_maps_{dtype}", "moves", copied_by_device_maps, (2, 2),
            {"x": normal((50, 112), dtype) if dtype != "int8" else Tensor((50, 112), dtype, {"bytes": True, "seed": 1}), "y": output((50, 112), dtype)},
            {"x": "x", "y": "y", "m": 50, "n": 112, **constants(BM=32, BN=64)},
            ("same", {"y": "x"}), targets=(90,),
        )  # fmt: skip


def of_gathers() -> Iterator[Case]:
    index = Tensor((32,), "int32", {"integers": [0, 47], "seed": 2})
    rows, taken = normal((48, 64), "float16"), output((32, 64), "float16")
    reference = ("gathered", {"source": "x", "index": "i", "out": "y"})
    yield case(
        "gather_pointers", "gathers", gathered, (2,), {"x": rows, "i": index, "y": taken},
        {"x": "x", "index": "i", "y": "y", "columns": 64, **constants(BM=16, BN=64)}, reference,
    )  # fmt: skip
    yield case(
        "gather_map", "gathers", gathered_by_map, (1,), {"x": rows, "i": index, "y": taken},
        {"x": Descriptor("x", (1, 64)), "index": "i", "y": "y", **constants(BM=32, BN=64)}, reference, targets=(100,),
    )  # fmt: skip
    yield case(
        "scatter_map", "gathers", scattered_by_map, (1,),
        {
            "x": normal((32, 64), "float16"), "y": Tensor((48, 64), "float16", {"fill": 7}),
            "i": Tensor((32,), "int32", {"permutation": True, "seed": 2}),
        },
        {"x": "x", "index": "i", "y": Descriptor("y", (1, 64)), **constants(BM=32, BN=64)},
        ("scattered", {"source": "x", "index": "i", "out": "y"}), targets=(100,),
    )  # fmt: skip
    for axis, extent in ((0, 32), (1, 64)):
        yield case(
            f"gather_registers_{axis}", "gathers", gathered_in_registers, (1,),
            {
                "x": normal((32, 64), "float32"), "i": Tensor((32, 64), "int32", {"integers": [0, extent - 1], "seed": 2}),
                "y": output((32, 64), "float32"),
            },
            {"x": "x", "index": "i", "y": "y", **constants(BM=32, BN=64, AXIS=axis)},
            ("gathered", {"source": "x", "index": "i", "out": "y", "axis": axis}), targets=(90,),
        )  # fmt: skip


def of_atomics() -> Iterator[Case]:
    numbers, bins = Tensor((1024,), "int32", {"integers": [0, 63], "seed": 1}), Tensor((64,), "int32", {"fill": 3})
    reference = ("histogram", {"source": "x", "out": "bins"})
    tensors = {"x": numbers, "bins": bins}
    yield case(
        "histogram",
        "atomics",
        counted,
        (2,),
        tensors,
        {"x": "x", "bins": "bins", **constants(BLOCK=512, BINS=64)},
        reference,
    )
    yield case(
        "histogram_atomics",
        "atomics",
        counted_by_atomics,
        (2,),
        tensors,
        {"x": "x", "bins": "bins", **constants(BLOCK=512)},
        reference,
        targets=(90,),
    )
    yield case(
        "sum_under_lock", "atomics", added_up, (4,),
        {"x": normal((1024,), "float32"), "lock": Tensor((1,), "int32", {"fill": 0}), "y": Tensor((1,), "float32", {"fill": 5})},
        {"x": "x", "lock": "lock", "y": "y", **constants(BLOCK=256)}, ("total", {"source": "x", "out": "y"}), targets=(90,),
    )  # fmt: skip


def of_numbers() -> Iterator[Case]:
    for before, after, targets in (
        ("float32", "float16", (90,)), ("float32", "bfloat16", (90,)), ("float32", "float8_e4m3fn", (90, 100)),
        ("float32", "float8_e5m2", (90,)), ("float16", "float8_e4m3fn", (90,)), ("float8_e4m3fn", "float16", (90,)),
        ("float8_e5m2", "float32", (90,)), ("bfloat16", "float32", (90,)), ("int8", "float16", (90,)),
        ("int32", "float32", (90,)), ("float32", "int32", (90,)), ("float16", "int8", (90,)),
    ):  # fmt: skip
        kind = {"bytes": True, "seed": 1} if before == "int8" else {"integers": [-100, 100], "seed": 1}
        random = {"integers": [-(2**30), 2**30], "seed": 1} if before == "int32" else {"normal": 8.0, "seed": 1}
        yield case(
            f"convert_{before}_{after}", "conversions", converted, (2,),
            {"x": Tensor((512,), before, kind, kind if before == "int8" else random), "y": output((512,), after)},
            {"x": "x", "y": "y", **constants(BLOCK=256)},
            ("elementwise", {"source": "x", "out": "y", "function": "truncate" if after.startswith("int") else "identity"}),
            warps=2, targets=targets,
        )  # fmt: skip
    for how in ("exp", "log", "sin", "sqrt", "rsqrt", "reciprocal"):
        yield case(
            f"compute_{how}", "functions", computed, (2,),
            {"x": Tensor((512,), "float32", {"uniform": [0.25, 6.0], "seed": 1}), "y": output((512,), "float16")},
            {"x": "x", "y": "y", **constants(BLOCK=256, HOW=how)},
            ("elementwise", {"source": "x", "out": "y", "function": how}), warps=2, exact=False, targets=(90,),
        )  # fmt: skip
    outs = {name: name for name in ("divide", "modulo", "shift", "high", "unsigned_high", "minimum", "xor")}
    yield case(
        "integers", "functions", integers, (2,),
        {
            "x": Tensor((512,), "int32", {"integers": [-(2**31), 2**31 - 1], "seed": 1}),
            "y": Tensor((512,), "int32", {"integers": [1, 70000], "seed": 2}),
            **{name: output((512,), "int32") for name in outs},
        },
        {"x": "x", "y": "y", **outs, **constants(BLOCK=256)}, ("arithmetic", {"a": "x", "b": "y", **outs}), warps=2, targets=(90,),
    )  # fmt: skip


def cases() -> Iterator[Case]:
    """Every case of this module."""
    yield of_attention(64, "float16", causal=False)
    yield of_attention(64, "float16", causal=True)
    yield of_attention(128, "bfloat16", causal=False, bm=128, bn=32, warps=8)
    yield of_attention(64, "float16", causal=False, apart=True, bm=128, targets=(100,))
    yield from of_rows()
    yield from of_moves()
    yield from of_gathers()
    yield from of_atomics()
    yield from of_numbers()
