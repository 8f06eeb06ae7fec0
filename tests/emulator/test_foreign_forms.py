"""Forms of PTX that other compilers write, each in a kernel of a few lines."""

from __future__ import annotations

import numpy as np
import pytest

from blackwell_matmul.base.errors import EmulationError
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


def test_what_is_moved_beside_what_counts_may_be_undefined() -> None:
    """A byte of a register that nothing writes, in a word of which only the other bytes are kept."""
    body = "mov.b32 %r1, 0x11223344;\n prmt.b32 %r2, %r1, %r7, 0x4321U;\n and.b32 %r3, %r2, 0xFFFFFF;\n"
    assert emulated(body + "st.global.b32 [%rd0], %r3;", np.zeros(1, np.int32)) == [0x112233]


def test_what_is_computed_with_one_that_nothing_writes_is_no_number_of_the_programs() -> None:
    body = "mov.b32 %r1, 1;\n add.s32 %r2, %r1, %r7;\n st.global.b32 [%rd0], %r2;"
    assert emulated(body, np.zeros(1, np.uint32)) == [0xA55AA55A + 1]


@pytest.mark.parametrize("line, wanted", [("max.u16x2", 0xFFFF0003), ("min.s16x2", 0xFFFF0002)])
def test_extremes_of_halves(line: str, wanted: int) -> None:
    body = f"mov.b32 %r1, 0xFFFF0002;\n mov.b32 %r2, 0x00010003;\n {line} %r3, %r1, %r2;\n st.global.b32 [%rd0], %r3;"
    assert emulated(body, np.zeros(1, np.uint32)) == [wanted]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_jump_by_a_table(index: int) -> None:
    places = "first:\n mov.b32 %r2, 10;\n bra.uni end;\n second:\n mov.b32 %r2, 20;\n end:\n"
    body = "table:\n .branchtargets first, second, end;\n ld.global.b32 %r1, [%rd0];\n mov.b32 %r2, %r1;\n"
    found = emulated(f"{body} brx.idx %r1, table;\n {places} st.global.b32 [%rd0], %r2;", np.array([index], np.int32))
    assert found == [[10, 20, 2][index]]


def test_a_jump_by_a_table_ends_where_no_label_is() -> None:
    body = "table:\n .branchtargets end;\n ld.global.b32 %r1, [%rd0];\n brx.idx %r1, table;\n end:\n"
    with pytest.raises(EmulationError, match=r"brx.idx %r1, table: chooses \[3\] of 1 places"):
        emulated(body, np.array([3], np.int32))


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
