"""Forms of instructions: those that ptxas 13.0 refuses are refused before the kernel runs, and no others."""

from __future__ import annotations

import pytest
from ptx import REGISTERS, module

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.emulator import emulate
from blackwell_matmul.emulator.forms import MOST_NAME_WORDS, _forms, matches

DECLARED = (
    REGISTERS
    + """.reg .f32 %f<9>; .reg .f64 %d<9>; .reg .s32 %s<3>; .shared .align 16 .b8 box[64];
.shared .align 8 .b64 bar; .local .align 8 .b8 own[8]; ld.param.u64 %x1, [p]; bra END;
"""
)


def assembled(body: str, target: str = "sm_100a", outside: str = "") -> None:
    """Build a kernel whose body is jumped over."""
    emulate(module(f"{DECLARED}{body}\nEND:", [".u64 p"], target, outside), None)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("add.b32 %r1, %r1, %r1;", "add has no .b32"),
        ("mul.s32 %r1, %r1, %r1;", "mul.s32 is no form of mul: a modifier is missing, or two exclude each other"),
        ("div.f32 %f1, %f1, %f1;", "div.f32 is no form of div"),
        ("fma.f32 %f1, %f1, %f1, %f1;", "fma.f32 is no form of fma"),
        ("add.rn.s32 %r1, %r1, %r1;", "add.rn.s32 is no form of add"),
        ("add.ftz.f64 %d1, %d1, %d1;", "add.ftz.f64 is no form of add"),
        ("sin.f32 %f1, %f1;", "sin.f32 is no form of sin"),
        ("shl.u32 %r1, %r1, 2;", "shl has no .u32"),
        ("setp.hi.s32 %p1, %r1, %r1;", "setp.hi.s32 is no form of setp"),
        ("setp.eq.and.s32 %p1, %r1, %r1;", "setp takes 4 operands, and 3 are given"),
        ("lop3.b32 %r1, %r1, %r1, %r1, %r2;", "lop3.b32 takes a number, where a register .b32 is given"),
        ("cvt.s32.f32 %r1, %f1;", "cvt.s32.f32 is no form of cvt"),
        ("cvt.f32.s32 %f1, %r1;", "cvt.f32.s32 is no form of cvt"),
        ("cvt.u32.u64 %r1, %r1;", "an operand has 4 bytes where .u64 is expected"),
        ("add.s32 %r1, %r1, %x1;", "an operand has 8 bytes where .s32 is expected"),
        ("add.s32 %r1, %f1, %r1;", "a register .f32 where .s32 is expected"),
        ("add.f32 %f1, %s1, %f1;", "a register .s32 where .f32 is expected"),
        ("add.f32 %f1, %f1, 1;", "1 is no float, which .f32 takes"),
        ("add.s32 %r1, %r1, 0f3F800000;", "the bits 0x3f800000 of a float are no integer, which .s32 takes"),
        ("add.s32 %r1, -%r1, %r1;", "an operand -... where .s32 is expected"),
        ("add.s32 %r1, [%x1], %r1;", "an operand [...] where .s32 is expected"),
        ("add.s32 5, %r1, %r1;", "the result of add.s32 goes to 5, which is no register"),
        ("add.s32 %r99, %r1, %r1;", "the result of add.s32 goes to %r99, which is no register"),
        ("add.s32 %r1 %r1, %r1;", "',' was expected and '%r1' stands there"),
        ("add.s32 %r1, %r1, ;", "';' is no operand"),
        ("mov.b32 %r1, {%h1, %h1, %h1};", "a vector of 3 is no .b32 of 4 bytes"),
        ("ld.global.u32 %r1, %x1;", "ld.global.u32 takes an address, where a register .b64 is given"),
        ("ld.global.u32 %r1, [%f1];", "a register .f32 is no address"),
        ("ld.global.v4.u32 {%r1, %r2}, [%x1];", "ld.global.v4.u32 takes 4 registers, and 2 are given"),
        (
            "ld.global.v8.b64 {%x1, %x1, %x1, %x1, %x1, %x1, %x1, %x1}, [%x1];",
            "ld of 64 bytes; on sm_100a a vector has up to 32",
        ),
        ("ld.acquire.global.u32 %r1, [%x1];", "ld.acquire.global.u32 is no form of ld"),
        ("ld.global.u32 %r1, [box];", "box lies in .shared space, and .global is addressed"),
        ("ld.shared.u32 %r1, [own];", "own lies in .local space, and .shared is addressed"),
        ("st.param.u64 [p], %x1;", "p is a parameter of the kernel, and .param is written"),
        ("atom.global.and.u32 %r1, [%x1], 1;", "atom.global.and.u32 is no form of atom"),
        ("atom.global.cas.b32 %r1, [%x1], 1;", "atom takes 4 to 5 operands, and 3 are given"),
        ("bar.arrive 0;", "bar takes 2 operands, and 1 are given"),
        ("elect.sync %r1, -1;", "elect.sync has two results, d|p"),
        ("setmaxnreg.inc.sync.aligned.u32 17;", "setmaxnreg.inc.sync.aligned.u32 takes 24 to 256 by 8 and not 17"),
        ("mbarrier.init.shared.b32 [bar], 1;", "mbarrier.init has no .b32"),
        ("cp.async.cg.shared.global [box], [%x1], 8;", "cp.async.cg.shared.global copies 16 bytes and not 8"),
        ("cp.async.bulk.shared::cluster.global [box], [%x1], 16;", "is no form of cp.async.bulk"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [box];", "takes 4 registers, and 2 are given"),
        ("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r1, %r2}, [%r3];", "takes 4 registers, and 2 are given"),
        ("tcgen05.alloc.sync.aligned.shared::cta.b32 [box], 32;", "is no form of tcgen05.alloc"),
        (".bogus 3;", "'.bogus' is no directive of a body"),
        (".pragma nounroll;", ".pragma takes a string, where 'nounroll' stands"),
        (".shared .align 3 .b8 odd[4];", "an alignment of 3, which is no power of two"),
        (".shared .b8 odd[-4];", "odd has an extent of -4"),
        (".shared .u32 odd = 5;", "odd in .shared space has no initial value"),
        (".local .pred odd;", "odd in .local space has the type .pred"),
    ],
)
def test_what_ptxas_refuses(body: str, text: str) -> None:
    with pytest.raises(InputError, match=r"^PTX line \d+: .*\.$") as caught:
        assembled(body)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("body", "target", "text"),
    [
        ("add.rn.f32x2 %x2, %x2, %x2;", "sm_90a", "add in this form needs sm_100, and this PTX is for sm_90a"),
        ("barrier.cluster.arrive;", "sm_80", "barrier.cluster in this form needs sm_90"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_100", "tcgen05.wait::ld in this form needs sm_100a"),
        ("wgmma.fence.sync.aligned;", "sm_100a", "wgmma.fence in this form needs sm_90a"),
        ("ld.global.v4.b64 {%x1, %x2, %x3, %x4}, [%x1];", "sm_90a", "ld of 32 bytes; on sm_90a a vector has up to 16"),
    ],
)
def test_what_another_gpu_has(body: str, target: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        assembled(body, target)
    assert text in str(caught.value)


TAKEN = """
add.s32.sat %r1, %r1, %s1; and.b32 %f1, %f1, 0x80000000;
mov.b32 %f1, 0x3F800000; mov.f32 %f1, 1.0; selp.f32 %f1, %f1, 0f00000000, %p1;
ld.global.u8 %r1, [%x1]; ld.global.s16 %x2, [%x1]; st.global.u8 [%x1], %r1; ld.global.b8 {%h1}, [%x1];
cvt.u8.u32 %h1, %r1; cvt.u32.u8 %r1, %x1; cvt.rn.f16x2.f32 %r1, %f1, %f2; cvt.sat.f32.f32 %f1, %f2;
mov.b32 %r1, {%h1, %h2}; mov.b64 {%r1, _}, %x1; mov.b128 %v1, {%x1, %x2}; mov.u64 %x1, box+8;
ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%f1, %f2, %f3, %f4}, [%x1]; ld.volatile.shared.u32 %r1, [box];
atom.relaxed.gpu.global.add.noftz.bf16x2 %r1, [%x1], %r1; atom.global.v2.f32.add {%f1, %f2}, [%x1], {%f1, %f1};
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 %x1, [bar], 8;
fence.proxy.async.shared::cta; fence.mbarrier_init.release.cluster; fence.acq_rel.gpu; membar.gl;
bar.red.popc.u32 %r1, 0, %p1; vote.sync.ballot.b32 %r1, 1, -1;
max.f32 %f1, %f1, %f2, %f3; lop3.or.b32 %r1|%p1, %r1, %r1, %r1, 0x3F, %p2;
"""


@pytest.mark.parametrize("body", TAKEN.strip().splitlines())
def test_what_ptxas_takes(body: str) -> None:
    assembled(body)


def test_a_modifier_that_is_not_known_stops_when_it_is_executed() -> None:
    assembled("add.fancy.s32 %r1, %r1, %r1;")
    with pytest.raises(UnsupportedError, match=r"add.fancy.s32 is not emulated\.$"):
        emulate(module(REGISTERS + "add.fancy.s32 %r1, %r1, %r1;"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((".version 8.7", ".version abc"), "PTX line 1: .version is abc, and no version such as 8.7."),
        ((".address_size 64", ".address_size 32"), "PTX line 3: addresses of 32 bits; those of 64 bits are emulated."),
        (("\n.entry", "\n.bogus 3\n.entry"), "PTX line 5: '.bogus' is no directive of a module."),
        (("ret;\n}", "ret;\n} }"), "PTX line 9: '}' is no directive of a module."),
        ((".entry", ".global .u32 a; .global .u32 a;\n.entry"), "PTX line 5: a is declared twice."),
        ((".entry", ".global .u32 a = 1.5;\n.entry"), "PTX line 5: 1.5 is no integer, which .u32 takes."),
        (
            (".entry", ".global .u64 a = nowhere;\n.entry"),
            "PTX line 5: a has the address of nowhere, which is not declared.",
        ),
        ((".entry", ".func k() { ret; }\n.entry"), "the kernel k is there twice."),
        (("k()", "k(.param .u64 a, .param .u64 a)"), "PTX line 5: two parameters of k have one name."),
        (("k()", "k(.param a)"), "a in .param space has no type."),
        (("k()", "k() .maxntid 0"), "'.maxntid[0]' is no directive of k."),
        (("k()", "k() .maxntid 32 .reqntid 32"), "k has both .maxntid and .reqntid."),
        (("mov.b32", "mov.b32\u00e9"), "is not understood."),
        ((".version", "\ufeff.version"), "PTX line 1: "),
    ],
)
def test_modules_that_are_malformed(change: tuple[str, str], text: str) -> None:
    with pytest.raises(InputError, match=r"\.$") as caught:
        emulate(module(".reg .b32 %r; mov.b32 %r, 1;").replace(*change))
    assert text in str(caught.value)


def test_modules_that_ptxas_takes() -> None:
    directives = ".maxntid 0x80 .minnctapersm 1 .reqnctapercluster 1, 0, 1 .maxclusterrank 0 .local_maxnreg 32"
    outside = '.extern .shared .align 16 .b8 a[];\n.file 1 "a.cu"\n.global .u32 b;'
    body = '.pragma "nounroll"; .global .u32 c; .reg .b32 %r; ld.global.u32 %r, [b].unified; st.global.u32 [c], %r;'
    assert emulate(module(body, outside=outside).replace("k()", f"k() {directives}")).ctas == 1


def test_bytes_of_files_that_are_no_text(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "kernel.ptx"
    path.write_bytes(module("// caf\u00e9").encode("latin-1").replace(b"\n", b"\r\n"))
    assert emulate(path).ctas == 1
    path.write_bytes(module(".reg .b32 caf\u00e9;").encode("latin-1"))
    with pytest.raises(InputError, match=r"^PTX line 7: .* is not understood\.$"):
        emulate(path)


def test_the_longest_name_of_the_table_is_found() -> None:
    name, forms = matches("cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint") or ("", ())
    assert name == "cp.async.bulk.prefetch.tensor" and forms
    assert max(len(each.split(".")) for each in _forms()) == MOST_NAME_WORDS


def test_a_form_of_a_newer_version_stops_when_it_is_executed() -> None:
    text = (
        module("bra END; add.rz.f16x2.f32x2.f32x2 %r, %r, %r; END:")
        .replace("8.7", "9.9")
        .replace("{", "{ .reg .b32 %r;", 1)
    )
    assert "is not emulated" in emulate(text).never_run[0]
    with pytest.raises(InputError, match="is no form of add"):
        emulate(text.replace("9.9", "9.0"))


def test_the_table_has_the_modifiers_of_real_code() -> None:
    for opcode in (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
        "tcgen05.ld.sync.aligned.16x256b.x8.b32",
        "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
        "red.async.relaxed.cluster.shared::cluster.x",
    ):
        found = matches(opcode)
        assert found is not None and found[1], opcode
