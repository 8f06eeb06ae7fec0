"""Reductions of register tensors for which tilus 0.2.0 has wrong code or none. They are refused before a pass meets
them.

- tilus combines elements in the type to which the types of tile and result promote. There is no such type if one has
  less than eight bits, or if fp8 meets another type. Six types have max and min (float16's by
  `tilus_compat.hidet_by_name`).
- A sum over lanes shuffles, and no overload of `__shfl_down_sync` takes fp8.
- tilus decides bit by bit which lanes to add (`check_whether_spatial_bit_reduced`), as if every extent were a power of
  two. With another extent among the lanes of a warp it adds the wrong lanes, without an error.
- The sum of a bool tile is a bool; Python's sum is the number of true elements.

The first two fail only in a pass of hidet or in NVRTC, when a script is compiled. An entry is removable when its test
in `tests/frontend/test_reductions.py`, which shows the fault, fails.
"""

from __future__ import annotations

import math
from typing import Any

from tilus.backends.emitters.reduce import ReduceInstEmitter
from tilus.hidet.ir.dtypes import boolean
from tilus.hidet.ir.expr import Constant, Expr, constant
from tilus.hidet.ir.type import DataType
from tilus.hidet.ir.utils.type_utils import numeric_promotion
from tilus.ir.instructions import ReduceInst
from tilus.ir.layout import RegisterLayout

from blackwell_matmul.frontend.faults.tilus_compat import in_place_of

WARP = 32
EXTREMES = ("float64", "float32", "float16", "bfloat16", "int32", "int64")
"""Types for which hidet has max and min."""


def refusal(inst: ReduceInst) -> str | None:
    """Return the reason why tilus has no right code for a reduction, with a remedy; None if it has."""
    x, y = inst.register_input, inst.register_output
    common = combining_type(inst)
    if inst.op == "sum" and x.dtype == boolean:
        return "tilus 0.2.0 makes a truth of a sum of truths; cast it to int32 first"
    if common is None or (inst.op in ("max", "min") and common.name not in EXTREMES):
        into = "" if x.dtype == y.dtype else f" into {y.dtype.name}"
        return f"tilus 0.2.0 has no {inst.op} of {x.dtype.name}{into}; cast it to {_wider(x.dtype)} first"
    if y.dtype.is_float() and y.dtype.nbits == 8 and reduced_lane_bits(inst):
        return (
            f"this {inst.op} runs over the lanes of a warp, which cannot exchange {y.dtype.name}; cast it to float16 "
            "first"
        )
    if _over_threads(inst) and not _splits_at_warps(x.layout):
        return (
            f"tilus 0.2.0 adds the wrong lanes where a tile of {list(x.shape)} lies over {x.layout.spatial_size} "
            "threads by other numbers than powers of two; annotate_layout with powers of two inside of a warp works"
        )
    return None


@in_place_of("backends.emitters.reduce", "ReduceInstEmitter.scalar_init_value")
def from_infinity(initial: Any, self: Any, op: str, dtype: DataType) -> Expr:
    """Start a max from -inf, as torch does. tilus starts from the lowest finite value, which a tile of -inf keeps.

    Removable when `scalar_init_value` is infinite.
    """
    return extreme_of_none(op, dtype) if op in ("max", "min") else initial(self, op, dtype)


def extreme_of_none(op: str, dtype: DataType) -> Constant:
    """Return the max or the min of no elements."""
    if dtype.is_float() and dtype.nbits > 8:
        return constant(-math.inf if op == "max" else math.inf, dtype)
    return dtype.min_value if op == "max" else dtype.max_value


def combining_type(inst: ReduceInst) -> DataType | None:
    """Return the type in which an element is combined with the partial result; None: tilus finds none."""
    types = inst.register_output.dtype, inst.register_input.dtype
    try:
        return types[0] if types[0] == types[1] and types[0].nbits >= 8 else numeric_promotion(*types)
    except ValueError:
        return None


def reduced_lane_bits(inst: ReduceInst) -> list[int]:
    """Return the bits of a lane's number along which the dimension lies."""
    reduced = ReduceInstEmitter.check_whether_spatial_bit_reduced
    return [bit for bit in range(5) if reduced(bit, inst.register_input.layout, inst.dim)]


def _wider(dtype: DataType) -> str:
    if dtype.is_float():
        return "float32"
    return "int64" if dtype.name in ("uint32", "uint64") else "int32"


def _over_threads(inst: ReduceInst) -> bool:
    layout = inst.register_input.layout
    return any(mode in layout.grouped_modes[inst.dim] for mode in layout.spatial_modes)


def _splits_at_warps(layout: RegisterLayout) -> bool:
    """Return True if the extents inside of a warp are powers of two."""
    lanes = 1
    for mode in reversed(layout.spatial_modes):
        extent = layout.mode_shape[mode] if mode >= 0 else -mode
        if lanes < WARP and extent & (extent - 1) and lanes * extent % WARP:
            return False
        lanes *= extent
    return True
