"""Limits of a run and of a GPU, forms that no assembler takes, and what a run notes: a sentence at once for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx import module, run, stored

from blackwell_matmul.base.errors import EmulationError, InputError, UnsupportedError
from blackwell_matmul.emulator import Emulation, Limit, emulate


def test_what_is_not_emulated_and_never_executed_is_told_at_the_end() -> None:
    out = np.zeros(1, np.uint32)
    text = ".version 8.7\n.target sm_90\n.address_size 64\n.entry k(.param .u64 o) {\n.reg .b32 %r<3>; .reg .b64 %x;"
    text += " .reg .pred %p;\nld.param.u64 %x, [o]; setp.ne.u64 %p, %x, %x;\n@%p mul.fancy %r1, %r1, %r1;\n"
    took = emulate(text + "st.global.u32 [%x], 9;\nret;\n}\n", out, block=1)
    assert out.tolist() == [9] and len(took.never_run) == 1
    assert took.never_run[0].startswith("PTX line 7: @%p mul.fancy")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("add.s32 %r1, %r2;", "add takes 3 operands, and 2 are given"),
        ("add.s32 %r1, %p1, %r2;", "an operand is a predicate where .s32 is expected"),
        ("add.s32 %p1, %r1, %r2;", "the result of add.s32 goes to a register .pred, which is a predicate"),
        ("setp.eq.s32 %r1, %r1, %r2;", "the result of setp.eq.s32 goes to a register .b32, which is no predicate"),
        ("add.s32 %r1, %r1, 1.5;", "1.5 is no integer, which .s32 takes"),
        ("selp.b32 %r1, %r1, %r1, %r2;", "an operand of type .b32 is no predicate"),
        ("@%r1 bra L; L:", "%r1 is no predicate, but a register .b32"),
        ("mov.u64 %r1, 5;", "the result of mov.u64 does not fit into a register .b32"),
        ("mul.wide.u32 %r1, %r1, 2;", "the result of mul.wide.u32 does not fit into a register .b32"),
        ("ld.global.b32 %r1, [%p1];", "an operand is a predicate where .b64 is expected"),
        ("mbarrier.init.shared.b64 [%r1], %v1;", "an operand has 16 bytes where .b32 is expected"),
        ("bar.sync 99;", "barrier 99; a CTA has barriers 0 to 15"),
        ("bar.sync 1, 31;", "a barrier of 31 threads; their number is a multiple of 32"),
        ("bra NOWHERE;", "NOWHERE is no label"),
        ("L: bra M; M: L: mov.b32 %r1, 0;", "L is declared twice"),
        (".reg .b32 %r1;", "%r1 is declared twice"),
        (".reg .b32 %many<100000000>;", "100,000,000 registers; 1,048,576 are emulated"),
        (".local .b8 large[10000000000];", "k has 10,000,000,000 bytes of local memory; a thread has up to 524,288"),
        ("{" * 3000 + "add.s32 %r1, %r1, 1;", "'the end' is not understood here"),
        ("mov.b32 %r1, " + "{" * 3000, "is not understood here"),
    ],
)
def test_what_no_assembler_takes_is_refused_before_it_runs(body: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        run("bra END;\n" + body + "\nEND: mov.b32 %r1, 0;" if "{{" not in body else body)
    assert text in str(caught.value) and str(caught.value).endswith(".")


def test_a_kernel_that_is_there_twice() -> None:
    kernel = ".entry k() { ret; }\n"
    with pytest.raises(InputError, match=r"^PTX line 5: the kernel k is there twice\.$"):
        emulate(".version 8.7\n.target sm_90\n.address_size 64\n" + 2 * kernel)


def test_braces_3000_deep() -> None:
    deep = "{" * 3000 + "mov.b32 %r0, 4;" + "}" * 3000
    assert (stored(deep) == 4).all()


def launched(body: str = "", before: str = "", directives: str = "", **launch: Any) -> Emulation:
    text = module(".reg .b32 %r<3>; .shared .align 8 .b8 box[64];" + body, outside=before)
    return emulate(text.replace("k()", f"k() {directives}"), **launch)


@pytest.mark.parametrize("loop", ["st.shared.b32 [box], 1", "atom.shared.add.u32 %r1, [box], 1"])
def test_a_loop_with_effects_ends_at_a_limit(loop: str) -> None:
    body = f"L: {loop}; bra L;"
    with pytest.raises(EmulationError, match=r"^the limit of 3,000 steps of one warp is reached near PTX line \d+: "):
        launched(body, limit=Limit(steps=3000))
    with pytest.raises(
        EmulationError, match=r"^the limit of 0.05 seconds is reached near .*; `limit=` sets another\.$"
    ):
        launched(body, limit=Limit(seconds=0.05))


@pytest.mark.parametrize(
    ("launch", "text"),
    [
        ({"grid": (2**31 - 1, 65535, 65535)}, "has 9,223,090,559,730,712,575 CTAs; at most 1,000,000,000 are emulated"),
        ({"grid": (1, 100_000)}, "grid is (1, 100000, 1); a GPU has at most (2147483647, 65535, 65535)"),
        ({"block": (1, 1, 65)}, "block is (1, 1, 65); a GPU has at most (1024, 1024, 64)"),
        ({"grid": 64, "cluster": 64}, "a cluster of (64, 1, 1) has 64 CTAs; k takes at most 16"),
        ({"grid": 4, "cluster": 4, "directives": ".maxclusterrank 2"}, "has 4 CTAs; k takes at most 2"),
        ({"directives": ".maxntid x, y"}, "'x' is no directive of k"),
        (
            {"directives": ".reqntid 32, 2", "block": 64},
            "k is compiled for a block of (32, 2, 1) and not of (64, 1, 1)",
        ),
        ({"before": ".global .u32 few[1] = {1, 2};"}, "few has 4 bytes and initial values of 8"),
        ({"before": ".global .b8 large[100000000000];"}, "the variables need 100,000,000,000 bytes, and the limit is"),
        ({"body": ".local .b8 l[1000];", "block": 64, "limit": Limit(bytes=64_000)}, "the variables need 64,512 bytes"),
        ({"limit": 5}, "limit is 5; it takes a Limit(steps=, seconds=, bytes=)"),
        ({"limit": Limit(steps=-1)}, "limit has steps of -1; it takes a positive whole number, or None for none"),
        ({"limit": Limit(bytes=1.5)}, "limit has bytes of 1.5; it takes a positive whole number, or None for none"),
        ({"limit": Limit(seconds=True)}, "limit has seconds of True; it takes a positive number, or None for none"),
        ({"unwritten": "x"}, "unwritten is 'x'; there are stop and note"),
    ],
)
def test_launches_that_no_gpu_takes(launch: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as caught:
        launched(**launch)
    assert text in str(caught.value) and str(caught.value).endswith(".")


def test_launches_that_a_gpu_takes() -> None:
    assert launched(directives=".maxntid 256, 1, 1", block=(16, 16)).ctas == 1
    assert launched(grid=np.int64(3), block=np.int32(32), shared_bytes=np.int64(64), seed=np.int8(1)).ctas == 3
    endless = Limit(steps=None, bytes=None)
    assert launched(limit=endless).instructions == 1


READ = "ld.shared.b32 %r1, [box+4]; ld.shared.b32 %r1, [box+8];"


def test_a_read_of_shared_memory_that_nothing_has_written_is_noted_or_stops() -> None:
    first, second = launched(READ, unwritten="note").notes
    assert first.endswith("reads 4 bytes at 1,028 of shared memory of CTA (0, 0, 0) that nothing has written.")
    assert first.startswith("PTX line") and "ld.shared.b32 %r1, [box+8]" in second
    assert launched(READ).notes == (first, second)
    with pytest.raises(EmulationError, match="that nothing has written"):
        launched(READ, unwritten="stop")


INVALIDATED = """.shared .align 8 .b64 bar; mbarrier.init.shared.b64 [bar], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [box], [%x10], 16, [bar];
  mbarrier.inval.shared.b64 [bar]; MORE"""


def test_what_arrives_at_an_mbarrier_after_it_was_invalidated_is_noted() -> None:
    text = module(
        ".shared .align 16 .b8 box[64]; .reg .b64 %x10; .reg .pred %p; ld.param.u64 %x10, [a];" + INVALIDATED,
        [".u64 a"],
    )
    (note,) = emulate(text.replace("MORE", ""), np.zeros(4, np.uint32), block=1).notes
    assert "cp.async.bulk" in note and "was invalidated at PTX line" in note
    with pytest.raises(EmulationError, match=r"mbarrier.test_wait.*: the mbarrier at .* was invalidated at PTX line"):
        emulate(
            text.replace("MORE", "mbarrier.test_wait.parity.shared.b64 %p, [bar], 0;"), np.zeros(4, np.uint32), block=1
        )


def test_an_instruction_that_is_not_emulated_stops_and_the_others_are_counted() -> None:
    with pytest.raises(
        UnsupportedError, match=r"mul.fancy is not emulated, nor are 2 other instructions of this PTX\.$"
    ):
        launched("mul.fancy %r1, %r1, %r1; mul.fancy %r1, %r1, %r1; mul.fancier %r1, %r1, %r1;")
