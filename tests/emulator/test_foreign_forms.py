"""Forms of PTX that other compilers write, each in a kernel of a few lines."""

from __future__ import annotations

import numpy as np
import pytest

from blackwell_matmul.emulator import emulate

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 16 kernel_param_0)
{
    .reg .pred %p<9>;
    .reg .b16 %rs<9>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<9>;
    ld.param.b64 %rd0, [kernel_param_0];
"""


def emulated(body: str, values: np.ndarray) -> np.ndarray:
    """What one thread makes of the array whose address is in %rd0."""
    emulate(HEAD + body + "\n    ret;\n}\n", values, grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0)
    return values


def test_a_label_behind_a_line_directive_belongs_to_its_braces() -> None:
    """Inline assembly twice: the jump of each goes to its own label."""
    block = "{ bra.uni skip;\n .loc 1 2 3\n skip:\n add.s32 %r1, %r1, 1; }\n"
    body = ".loc 1 1 1\n mov.b32 %r1, 0;\n" + 2 * block + "st.global.b32 [%rd0], %r1;"
    assert emulated(body, np.zeros(1, np.int32)) == [2]


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("add.rn.f32.f16 %r2, %rs1, %r1", 3.25),
        ("sub.f32.f16 %r2, %rs1, %r1", -0.25),
        ("fma.rn.f32.f16 %r2, %rs1, %rs1, %r1", 4.0),
    ],
)
def test_operands_of_two_widths(line: str, wanted: float) -> None:
    """PTX ISA, "Mixed Precision Floating Point Instructions": 1.5 of 16 bits, 1.75 of 32."""
    body = f"mov.b16 %rs1, 0x3E00;\n mov.b32 %r1, 0f3FE00000;\n {line};\n st.global.b32 [%rd0], %r2;"
    assert emulated(body, np.zeros(1, np.float32)) == [wanted]
