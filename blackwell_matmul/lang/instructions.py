"""The instructions that this room adds to tilus: columns as scales, the copy of scales, the products with scales, the
conversion to e2m1."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.hidet.ir.expr import Expr
from tilus.ir.inst import Instruction

from blackwell_matmul.lang.kinds import ScaledKind, kind_of


@dataclass(frozen=True, eq=False)
class Tcgen05ViewScalesInst(Instruction):
    """Columns of an allocation, the input, as scales, the output; no code."""


@dataclass(frozen=True, eq=False)
class Tcgen05CopyScalesInst(Instruction):
    """The copy of scales, inputs (destination in tensor memory, source in shared memory), by `cta_group` CTAs."""

    cta_group: int


@dataclass(frozen=True, eq=False)
class Tcgen05MmaScaledInst(Instruction):
    """D += (A scale_a) (B scale_b), inputs (a, b, d, scale_a, scale_b).

    block: elements of K with one scale. enable_input_d: False overwrites D. first_row: row of the first atom of scale_b
    with the scales of B's first row.
    """

    block: int
    enable_input_d: Expr
    first_row: Expr
    cta_group: int

    @property
    def kind(self) -> ScaledKind:
        a, b, _, scale_a, _ = self.inputs
        return kind_of(a.dtype, b.dtype, scale_a.dtype, self.block)


@dataclass(frozen=True, eq=False)
class DotScaledInst(Instruction):
    """D = (A scale_a) (B scale_b) + C in registers, inputs (a, b, c, scale_a, scale_b); output D.

    block: elements of K with one scale.
    """

    block: int

    @property
    def kind(self) -> ScaledKind:
        a, b, _, scale_a, _ = self.inputs
        return kind_of(a.dtype, b.dtype, scale_a.dtype, self.block)


@dataclass(frozen=True, eq=False)
class PackE2m1Inst(Instruction):
    """float32 [.., n], the input, as e2m1 in bytes of two [.., n / 2], the output."""
