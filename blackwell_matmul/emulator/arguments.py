"""Arguments of a launch: tensors get emulated addresses, and arguments become the bytes of parameters."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.strides import require_memory
from blackwell_matmul.base.validation import shown
from blackwell_matmul.compiler.plan import Argument, Launch, TensorMap
from blackwell_matmul.emulator import tensor_map
from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.parser import SIZES_BYTES, Entry, Variable, float_bits
from blackwell_matmul.emulator.spaces import GlobalSpace, Undefined

UNCLEARED_BYTE = 0xFF
"""Value of each byte of memory that a launch or an allocation does not clear; as floats the bytes are NaN."""


_RAW_KINDS = (bytearray, memoryview, ctypes.Array, ctypes.Structure, np.ndarray)
"""Types whose bytes may fill a byte-array parameter."""


def parameter_bytes(kernel: Entry, args: Sequence[object], memory: GlobalSpace) -> list[bytes]:
    """Return the bytes of each `.param` of a kernel without a launch plan. args: one for each `.param`."""
    if len(args) != len(kernel.parameters):
        text = ", ".join(_declared(each) for each in kernel.parameters)
        raise InputError(f"{kernel.name} takes {len(kernel.parameters)} parameters ({text}) and got {len(args)}.")
    return [_packed(kernel, place, _foreign_value(kernel, memory, place, each)) for place, each in enumerate(args)]


def _declared(parameter: Variable) -> str:
    return f".{parameter.type}" + f"[{parameter.nbytes}]" * (parameter.nbytes != SIZES_BYTES[parameter.type])


def _foreign_value(kernel: Entry, memory: GlobalSpace, place: int, given: Any) -> Any:
    name, parameter = f"argument {place}", kernel.parameters[place]
    if given is None and parameter.nbytes == 8 and parameter.type != "f64":
        return 0
    if isinstance(given, TensorMap):
        address = address_of(memory, f"the tensor of {name}", given.pointer)
        try:
            return tensor_map.image(given, address)
        except Undefined as error:
            raise InputError(f"{name}: {error}.") from error
    if isinstance(given, (int, float, bytes, np.integer, np.floating, np.bool_)):
        return int(given) if isinstance(given, np.bool_) else given
    wraps_pointer = parameter.nbytes == parameter.alignment == 8  # CuTe DSL passes a tensor as a struct with a pointer
    is_pointer = wraps_pointer and isinstance(given, np.ndarray) and given.nbytes != 8
    if parameter.type == "b8" and isinstance(given, _RAW_KINDS) and not is_pointer:
        return given.tobytes() if isinstance(given, np.ndarray) else bytes(given)  # for example, an encoded CUtensorMap
    if parameter.nbytes != 8 or parameter.type == "f64":
        raise InputError(f"parameter {place} of {kernel.name} is {_declared(parameter)}; it was given {shown(given)}.")
    return address_of(memory, name, given)


def planned_bytes(kernel: Entry, launch: Launch, memory: GlobalSpace) -> list[bytes]:
    """Return the bytes of each kernel parameter that a launch plan describes: values, tensor maps, workspaces."""
    images = [tensor_map.image(each, _plain(each.pointer)) for each in launch.tensor_maps]
    spaces = [
        memory.add(
            f"workspace {index}", np.full(_plain(each.nbytes), 0 if each.clear else UNCLEARED_BYTE, np.uint8)
        ).base
        for index, each in enumerate(launch.workspaces)
    ]
    kinds: dict[str, Sequence[Any]] = {"tensor_map": images, "workspace": spaces}
    values = [
        kinds[each.kind][_plain(each.value)] if each.kind in kinds else _number(each) for each in launch.arguments
    ]
    return [_packed(kernel, place, value) for place, value in enumerate(values)]


def _number(argument: Argument) -> Any:
    """Return an argument's value; the bytes of a float16, which is a parameter of two bytes in PTX."""
    value: Any = argument.value
    try:
        return struct.pack("<e", value) if argument.type == "float16" else value
    except (struct.error, OverflowError) as error:
        raise InputError(f"{shown(value)} is no value of type float16, which the kernel takes.") from error


def _plain(value: Any) -> int:
    """Return an evaluated expression of a launch plan as an int."""
    return int(value)


def plan_value(memory: GlobalSpace, name: str, given: object) -> Any:
    """Return an argument for a launch plan's expressions: a number unchanged, a tensor as its emulated address."""
    if isinstance(given, Integral):
        return int(given)
    return float(given) if isinstance(given, Real) else address_of(memory, name, given)


def address_of(memory: GlobalSpace, name: str, tensor: Any) -> int:
    """Return the emulated address of a tensor's first element. Tensors that share memory share addresses."""
    data, offset = _storage(name, tensor)
    for each in memory.memories:
        if each.data.ctypes.data == data.ctypes.data and each.nbytes == data.size:
            return each.base + offset
    return memory.add(name, data).base + offset


def is_torch_tensor(value: object) -> bool:
    """Return True for a tensor of torch, which need not be loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _storage(name: str, tensor: Any) -> tuple[Array, int]:
    """Return the whole memory behind a tensor as bytes, and the tensor's byte offset in this memory."""
    if is_torch_tensor(tensor):
        return _torch_storage(name, tensor)
    if not isinstance(tensor, np.ndarray):
        raise InputError(f"{name} is {shown(tensor)}; a pointer takes a tensor or an array.")
    require_memory(name, tensor)
    root = tensor
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not root.flags.c_contiguous or not root.flags.writeable:
        raise InputError(f"{name} does not lie in writeable, contiguous memory.")
    return root.reshape(-1).view(np.uint8), tensor.ctypes.data - root.ctypes.data


def _torch_storage(name: str, tensor: Any) -> tuple[Array, int]:
    import torch

    if tensor.device.type != "cpu":
        raise InputError(f"{name} is on {tensor.device}; the emulator takes tensors on the CPU.")
    require_memory(name, tensor)
    storage = torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage())
    return (
        storage.numpy(),
        tensor.storage_offset() * tensor.element_size(),
    )  # not data_ptr(), which is 0 for a tensor without elements


def _packed(kernel: Entry, place: int, value: Any) -> bytes:
    """Return a parameter's bytes; raise InputError if the value does not fit the parameter's type."""
    parameter, size = kernel.parameters[place], kernel.parameters[place].nbytes or 0
    what = f"parameter {place} of {kernel.name}"
    if isinstance(value, bytes):
        if len(value) != size:
            raise InputError(f"{what} has {size} bytes and was given {len(value)}.")
        return value
    if parameter.type in ("f32", "f64"):
        try:
            return float_bits(float(value), size).to_bytes(size, "little")
        except OverflowError as error:
            raise InputError(f"{what} is {_declared(parameter)}, in which {shown(value)} does not fit.") from error
    if not isinstance(value, (int, np.integer)) or size > 8:
        raise InputError(f"{what} is {_declared(parameter)}; it was given {shown(value)}.")
    if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        text = f"a number of {int(value).bit_length():,} bits" if int(value).bit_length() > 128 else f"{value}"
        raise InputError(f"{what} has {size} bytes, in which {text} does not fit.")
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")
