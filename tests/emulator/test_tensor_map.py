"""Tensor maps and their boxes, element by element (PTX ISA, "Tensor Map"; CUDA driver, "cuTensorMapEncodeTiled")."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest

from blackwell_matmul.emulator import TensorMap, tensor_map
from blackwell_matmul.emulator.spaces import Undefined

PLAIN = {
    "dtype": "FLOAT16",
    "pointer": 0,
    "dims": (64, 10),
    "strides_bytes": (128,),
    "box": (16, 4),
    "element_strides": (1, 1),
    "interleave": "NONE",
    "swizzle": "NONE",
    "l2_promotion": "NONE",
    "oob_fill": "NONE",
}


def decoded(address: int = 4096, **changed: Any) -> tensor_map.Map:
    return tensor_map.decode(tensor_map.image(TensorMap(**(PLAIN | changed)), address))


def test_a_map_of_a_plan_is_what_it_says() -> None:
    found = decoded(swizzle="128B", oob_fill="NAN_REQUEST_ZERO_FMA")
    assert (found.address, found.dims, found.strides, found.box, found.steps) == (
        4096,
        (64, 10),
        (128,),
        (16, 4),
        (1, 1),
    )
    assert (found.type, found.swizzle_bytes, found.fills_nan, found.rank) == ("f16", 128, True, 2)


def test_the_atom_that_cute_dsl_writes_is_the_plain_one() -> None:
    raw = tensor_map.image(TensorMap(**(PLAIN | {"swizzle": "64B"})), 4096)
    assert tensor_map.decode(tensor_map.replaced(raw, "atom", 4)) == tensor_map.decode(raw)
    with pytest.raises(Undefined, match="is not emulated"):
        tensor_map.decode(tensor_map.replaced(raw, "atom", 1))


def packed(word: int, box: tuple[int, int] = (16, 4)) -> bytes:
    """The map of `PLAIN` at 4096, word for word; word: the third, of flags."""
    strides, dims = (128 >> 4, 0, 0, 0, 0), (63, 9, 0, 0, 0)
    used = struct.pack("<QI5I5III", 4096, word, *strides, *dims, box[0] - 1 << 24, box[1] - 1)
    return used + bytes(128 - len(used))


def test_the_bytes_are_the_hardwares() -> None:
    """rank less one in bits 4 to 6, type in 7 to 10, swizzle in 13 and 14, fill in 15, promotion in 17 and 18."""
    plain = 2 | 1 << 4 | 6 << 7
    for changed, word in (
        ({}, plain),
        ({"swizzle": "64B", "box": (16, 4)}, plain | 2 << 13),
        ({"oob_fill": "NAN_REQUEST_ZERO_FMA"}, plain | 1 << 15),
        ({"l2_promotion": "L2_256B"}, plain | 3 << 17),
        ({"dtype": "BFLOAT16"}, plain & ~(15 << 7) | 10 << 7),
        ({"dtype": "TFLOAT32"}, plain & ~(15 << 7) | 7 << 7 | 1 << 16),
        ({"dtype": "16U6_ALIGN16B", "box": (128, 4)}, plain & ~(15 << 7) | 13 << 7),
    ):
        box = changed.get("box", (16, 4))
        assert tensor_map.image(TensorMap(**(PLAIN | changed)), 4096) == packed(word, box), changed


def test_high_bits_of_strides_and_five_dimensions_have_places_of_their_own() -> None:
    wide = {"strides_bytes": ((5 << 36) + 16, 32, 48, 9 << 36), "dims": (1 << 32, 2, 3, 4, 5), "box": (8, 1, 2, 3, 256)}
    raw = tensor_map.image(TensorMap(**(PLAIN | wide | {"element_strides": (1, 2, 3, 4, 8)})), 1 << 40)
    words = struct.unpack("<QI5I5III", raw[:60])
    assert words[0] == 1 << 40 and words[2:7] == (1, 2, 3, 0, 5 | 9 << 12)
    assert words[7:12] == ((1 << 32) - 1, 1, 2, 3, 4)
    assert words[12:] == (0 | 1 << 3 | 2 << 6 | 3 << 9 | 7 << 12 | 7 << 24, 0 | 1 << 8 | 2 << 16 | 255 << 24)
    found = tensor_map.decode(raw)
    assert found.dims == wide["dims"] and found.strides == wide["strides_bytes"] and found.box == wide["box"]
    assert found.steps == (1, 2, 3, 4, 8)


@pytest.mark.parametrize("name", tensor_map.DRIVER_TYPES)
def test_each_element_type_comes_back(name: str) -> None:
    assert decoded(dtype=name, box=(128, 4)).type == tensor_map.DRIVER_TYPES[name]


def test_a_map_that_replaces_have_filled_is_taken() -> None:
    raw = bytes(128)
    for field, value, index in (
        ("address", 4096, 0), ("rank", 1, 0), ("dims", 64, 0), ("dims", 10, 1), ("strides", 128, 0), ("box", 16, 0),
        ("box", 4, 1), ("steps", 1, 0), ("steps", 1, 1), ("type", 6, 0), ("swizzle", 0, 0), ("fill", 0, 0),
    ):  # fmt: skip
        raw = tensor_map.replaced(raw, field, value, index)
    assert raw == packed(1 << 4 | 6 << 7) and tensor_map.decode(raw[:64]) == decoded()


@pytest.mark.parametrize(
    ("field", "value", "index", "text"),
    [
        ("type", 16, 0, "element type 16 is none of 0 to 15"),
        ("type", 23, 0, "element type 23 is none"),
        ("dims", 4, 5, "dims 5 is not there; there are 5"),
        ("strides", 32, 4, "strides 4 is not there"),
        ("strides", 40, 0, "no multiples of 16"),
        ("rank", 8, 0, "rank of 8 is outside of 0 to 7"),
    ],
)
def test_what_no_field_holds_is_not_replaced(field: str, value: int, index: int, text: str) -> None:
    with pytest.raises(Undefined, match=text):
        tensor_map.replaced(bytes(128), field, value, index)


def test_a_map_for_im2col_is_refused() -> None:
    with pytest.raises(Undefined, match="another kind than tiled"):
        tensor_map.decode(packed(3 | 1 << 4 | 6 << 7))


def elements(box: tensor_map.Box, nbytes: int) -> list[int]:
    """Return the address of each element of a box, -1 outside."""
    steps = range(0, box.piece_bytes, nbytes)
    return [place if place < 0 else place + step for place in box.places.tolist() for step in steps]


def targets(box: tensor_map.Box) -> list[int]:
    return tensor_map.slots(0, box.nbytes, box.slot_bytes, 0).tolist()


@pytest.mark.parametrize("corner", [(0, 0), (56, 8), (-8, -2), (56, 3), (64, 0), (104, 100)])
@pytest.mark.parametrize("dims", [(64, 10), (61, 10)])
def test_a_box_has_its_elements_in_rows_and_minus_one_outside(corner: tuple[int, int], dims: tuple[int, int]) -> None:
    found = decoded(dims=dims)
    box = tensor_map.box_of(found, corner)
    wanted = []
    for y, x in itertools.product(range(corner[1], corner[1] + 4), range(corner[0], corner[0] + 16)):
        inside = 0 <= x < dims[0] and 0 <= y < dims[1]
        wanted.append(4096 + 128 * y + 2 * x if inside else -1)
    assert elements(box, 2) == wanted
    assert targets(box) == list(range(0, 128, box.slot_bytes)) and box.nbytes == box.counted_bytes == 128
    assert box.slot_bytes == (2 if dims[0] == 61 and corner != (0, 0) else 16)


@pytest.mark.parametrize("start", [-4, 1, 60])
def test_a_box_that_starts_between_multiples_of_16_bytes_stops(start: int) -> None:
    with pytest.raises(Undefined, match=f"starts at {start} elements of 2 bytes, which is no multiple of 16 bytes"):
        tensor_map.box_of(decoded(), (start, 0))


def test_five_dimensions() -> None:
    found = decoded(
        dims=(8, 3, 2, 2, 2), strides_bytes=(16, 48, 96, 192), box=(8, 2, 2, 1, 2), element_strides=(1,) * 5
    )
    box = tensor_map.box_of(found, (0, 2, 0, 1, 1))
    wanted = [
        4096 + 192 * e + 96 * d + 48 * c + 16 * b + 2 * a if b < 3 and e < 2 else -1
        for e, d, c, b, a in itertools.product((1, 2), (1,), (0, 1), (2, 3), range(8))
    ]
    assert elements(box, 2) == wanted


def test_steps_between_elements_make_the_box_smaller() -> None:
    """Of a box of 6 rows in steps of 2 there are 3."""
    box = tensor_map.box_of(decoded(box=(16, 6), element_strides=(1, 2)), (0, 1))
    assert elements(box, 2)[::16] == [4096 + 128 * y for y in (1, 3, 5)] and box.nbytes == 96


@pytest.mark.parametrize(
    ("dtype", "global_bytes", "shared_bytes"),
    [("16U4_ALIGN8B", 8, 8), ("16U4_ALIGN16B", 8, 16), ("16U6_ALIGN16B", 12, 16)],
)
def test_packed_elements_move_by_sixteen(dtype: str, global_bytes: int, shared_bytes: int) -> None:
    found = decoded(dtype=dtype, dims=(256, 4), strides_bytes=(192,), box=(128, 2))
    box = tensor_map.box_of(found, (128, 3))
    assert elements(box, global_bytes) == [4096 + 3 * 192 + global_bytes * (8 + i) for i in range(8)] + [-1] * 8
    assert targets(box) == list(range(0, 16 * shared_bytes, box.slot_bytes))
    assert (box.nbytes, box.counted_bytes) == (16 * shared_bytes, 16 * global_bytes)
    with pytest.raises(Undefined, match="no multiple of 16"):
        tensor_map.box_of(found, (8, 0))


def test_packed_elements_between_multiples_of_16_bytes_move_by_eight_bytes() -> None:
    found = decoded(dtype="16U4_ALIGN8B", dims=(256, 4), strides_bytes=(192,), box=(128, 2))
    assert tensor_map.box_of(found, (32, 0)).piece_bytes == 16
    box = tensor_map.box_of(found, (16, 0))
    assert box.piece_bytes == 8 and box.places[:9].tolist() == [4096 + 8 * i for i in range(1, 9)] + [4096 + 192 + 8]


@pytest.mark.parametrize(("span", "bits"), [(32, 1), (64, 3), (128, 7)])
def test_swizzles_exchange_chunks_by_the_absolute_address(span: int, bits: int) -> None:
    places = np.arange(2048)
    wanted = [each ^ ((each >> 7 & bits) << 4) for each in range(2048)]
    assert tensor_map.swizzled(places, span).tolist() == wanted
    assert tensor_map.swizzled(places, 0).tolist() == places.tolist()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"strides_bytes": (120,)}, "are no multiples of 16 bytes"),
        ({"box": (16, 257)}, "outside of 1 to 256"),
        ({"box": (16, 0)}, "outside of 1 to 256"),
        ({"element_strides": (1, 9)}, "1 to 8"),
        ({"box": (4, 4)}, "rows of 8 bytes are no multiple of 16"),
        ({"box": (64, 4), "swizzle": "64B"}, "rows of 128 bytes .* longer than the swizzle of 64"),
        ({"address": 8}, "address 0x8 is no multiple of 16 bytes"),
        ({"interleave": "16B"}, "interleave '16B' is not emulated"),
        ({"swizzle": "96B"}, "swizzle '96B' is not emulated"),
        ({"dtype": "FP3"}, "element type 'FP3'"),
    ],
)
def test_maps_that_the_driver_refuses(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(Undefined, match=text):
        decoded(**changed)


def test_memory_that_holds_no_map() -> None:
    with pytest.raises(Undefined, match="the tensor map is none"):
        tensor_map.decode(bytes(tensor_map.ENCODED_MAP_BYTES))
    with pytest.raises(Undefined, match=r"is none|not emulated"):
        tensor_map.decode(b"\xff" * tensor_map.ENCODED_MAP_BYTES)
