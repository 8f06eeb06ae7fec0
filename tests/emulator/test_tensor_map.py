"""Tensor maps and their boxes, element by element (PTX ISA, "Tensor Map"; CUDA driver, "cuTensorMapEncodeTiled")."""

from __future__ import annotations

import itertools
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


@pytest.mark.parametrize("corner", [(0, 0), (56, 8), (-8, -2), (56, 3), (64, 0), (104, 100)])
@pytest.mark.parametrize("dims", [(64, 10), (61, 10)])
def test_a_box_has_its_elements_in_rows_and_minus_one_outside(corner: tuple[int, int], dims: tuple[int, int]) -> None:
    found = decoded(dims=dims)
    box = tensor_map.box_of(found, corner)
    wanted = []
    for y, x in itertools.product(range(corner[1], corner[1] + 4), range(corner[0], corner[0] + 16)):
        inside = 0 <= x < dims[0] and 0 <= y < dims[1]
        wanted.append(4096 + 128 * y + 2 * x if inside else -1)
    assert box.places.tolist() == wanted
    assert box.targets.tolist() == list(range(0, 128, 2)) and box.nbytes == box.counted_bytes == 128


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
    assert box.places.tolist() == wanted


def test_steps_between_elements_make_the_box_smaller() -> None:
    """Of a box of 6 rows in steps of 2 there are 3."""
    box = tensor_map.box_of(decoded(box=(16, 6), element_strides=(1, 2)), (0, 1))
    assert box.places.reshape(-1, 16)[:, 0].tolist() == [4096 + 128 * y for y in (1, 3, 5)] and box.nbytes == 96


@pytest.mark.parametrize(
    ("dtype", "global_bytes", "shared_bytes"),
    [("16U4_ALIGN8B", 8, 8), ("16U4_ALIGN16B", 8, 16), ("16U6_ALIGN16B", 12, 16)],
)
def test_packed_elements_move_by_sixteen(dtype: str, global_bytes: int, shared_bytes: int) -> None:
    found = decoded(dtype=dtype, dims=(256, 4), strides_bytes=(192,), box=(128, 2))
    box = tensor_map.box_of(found, (128, 3))
    assert box.places.tolist() == [4096 + 3 * 192 + global_bytes * (8 + i) for i in range(8)] + [-1] * 8
    assert box.targets.tolist() == [shared_bytes * i for i in range(16)]
    assert (box.nbytes, box.counted_bytes) == (16 * shared_bytes, 16 * global_bytes)
    with pytest.raises(Undefined, match="no multiple of 16"):
        tensor_map.box_of(found, (8, 0))


@pytest.mark.parametrize(("span", "bits"), [(32, 1), (64, 3), (128, 7)])
def test_swizzles_exchange_chunks_by_the_absolute_address(span: int, bits: int) -> None:
    places = np.arange(2048)
    wanted = [each ^ ((each >> 7 & bits) << 4) for each in range(2048)]
    assert tensor_map.swizzled(places, span).tolist() == wanted
    assert tensor_map.swizzled(places, 0).tolist() == places.tolist()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"strides_bytes": (120,)}, "are no multiples of 16 bytes"),
        ({"box": (16, 257)}, "outside of 1 to 256"),
        ({"box": (16, 0)}, "outside of 1 to 256"),
        ({"element_strides": (1, 9)}, "1 to 8"),
        ({"box": (4, 4)}, "rows of 8 bytes are no multiple of 16"),
        ({"box": (64, 4), "swizzle": "64B"}, "rows of 128 bytes .* longer than the swizzle of 64"),
        ({"address": 8}, "no multiples of 16"),
        ({"interleave": "16B"}, "interleave 16B is not emulated"),
        ({"swizzle": "96B"}, "swizzle 96B is not emulated"),
        ({"dtype": "FP3"}, "element type FP3"),
    ],
)
def test_maps_that_the_driver_refuses(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(Undefined, match=told):
        decoded(**changed)


def test_memory_that_holds_no_map() -> None:
    with pytest.raises(Undefined, match="the tensor map is none"):
        tensor_map.decode(bytes(tensor_map.ENCODED_MAP_BYTES))
    with pytest.raises(Undefined, match=r"is none|not emulated"):
        tensor_map.decode(b"\xff" * tensor_map.ENCODED_MAP_BYTES)
