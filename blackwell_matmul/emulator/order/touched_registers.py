"""Registers of pending asynchronous operations, and registers written after the last wgmma.fence.

wgmma uses registers until wgmma.wait_group, tcgen05.ld until tcgen05.wait::ld. A mov from such a register makes its
result pending, too: compilers rename registers by mov, and assemblers remove such a mov. Before a run, only the
instructions that touch such registers are wrapped; the other instructions cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from blackwell_matmul.emulator.parser import Address, Not, Operand, Pair, Register, Statement, Vector

WITHOUT_RESULT = ("st", "red", "bar", "barrier", "mbarrier", "cp", "tcgen05", "fence", "bra", "ret")
"""Names of instructions whose first operand is a source."""


@dataclass(slots=True)
class HeldRegisters:
    """Registers of a warp. held: agent, clock and instruction of the pending operation, and True if the operation
    writes. fresh: registers written since the last wgmma.fence, with the instruction. fenced: True after the first
    fence. early: findings for results of tcgen05.ld used before tcgen05.wait::ld, by the load's instruction, until that
    wait."""

    held: dict[int, tuple[int, int, int, bool]] = field(default_factory=dict)
    fresh: dict[int, int] = field(default_factory=dict)
    fenced: bool = False
    early: dict[int, Any] = field(default_factory=dict)


class Touched(NamedTuple):
    """Registers of asynchronous operations that an instruction touches. fresh: registers of a wgmma that it writes.
    moves: True for mov."""

    writes: set[int]
    reads: set[int]
    all: set[int]
    fresh: set[int]
    moves: bool


def slots(operand: Operand) -> Iterator[int]:
    """Yield the registers of an operand."""
    if isinstance(operand, Register):
        yield operand.slot
    elif isinstance(operand, Vector):
        for part in operand.parts:
            yield from slots(part)
    elif isinstance(operand, Pair):
        yield from slots(operand.first)
    elif isinstance(operand, Address):
        yield from slots(operand.base)
    elif isinstance(operand, Not):
        yield from slots(operand.operand)


def results(each: Statement) -> set[int]:
    """Return the registers that an instruction writes; empty for instructions in WITHOUT_RESULT."""
    return set(slots(each.operands[0])) if each.operands and _name(each) not in WITHOUT_RESULT else set()


def sources(each: Statement) -> set[int]:
    first = 0 if _name(each) in WITHOUT_RESULT else 1
    return {slot for operand in each.operands[first:] for slot in slots(operand)}


def _name(each: Statement) -> str:
    return each.opcode.split(".")[0]


def is_wgmma(each: Statement) -> bool:
    return each.opcode.startswith("wgmma.mma_async")


def held_by(each: Statement) -> tuple[set[int], set[int]]:
    """Return the registers that an asynchronous operation writes, and those that it reads, until it is waited for."""
    written = set(slots(each.operands[0]))
    read = set(slots(each.operands[1])) if is_wgmma(each) and isinstance(each.operands[1], Vector) else set()
    return written, read


def watch(steps: list[Any], hear: Callable[[Any, Any, int, Touched], None]) -> None:
    """Wrap each step that touches a register of a wgmma or tcgen05.ld. hear: called before the step runs."""
    products = _closed(steps, _held(steps, is_wgmma))
    watched = products | _closed(steps, _held(steps, _is_load))
    for place, step in enumerate(steps if watched else []):
        each = step.source
        if is_wgmma(each) or _is_load(each):
            continue
        writes, reads = results(each) & watched, sources(each) & watched
        if writes or reads:
            touched = Touched(writes, reads, writes | reads, writes & products, each.opcode.startswith("mov"))
            steps[place] = step._replace(act=_heard(step, hear, touched))


def _is_load(each: Statement) -> bool:
    return each.opcode.startswith("tcgen05.ld")


def _held(steps: list[Any], is_one: Callable[[Statement], bool]) -> set[int]:
    return {slot for step in steps if is_one(step.source) for part in held_by(step.source) for slot in part}


def _closed(steps: list[Any], watched: set[int]) -> set[int]:
    """Return these registers, and all registers that mov copies them to."""
    moves = [step.source for step in steps if step.source.opcode.startswith("mov")] if watched else []
    before = 0
    while len(watched) != before:
        before = len(watched)
        for each in moves:
            if not watched.isdisjoint(sources(each)):
                watched |= results(each)
    return watched


def _heard(step: Any, hear: Any, touched: Touched) -> Callable[[Any, int], Any]:
    act = step.act

    def heard(warp: Any, mask: int) -> Any:
        hear(warp, step, mask, touched)
        return act(warp, mask)

    return heard
