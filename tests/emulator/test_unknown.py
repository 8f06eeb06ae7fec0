"""Forms that are not emulated are refused on purpose; any other exception of a maker is the emulator's own fault."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator import code, emulate
from blackwell_matmul.emulator.code import Builder, known
from blackwell_matmul.emulator.parser import Address, Not, Nothing, Number, Operand, Register, Statement, Vector, parse
from blackwell_matmul.emulator.starting import SPECIALS
from blackwell_matmul.emulator.unknown import Known, Malformed, Parts, Unknown
from tests.emulator.ptx import module

FOREIGN = sorted((Path(__file__).parent / "foreign").glob("*.ptx.gz"))

ODD: tuple[Operand, ...] = (
    Register(0, "pred"), Register(1, "b32"), Register(2, "b64"), Number(3), Number(0.5), Nothing(),
    Vector((Register(1, "b32"),)), Address(Register(2, "b64")), Not(Register(0, "pred")),
)  # fmt: skip
"""Operands of each kind, for the registers of `BUILDER`."""

WORDS = ("f16x2", "s32", "b128", "e4m3", "x8", "v4", "shared", "odd")


def builder() -> Builder:
    return Builder(["pred", "b32", "b64"], {"there": 0}, {"table": ["there"]}, set(SPECIALS))


def statements() -> dict[str, Statement]:
    """One of each opcode of other compilers' kernels, its registers those of `builder`."""
    found: dict[str, Statement] = {}
    for path in FOREIGN:
        for entry in parse(gzip.decompress(path.read_bytes()).decode()).kernels.values():
            for each in entry.instructions:
                found.setdefault(each.opcode, replace(each, operands=Parts(map(_plain, each.operands)), guard=None))
    for opcode in known():
        found.setdefault(opcode, Statement(opcode, Parts(), None, 1, opcode, None))
    return found


def _plain(operand: Operand) -> Operand:
    if isinstance(operand, Register):
        return {"pred": ODD[0], "b64": ODD[2]}.get(operand.type, ODD[1])
    if isinstance(operand, Vector):
        return Vector(tuple(map(_plain, operand.parts)))
    if isinstance(operand, Address):
        return replace(operand, base=ODD[2], coordinates=tuple(map(_plain, operand.coordinates)))  # type: ignore[arg-type]
    return operand


def changed(each: Statement) -> Iterator[Statement]:
    """The statement with one operand or modifier left out, added, or exchanged for another."""
    words, operands = each.opcode.split("."), tuple(each.operands)
    for place in range(1, len(words)):
        for other in ([], *([word] for word in WORDS)):
            yield replace(each, opcode=".".join([*words[:place], *other, *words[place + 1 :]]))
    for place in range(len(operands) + 1):
        for other in ([], *([operand] for operand in ODD)):
            yield replace(each, operands=(*operands[:place], *other, *operands[place + 1 :]))


def test_a_form_that_no_maker_knows_is_refused_on_purpose() -> None:
    built = refused = 0
    for each in statements().values():
        for odd in changed(each):
            try:
                builder().build(odd)
                built += 1
            except (Unknown, Malformed):
                refused += 1
            except Exception as error:
                pytest.fail(f"{odd.opcode} {odd.operands}: {error!r}")
    assert built > 1000 and refused > 1000


def test_what_is_found_not_to_be_emulated_while_it_runs_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def makes(build: Builder, each: Statement) -> code.Act:
        return lambda warp, mask: Known({1: 2})[3]

    monkeypatch.setitem(code._INSTRUCTIONS, "activemask", makes)
    with pytest.raises(EmulationError, match=r"^PTX line \d+: activemask.b32 %r1: 3 is not emulated\.$"):
        emulate(module(".reg .b32 %r1;\nactivemask.b32 %r1;"), grid=1, block=32)


@pytest.mark.parametrize("fault", [AssertionError(), KeyError("x"), TypeError("x"), ZeroDivisionError("x")])
def test_a_fault_of_a_maker_is_told_as_one(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def fails(build: Builder, each: Statement) -> None:
        raise fault

    monkeypatch.setitem(code._INSTRUCTIONS, "activemask", fails)
    text = module(".reg .b32 %r1;\nactivemask.b32 %r1;")
    line = text[: text.index("activemask")].count("\n") + 1
    with pytest.raises(EmulationError) as caught:
        emulate(text, grid=1, block=32)
    sentence = str(caught.value)
    assert sentence.startswith(f"PTX line {line}: activemask.b32 %r1: the emulator fails here ({fault!r})")
    assert sentence.endswith("which is a fault of its own; please report it.")
