"""Candidates: a wrong order of issue, of tensor core operations and copies issued twice, too late or unordered."""

from __future__ import annotations

from typing import Final

from blackwell_matmul.simulator.description import Space, When
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, brings_bytes

UNPROMISED: Final = "order-not-promised"


def hardware_alone(c: Conflict) -> Missing | None:
    """Find an order that the tensor core keeps and PTX does not promise: a copy after a product of the same thread that
    reads the columns, or two products that share columns of different accumulators (PTX ISA, "tcgen05 Memory
    Consistency Model, Pipelined Instructions" lists the promised pairs)."""
    of_tensor = c.effect.space is Space.TENSOR and c.effect.when is When.COMPLETION
    if not (of_tensor or c.instruction.description.unpromised) or not c.other.event & c.lanes.issued:
        return None
    advice = (
        "it relies on an order that PTX does not promise; columns of another stage, or a wait on a commit in between, "
        "would order the two"
    )
    return Missing("", advice, UNPROMISED, Severity.UNGUARANTEED)


def copied_twice(c: Conflict) -> Missing | None:
    """Find two copies in one iteration that bring the bytes of the same phase to the same place, by two CTAs, warps or
    lines."""
    op, mine = c.operation, next(reversed(c.order.operations.values()), None)
    if op is None or mine is None or (mine.instruction, mine.lanes) != (c.instruction, c.lanes):
        return None
    both_bring = brings_bytes(op.instruction) and brings_bytes(c.instruction)
    if op.mbarrier is None or op.mbarrier is not mine.mbarrier or not both_bring:
        return None
    phase, later = op.end_signals[0].during, op.lanes is mine.lanes and op.instruction is mine.instruction
    if later or op.round != mine.round or mine.end_signals[0].during != phase:
        return None
    part = "one of them is for another place"
    if op.lanes.cta is not mine.lanes.cta:
        part = "each CTA has to copy a part of its own, or one of them all of it"
    advice = f"both copies bring their bytes to phase {phase} of {op.mbarrier}: {part}"
    return Missing("", advice, at_fault=c.instruction.location)


def copied_after(c: Conflict) -> Missing | None:
    """Find a copy to tensor memory that the thread issues after the product that reads the columns. No wait helps."""
    op = c.operation
    if op is None or not c.early or op.lanes.warp is not c.warp or not op.instruction.description.unpromised:
        return None
    copied = f"{op.instruction.spoken} at {op.op.location}"
    return Missing("", f"{copied} comes after the product, and has to come before it", at_fault=op.op.location)
