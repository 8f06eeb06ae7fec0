"""Products of a warp whose fragments PTX leaves open (PTX ISA, "wmma instructions")."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import UnsupportedError

TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "s4": np.int8,
    "b1": np.int8,
}
BITS = {"s4": 4, "b1": 1}
REGISTERS = {
    ("f16", "m16n16k16"): (8, 8, 8, 4),
    ("f16", "m8n32k16"): (8, 8, 8, 4),
    ("bf16", "m32n8k16"): (8, 2, 8, 8),
    ("tf32", "m16n16k8"): (4, 4, 8, 8),
    ("f64", "m8n8k4"): (1, 1, 2, 2),
    ("s8", "m16n16k16"): (2, 2, 8, 8),
    ("u8", "m8n32k16"): (1, 4, 8, 8),
    ("s4", "m8n8k32"): (1, 1, 2, 2),
    ("b1", "m8n8k128"): (1, 1, 2, 2),
}
"""Registers of A, B, C and D, of the type of A and the shape."""


def stored(values: Any, bits: int | None, by_rows: bool, stride: int) -> Any:
    """A matrix in memory: lines of `stride` elements, of 4 and 1 bits packed."""
    lines = values if by_rows else values.T
    wide = np.zeros((len(lines), stride), lines.dtype)
    wide[:, : lines.shape[1]] = lines
    if bits is None:
        return wide
    parts = (wide.astype(np.int64) & (1 << bits) - 1).reshape(len(wide), -1, 8 // bits)
    return (parts << np.arange(0, 8, bits)).sum(axis=-1).astype(np.uint8)


@pytest.mark.parametrize(("type", "shape"), REGISTERS)
@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col")])
def test_load_multiply_store(type: str, shape: str, layouts: tuple[str, str, str]) -> None:
    """Layouts: of A, B and both C and D; lines are longer than the matrix."""
    bits = BITS.get(type)
    layouts = ("row", "col", layouts[2]) if bits else layouts
    m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
    of_c, of_d = ("f32", "f16") if type == "f16" else ("f64",) * 2 if type == "f64" else ("f32",) * 2
    of_c, of_d = ("s32", "s32") if type[0] in "su" or bits else (of_c, of_d)
    random = np.random.default_rng(8)
    low, high = (0, 2) if type == "b1" else (0, 9) if type == "u8" else (-8, 8) if type == "s4" else (-3, 4)
    a, b = (
        random.integers(low, high, (m, k)).astype(TYPES[type]),
        random.integers(low, high, (k, n)).astype(TYPES[type]),
    )
    c = random.integers(-9, 9, (m, n)).astype(TYPES[of_c])
    strides = [
        (columns if layout == "row" else rows) + (32 * 4 if bits else 16)
        for (rows, columns), layout in zip(((m, k), (k, n), (m, n)), layouts)
    ]
    arrays = [
        stored(each, bits if place < 2 else None, layouts[place] == "row", strides[place])
        for place, each in enumerate((a, b, c))
    ]
    out = np.zeros(stored(c, None, layouts[2] == "row", strides[2]).shape, TYPES[of_d])
    counts, wide = REGISTERS[type, shape], "x" if type == "f64" else "r"
    names = ["{" + ", ".join(f"%w{low + i}" for i in range(count)) + "}" for low, count in zip((0, 8, 16, 24), counts)]
    loads = "".join(
        f"wmma.load.{role}.sync.aligned.{layouts[place]}.{shape}.global.{kind} {names[place]}, [%x{10 + place}], "
        f"{strides[place]};"
        for place, (role, kind) in enumerate((("a", type), ("b", type), ("c", of_c)))
    )
    types = f"{of_d}.{of_c}" if type == "f16" else f"{of_d}.{type}.{type}.{of_c}"
    body = (
        f".reg .b{64 if wide == 'x' else 32} %w<32>;"
        + loads
        + f"wmma.mma{'.xor.popc' * (type == 'b1')}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types} "
        f"{names[3]}, {names[0]}, {names[1]}, {names[2]};"
        f"wmma.store.d.sync.aligned.{layouts[2]}.{shape}.global.{of_d} [%x13], {names[3]}, {strides[2]};"
    )
    run(body, *arrays, out)
    wanted = a.astype(float) @ b.astype(float) + c.astype(float)
    if type == "b1":
        wanted = (a[:, :, None] != b[None]).sum(axis=1) + c
    found = out[:, : n if layouts[2] == "row" else m]
    assert (found if layouts[2] == "row" else found.T).astype(float).tolist() == wanted.tolist()


@pytest.mark.parametrize("types", ["f32.f32", "f32", "s32.s4.s4.s32"])
def test_operands_that_no_shape_has(types: str) -> None:
    with pytest.raises(UnsupportedError, match="registers of A and 1 of B is not emulated"):
        run(f"wmma.mma.sync.aligned.row.col.m16n16k16.{types} {{%r0}}, {{%r1}}, {{%r2}}, {{%r3}};")
