"""Device functions in small PTX: arguments, recursion, lanes that part, addresses (PTX ISA, "call")."""

from __future__ import annotations

import numpy as np
import pytest
from ptx import stored

from blackwell_matmul.base.errors import EmulationError, InputError, UnsupportedError

LANE = np.arange(32, dtype=np.uint32)

TRIPLE = """
.func (.param .b32 out) triple(.param .b32 x)
{ .reg .b32 %r<3>; ld.param.b32 %r1, [x]; mul.lo.s32 %r2, %r1, 3; st.param.b32 [out], %r2; ret; }
"""


def called(name: str, result: str = "%r0", argument: str = "%r39", guard: str = "") -> str:
    """A call as compilers write it: parameters in braces of their own."""
    return (
        f"{{ .param .b32 param0; st.param.b32 [param0+0], {argument}; .param .b32 retval0; "
        f"{guard} call.uni (retval0), {name}, (param0); ld.param.b32 {result}, [retval0+0]; }}\n"
    )


def test_a_call_twice_with_parameters_of_one_name() -> None:
    body = called("triple") + called("triple", argument="%r0")
    assert (stored(body, outside=TRIPLE) == 9 * LANE).all()


def test_a_function_that_follows_its_caller_and_is_declared_before() -> None:
    declared = TRIPLE.split("{")[0].rstrip() + ";\n"
    outer = TRIPLE.replace("triple", "outer").replace("mul.lo.s32 %r2, %r1, 3;", called("triple", "%r2", "%r1"))
    assert (stored(called("outer"), outside=declared + outer + TRIPLE) == 3 * LANE).all()


FACTORIAL = f"""
.func (.param .b32 out) factorial(.param .b32 x)
{{ .reg .b32 %r<5>; .reg .pred %p; .local .align 4 .b8 kept[4]; .reg .b64 %rd<3>;
  ld.param.b32 %r1, [x]; mov.u64 %rd1, kept; st.local.b32 [%rd1], %r1;
  mov.b32 %r3, 1; setp.lt.u32 %p, %r1, 2; @%p bra END;
  sub.s32 %r2, %r1, 1;
  {called("factorial", "%r3", "%r2")}
  ld.local.b32 %r4, [%rd1]; mul.lo.s32 %r3, %r3, %r4; mul.lo.s32 %r3, %r3, 1;
  END: st.param.b32 [out], %r3; ret; }}
"""


def test_recursion_of_another_depth_in_each_lane() -> None:
    """Registers, local variables and parameters belong to one call."""
    found = stored("rem.u32 %r1, %r39, 12;" + called("factorial", argument="%r1"), outside=FACTORIAL)
    assert found.tolist() == [int(np.prod(np.arange(1, lane % 12 + 1), dtype=np.int64)) for lane in range(32)]


@pytest.mark.slow
def test_recursion_without_an_end_is_told() -> None:
    endless = FACTORIAL.replace("@%p bra END;", "")
    with pytest.raises(EmulationError, match=r"^PTX line \d+: call.*calls need more than the 524,288 bytes of local"):
        stored(called("factorial"), outside=endless)


def test_lanes_call_from_two_places_and_meet_in_the_function() -> None:
    """The barrier of the warp in the function needs all lanes, which came by two calls."""
    meets = TRIPLE.replace("mul.lo", "shfl.sync.idx.b32 %r1, %r1, 5, 31, -1; mul.lo")
    body = f"""setp.lt.u32 %p1, %r39, 8; @%p1 bra FEW;
      {called("triple")} add.s32 %r0, %r0, 100; bra END;
      FEW: {called("triple")} add.s32 %r0, %r0, 200;
      END: add.s32 %r0, %r0, 0;"""
    assert (stored(body, outside=meets) == np.where(LANE < 8, 215, 115)).all()


def test_a_call_by_some_lanes() -> None:
    body = "mov.b32 %r0, 7; setp.ge.u32 %p1, %r39, 30;" + called("triple", "%r1", guard="@%p1")
    assert (stored(body + "@%p1 mov.b32 %r0, %r1;", outside=TRIPLE) == np.where(LANE < 30, 7, 3 * LANE)).all()


def test_a_thread_that_exits_in_a_function_is_gone() -> None:
    exits = TRIPLE.replace("mul.lo", "setp.eq.s32 %q, %r1, 4; @%q exit; mul.lo").replace(
        ".reg", ".reg .pred %q; .reg", 1
    )
    found = stored(called("triple"), outside=exits)
    assert (found == np.where(LANE == 4, 0xDEAD, 3 * LANE)).all()


def test_arguments_and_results_in_registers() -> None:
    """The form before `.param` space: ".func (.reg …)"."""
    sum_of = ".func (.reg .b32 s) sum_of(.reg .b32 a, .reg .b32 b) { add.s32 s, a, b; ret; }\n"
    assert (stored("call (%r0), sum_of, (%r39, -1);", outside=sum_of) == LANE - 1).all()
    assert (stored("call (%r0), sum_of, (%r39, %r39); call (_), sum_of, (1, 1);", outside=sum_of) == 2 * LANE).all()


def test_a_struct_as_bytes() -> None:
    swap = """.func (.param .align 4 .b8 o[8]) swap(.param .align 4 .b8 i[8])
    { .reg .b32 %r<3>; ld.param.v2.b32 {%r1, %r2}, [i]; st.param.b32 [o], %r2; st.param.b32 [o+4], %r1; ret; }\n"""
    body = """{ .param .align 8 .b8 p[8]; st.param.b32 [p], 5; st.param.b32 [p+4], %r39; .param .align 8 .b8 q[8];
      call (q), swap, (p); ld.param.b32 %r1, [q]; ld.param.b32 %r2, [q+4]; }
      mad.lo.s32 %r0, %r1, 1000, %r2;"""
    assert (stored(body, outside=swap.replace(".align 4", ".align 8")) == 1000 * LANE + 5).all()


NEGATIVE = TRIPLE.replace("triple", "negative").replace("mul.lo.s32 %r2, %r1, 3", "neg.s32 %r2, %r1")
PROTOTYPE = "PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);\n"


def by_address(address: str) -> str:
    return PROTOTYPE + called(address).replace("(param0);", "(param0), PROTO;")


def test_each_lane_calls_the_function_whose_address_it_has() -> None:
    body = """mov.u64 %x1, triple; mov.u64 %x2, negative; and.b32 %r1, %r39, 1; setp.eq.u32 %p1, %r1, 0;
      selp.b64 %x3, %x1, %x2, %p1;""" + by_address("%x3")
    wanted = np.where(LANE % 2, -LANE.astype(np.int32), 3 * LANE.astype(np.int32)).astype(np.int32)
    assert (stored(body, np.int32, outside=TRIPLE + NEGATIVE) == wanted).all()
    with pytest.raises(EmulationError, match=r"calls 0x2a, which is the address of no function\.$"):
        stored("mov.u64 %x3, 42;" + by_address("%x3"), outside=TRIPLE)


def test_the_sentence_names_what_was_called() -> None:
    declared = ".extern .func (.param .b32 o) elsewhere(.param .b32 i);\n"
    with pytest.raises(UnsupportedError, match=r"elsewhere has no body in this PTX"):
        stored(called("elsewhere"), outside=declared)
    assert (
        stored("mov.b32 %r0, 3; bra END;" + called("elsewhere") + "END: mov.b32 %r1, 0;", outside=declared) == 3
    ).all()
    with pytest.raises(InputError, match=r"nobody is no function of this PTX\.$"):
        stored(called("nobody"))
    with pytest.raises(InputError, match=r"triple has arguments of \[4\] bytes and not of \[8\]\.$"):
        stored("call (%r0), triple, (%x10);", outside=TRIPLE)
    ends = stored("mov.b32 %r1, 5;" + called("triple"), outside=TRIPLE.replace("ret;", ""))
    assert (ends == stored("mov.b32 %r1, 5;" + called("triple"), outside=TRIPLE)).all()


# --- functions of the toolkit


ASSERT = """.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .b8 what[6] = {120, 32, 60, 32, 53, 0}; .global .b8 file[5] = {97, 46, 99, 117, 0};
.global .b8 name[2] = {102, 0};
"""
FAILS = """{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; mov.u64 %x1, what;
  mov.u64 %x2, file; mov.u64 %x3, name; st.param.b64 [a], %x1; st.param.b64 [b], %x2; st.param.b32 [c], 12;
  st.param.b64 [d], %x3; st.param.b64 [e], 1; call.uni __assertfail, (a, b, c, d, e); }"""


def test_an_assertion_stops_with_its_text_and_line() -> None:
    text = (
        r"^PTX line \d+: call.uni __assertfail.*: the assertion `x < 5` fails at a.cu:12 in f, in thread 3 of CTA \(0"
    )
    with pytest.raises(EmulationError, match=text):
        stored("setp.ne.u32 %p1, %r39, 3; @%p1 bra OK;" + FAILS + "OK: mov.b32 %r0, 0;", outside=ASSERT)


PRINT = """.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .b8 format[] = {FORMAT};
"""
PRINTS = """.local .align 8 .b8 values[40]; mov.u64 %x3, values; cvta.local.u64 %x2, %x3; setp.lt.u32 %p1, %r39, 30;
  mov.b32 %r0, 0; @%p1 bra END; sub.s32 %r1, 30, %r39; st.local.b32 [%x3], %r1; mov.b64 %x4, 0d3FF8000000000000;
  st.local.b64 [%x3+8], %x4; mov.u64 %x5, format; st.local.b64 [%x3+16], %x5; st.local.b64 [%x3+24], -1;
  { .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %x5; st.param.b64 [a], %x2;
    call.uni (r), vprintf, (f, a); ld.param.b32 %r0, [r]; } END: mov.b32 %r1, 0;"""


def test_what_a_kernel_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = b"%d: %6.2f %.2s %llx%%\n\0"
    outside = PRINT.replace("[]", f"[{len(text)}]").replace("FORMAT", ", ".join(map(str, text)))
    found = stored(PRINTS, outside=outside)
    assert capsys.readouterr().out == "0:   1.50 %d ffffffffffffffff%\n-1:   1.50 %d ffffffffffffffff%\n"
    assert found.tolist() == [0] * 30 + [4, 4]


HEAP = """.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
"""


def heap(nbytes: int, more: str = "") -> str:
    return f"""{{ .param .b64 n; .param .b64 r; st.param.b64 [n], {nbytes}; call.uni (r), malloc, (n);
      ld.param.b64 %x1, [r]; }} {more} {{ .param .b64 p; st.param.b64 [p], %x1; call.uni free, (p); }}"""


def test_memory_of_malloc() -> None:
    used = "st.u32 [%x1+4], %r39; ld.u32 %r0, [%x1+4];"
    assert (stored(heap(8, used), outside=HEAP) == LANE).all()
    small = "setp.eq.u64 %p1, %x1, 0; selp.b32 %r0, 1, 0, %p1;"
    assert (stored(heap(9 << 20, small), outside=HEAP) == 1).all()
    with pytest.raises(EmulationError, match=r"frees 0x[0-9a-f]+, which malloc has not returned\.$"):
        stored(heap(8, "add.s64 %x1, %x1, 8;"), outside=HEAP)


def test_another_name_of_a_function() -> None:
    declared = ".func (.param .b32 out) thrice(.param .b32 x);\n"
    assert (stored(called("thrice"), outside=TRIPLE + declared + ".alias thrice, triple;\n") == 3 * LANE).all()


def test_what_a_function_allocates_is_free_when_it_returns() -> None:
    """Each call takes 12,000 of the 16,384 bytes."""
    body = "alloca.u64 %a, 12000; st.local.b32 [%a+8], %r1; ld.local.b32 %r1, [%a+8]; mul.lo.s32"
    takes = TRIPLE.replace("mul.lo.s32", body).replace(".reg", ".reg .b64 %a; .reg", 1)
    assert (stored(called("triple") + called("triple", argument="%r0"), outside=takes) == 9 * LANE).all()
