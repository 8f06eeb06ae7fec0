"""The rules by which tilus finds the layouts of block-scaled operands and of scales in shared memory."""

from __future__ import annotations

from typing import Any

from tilus.ir.layout.inference.inference_rules.tcgen05.copy import Tcgen05CopyRule
from tilus.ir.layout.inference.inference_rules.tcgen05.mma import Tcgen05MmaSSRule
from tilus.ir.layout.inference.inference_rules.tcgen05.slice import Tcgen05SliceRule
from tilus.ir.layout.inference.order import rule2order
from tilus.ir.layout.inference.rule import LayoutInferenceRule, register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.layout.ops.tmemory_ops import tmemory_row_major

from blackwell_matmul.lang.instructions import Tcgen05CopyScalesInst, Tcgen05MmaScaledInst, Tcgen05ViewScalesInst


@register_rule(Tcgen05MmaScaledInst)
class MmaScaledRule(Tcgen05MmaSSRule):
    """Layouts of A and B as tcgen05.mma without scales has them: K-major, with the widest swizzle that fits."""


@register_rule(Tcgen05CopyScalesInst)
class CopyScalesRule(LayoutInferenceRule):
    """Layout of scales in shared memory: one atom of 512 bytes behind the other."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        source = inst.inputs[1]
        return {} if source.has_layout() else {source: shared_row_major(*source.shape)}


@register_rule(Tcgen05ViewScalesInst)
class ViewScalesRule(LayoutInferenceRule):
    """Layout of scales in tensor memory: as if they were allocated."""

    @staticmethod
    def inference(ctx: Any, inst: Any) -> dict[Any, Any]:
        scales = inst.output
        return {} if scales.has_layout() else {scales: tmemory_row_major(scales.shape)}


_TURNS = {
    Tcgen05MmaScaledInst: (MmaScaledRule, Tcgen05MmaSSRule),
    Tcgen05CopyScalesInst: (CopyScalesRule, Tcgen05CopyRule),
    Tcgen05ViewScalesInst: (ViewScalesRule, Tcgen05SliceRule),
}
"""For each instruction its rule, and the rule of tilus in whose turn it is tried."""

for _instruction, (_rule, _turn) in _TURNS.items():
    register_rule(_instruction)(AlwaysOkayRule)
    rule2order[_rule] = rule2order[_turn]
