"""Kind, K and descriptor that follow from types and block."""

from __future__ import annotations

import pytest
from tilus import float8_e4m3, float8_e5m2, float16
from tilus.ir.inst import InstructionError

from blackwell_matmul.lang import FORMATS, float4_e2m1x2, float8_e8m0
from blackwell_matmul.lang.kinds import kind_of


@pytest.mark.parametrize(
    ("element", "scale", "block", "opcode", "k", "scales"),
    [
        (float8_e4m3, float8_e8m0, 32, "kind::mxf8f6f4.block_scale.block32", 32, 1),
        (float4_e2m1x2, float8_e8m0, 32, "kind::mxf4.block_scale.block32", 64, 2),
        (float4_e2m1x2, float8_e8m0, 16, "kind::mxf4nvf4.block_scale.block16", 64, 4),
        (float4_e2m1x2, float8_e4m3, 16, "kind::mxf4nvf4.block_scale.block16", 64, 4),
    ],
)
def test_a_kind_follows_from_the_types(element, scale, block, opcode, k, scales) -> None:  # type: ignore[no-untyped-def]
    kind = kind_of(element, element, scale, block)
    assert kind.opcode(2) == f"tcgen05.mma.cta_group::2.{opcode}" and (kind.k, kind.scales) == (k, scales)


def test_descriptors_are_those_that_are_known() -> None:
    nvfp4, mxfp8 = (kind_of(f.element, f.element, f.scale, f.block) for f in (FORMATS["nvfp4"], FORMATS["mxfp8"]))
    assert nvfp4.descriptor(128, 128, 0) == 0x08200480 and nvfp4.descriptor(256, 256, 3) == 0x10400480
    mixed = kind_of(float8_e5m2, float8_e4m3, float8_e8m0, 32)
    assert [mixed.descriptor(128, 64, step) ^ mxfp8.descriptor(128, 64, step) for step in range(5)] == [1 << 7] * 5


def test_the_bytes_of_the_scales_follow_from_the_step() -> None:
    of = {name: kind_of(f.element, f.element, f.scale, f.block) for name, f in FORMATS.items()}
    assert [of["mxfp8"].place(step) for step in range(5)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert [of["mxfp4"].place(step) for step in range(4)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [of["nvfp4"].place(step) for step in range(3)] == [(0, 0), (1, 0), (2, 0)]
    assert of["mxfp4"].descriptor(128, 128, 1) & (3 << 29 | 3 << 4) == 2 << 29 | 2 << 4


def test_other_types_are_told_what_there_is() -> None:
    with pytest.raises(InstructionError, match=r"float4_e2m1x2 by float4_e2m1x2; a is float8_e4m3 and b is f"):
        kind_of(float8_e4m3, float4_e2m1x2, float8_e8m0, 32)
    with pytest.raises(InstructionError, match="a is float16 and b is float16"):
        kind_of(float16, float16, float8_e8m0, 32)
    with pytest.raises(InstructionError, match=r"float8_e4m3 has scales of float8_e8m0 for 32 elements; .*e4m3 f"):
        kind_of(float8_e4m3, float8_e4m3, float8_e4m3, 32)
