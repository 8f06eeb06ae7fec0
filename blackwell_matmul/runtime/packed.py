"""`Packed`: arguments of a kernel in the driver's form; `Moves`: changes for a call with other addresses.

Changing the addresses is several times cheaper than evaluating a plan and encoding its tensor maps.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.compiler.plan import Argument, Expr, Launch, LaunchPlan, parameters_of
from blackwell_matmul.runtime.maps import EncodedMap, encoded

SLOT_BYTES = 8
LAST_BITS = 15
"""Mask of an address's last four bits, its alignment for TMA. A moved call must keep these bits."""

_STRUCT_CODES = {
    "pointer": "Q", "bool": "?", "float16": "e", "float32": "f", "float64": "d",
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
"""`struct` format of each argument type."""


class Moves(NamedTuple):
    """Places in the arguments of a launch that hold an address, with the plan's parameter of the address.

    slots: pairs of kernel argument and parameter, by index. maps: pairs of tensor map and parameter, by index.
    """

    slots: tuple[tuple[int, int], ...]
    maps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, plan: LaunchPlan) -> Moves | None:
        """Return a plan's moves; None if a size or a check depends on more of an address than its last four bits."""
        index = {each.name: i for i, each in enumerate(plan.parameters) if each.type == "pointer"}
        slots = {i: each.value for i, each in enumerate(plan.arguments) if each.kind == "value"}
        maps = {i: each.pointer for i, each in enumerate(plan.tensor_maps)}
        others = [*_sizes(plan), *(each for each in (*slots.values(), *maps.values()) if each not in index)]
        if any(parameters_of(each) & index.keys() for each in others):
            return None
        return cls(*(tuple((i, index[each]) for i, each in of.items() if each in index) for of in (slots, maps)))

    def among(self, places: Mapping[int, int]) -> Moves:
        """Return the moves of the parameters in `places`, with each parameter's index replaced by its place."""
        return Moves(*(tuple((i, places[each]) for i, each in of if each in places) for of in self))


def _sizes(plan: LaunchPlan) -> Iterator[Expr]:
    """Yield the plan's expressions that may not depend on an address. These are all except arguments, the maps'
    addresses, and checks of an address's last four bits."""
    yield from (*plan.grid, *plan.block, *plan.cluster, plan.dynamic_shared_bytes, plan.early_start)
    yield from (each.nbytes for each in plan.workspaces)
    for each in plan.tensor_maps:
        yield from (*each.dims, *each.strides_bytes, *each.box, *each.element_strides)
    yield from (each.condition for each in plan.checks if not _is_of_last_bits(each.condition))


def _is_of_last_bits(condition: Expr) -> bool:
    """Return True for alignment checks such as ("==", ("&", "a_ptr", 15), 0)."""
    match condition:
        case ("==", ("&", str(), int(mask)), int()):
            return 0 <= mask <= LAST_BITS
    return False


Word = tuple[Any, int, int]
"""An array of integers, an index in it, and the index of the parameter whose address is there."""


class Packed:
    """Arguments in the driver's form. address: of an array of pointers, one per argument, to 8 bytes for a value or to
    a tensor map.

    places: index of the tensor map for each argument, or -1 for a value.
    """

    __slots__ = ("_maps", "_places", "address", "pointers", "values")

    def __init__(self, values: Any, maps: Sequence[EncodedMap], places: Sequence[int]) -> None:
        self.values, self._maps, self._places = values, list(maps), places
        start = ctypes.addressof(values)
        pointers = [start + SLOT_BYTES * i if at < 0 else maps[at].address for i, at in enumerate(places)]
        self.pointers = (ctypes.c_void_p * len(values))(*pointers)
        self.address = ctypes.addressof(self.pointers)

    @classmethod
    def of(cls, launch: Launch, device: int) -> Packed:
        values = b"".join(_slots(launch.arguments)) or bytes(SLOT_BYTES)
        held = (ctypes.c_uint64 * (len(values) // SLOT_BYTES)).from_buffer_copy(values)
        places = [index_of(each) if each.kind == "tensor_map" else -1 for each in launch.arguments]
        return cls(held, [encoded(each, device) for each in launch.tensor_maps], places)

    def copy(self) -> Packed:
        values = type(self.values).from_buffer_copy(self.values)
        return Packed(values, [each.copy() for each in self._maps], self._places)

    def is_movable(self, moves: Moves) -> bool:
        """Return True if each moved tensor map has its address in a word of its own."""
        return all(self._maps[index].place >= 0 for index, _ in moves.maps)

    def words(self, moves: Moves) -> list[Word]:
        """Return the words to overwrite with a call's addresses."""
        slots = [(self.values, place, parameter) for place, parameter in moves.slots]
        maps = [(self._maps[index], parameter) for index, parameter in moves.maps]
        return slots + [(each.words, each.place, parameter) for each, parameter in maps]


def index_of(argument: Argument) -> int:
    """Return the index of the tensor map or workspace that an argument names."""
    assert isinstance(argument.value, int)
    return argument.value


def _slots(arguments: Sequence[Argument]) -> Iterator[bytes]:
    """Yield eight bytes for each argument: its value, or zeros for a tensor map or workspace."""
    for argument in arguments:
        packed = _packed(argument) if argument.kind == "value" else b""
        yield packed.ljust(SLOT_BYTES, b"\0")


def _packed(argument: Argument) -> bytes:
    code = _STRUCT_CODES.get(argument.type)
    if code is None:
        known = ", ".join(_STRUCT_CODES)
        raise UnsupportedError(f"A kernel's argument of type {argument.type} cannot be passed; these can: {known}.")
    try:
        return struct.pack("=" + code, argument.value)
    except (struct.error, OverflowError) as error:
        raise UnsupportedError(
            f"{argument.value!r} is no value of type {argument.type}, which the kernel takes."
        ) from error
