"""Layout inference rules for the instructions of this room."""

from __future__ import annotations

from typing import Any

from tilus.ir.inst import InstructionError
from tilus.ir.layout import LayoutOperationError, RegisterLayout, register_layout
from tilus.ir.layout.inference.inference_rules.elementwise_unary import UnaryRule
from tilus.ir.layout.inference.inference_rules.mma_dot import MmaDotRule
from tilus.ir.layout.inference.inference_rules.tcgen05.copy import Tcgen05CopyRule
from tilus.ir.layout.inference.inference_rules.tcgen05.mma import Tcgen05MmaSSRule
from tilus.ir.layout.inference.inference_rules.tcgen05.slice import Tcgen05SliceRule
from tilus.ir.layout.inference.order import rule2order
from tilus.ir.layout.inference.rule import LayoutInferenceRule, register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.layout.ops import divide, local, reduce, replicated, shared_row_major
from tilus.ir.layout.ops.tmemory_ops import tmemory_row_major

from blackwell_matmul.lang.instructions import (
    AtomicIncInst,
    DotScaledInst,
    PackE2m1Inst,
    Tcgen05CopyScalesInst,
    Tcgen05MmaScaledInst,
    Tcgen05ViewScalesInst,
)
from blackwell_matmul.lang.kinds import COLUMN_ROWS, FRAGMENTS


@register_rule(Tcgen05MmaScaledInst)
class MmaScaledRule(Tcgen05MmaSSRule):
    """Layouts of A and B, equal to those of tcgen05.mma without scales: K-major, with the widest swizzle that fits."""


@register_rule(Tcgen05CopyScalesInst)
class CopyScalesRule(LayoutInferenceRule):
    """Layout of scales in shared memory: atoms of 512 bytes in sequence."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        source = inst.inputs[1]
        return {} if source.has_layout() else {source: shared_row_major(*source.shape)}


@register_rule(Tcgen05ViewScalesInst)
class ViewScalesRule(LayoutInferenceRule):
    """Layout of viewed scales in tensor memory, equal to that of allocated scales."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        scales = inst.output
        return {} if scales.has_layout() else {scales: tmemory_row_major(scales.shape)}


@register_rule(DotScaledInst)
class DotScaledRule(LayoutInferenceRule):
    """Layouts of A, B, D and scales, which follow from that of C."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        a, b, c, scale_a, scale_b = inst.inputs
        if c.optional_layout is None:
            return {}
        steps, found = a.shape[1] // FRAGMENTS.k, divide(c.layout, FRAGMENTS.lc)
        rows, columns = found.reduce_to([found.shape[0], 1]), found.reduce_to([1, found.shape[1]])
        wanted = {
            a: rows.local(1, steps) * FRAGMENTS.la,
            b: columns.local(steps, 1) * FRAGMENTS.lb,
            inst.output: c.layout,
            scale_a: scale_layout(reduce(found, [1]) * local(2), scale_a.shape),
            scale_b: scale_layout(reduce(found, [0]), scale_b.shape),
        }
        return {tensor: layout for tensor, layout in wanted.items() if tensor.optional_layout is None}


@register_rule(PackE2m1Inst)
class PackE2m1Rule(LayoutInferenceRule):
    """Layout of the packed bytes: a thread holds the bytes of its own elements, in groups of eight elements."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        x, packed = inst.inputs[0], inst.output
        if x.optional_layout is None or packed.optional_layout is not None:
            return {}
        pair, quarter = (local(*[1] * (len(x.shape) - 1), size) for size in (2, 4))
        try:
            return {packed: divide(x.layout, quarter * pair) * quarter}
        except LayoutOperationError:
            raise InstructionError(
                "e2m1x2 packs eight neighbours of one thread, and a thread has fewer; annotate_layout gives it more"
            ) from None


@register_rule(AtomicIncInst)
class AtomicIncRule(LayoutInferenceRule):
    """Layout of the old value: every thread of the warp holds it."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        old = inst.output
        return {} if old.optional_layout is not None else {old: replicated(1, num_workers=32)}


def scale_layout(eights: RegisterLayout, shape: Any) -> RegisterLayout:
    """Return the layout of scales in registers, for each row a 32-bit word with four blocks (PTX ISA, "Block Scaling
    for mma.sync").

    A register of the 32 lanes holds 32 rows. Lane 4 r + i has row r of the i-th group of 8 rows. eights: layout of the
    groups of 8 rows over warps and registers. shape: shape of the scales, [tiles of rows, atoms, 32, rows / 32, 4];
    each a power of two, except the atoms.
    """
    tiles, atoms, _, groups, _ = shape
    bits = _bits(eights)
    held, shared = bits.local_modes[:-2], bits.local_modes[-2:]
    lanes = [-2] * (2 - len(shared)) + [*shared]
    row = [*range(len(bits.mode_shape), len(bits.mode_shape) + 3)]
    outer, middle = tiles.bit_length() - 1, groups.bit_length() - 1
    inner = COLUMN_ROWS.bit_length() - 1

    def place(bit: int) -> int:
        """Return the index of the layout's mode that holds a bit of the row's index. Bit 0 is the highest bit."""
        if bit < outer:
            return bit
        return bit + 1 + inner if bit < outer + middle else bit + 1 - middle

    def placed(some: Any) -> list[int]:
        return [bit if bit < 0 else place(bit) for bit in some]

    last = outer + 1 + inner + middle
    return register_layout(
        shape=shape,
        mode_shape=[2] * outer + [atoms] + [2] * (inner + middle) + [4],
        spatial_modes=placed([*bits.spatial_modes, *row, *lanes]),
        local_modes=[*placed(held), outer, last],
    )


def _bits(layout: RegisterLayout) -> RegisterLayout:
    """Return the layout with each mode, a power of two, split into modes of extent 2."""
    modes: list[list[int]] = []
    for size in layout.mode_shape:
        first = sum(map(len, modes))
        modes.append([*range(first, first + size.bit_length() - 1)])
    spatial = [bit for mode in layout.spatial_modes for bit in (modes[mode] if mode >= 0 else [mode])]
    of_registers = [bit for mode in layout.local_modes for bit in modes[mode]]
    return RegisterLayout(layout.shape, (2,) * sum(map(len, modes)), tuple(spatial), tuple(of_registers))


_TURNS = {
    Tcgen05MmaScaledInst: (MmaScaledRule, Tcgen05MmaSSRule),
    Tcgen05CopyScalesInst: (CopyScalesRule, Tcgen05CopyRule),
    Tcgen05ViewScalesInst: (ViewScalesRule, Tcgen05SliceRule),
    DotScaledInst: (DotScaledRule, MmaDotRule),
    PackE2m1Inst: (PackE2m1Rule, UnaryRule),
    AtomicIncInst: (AtomicIncRule, UnaryRule),
}
"""Rule of each instruction, and the rule of tilus whose priority the rule has."""

for _instruction, (_rule, _turn) in _TURNS.items():
    register_rule(_instruction)(AlwaysOkayRule)
    rule2order[_rule] = rule2order[_turn]
