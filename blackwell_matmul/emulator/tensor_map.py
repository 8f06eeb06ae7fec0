"""Tensor maps: the 128 bytes of a CUtensorMap, as hardware reads them, and addresses of a box in global and shared
memory.

PTX does not define the bytes (PTX ISA, "Tensor Map"). ptxas turns each tensormap.replace into ordinary stores, which
show the place and the coding of the fields (ptxas 13.0 for sm_90a and sm_100a). The kind and the L2 promotion are as in
maps that CUDA's driver encodes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.base.validation import integer, plain_text, shown
from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.spaces import Undefined

ENCODED_MAP_BYTES = 128
USED_MAP_BYTES = 64
"""Bytes of a map that hold fields; the other bytes are zero."""


class Field(NamedTuple):
    """Place and coding of a field. parts: first bit, width in bits, and step in bits from one index to the next; low
    bits first.

    values: number of values. unit: each value is a multiple of it. bias: subtracted before the value is stored. least:
    minimum value.
    """

    parts: tuple[tuple[int, int, int], ...]
    values: int = 1
    unit: int = 1
    bias: int = 0
    least: int = 0

    @property
    def codes(self) -> int:
        """Return the number of codes, a power of two."""
        return 1 << sum(width for _, width, _ in self.parts)


FIELDS = {
    "address": Field(((0, 64, 0),)),
    "kind": Field(((64, 4, 0),)),
    "rank": Field(((68, 3, 0),)),
    "type": Field(((71, 4, 0), (80, 1, 0))),
    "interleave": Field(((75, 2, 0),)),
    "swizzle": Field(((77, 2, 0), (86, 1, 0))),
    "fill": Field(((79, 1, 0),)),
    "promotion": Field(((81, 2, 0),)),
    "atom": Field(((83, 3, 0),)),
    "strides": Field(((96, 32, 32), (224, 4, 4)), 4, unit=16),
    "dims": Field(((256, 32, 32),), 5, bias=1),
    "steps": Field(((416, 3, 3),), 5, bias=1, least=1),
    "box": Field(((440, 8, 8),), 5, bias=1, least=1),
}
"""Fields of an encoded map.

strides: in bytes, from the second dimension on. rank: stored as rank - 1, as in tensormap.replace. A 0 in dims is
stored as 2^32, as ptxas does.
"""

TILED = 2
"""Kind of a tiled map from the driver. A map made only by tensormap.replace has kind 0."""

PLAIN_ATOMS = (0, 4)
"""Codes of a swizzle atom of 16 bytes. CuTe DSL 4.8 writes 4 in maps with rows below 128 bytes or without a swizzle.
Its kernels give right results with 16-byte atoms."""

ROW_STEP_BYTES = 16
"""Alignment in bytes of a box's start in the innermost dimension of the tensor."""

ELEMENT_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz",
    "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types, indexed by their number in tensormap.replace's .elemtype."""

TYPE_CODES = (*range(11), 16 + 7, 16 + 8, 11, 12, 13)
"""Code in a map of each element type, in the order of ELEMENT_TYPES. tf32 is f32 with a flag."""

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
PROMOTIONS = {"NONE": 0, "L2_64B": 1, "L2_128B": 2, "L2_256B": 3}


def image(described: Any, address: int) -> bytes:
    """Return the 128 bytes of a TensorMap whose expressions are evaluated. address: emulated address of its tensor."""
    for name, least in (("dims", 1), ("strides_bytes", 0), ("box", 0), ("element_strides", 0)):
        each = getattr(described, name)
        if not isinstance(each, (tuple, list)) or any(integer(value, least, 2**63) is None for value in each):
            raise Undefined(f"the tensor map's {name} is {shown(each)}: it is a list of whole numbers from {least} on")
    fields: dict[str, Any] = {
        "address": address, "kind": TILED, "rank": len(described.dims) - 1, "dims": described.dims,
        "strides": described.strides_bytes, "box": described.box, "steps": described.element_strides,
        "type": ELEMENT_TYPES.index(_named(DRIVER_TYPES, described.dtype, "element type")),
        "swizzle": _named(SWIZZLES, described.swizzle, "swizzle"),
        "fill": _named(FILLS, described.oob_fill, "fill"),
        "promotion": _named(PROMOTIONS, described.l2_promotion, "L2 promotion"),
        "interleave": _named({"NONE": 0}, described.interleave, "interleave"),
    }  # fmt: skip
    lists = [fields[name] for name in ("dims", "box", "steps", "strides")]
    if len({len(each) for each in lists[:3]} | {len(lists[3]) + 1}) > 1:
        text = ", ".join(str(len(each)) for each in lists)
        raise Undefined(
            f"the tensor map has {text} dims, box, element_strides and strides_bytes; strides are one fewer"
        )
    raw = bytes(ENCODED_MAP_BYTES)
    for name, value in fields.items():
        for index, each in enumerate(value if isinstance(value, (tuple, list)) else [value]):
            raw = replaced(raw, name, int(each), index)
    return raw


def replaced(raw: bytes, name: str, value: int, index: int = 0) -> bytes:
    """Return a map's bytes with a new value of a field. The element type is given by PTX's number."""
    field, bits = FIELDS[name], int.from_bytes(raw, "little")
    if not 0 <= index < field.values:
        raise Undefined(f"the tensor map's {name} {index} is not there; there are {field.values}")
    if name == "type":
        value = _type_code(value)
    if value % field.unit:
        raise Undefined(f"the tensor map's {name} of {value} are no multiples of {field.unit} bytes")
    highest = (field.codes - 1 + field.bias) * field.unit
    if not field.least <= value <= highest:
        raise Undefined(f"the tensor map's {name} of {value} is outside of {field.least} to {highest:,}")
    code = (value // field.unit - field.bias) % field.codes
    for first, width, step in field.parts:
        mask = (1 << width) - 1
        bits = bits & ~(mask << first + step * index) | (code & mask) << first + step * index
        code >>= width
    return bits.to_bytes(len(raw), "little")


def _type_code(number: int) -> int:
    if not 0 <= number < len(TYPE_CODES):
        raise Undefined(f"the tensor map's element type {number} is none of 0 to {len(TYPE_CODES) - 1}")
    return TYPE_CODES[number]


def _field(bits: int, name: str, index: int = 0) -> int:
    """Return a field's value; of the element type, its code."""
    field, code, at = FIELDS[name], 0, 0
    for first, width, step in field.parts:
        code |= (bits >> first + step * index & (1 << width) - 1) << at
        at += width
    return (code + field.bias) * field.unit


def _named(table: dict[str, Any], name: object, what: str) -> Any:
    found = plain_text(name)
    if found is None or found not in table:
        raise Undefined(f"a tensor map with {what} {shown(name)} is not emulated; there are {', '.join(table)}")
    return table[found]


@dataclass(frozen=True)
class Map:
    """Fields of a tensor map. strides: in bytes, from the second dimension on. steps: element strides."""

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
    """Return the fields of an encoded map; raise Undefined if no tensor copy accepts the map."""
    bits = int.from_bytes(raw, "little")
    one = functools.partial(_field, bits)
    rank = one("rank") + 1
    if not rank <= 5 or not one("address") or one("type") not in TYPE_CODES:
        raise Undefined("the tensor map is none: its rank, address or element type was never set")
    if one("kind") not in (0, TILED) or one("interleave") or one("atom") not in PLAIN_ATOMS or one("swizzle") > 3:
        raise Undefined(
            "a tensor map of another kind than tiled, with interleave, or with another swizzle than none, 32, 64 and "
            "128 bytes, is not emulated"
        )
    dims, box, steps = (tuple(one(name, axis) for axis in range(rank)) for name in ("dims", "box", "steps"))
    strides = tuple(one("strides", axis) for axis in range(rank - 1))
    type = ELEMENT_TYPES[TYPE_CODES.index(one("type"))]
    span = SWIZZLE_SPANS_BYTES[one("swizzle")]
    found = Map(one("address"), dims, strides, box, steps, type, span, bool(one("fill")))
    _verify(found)
    return found


def _verify(found: Map) -> None:
    """Check the rules of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management")."""
    row = _row_bytes(found)
    if found.address % 16:
        raise Undefined(f"the tensor map's address {found.address:#x} is no multiple of 16 bytes")
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
    """A box of a tensor, in pieces. A piece is 16 bytes if each 16 bytes are all inside or all outside of the tensor.
    Otherwise a piece is an element, or 16 elements of a packed type.

    places: global address of each piece, -1 outside of the tensor. piece_bytes: in global memory. slot_bytes, nbytes:
    of a piece and of the box, in shared memory. counted_bytes: bytes that complete_tx counts.
    """

    places: Array
    piece_bytes: int
    slot_bytes: int
    nbytes: int
    counted_bytes: int

    @functools.cached_property
    def inside(self) -> Array:
        """Return the addresses of the pieces inside of the tensor."""
        return self.places if self.places.min() >= 0 else self.places[self.places >= 0]

    @functools.cached_property
    def ends(self) -> tuple[int, int]:
        """Return the first address inside of the tensor, and the address after the last byte inside."""
        return int(self.inside.min()), int(self.inside.max()) + self.piece_bytes

    def of_inside(self, values: Array) -> Array:
        """Return the rows of `values` for the pieces inside of the tensor. values: a row for each piece."""
        return values if self.inside is self.places else values[self.places >= 0]


@functools.lru_cache(maxsize=1024)
def box_of(found: Map, coordinates: tuple[int, ...]) -> Box:
    """Return the box at these coordinates, innermost first (PTX ISA, "Tiled Mode").

    The innermost start must be a multiple of 16 bytes, which PTX does not say. An H200 stops at other starts with an
    illegal instruction (bench/results/h200_foreign.json).
    """
    piece, slot, per_piece = _pieces(found, coordinates[0])
    steps = (1, *found.steps[1:])  # the innermost step is ignored; others select every step-th element
    extents = (-(-found.box[0] // per_piece), *(-(-size // step) for size, step in zip(found.box[1:], steps[1:])))
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
    counted = places.size * (piece if found.is_packed else slot)
    return Box(places, piece, slot, places.size * slot, counted)


def _pieces(found: Map, start: int) -> tuple[int, int, int]:
    """Return the bytes of a piece in global and in shared memory, and its number of elements. start: innermost
    coordinate of the box.

    A piece of b4x16_p64 or b6x16_p32 is padded to 16 bytes in shared memory.
    """
    packed = {"b4x16": (8, 8, 16), "b4x16_p64": (8, 16, 16), "b6x16_p32": (12, 16, 16)}
    size = ELEMENT_BYTES.get(found.type, 1)
    piece, slot, elements = packed.get(found.type) or (size, size, 1)
    if found.is_packed and start % elements:
        raise Undefined(f"a box of {found.type} starts at {start}, which is no multiple of {elements}")
    if not found.is_packed and start * size % ROW_STEP_BYTES:
        text = f"{start} elements of {size} bytes, which is no multiple of {ROW_STEP_BYTES} bytes"
        raise Undefined(f"a box starts at {text}; a GPU stops with an illegal instruction")
    chunk = elements * ROW_STEP_BYTES // slot
    is_split = found.dims[0] % chunk and not 0 <= start <= found.dims[0] - found.box[0]
    if piece != slot or start % chunk or is_split:
        return piece, slot, elements
    return ROW_STEP_BYTES, ROW_STEP_BYTES, chunk


@functools.lru_cache(maxsize=1024)
def slots(start: int, box_bytes: int, slot_bytes: int, span: int) -> Array:
    """Return the swizzled offset in shared memory of each piece of a box from `start` on. span: swizzle in bytes."""
    return swizzled(np.arange(start, start + box_bytes, slot_bytes), span)


def swizzled(addresses: Array, span: int) -> Array:
    """Return addresses under a swizzle of 32, 64 or 128 bytes: bits 7 to 9 are xored into bits 4 to 6."""
    if not span:
        return addresses
    bits = span // 16 - 1
    return addresses ^ (addresses >> 3 & bits << 4)
