"""Tensor maps: their fields, the 128 bytes that a program carries, and a box's bytes in both memories.

The 128 bytes are opaque to programs (PTX ISA, "Tensor Map"). Here they hold the fields unchanged, for maps of a launch
plan and of tensormap.replace alike.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.spaces import Undefined

FIELDS = np.dtype(
    [("address", "u8"), ("dims", "u4", 5), ("strides", "u8", 4), ("box", "u4", 5), ("steps", "u4", 5),
     ("rank", "u1"), ("type", "u1"), ("interleave", "u1"), ("swizzle", "u1"), ("fill", "u1"), ("atom", "u1"),
     ("pad", "u1", 22)],
)  # fmt: skip
"""Fields of a map. strides: in bytes, from the second dimension on. rank: less one, as in tensormap.replace."""

ENCODED_MAP_BYTES = FIELDS.itemsize

ROW_STEP_BYTES = 16
"""Alignment in bytes of a box's start in a row of the tensor."""

ELEMENT_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
    "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types by their number in tensormap.replace's .elemtype."""

ELEMENT_BYTES = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f32.ftz": 4, "f64": 8}
ELEMENT_BYTES |= {"bf16": 2, "tf32": 4, "tf32.ftz": 4}

DRIVER_TYPES = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64", "INT64": "s64",
    "FLOAT16": "f16", "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16", "FLOAT32_FTZ": "f32.ftz",
    "TFLOAT32": "tf32", "TFLOAT32_FTZ": "tf32.ftz", "16U4_ALIGN8B": "b4x16", "16U4_ALIGN16B": "b4x16_p64",
    "16U6_ALIGN16B": "b6x16_p32",
}  # fmt: skip
"""PTX's name of each CU_TENSOR_MAP_DATA_TYPE_…."""

SWIZZLES = {"NONE": 0, "32B": 1, "64B": 2, "128B": 3}
SWIZZLE_SPANS_BYTES = (0, 32, 64, 128)
FILLS = {"NONE": 0, "NAN_REQUEST_ZERO_FMA": 1}


def image(described: Any, address: int) -> bytes:
    """Return the 128 bytes of a launch plan's evaluated TensorMap; address: of its tensor in the emulator."""
    record = np.zeros((), FIELDS)
    rank = len(described.dims)
    record["address"], record["rank"] = address, rank - 1
    record["dims"][:rank], record["box"][:rank] = described.dims, described.box
    record["strides"][: rank - 1], record["steps"][:rank] = described.strides_bytes, described.element_strides
    record["type"] = ELEMENT_TYPES.index(_named(DRIVER_TYPES, described.dtype, "element type"))
    record["swizzle"] = _named(SWIZZLES, described.swizzle, "swizzle")
    record["fill"] = _named(FILLS, described.oob_fill, "fill")
    _named({"NONE": 0}, described.interleave, "interleave")
    return record.tobytes()


def _named(table: dict[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise Undefined(f"a tensor map with {what} {name} is not emulated; there are {', '.join(table)}")
    return table[name]


@dataclass(frozen=True)
class Map:
    """Fields of a map. element_bytes: 1 for two packed elements of 4 bits, with halved extents."""

    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    type: str
    swizzle_bytes: int
    fills_nan: bool

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_packed(self) -> bool:
        return self.type.startswith(("b4", "b6"))


@functools.lru_cache(maxsize=256)
def decode(raw: bytes) -> Map:
    """Return the map that 128 bytes hold; Undefined if no tensor copy takes it."""
    record = np.frombuffer(raw, FIELDS)[0]
    rank = int(record["rank"]) + 1
    if not 1 <= rank <= 5 or not record["address"] or record["type"] >= len(ELEMENT_TYPES):
        raise Undefined("the tensor map is none: its rank, address or element type was never set")
    if record["interleave"] or record["atom"] or record["swizzle"] > 3:
        raise Undefined(
            "a tensor map with interleave, or with another swizzle than none, 32, 64 and 128 bytes, is not emulated"
        )
    dims, strides, box, steps = (tuple(map(int, record[name][:count])) for name, count in _counts(rank))
    swizzle, fills_nan = SWIZZLE_SPANS_BYTES[record["swizzle"]], bool(record["fill"])
    type = ELEMENT_TYPES[record["type"]]
    found = Map(int(record["address"]), dims, strides, box, steps, type, swizzle, fills_nan)
    _verify(found)
    return found


def _counts(rank: int) -> tuple[tuple[str, int], ...]:
    return ("dims", rank), ("strides", rank - 1), ("box", rank), ("steps", rank)


def _verify(found: Map) -> None:
    """Check the rules of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management")."""
    row = _row_bytes(found)
    if found.address % 16 or any(stride % 16 for stride in found.strides):
        raise Undefined(
            f"the tensor map's address {found.address:#x} or strides {found.strides} are no multiples of 16 bytes"
        )
    if any(not 1 <= extent <= 256 for extent in found.box) or any(not 1 <= step <= 8 for step in found.steps):
        raise Undefined(f"the tensor map's box {found.box} or steps {found.steps} are outside of 1 to 256 and 1 to 8")
    if row % 16 or (found.swizzle_bytes and row > found.swizzle_bytes):
        raise Undefined(
            f"the box's rows of {row} bytes are no multiple of 16 or longer than the swizzle of {found.swizzle_bytes}"
        )


def _row_bytes(found: Map) -> int:
    if found.type == "b4x16":
        return found.box[0] // 2
    return found.box[0] if found.is_packed else found.box[0] * ELEMENT_BYTES[found.type]


@dataclass(frozen=True)
class Box:
    """A box of a tensor, in indivisible pieces: elements, or 16 of a packed type.

    places: address of each piece, -1 outside of the tensor. targets: its byte offset in shared memory, before the
    swizzle. piece_bytes: in global memory. slot_bytes, nbytes: in shared memory. counted_bytes: for complete_tx.
    """

    places: Array
    targets: Array
    piece_bytes: int
    slot_bytes: int
    nbytes: int
    counted_bytes: int


@functools.lru_cache(maxsize=1024)
def box_of(found: Map, coordinates: tuple[int, ...]) -> Box:
    """Return the box at these coordinates, innermost first (PTX ISA, "Tiled Mode"); outside is zero.

    PTX does not say so, but the innermost must be a multiple of 16 bytes. An H200 stops at others with an illegal
    instruction (bench/results/h200_foreign.json).
    """
    piece, slot, per_piece = _pieces(found)
    if not found.is_packed and coordinates[0] * piece % ROW_STEP_BYTES:
        told = f"{coordinates[0]} elements of {piece} bytes, which is no multiple of {ROW_STEP_BYTES} bytes"
        raise Undefined(f"a box starts at {told}; a GPU stops with an illegal instruction")
    steps = (1, *found.steps[1:])  # the innermost step is ignored; others select every step-th element
    extents = (-(-found.box[0] // per_piece), *(-(-size // step) for size, step in zip(found.box[1:], steps[1:])))
    if found.is_packed and coordinates[0] % per_piece:
        raise Undefined(f"a box of {found.type} starts at {coordinates[0]}, which is no multiple of {per_piece}")
    address = np.full((1,) * found.rank, found.address, np.int64)
    inside = np.ones((1,) * found.rank, bool)
    for axis, (start, extent) in enumerate(zip(coordinates, extents)):
        shape = [1] * found.rank
        shape[found.rank - 1 - axis] = extent
        index = (start // (per_piece if axis == 0 else 1) + np.arange(extent) * steps[axis]).reshape(shape)
        limit = found.dims[axis] // per_piece if axis == 0 else found.dims[axis]
        address = address + index * (piece if axis == 0 else found.strides[axis - 1])
        inside = inside & (index >= 0) & (index < limit)
    places = np.where(inside, address, -1).reshape(-1)
    targets = np.arange(places.size) * slot
    counted = places.size * (piece if found.is_packed else slot)
    return Box(places, targets, piece, slot, places.size * slot, counted)


def _pieces(found: Map) -> tuple[int, int, int]:
    """Return a piece's bytes in global and in shared memory (b4x16_p64, b6x16_p32: padded to 16), and its elements."""
    packed = {"b4x16": (8, 8, 16), "b4x16_p64": (8, 16, 16), "b6x16_p32": (12, 16, 16)}
    size = ELEMENT_BYTES.get(found.type, 1)
    return packed.get(found.type) or (size, size, 1)


def swizzled(addresses: Array, span: int) -> Array:
    """Return a byte's place under a swizzle of 32, 64 or 128 bytes: address bits 7 to 9 xored into bits 4 to 6."""
    if not span:
        return addresses
    bits = span // 16 - 1
    return addresses ^ (addresses >> 3 & bits << 4)
