"""PTX text to data, and one sentence with the line for what is none (`emulator/parser.py`)."""

from __future__ import annotations

from typing import Any

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator.parser import (
    Address,
    Negative,
    Not,
    Nothing,
    Number,
    Pair,
    Reference,
    Register,
    Selected,
    SourceLine,
    Symbol,
    Vector,
    parse,
)

HEAD = ".version 8.7\n.target sm_100a\n.address_size 64\n"


def body(text: str, head: str = HEAD) -> Any:
    return parse(f"{head}.entry k() {{\n{text}\n}}\n").kernels["k"]


def operands(text: str) -> Any:
    return body(f".reg .b32 %r<9>; .reg .pred %p<3>; .reg .b64 %rd<4>;\n{text}").instructions[0].operands


def test_operands_of_each_kind() -> None:
    r = [Register(index, "b32") for index in range(9)]
    p = [Register(9 + index, "pred") for index in range(3)]
    assert operands("add.s32 %r1, %r2, -5;") == (r[1], r[2], Number(-5))
    assert operands("mov.f32 %r1, 0f3F800000;") == (r[1], Number(0x3F800000, True))
    assert operands("mov.f64 %r1, 0d3FF0000000000000;") == (r[1], Number(0x3FF0000000000000, True))
    assert operands("mov.f32 %r1, -1.5e-3;") == (r[1], Number(-0.0015))
    assert operands("mov.u32 %r1, 0x1FU;") == (r[1], Number(31))
    assert operands("mov.u32 %r1, 010;") == (r[1], Number(8))
    assert operands("mov.u32 %r1, %tid.x;") == (r[1], Symbol("%tid.x"))
    assert operands("setp.eq.s32 %p0|%p1, %r0, 1, !%p2;") == (Pair(p[0], p[1]), r[0], Number(1), Not(p[2]))
    assert operands("elect.sync _|%p0, -1;") == (Pair(Nothing(), p[0]), Number(-1))
    assert operands("ld.global.v2.u32 {%r0, _}, [%r3+-16];") == (Vector((r[0], Nothing())), Address(r[3], -16))
    assert operands("ld.param.u64 %r0, [p+8];") == (r[0], Address(Symbol("p"), 8))
    assert operands("mov.u64 %r0, box+8;") == (r[0], Address(Symbol("box"), 8))
    assert operands("st.shared.u32 [box + 4], %r1;") == (Address(Symbol("box"), 4), r[1])
    assert operands("x.y [%r1, {%r2, %r3}], [%r4];") == (Address(r[1], 0, (r[2], r[3])), Address(r[4]))


def test_a_statement_knows_its_line_its_guard_and_its_place_in_the_source() -> None:
    kernel = body(
        ".reg .pred %p<2>;\n.loc 2 7 3\n  @!%p1   bra\n L;\nL: ret;", HEAD + '.file 1 "a.cu"\n.file 2 "dir/b.py"\n'
    )
    first, last = kernel.instructions
    assert (first.guard, first.opcode, first.line, first.location) == (
        (Register(1, "pred"), True),
        "bra",
        9,
        SourceLine("dir/b.py", 7),
    )
    assert first.text == "@!%p1 bra L" and kernel.labels == {"L": 1} and last.opcode == "ret"
    assert first.modifiers == ()


def test_code_that_was_inlined_stands_where_it_was_called() -> None:
    kernel = body(".loc 1 99 0, function_name $info, inlined_at 1 20 3\nret;", HEAD + '.file 1 "a.py"\n')
    assert kernel.instructions[0].location == SourceLine("a.py", 20)


def test_braces_have_registers_and_labels_of_their_own() -> None:
    kernel = body("""
        .reg .b32 %r; .reg .pred p;
        { .reg .pred p; .reg .b32 t; @p bra DONE; mov.u32 t, 1; DONE: mov.u32 %r, t; }
        { .reg .pred p; @p bra DONE; mov.u32 %r, 2;
          .loc 1 1 1
          DONE: mov.u32 %r, 3; }
        { LAB_WAIT: @p bra LAB_WAIT; }
        mov.u32 %r, 4;""")
    jumps = [each for each in kernel.instructions if each.opcode == "bra"]
    assert [kernel.labels[each.operands[0].name] for each in jumps] == [2, 5, 6]
    assert [each.guard[0].slot for each in jumps] == [2, 4, 1]
    assert [each.operands[0].slot for each in kernel.instructions if each.opcode == "mov.u32"] == [3, 0, 0, 0, 0]


def test_comments_directives_and_debug_sections_are_skipped() -> None:
    text = (
        HEAD
        + """
        // .entry no() {
        /* { */ .visible .entry k(.param .u64 .ptr .global .align 16 a, .param .align 64 .b8 m[128], .param .f32 x)
        .reqntid 128, 2, 1
        .maxnreg 64
        { .pragma "nounroll"; $L__tmp: ret; /* } */ }
        .section .debug_abbrev { .b8 1 // {
        .b8 2 } """
    )
    kernel = parse(text).kernels["k"]
    assert [(each.name, each.nbytes, each.type) for each in kernel.parameters] == [
        ("a", 8, "u64"),
        ("m", 128, "b8"),
        ("x", 4, "f32"),
    ]
    assert kernel.directives == {".reqntid": (128, 2, 1), ".maxnreg": (64,)}


def test_a_brace_on_the_line_of_a_directive() -> None:
    kernel = parse(HEAD + ".entry k() .maxntid 32, 1, 1 { ret; }").kernels["k"]
    assert kernel.directives[".maxntid"] == (32, 1, 1) and len(kernel.instructions) == 1


def test_variables_and_what_they_hold() -> None:
    module = parse(
        HEAD
        + """
        .extern .shared .align 128 .b8 dyn[];
        .global .align 4 .u32 n = 5, m[2] = {1, -1};
        .const .f32 one = 0f3F800000;
        .global .s16 low = -2;
        .entry k() { .shared .align 16 .b8 box[4][8]; .reg .b32 %r<2>, %q; ret; }"""
    )
    found = {each.name: each for each in [*module.variables, *module.kernels["k"].variables]}
    assert (found["dyn"].nbytes, found["dyn"].alignment, found["dyn"].space) == (None, 128, "shared")
    assert (found["n"].initial, found["m"].initial) == (b"\5\0\0\0", b"\1\0\0\0\xff\xff\xff\xff")
    assert found["one"].initial == bytes.fromhex("0000803f") and found["low"].initial == b"\xfe\xff"
    assert (found["box"].nbytes, found["box"].alignment) == (32, 16)
    assert module.kernels["k"].registers == ["b32", "b32", "b32"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("1 << 4 | 3 & 1", 17),
        ("~0", (1 << 64) - 1),
        ("!5 + !0", 1),
        ("-1 < 0", 1),
        ("-1 < 0U", 0),
        ("(.s64) 0xFFFFFFFFFFFFFFFF", -1),
        ("(.u64) -1 > 0", 1),
        ("2 > 1 ? 2 == 1 ? 5 : 6 : 7", 6),
        ("1 && 0 || 3 != 3 ^ 1", 1),
        ("0b101 + 010 + 0x10U", 29),
        ("0x7FFFFFFFFFFFFFFF + 1", -(1 << 63)),
        ("1e3 / 4 + 0f3F800000", 251.0),
        ("1.5 + 0d3FF0000000000000", 2.5),
        ("-2 >> 1", -1),
        ("16-4", 12),
    ],
)
def test_constant_expressions(text: str, wanted: Any) -> None:
    found = operands(f"mov.u64 %rd1, {text};")[1]
    assert found == Number(wanted)


def test_expressions_in_addresses() -> None:
    r = Register(1, "b32")
    assert operands("ld.u32 %r0, [%r1 + 4 * 2 - 1];")[1] == Address(r, 7)
    assert operands("ld.u32 %r0, [%r1 - (4 << 2)];")[1] == Address(r, -16)
    assert operands("ld.u32 %r0, [box+8-4];")[1] == Address(Symbol("box"), 4)
    assert operands("ld.u32 %r0, [8 + 8];")[1] == Address(Number(16))


def test_operands_of_video_instructions_and_of_calls() -> None:
    r = [Register(index, "b32") for index in range(9)]
    wanted = (Selected(r[0], "h1"), Negative(Selected(r[1], "b3")), Negative(r[2]), Selected(r[3], "b3210"))
    assert operands("x %r0.h1, -%r1.b3, -%r2, %r3.b3210;") == wanted
    assert operands("call (%r0), f, (%r1, 4);") == (Vector((r[0],)), Symbol("f"), Vector((r[1], Number(4))))


def test_vector_registers_and_their_elements() -> None:
    kernel = body(".reg .v4 .f32 V; .reg .v2 .b16 w<2>; x V, V.y, V.b, w1, w1.x, w0.g;")
    v, w = [Register(index, "f32") for index in range(4)], [Register(index, "b16") for index in range(4, 8)]
    assert kernel.instructions[0].operands == (Vector(tuple(v)), v[1], v[2], Vector(tuple(w[2:])), w[2], w[1])


def test_initial_values_of_vectors_rows_and_addresses() -> None:
    module = parse(
        HEAD
        + """
        .global .v2 .u16 pair[2] = {{1, 2}, {3, 4}};
        .global .s16 rows[][3] = {{1}, {2, -3, 4}};
        .global .attribute(.managed) .u32 n = 3 * 4 + 1;
        .global .u64 places[3] = {n, generic(rows) + 8, f};
        .global .u8 parts[3] = {0xff(n), 0xff00(n), 0xff0000(generic(n+4))};
        .entry k() { ret; }"""
    )
    found = {each.name: each for each in module.variables}
    assert (found["pair"].nbytes, found["pair"].alignment, found["pair"].initial) == (
        8,
        4,
        bytes([1, 0, 2, 0, 3, 0, 4, 0]),
    )
    assert (found["rows"].nbytes, found["rows"].initial) == (12, b"\1\0\0\0\0\0\2\0\xfd\xff\4\0")
    assert found["n"].initial == b"\x0d\0\0\0"
    assert found["places"].references == (Reference(0, 8, "n"), Reference(8, 8, "rows", 8), Reference(16, 8, "f"))
    assert found["parts"].references == (
        Reference(0, 1, "n"),
        Reference(1, 1, "n", 0, 8),
        Reference(2, 1, "n", 4, 16),
    )


def test_several_kernels_and_functions() -> None:
    module = parse(
        HEAD + ".func (.param .b32 r) f (.param .b32 a) { st.param.b32 [r], 1; { ret; "
        "} }\n.func g();\n.entry a() { ret; }\n.entry b() { ret; }"
    )
    assert list(module.kernels) == ["a", "b"] and module.target == "sm_100a"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "this is no PTX: it has no .version line"),
        ("int main() {}\n", "this is no PTX"),
        (HEAD, "this PTX has no kernel (.entry)"),
        (HEAD + '.entry k() {\n"mov" 5;\nret; }', "PTX line 5: '\"mov\"' is no instruction"),
        (HEAD + ".entry k() {\n  add.s32 ` 1;\n}", "PTX line 5: '` 1;' is not understood"),
        (HEAD + ".entry k() {\n@%p bra L;\n}", "PTX line 5: the predicate '%p' is not declared"),
        (HEAD + ".entry k() {\n.reg .v4 .quad %r;\n}", "PTX line 5: registers of type quad are not emulated"),
        (HEAD + ".entry k() {\n.reg .b32 %r;\nmov.u32 %r, 5 / 0;\n}", "PTX line 6"),
        (HEAD + ".entry k() {\n.reg .b32 %r;\nmov.u32 %r, 1.5 << 2;\n}", "PTX line 6"),
        (HEAD + ".entry k() {\n.reg .b32 %r;\nmov.u32 %r, (5 + 2;\n}", "PTX line 6"),
        (HEAD + ".entry k() {\n.reg .b32 %r<2>;\nld.u32 %r1, [{%r0}];\n}", "is no address"),
        (HEAD + ".entry k() {\n.reg .b32 %r<x>;\n}", "PTX line 5"),
        (HEAD + ".entry k() {\n.loc 1\nret;\n}", "PTX line 5"),
        (HEAD + ".global .u64 p = generic(x;\n.entry k() { ret; }", "PTX line 4"),
        (HEAD + ".entry k(.param .u64 a[x]) { ret; }", "PTX line 4"),
        (HEAD + ".entry k() {\n.reg .quad %r;\nret; }", "PTX line 5"),
    ],
)
def test_what_is_no_ptx_is_told_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert sentence in str(caught.value) and str(caught.value).endswith(".")


FULL = (
    HEAD
    + """.file 1 "a.py"
.extern .shared .align 16 .b8 s[];
.visible .entry k(.param .u64 a, .param .u32 n)
.reqntid 32
{
.reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
.loc 1 5 3
ld.param.u64 %rd1, [a+0]; @!%p1 bra L;
{ .reg .b32 t; mov.b32 {t, _}, %rd1; X: @%p2 bra X; }
L: setp.lt.s32 %p1|%p2, %r1, -5, !%p2; cp.async.bulk.tensor.2d.x [%r1], [%rd1, {%r2, %r3}], [%r0+8];
ret;
}
"""
)


def test_ptx_that_is_cut_anywhere_is_told_in_a_sentence() -> None:
    assert parse(FULL).kernels
    for end in range(len(FULL) - 3):
        try:
            parse(FULL[:end])
        except InputError as error:
            assert str(error).endswith("."), FULL[:end][-30:]


def test_ptx_without_one_of_its_words_is_told_in_a_sentence() -> None:
    import re

    for word in re.finditer(r"\S+", FULL):
        for instead in ("", "}", "{", "7", ";"):
            try:
                parse(FULL[: word.start()] + instead + FULL[word.end() :])
            except InputError as error:
                assert str(error).endswith("."), word
