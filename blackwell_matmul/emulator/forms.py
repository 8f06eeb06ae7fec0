"""Forms of plain instructions: the number of operands, and results that are predicates (PTX ISA, "Instruction Set").

An assembler refuses any other form, so the emulator refuses it before the kernel runs.
"""

from __future__ import annotations

from blackwell_matmul.emulator.parser import SIZES_BYTES, Operand, Pair, Register, Statement
from blackwell_matmul.emulator.unknown import Malformed

_COUNTS: dict[int, str] = {
    2: "mov not neg abs cnot popc clz brev bfind rcp sqrt rsqrt sin cos lg2 ex2 tanh testp isspacep cvta",
    3: "add sub mul mul24 div rem addc subc and or xor shl shr copysign bmsk szext",
    4: "mad mad24 madc fma sad selp slct prmt shf bfe dp4a dp2a fns",
    5: "bfi",
}
OPERANDS = {name: count for count, names in _COUNTS.items() for name in names.split()}
"""Operands of each instruction, the result included."""

_OF_ONE_TYPE = "mov not neg abs add sub mul mul24 div rem and or xor shl shr mad mad24 fma selp"
SAME_TYPE = frozenset(_OF_ONE_TYPE.split())
"""Instructions whose first type is the result's, or half of it for `.wide`."""

PREDICATES = ("setp", "testp", "isspacep")
"""Instructions whose results are predicates; of the others here, those of type .pred are."""

NUMBERS = ("ld", "ldu", "cvt", "set", "atom", "min", "max")
"""Further instructions whose results are no predicates."""


def verify(each: Statement) -> None:
    """Check the operands of a plain instruction; Malformed for a form that PTX does not have."""
    name = each.opcode.split(".")[0]
    wanted = OPERANDS.get(name)
    if wanted is not None and len(each.operands) != wanted:
        raise Malformed(f"{name} takes {wanted} operands, and {len(each.operands)} are given")
    if each.operands and (wanted is not None or name in (*PREDICATES, *NUMBERS)):
        first = each.operands[0]
        for result in (first.first, first.second) if isinstance(first, Pair) else (first,):
            _verify_result(each.opcode, result, name in PREDICATES or each.opcode.endswith(".pred"))
        if name in SAME_TYPE and isinstance(first, Register):
            _verify_size(each, first)


def _verify_size(each: Statement, result: Register) -> None:
    type = next((word for word in each.modifiers if word in SIZES_BYTES), "pred")
    if SIZES_BYTES[result.type] < SIZES_BYTES[type] * (1 + ("wide" in each.modifiers)):
        raise Malformed(f"the result of {each.opcode} does not fit into a register .{result.type}")


def _verify_result(opcode: str, result: Operand, is_predicate: bool) -> None:
    if isinstance(result, Register) and (result.type == "pred") != is_predicate:
        other = "is no predicate" if is_predicate else "is a predicate"
        raise Malformed(f"the result of {opcode} goes to a register .{result.type}, which {other}")
