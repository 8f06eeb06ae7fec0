"""Instructions of tilus's IR that this room adds: a view of scales, the copy of scales, products with scales, the
conversion to e2m1, an atomic increment, and the transfer of registers between warpgroups."""

from __future__ import annotations

from dataclasses import dataclass

from tilus.hidet.ir.expr import Expr
from tilus.ir.inst import Instruction

from blackwell_matmul.lang.kinds import ScaledKind, kind_of


@dataclass(frozen=True, eq=False)
class Tcgen05ViewScalesInst(Instruction):
    """View of allocated columns, the input, as scales, the output. The instruction emits no PTX."""


@dataclass(frozen=True, eq=False)
class Tcgen05CopyScalesInst(Instruction):
    """Copy of scales. inputs: the destination in tensor memory, the source in shared memory. cta_group: 1, or 2 for a
    CTA pair."""

    cta_group: int


@dataclass(frozen=True, eq=False)
class Tcgen05MmaScaledInst(Instruction):
    """D += (A scale_a) (B scale_b), inputs (a, b, d, scale_a, scale_b).

    block: elements along K that share a scale. enable_input_d: False overwrites D. first_row: row of scale_b's first
    atom with the scales of B's first row.
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

    block: elements along K that share a scale.
    """

    block: int

    @property
    def kind(self) -> ScaledKind:
        a, b, _, scale_a, _ = self.inputs
        return kind_of(a.dtype, b.dtype, scale_a.dtype, self.block)


@dataclass(frozen=True, eq=False)
class PackE2m1Inst(Instruction):
    """Conversion of float32 [.., n], the input, to e2m1, two in a byte [.., n / 2], the output."""


@dataclass(frozen=True, eq=False)
class AtomicIncInst(Instruction):
    """Increment of a counter in global memory by one thread of a warp; the output, int32 [1], is the old value.

    counter: address of the counter. last: value after which the counter becomes 0.
    """

    counter: Expr
    last: Expr


@dataclass(frozen=True, eq=False)
class SetMaxRegistersInst(Instruction):
    """Change of the registers that each thread of a warpgroup has.

    action: "dec" or "inc". count: new number of registers.
    """

    action: str
    count: int
