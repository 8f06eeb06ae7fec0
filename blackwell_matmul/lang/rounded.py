"""Functions of float32 for block-scaled data, each one PTX instruction whose result no compiler option changes.

The compiler's options flush subnormal numbers to zero and divide approximately. Instructions with `.rn` and without
`.ftz` do neither (PTX ISA, "add", "mul", "div").
"""

# No `from __future__ import annotations` here: tilus reads the annotations of functions as types.

from collections.abc import Mapping
from types import MappingProxyType
from typing import no_type_check

from tilus.hidet.ir.dtypes import float32, int32
from tilus.hidet.ir.primitives.func import call_primitive_func, register_primitive_function
from tilus.hidet.lang import asm, attrs, script

_POWER = "{{ .reg .b16 pair; cvt.{}.satfinite.ue8m0x2.f32 pair, 0f00000000, %1; cvt.u32.u16 %0, pair; }}"
"""PTX that converts a float to e8m0. cvt converts a pair; the upper element is 0.0, and becomes the byte 0."""

OPERATORS: Mapping[str, str] = MappingProxyType({each: f"{each}.rn.f32 %0, %1, %2;" for each in ("add", "mul", "div")})
"""PTX of the operators, which round to nearest even."""

BITS: Mapping[str, str] = MappingProxyType(
    {
        "magnitude": "and.b32 %0, %1, 0x7FFFFFFF;",
        "power_up": _POWER.format("rp"),
        "power_down": _POWER.format("rz"),
    }
)
"""PTX of the functions from float32 to int32: the bits of |x|, and x rounded up or down to e8m0."""


@no_type_check
def rounded(name):
    """Return the function that calls an operator on tilus expressions. name: a key of `OPERATORS` or `BITS`."""
    return lambda *x: call_primitive_func(f"rounded_{name}", args=x)


@no_type_check
def _register(function_name, template, of_bits):
    @script
    def operate(x: float32, y: float32) -> float32:
        attrs.func_kind = "cuda_internal"
        attrs.func_name = function_name
        result: float32 = 0.0
        asm(template, outputs=[result], inputs=[x, y])
        return result

    @script
    def bits(x: float32) -> int32:
        attrs.func_kind = "cuda_internal"
        attrs.func_name = function_name
        result: int32 = 0
        asm(template, outputs=[result], inputs=[x])
        return result

    register_primitive_function(function_name, bits if of_bits else operate)


for _name, _code in {**OPERATORS, **BITS}.items():
    _register(f"rounded_{_name}", _code, _name in BITS)
