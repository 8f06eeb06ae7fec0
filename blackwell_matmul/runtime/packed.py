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
"""Mask of an address's alignment bits for TMA, which a moved call must share."""

_STRUCT_CODES = {
    "pointer": "Q", "bool": "?", "float16": "e", "float32": "f", "float64": "d",
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
"""`struct` format of each argument type."""


class Moves(NamedTuple):
    """Places of a call's addresses, with the plan's parameters.

    slots: pairs of kernel argument and parameter. maps: map, parameter, and the kernel arguments that are the map.
    """

    slots: tuple[tuple[int, int], ...]
    maps: tuple[tuple[int, int, tuple[int, ...]], ...]

    @classmethod
    def of(cls, plan: LaunchPlan) -> Moves | None:
        """Return the moves; None if more depends on an address than its last four bits."""
        index = {each.name: i for i, each in enumerate(plan.parameters) if each.type == "pointer"}
        slots = {i: each.value for i, each in enumerate(plan.arguments) if each.kind == "value"}
        maps = {i: each.pointer for i, each in enumerate(plan.tensor_maps)}
        others = [*_sizes(plan), *(each for each in (*slots.values(), *maps.values()) if each not in index)]
        if any(parameters_of(each) & index.keys() for each in others):
            return None
        of_map = {i: [at for at, each in enumerate(plan.arguments) if _is_map(each, i)] for i in maps}
        return cls(
            tuple((i, index[each]) for i, each in slots.items() if each in index),
            tuple((i, index[each], tuple(of_map[i])) for i, each in maps.items() if each in index),
        )

    def among(self, places: Mapping[int, int]) -> Moves:
        """Return the moves of some parameters, which are then counted by their places."""
        return Moves(
            tuple((i, places[each]) for i, each in self.slots if each in places),
            tuple((i, places[each], arguments) for i, each, arguments in self.maps if each in places),
        )


def _is_map(argument: Argument, index: int) -> bool:
    return argument.kind == "tensor_map" and argument.value == index


def _sizes(plan: LaunchPlan) -> Iterator[Expr]:
    """Yield a plan's expressions except arguments, maps' addresses, and checks of an address's last bits."""
    yield from (*plan.grid, *plan.block, *plan.cluster, plan.dynamic_shared_bytes, plan.early_start)
    yield from (each.nbytes for each in plan.workspaces)
    for each in plan.tensor_maps:
        yield from (*each.dims, *each.strides_bytes, *each.box, *each.element_strides)
    yield from (each.condition for each in plan.checks if not _is_of_last_bits(each.condition))


def _is_of_last_bits(condition: Expr) -> bool:
    """Return true for checks such as ("==", ("&", "a_ptr", 15), 0)."""
    match condition:
        case ("==", ("&", str(), int(mask)), int()):
            return 0 <= mask <= LAST_BITS
    return False


class Packed:
    """Packed arguments. address: of an array of pointers to 8 bytes for each value, and to the tensor maps.

    places: index of the map for each kernel argument, or -1.
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
        return Packed(type(self.values).from_buffer_copy(self.values), self._maps, self._places)

    def move(self, moves: Moves, values: Sequence[int]) -> bool:
        """Take a call's addresses, in place; False, with some of them taken, if the driver refuses one."""
        for place, parameter in moves.slots:
            if parameter < len(values):  # else it has its default
                self.values[place] = values[parameter]
        for index, parameter, places in moves.maps:
            if parameter < len(values) and self._maps[index].pointer != values[parameter]:
                moved = self._maps[index].at(values[parameter])
                if moved is None:
                    return False
                self._maps[index] = moved
                for place in places:
                    self.pointers[place] = moved.address
        return True


def index_of(argument: Argument) -> int:
    """Return the index of a tensor map or a workspace."""
    assert isinstance(argument.value, int)
    return argument.value


def _slots(arguments: Sequence[Argument]) -> Iterator[bytes]:
    """Yield eight bytes for each argument; zero for maps and workspaces."""
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
