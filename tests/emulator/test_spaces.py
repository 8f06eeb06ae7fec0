"""Memory by bytes: loads and stores that no GPU may do stop with where they went (`emulator/spaces.py`)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ptx import run, stored

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.spaces import GlobalSpace, Memory, Undefined

ADDRESS = "mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10;"


def stops(body: str, message: str, *arrays: np.ndarray, **launch: object) -> None:
    """The whole sentence: the line, the instruction, and this."""
    with pytest.raises(EmulationError, match=r"^PTX line \d+: .*: " + message + r"\.$"):
        run(body, *(arrays or (np.zeros(32, np.uint32),)), **launch)


def test_behind_and_in_front_of_a_tensor() -> None:
    stops(
        "ld.global.u32 %r0, [%x10+128];",
        r"reads global memory at 0x[0-9a-f]+, which is 1 bytes behind argument 0 \(128 bytes\)",
    )
    stops(
        "st.global.u32 [%x10+-4], 1;",
        r"writes global memory at 0x[0-9a-f]+, which is 4 bytes in front of argument 0 \(128 bytes\)",
    )
    stops(
        "ld.global.u32 %r0, [%x11+1000000];",
        r"reads .* is 999,985 bytes behind argument 1 \(16 bytes\)",
        np.zeros(32, np.uint32),
        np.zeros(4, np.uint32),
    )
    stops("mov.u64 %x1, 0; ld.u32 %r0, [%x1];", r"reads global memory at 0x0, which is .* in front of argument 0 .*")


def test_a_word_that_sticks_out() -> None:
    stops("ld.global.u64 %x1, [%x10+124];", r"reads 8 bytes at \+?124 of argument 0.*")


def test_one_lane_of_many_outside() -> None:
    stops(
        "mul.wide.u32 %x1, %r39, 8; add.s64 %x1, %x1, %x10; ld.global.u32 %r0, [%x1];",
        "reads global memory at .* behind argument 0 .*",
    )
    found = stored(
        "setp.lt.u32 %p0, %r39, 4; mul.wide.u32 %x1, %r39, 1000; add.s64 %x1, %x1, %x10; mov.u32 %r0, 1;"
        "setp.eq.u32 %p1, %r39, 0; @%p1 ld.global.u32 %r0, [%x1];"
    )
    assert found.tolist() == [0xDEAD] + [1] * 31


def test_misaligned() -> None:
    stops("ld.global.u32 %r0, [%x10+2];", "reads 4 bytes at 2 of argument 0: no multiple of 4")
    stops("st.global.u16 [%x10+1], 1;", "writes 2 bytes at 1 of argument 0: no multiple of 2")
    stops("ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x10+8];", "reads 16 bytes at 8 of argument 0: no multiple of 16")
    stops(
        "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%x10+16];",
        "reads 32 bytes at 16 of argument 0: no multiple of 32",
        target="sm_100a",
    )
    stops(
        "st.global.v4.b64 [%x10+16], {%x10, %x10, %x10, %x10};",
        "writes 32 bytes at 16 of argument 0: no multiple of 32",
        target="sm_100a",
    )


def test_shared_memory_that_nothing_has_written() -> None:
    stops(
        ".shared .align 4 .b8 box[8]; ld.shared.u32 %r0, [box+4];",
        r"reads 4 bytes at 1,028 of shared memory of CTA \(0, 0, 0\) that nothing has written",
    )
    stops(
        ".shared .align 4 .b8 box[8]; st.shared.u8 [box], 1; ld.shared.u32 %r0, [box];",
        "reads 4 bytes at 1,024 of .* that nothing has written",
    )


def test_outside_of_shared_memory() -> None:
    stops(
        ".shared .align 4 .b8 box[8]; st.shared.u32 [box+8], 1;",
        r"writes 4 bytes at \+1,032 of shared memory of CTA \(0, 0, 0\), which has 1,032 bytes",
    )
    stops("mov.u32 %r1, 16777216; st.shared.u32 [%r1], 1;", "address 0x1000000 is of CTA 1 in a cluster of 1")


def test_local_memory_is_each_threads_own() -> None:
    found = stored("""
        .local .align 8 .b8 depot[16]; mov.u64 %x1, depot; cvta.local.u64 %x2, %x1;
        st.local.u32 [%x1+8], %r39; ld.u32 %r0, [%x2+8];""")
    assert found.tolist() == list(range(32))


def test_dynamic_shared_memory_is_behind_the_static() -> None:
    found = stored(
        "mov.u32 %r1, dyn; mov.u32 %r2, box; sub.u32 %r0, %r1, %r2; st.shared.u32 [dyn+252], %r0; "
        "ld.shared.u32 %r0, [dyn+252];",
        outside=".extern .shared .align 128 .b8 dyn[];\n.shared .align 4 .b8 box[4];",
        shared_bytes=256,
    )
    assert found.tolist() == [128] * 32


def test_narrow_loads_widen_with_their_sign() -> None:
    data = np.array([0x8281F0FF], np.uint32)
    for type, wanted in {"u8": 0xFF, "s8": 0xFFFFFFFF, "b8": 0xFF, "u16": 0xF0FF, "s16": 0xFFFFF0FF}.items():
        out = np.zeros(1, np.uint32)
        run(f"ld.global.{type} %r1, [%x10]; st.global.u32 [%x11], %r1;", data, out)
        assert int(out[0]) == wanted, type
    out = np.zeros(1, np.uint64)
    run("ld.global.s32 %x1, [%x10]; st.global.u64 [%x11], %x1;", data, out)
    assert int(out[0]) == 0xFFFFFFFF8281F0FF


def test_narrow_stores_keep_their_neighbours() -> None:
    out = np.full(4, 0xAAAAAAAA, np.uint32)
    run(
        "mov.u32 %r1, 0x12345678; st.global.u8 [%x10+1], %r1; st.global.u16 [%x10+6], %r1; "
        "st.global.b64 [%x10+8], {%r1, %r1};".replace(
            "st.global.b64 [%x10+8], {%r1, %r1};", "st.global.v2.u32 [%x10+8], {%r1, 7};"
        ),
        out,
    )
    assert [hex(each) for each in out] == ["0xaaaa78aa", "0x5678aaaa", "0x12345678", "0x7"]


VECTORS = [
    ("v2.u8", 1, 2),
    ("v4.u8", 1, 4),
    ("v2.b16", 2, 2),
    ("v4.b16", 2, 4),
    ("v8.b16", 2, 8),
    ("v2.b32", 4, 2),
    ("v4.b32", 4, 4),
    ("v8.b32", 4, 8),
    ("v2.b64", 8, 2),
    ("v4.b64", 8, 4),
]


@pytest.mark.parametrize(("form", "size", "count"), VECTORS)
def test_vectors(form: str, size: int, count: int) -> None:
    """All lanes, and half of them."""
    data = np.random.default_rng(0).integers(0, 255, 32 * size * count, dtype=np.uint8)
    registers = ", ".join(f"%{'h' if size < 4 else 'r' if size == 4 else 'x'}{index + 1}" for index in range(count))
    for guard, half in (("", 32), ("@%p0", 16)):
        out = np.zeros_like(data)
        run(
            f"""setp.lt.u32 %p0, %r39, 16; mul.wide.u32 %x15, %r39, {size * count}; add.s64 %x16, %x10, %x15;
                add.s64 %x17, %x11, %x15;
            {guard} ld.global.{form} {{{registers}}}, [%x16]; {guard} st.global.{form} [%x17], {{{registers}}};""",
            data,
            out,
            target="sm_100a",
        )
        assert (
            out[: half * size * count].tolist() == data[: half * size * count].tolist()
            and not out[half * size * count :].any()
        )


def test_words_of_128_bits() -> None:
    data, out = np.arange(64, dtype=np.uint64), np.zeros(64, np.uint64)
    run(
        """mul.wide.u32 %x15, %r39, 16; add.s64 %x16, %x10, %x15; add.s64 %x17, %x11, %x15; ld.global.b128 %v1, [%x16];
        mov.b128 {%x1, %x2}, %v1; mov.b128 %v2, {%x2, %x1}; st.global.b128 [%x17], %v2;""",
        data,
        out,
    )
    assert out.reshape(32, 2)[:, ::-1].reshape(-1).tolist() == data.tolist()


def test_a_result_that_nobody_wants() -> None:
    out = np.zeros(1, np.uint32)
    run("ld.global.v2.u32 {_, %r1}, [%x10]; st.global.u32 [%x11], %r1;", np.array([5, 6], np.uint32), out)
    assert out[0] == 6


def test_generic_addresses_of_several_windows_in_one_load() -> None:
    found = stored("""
        .shared .align 8 .b64 box; .reg .b64 %g; st.shared.u64 [box], 77; mov.u64 %x1, box; cvta.shared.u64 %g, %x1;
        setp.lt.u32 %p0, %r39, 8; selp.b64 %g, %g, %x10, %p0; ld.u32 %r0, [%g]; isspacep.shared %p1, %g;
        isspacep.global %p2, %g;
        selp.u32 %r1, 1000, 0, %p1; selp.u32 %r2, 2000, 0, %p2; add.u32 %r0, %r0, %r1; add.u32 %r0, %r0, %r2;""")
    assert found.tolist() == [1077] * 8 + [0xDEAD + 2000] * 24


def test_constants_and_globals_of_the_module() -> None:
    found = stored(
        "ld.const.u32 %r1, [table+4]; ld.global.s16 %r2, [more]; mov.u64 %x1, more; ld.global.u8 %r3, [%x1+2];"
        "mad.lo.u32 %r0, %r1, 1000, %r2; add.u32 %r0, %r0, %r3;",
        np.int32,
        outside=".const .align 4 .u32 table[3] = {1, 20, 3};\n.global .align 2 .s16 more[2] = {-5, 7};",
    )
    assert found.tolist() == [20000 - 5 + 7] * 32


def test_of_lanes_that_store_to_one_place_one_stays() -> None:
    out = np.zeros(1, np.uint32)
    run("st.global.u32 [%x10], %r39;", out)
    assert out[0] in range(32)


def test_the_memories_of_a_launch_have_nothing_between_them() -> None:
    space = GlobalSpace()
    first, second = space.add("a", np.zeros(8, np.uint8)), space.add("b", np.zeros(8, np.uint8))
    assert space.at(first.base + 7) is first and space.at(second.base) is second
    with pytest.raises(Undefined, match=re.escape("1 bytes behind a (8 bytes)")):
        space.at(first.base + 8)
    with pytest.raises(Undefined, match="no tensor's"):
        GlobalSpace().at(5)


def test_a_run_of_bytes_stays_inside() -> None:
    memory = Memory("m", 100, np.zeros(16, np.uint8), tracked=True)
    memory.bytes(108, 8)[:] = 1
    memory.mark(108, 8)
    assert memory.load(np.array([112], np.uint64), 4).tolist() == [0x01010101]
    for address in (99, 109):
        with pytest.raises(Undefined, match="of m, which has 16 bytes"):
            memory.bytes(address, 8)
