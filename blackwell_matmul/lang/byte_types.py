"""Types of block-scaled data that tilus 0.2.0 lacks, one byte each: `float4_e2m1x2` and `float8_e8m0`."""

# No `from __future__ import annotations` here: tilus reads the annotations of `dynamic_shared_memory` as types.

from typing import no_type_check

from tilus.hidet.ir.dtypes import name2dtype
from tilus.hidet.ir.dtypes.floats import FloatType
from tilus.hidet.ir.primitives.func import register_primitive_function
from tilus.hidet.ir.type import PointerType
from tilus.hidet.lang import attrs, cast, script


class ByteType(FloatType):
    """Type without arithmetic: CUDA C++ moves its values as bytes. cuda_name: name of the type in CUDA C++."""

    cuda_name = "uint8_t"


float4_e2m1x2 = ByteType("float4_e2m1x2", "f4e2m1x2", 1, -6.0, 6.0, 0.5, 1.0)
"""Type of two e2m1 in a byte, the element of even k in the low four bits, as torch's `float4_e2m1fn_x2`."""

float8_e8m0 = ByteType("float8_e8m0", "f8e8m0", 1, 2.0**-127, 2.0**127, 1.0, 2.0**-127)
"""Type of a power of two, 2 ** (byte - 127), as torch's `float8_e8m0fnu`; 0xFF is NaN (PTX ISA, "Alternate FP
formats")."""


@no_type_check
def _register(dtype):
    """Register a type with tilus: its name, and the function that returns shared memory as a pointer to the type."""
    name2dtype[dtype.name] = dtype
    name = f"cuda_dynamic_shared_memory_{dtype.name}"

    @script
    def dynamic_shared_memory(byte_offset: int) -> ~dtype:
        attrs.func_kind = "cuda_internal"
        attrs.func_name = name
        memory = PointerType(base_type="uint8", specifiers=["extern", "__align__(128)", "__shared__"], use_bracket=True)
        return cast(~memory[byte_offset], ~dtype)

    register_primitive_function(dynamic_shared_memory.name, dynamic_shared_memory)


for _each in (float4_e2m1x2, float8_e8m0):
    _register(_each)
