"""Each fault of tilus 0.2.0 (and one of ptxas): seen in what they make, and gone from what we make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import compiler_scripts
import pytest
import tilus
import torch
from compiler_samples import (
    RUNGS,
    rung_bundle,
    rung_program,
    sass,
    script_bundle,
    script_program,
    source_of,
    tilus_source,
)

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import tilus_faults
from blackwell_matmul.compiler.source import lower
from blackwell_matmul.emulator import emulate
from blackwell_matmul.frontend.program import SharedAllocation


def asm_of(text: str, mnemonic: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if "asm" in line and mnemonic in line]


# --- narrow numbers


def test_narrow_sums_nan_and_casts_between_8_bit_floats() -> None:
    """tilus leaves half a parenthesis, writes nanf, and casts as C++ cannot; ours assembles."""
    args = (3, *(torch.zeros(n, dtype=t) for n, t in ((1, torch.int32), (32, torch.float8_e4m3fn))))
    args += (torch.zeros(32, dtype=torch.float8_e5m2), torch.zeros(32))
    program = script_program("NarrowNumbers", *args)
    wrong = tilus_source(program)
    assert "if (int8_t)(a + a) {" in wrong
    assert "= nanf;" in wrong
    assert "((float8_e5m2)(regs" in wrong
    right = script_bundle("NarrowNumbers", *args)
    assert "if ((int8_t)(a + a)) {" in right.source
    assert "(float)__int_as_float(0x7fc00000)" in right.source
    assert "((float8_e5m2)(((float)(regs" in right.source
    assert right.cubin


# --- types


@pytest.mark.parametrize("name", ["int16", "uint16", "int64", "float64", "uint64", "int8"])
def test_shared_tensors_of_all_types(name: str) -> None:
    x = torch.arange(32).to(getattr(torch, name))
    y = torch.zeros_like(x)
    emulate(script_bundle("SharedOfType", x, y, dtype=getattr(tilus, name)), x, y)
    assert torch.equal(x, y)


def test_a_function_without_code_is_named() -> None:
    with pytest.raises(CompileError) as caught:
        lower(script_program("AbsOfIntegers", torch.zeros(32, dtype=torch.int32)))
    told = r"no code for abs of int32; self.where\(x < 0, -x, x\) has these values \(.*compiler_scripts.py:(\d+)\)\.$"
    found = re.search(told, str(caught.value))
    assert found is not None
    assert "self.abs(" in Path(compiler_scripts.__file__).read_text().splitlines()[int(found[1]) - 1]


@pytest.mark.parametrize(
    "words, told",
    [
        ("sqrt is not supported for int32.", "no code for sqrt of int32; cast to float32 first"),
        (
            "Can not dispatch generic primitive function generic_max to device cuda and dtype uint8. Registered",
            "no code for max of uint8; cast to int32 first",
        ),
        ("x", "a pass of tilus fails with ValueError: x"),
    ],
)
def test_the_reason_why_a_pass_failed(words: str, told: str) -> None:
    assert tilus_faults.reason(ValueError(words)).endswith(told)


# --- fast_divmod


def tilus_fastdiv(divisor: int) -> tuple[int, int]:
    """tilus's host code for (m, s), `cuda_fastdiv_precompute_m` and `_s`, in Python: m is cut to 32 bits."""
    if divisor & (divisor - 1) == 0:
        return 0, divisor.bit_length() - 1
    limit, power = 2**32 - 1 - 2**32 % divisor, 32
    while 2**power <= limit * (divisor - 2**power % divisor):
        power += 1
    return (2**power + divisor - 2**power % divisor) // divisor % 2**32, power - 32


def divided(a: int, m: int, s: int) -> int:
    """tilus's device code, `cuda_fastdiv_runtime`: mul.hi.u32 and shr.u32."""
    return a >> s if m == 0 else (a * m >> 32) >> s


def tiles(rows: int, columns: int, group: int, constants: Any) -> set[tuple[int, int]]:
    """The tiles of the grid that the CTAs of the script `Grouped` visit."""
    wide, narrow = constants(rows * group), constants(group)
    found = set()
    for cta in range(rows * columns):
        index = divided(cta, *wide)
        place = cta - index * rows * group
        row = divided(place, *narrow)
        found.add((row, index * group + place - row * group))
    return {(row, column) for row, column in found if row < rows and column < columns}


def test_tilus_cuts_the_multiplier() -> None:
    text = tilus_source(script_program("Grouped", 1792, 8, "array"))
    host = text[text.index("tilus_cuda_fastdiv_precompute_m(uint32_t b) {") :]
    assert re.search(r"uint64_t m = .*;\n  return \(\(uint32_t\)\(m\)\);", host)
    assert "mul.hi.u32 %0, %1, %2; shr.u32 %0, %0, %3;" in text


@pytest.mark.parametrize(("m", "visited"), [(1792, 28), (2048, 64), (3584, 56)])
def test_fast_divmod_skips_tiles_in_tilus(m: int, visited: int) -> None:
    assert len(tiles(m // 256, 8, 4, tilus_fastdiv)) == visited


@pytest.mark.parametrize("m", [256, 1792, 2048, 2432, 3584, 4864, 7168])
def test_fast_divmod_visits_every_tile_here(m: int) -> None:
    plan = script_bundle("Grouped", 1792, 8, "array").plan
    launch = plan.evaluate([m, 16])
    _, _, wide_m, wide_s, narrow_m, narrow_s = (each.value % 2**32 for each in launch.arguments)
    rows = -(-m // 256)
    constants = {rows * 4: (wide_m, wide_s), 4: (narrow_m, narrow_s)}
    assert len(tiles(rows, 8, 4, constants.__getitem__)) == rows * 8


# --- memory clobbers


@pytest.mark.parametrize("mnemonic", ["mbarrier.try_wait", "tcgen05.mma", "tcgen05.commit", "tcgen05.wait", "stmatrix"])
def test_tilus_forgets_memory_clobbers(mnemonic: str) -> None:
    program = rung_program("v2")
    found = asm_of(tilus_source(program), mnemonic)
    assert found and not any('"memory"' in line for line in found)
    ours = asm_of(source_of(program).text, mnemonic)
    assert ours and all('"memory"' in line and "volatile" in line for line in ours)


def test_a_pass_drops_the_clobber_that_a_primitive_asked_for() -> None:
    """hidet's rewriter builds a new AsmStmt without `memory_fence` whenever an operand changes."""
    from tilus.hidet.ir.expr import Var
    from tilus.hidet.ir.stmt import AsmStmt
    from tilus.hidet.ir.tools import rewrite
    from tilus.hidet.ir.type import data_type

    old, new = Var("a", data_type("uint32")), Var("b", data_type("uint32"))
    stmt = AsmStmt("mbarrier.try_wait;", [], [("r", old)], is_volatile=True, memory_fence=True)
    assert rewrite(stmt, {old: new}).memory_fence is False


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("mbarrier.arrive.shared::cta.b64 _, [%0];", True),
        ("bar.sync 1, 128;", True),
        ("barrier.cluster.wait.aligned;", True),
        ("cp.async.wait_all;", True),
        ("fence.proxy.async.shared::cta;", True),
        ("wgmma.fence.sync.aligned;", True),
        ("tcgen05.wait::ld.sync.aligned;", True),
        ("{ .reg.u64 u64addr; cvta.to.shared.u64 u64addr, %1; ld.shared.u16 %0, [u64addr]; }", True),
        ("", True),
        ("mov.s32 %0, %%cluster_ctarank;", False),
        ("{ .reg.pred %%p; elect.sync _|%%p, %1; selp.u32 %0, 1, 0, %%p; }", False),
        ("mul.hi.u32 %0, %1, %2; shr.u32 %0, %0, %3;", False),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4}, {%5}, {%6};", False),
        ("cvt.rn.f16.f32 %0, %1;", False),
        ("shfl.sync.idx.b32 %0, %2, %3, 31, %1;", False),
    ],
)
def test_what_touches_memory(template: str, expected: bool) -> None:
    assert tilus_faults.memory_clobbered(template) is expected


# --- tcgen05.fence


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNGS)
def test_tilus_has_no_tcgen05_fence(name: str) -> None:
    assert "tcgen05.fence" not in tilus_source(rung_program(name))


@pytest.mark.parametrize("name", RUNGS)
def test_synchronisation_is_fenced(name: str) -> None:
    lines = [line.strip() for line in rung_bundle(name).source.splitlines()]
    syncs = [index for index, line in enumerate(lines) if line == "__syncthreads();"]
    assert syncs
    for index in syncs:
        assert tilus_faults.BEFORE_SYNC in lines[index - 1]
        assert tilus_faults.AFTER_SYNC in lines[index + 1]
    waits = asm_of(rung_bundle(name).source, "mbarrier.try_wait")
    assert waits and all(re.search(rf"try_wait.*{re.escape(tilus_faults.AFTER_SYNC)}", line) for line in waits)


def test_an_arrive_is_fenced_before_and_a_wait_after() -> None:
    before, after = tilus_faults.BEFORE_SYNC, tilus_faults.AFTER_SYNC
    assert tilus_faults.fenced("mbarrier.arrive.b64 _, [%0];") == f"{before} mbarrier.arrive.b64 _, [%0];"
    assert tilus_faults.fenced("bar.sync 1, 128;") == f"{before} bar.sync 1, 128; {after}"
    assert tilus_faults.fenced("{ mbarrier.try_wait.b64 P1, [%0]; }").endswith(after)
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
    assert tilus_faults.fenced(commit) == commit
    copy = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    assert tilus_faults.fenced(copy) == copy


def test_a_kernel_without_tcgen05_has_no_fences() -> None:
    assert "tcgen05" not in script_bundle("TmaCopy", 100, 128, "array", "array", target="sm_100a").source


# --- clusters of one


def test_tilus_makes_a_cluster_of_every_cta() -> None:
    program = rung_program("h5")
    assert program.tile.metadata.cluster_blocks == (1, 1, 1)
    assert "__cluster_dims__(1, 1, 1)" in tilus_source(program)
    assert "__cluster_dims__" not in rung_bundle("h5").source and ".reqnctapercluster" not in rung_bundle("h5").ptx


def test_a_cluster_that_a_script_asks_for_stays() -> None:
    assert "__cluster_dims__(2, 1, 1)" in script_bundle("Clusters", 128, "array").source


# --- .cta_group


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_120a"])
def test_cta_group_does_not_assemble_elsewhere(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilus_faults, "without_cta_group", lambda template, target: template)
    with pytest.raises(CompileError, match=r"cta_group::1.*compiler_scripts.py:\d+\)\.$"):
        script_bundle("TmaCopy", 100, 128, "array", "array", target=architecture)


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_120a"])
def test_cta_group_is_dropped_elsewhere(architecture: str) -> None:
    assert "cta_group" not in script_bundle("TmaCopy", 100, 128, "array", "array", target=architecture).ptx


def test_cta_group_stays_on_sm_10x() -> None:
    assert ".cta_group::1" in script_bundle("TmaCopy", 100, 128, "array", "array", target="sm_100a").ptx


# --- wgmma in flight

WGMMA = (256, 256, 4096, "array", "array", "array")


def conversions_before_the_last_wait(text: str) -> list[str]:
    """Accumulators that are converted between the last MMA and the wait for it."""
    tail = text[text.rindex("HGMMA") :]
    return re.findall(r"F2FP\S*", tail[: tail.index("WARPGROUP.DEPBAR.LE gsb0, 0x0")])


def test_ptxas_reads_accumulators_before_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns 0-7 and 248-255 of each tile are wrong on an H100. The PTX has the order right."""
    monkeypatch.setattr(tilus_faults, "isolated_wait", lambda template: template)
    made = script_bundle("Wgmma", *WGMMA, block_m=64, block_n=256, in_flight=1)
    assert conversions_before_the_last_wait(sass(made.cubin, tmp_path))
    assert made.ptx.rindex("wgmma.wait_group") < made.ptx.index("cvt.rn.f16.f32")


def test_an_isolated_wait_is_waited_for(tmp_path: Path) -> None:
    text = sass(script_bundle("Wgmma", *WGMMA, block_m=64, block_n=256, in_flight=1).cubin, tmp_path)
    assert not conversions_before_the_last_wait(text)
    assert re.search(r"DEPBAR.LE gsb0, 0x1", text)


def test_isolated_waits_keep_groups_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two instructions to a tile, ptxas makes every wait a wait for all, unless it stands alone."""
    shape = {"block_m": 128, "block_n": 128, "in_flight": 1}
    kept = sass(script_bundle("Wgmma", *WGMMA, **shape).cubin, tmp_path)
    monkeypatch.setattr(tilus_faults, "isolated_wait", lambda template: template)
    serial = sass(script_bundle("Wgmma", *WGMMA, **shape).cubin, tmp_path)
    assert "DEPBAR.LE gsb0, 0x1" in kept
    assert "DEPBAR.LE gsb0, 0x1" not in serial


@pytest.mark.slow
def test_waits_for_everything_are_left_alone() -> None:
    assert "activemask" not in script_bundle("Wgmma", *WGMMA, in_flight=0).source
    assert "activemask" in script_bundle("Wgmma", *WGMMA, in_flight=1).source


# --- shared memory


@pytest.mark.parametrize("name", RUNGS)
def test_shared_memory_is_asked_for(name: str) -> None:
    program = rung_program(name)
    assert program.workspace is not None
    assert tilus_faults.shared_bytes_missing(program) == 0


def test_missing_shared_memory_is_noticed() -> None:
    import dataclasses

    program = rung_program("v2")
    bytes_asked = program.dynamic_shared_bytes
    beyond = dataclasses.replace(program, workspace=SharedAllocation(bytes_asked, 4))
    assert tilus_faults.shared_bytes_missing(beyond) == 4
