"""Tensor maps, encoded by the driver into aligned memory, and cached.

A map depends on an address, a shape, strides and a box. So one map serves every launch that reads a tensor in the same
way, such as weights.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from blackwell_matmul.base.errors import DriverError, UnsupportedError
from blackwell_matmul.compiler.plan import TensorMap
from blackwell_matmul.hardware import driver
from blackwell_matmul.runtime.recent import Recent

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT_BYTES = 128
"""Alignment of CUtensorMap in bytes: 128 in cuda.h of CUDA 13, 64 in cuda.h of CUDA 12."""

KEPT_MAPS = 4096
"""Maximum maps in the process, 0.4 kB each."""

MAX_RANK = 5
MAP_WORDS = TENSOR_MAP_BYTES // 8
ADDRESS_BITS = (1 << 47) - 16
"""Mask of the bits in which the addresses that TMA can read differ: multiples of 16 below 2**47."""

_PREFIXES = {
    "dtype": ("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE_"),
    "interleave": ("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_"),
    "swizzle": ("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE_"),
    "l2_promotion": ("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_"),
    "oob_fill": ("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_"),
}


class EncodedMap:
    """An encoded CUtensorMap, which a kernel gets by value. pointer: address of the tensor. words: the map as 16
    integers of 64 bits. address: of the map, a multiple of 128; valid while this object lives."""

    __slots__ = ("_memory", "_place", "address", "pointer", "words")

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self._memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT_BYTES)
        self.address = -(-ctypes.addressof(self._memory) // TENSOR_MAP_ALIGNMENT_BYTES) * TENSOR_MAP_ALIGNMENT_BYTES
        self.words = (ctypes.c_uint64 * MAP_WORDS).from_address(self.address)
        self._place: int | None = None

    def copy(self) -> EncodedMap:
        made = EncodedMap(self.pointer)
        ctypes.memmove(made.address, self.address, TENSOR_MAP_BYTES)
        made._place = self.place
        return made

    @property
    def place(self) -> int:
        """Index of the word that is the tensor's address; -1 if another address also changes other words."""
        if self._place is None:
            self._place = self._found()
        return self._place

    def _found(self) -> int:
        """Return the index of the word that is the tensor's address; -1 if another address also changes other words.

        The driver replaces the address by its complement, so that each bit of the address is seen as 0 and as 1.
        """
        other = self.pointer ^ ADDRESS_BITS
        made = EncodedMap(other)
        ctypes.memmove(made.address, self.address, TENSOR_MAP_BYTES)
        code = driver.entry_points().replace_address(made.address, other)
        changed = [(i, *both) for i, both in enumerate(zip(self.words, made.words)) if both[0] != both[1]]
        alone = code == driver.SUCCESS and [each[1:] for each in changed] == [(self.pointer, other)]
        return changed[0][0] if alone else -1

    def read(self) -> bytes:
        return ctypes.string_at(self.address, TENSOR_MAP_BYTES)


_maps: Recent[TensorMap, EncodedMap] = Recent(KEPT_MAPS)


def encoded(described: TensorMap, device: int) -> EncodedMap:
    """Return the encoded map of a TensorMap with evaluated expressions; raise DriverError if the driver refuses it."""
    return _maps.made(described, _encode, described, device)


def _encode(described: TensorMap, device: int) -> EncodedMap:
    rank = len(described.dims)
    if not 1 <= rank <= MAX_RANK:
        raise UnsupportedError(f"A tensor map of rank {rank} does not exist; the driver has ranks 1 to {MAX_RANK}.")
    assert isinstance(described.pointer, int)
    made = EncodedMap(described.pointer)
    arguments = (
        made.address, _enum("dtype", described.dtype), rank, described.pointer,
        _array(ctypes.c_uint64, described.dims), _array(ctypes.c_uint64, described.strides_bytes),
        _array(ctypes.c_uint32, described.box), _array(ctypes.c_uint32, described.element_strides),
        *(_enum(field, getattr(described, field)) for field in ("interleave", "swizzle", "l2_promotion", "oob_fill")),
    )  # fmt: skip
    encode = driver.entry_points().encode_tiled
    code = encode(*arguments)
    if code == driver.INVALID_CONTEXT:  # a thread that has not used this GPU yet
        driver.activate(device)
        code = encode(*arguments)
    if code != driver.SUCCESS:
        raise _refused(described, code)
    return made


def _array(element: Any, values: Any) -> Any:
    return (element * len(values))(*values)


@functools.cache
def _enum(field: str, name: str) -> int:
    """Return the value of a driver's enum member by its name, such as "FLOAT16"."""
    kind, prefix = _PREFIXES[field]
    members = getattr(driver.bindings(), kind).__members__
    if prefix + name not in members:
        raise UnsupportedError(f"The launch plan asks for a tensor map with {field} {name!r}, which cuda-python lacks.")
    return int(members[prefix + name])


def _refused(described: TensorMap, code: int) -> DriverError:
    """Return an error with the numbers and the driver's rules; the driver's code says only that a value is invalid."""
    return driver.refused(
        "cuTensorMapEncodeTiled",
        f"describe a tensor of {described.dtype} with dimensions {_list(described.dims)} (innermost first), "
        f"strides of {_list(described.strides_bytes)} bytes, boxes of {_list(described.box)}, swizzle "
        f"{described.swizzle}, at address {described.pointer:#x} (addresses and strides must be multiples of 16 bytes, "
        "strides below 2**40, dimensions 1 to 2**32, a box 1 to 256 in each, and its rows multiples of 16 bytes and no "
        "longer than the swizzle)",
        code,
    )


def _list(values: Any) -> str:
    return "[" + ", ".join(map(str, values)) + "]"
