"""Device source: nothing but device code, the same code with lines as without, and the lines in the cubin."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from compiler_samples import (
    RUNGS,
    matmul_arguments,
    nvdisasm,
    rung_bundle,
    rung_program,
    sass,
    script_program,
    source_of,
    tilus_source,
)

from blackwell_matmul.compiler import nvrtc, source
from blackwell_matmul.compiler.source import DeviceSource, device_source, lower
from blackwell_matmul.frontend import bind, build
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.blackwell import v1

pytestmark = pytest.mark.slow


def plain(text: str) -> list[str]:
    """The lines of a kernel without comments, fences and the qualifiers that are corrected."""
    body = text[text.index("__global__") :]
    body = re.sub(r"/\*.*?\*/|//[^\n]*|__cluster_dims__\(1, 1, 1\)|__restrict__", "", body, flags=re.DOTALL)
    lines = [" ".join(line.split()) for line in body.splitlines()]
    return [line for line in lines if line and not line.startswith('asm volatile ("tcgen05.fence')]


def as_tilus_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all passes, and with hidet's own visits and rules."""
    monkeypatch.setattr(source, "UNNEEDED_PASSES", frozenset())
    for each in ("quick_hidet_visits", "quick_rules"):
        monkeypatch.setattr(source, each, contextlib.nullcontext)


@pytest.mark.parametrize("name", RUNGS)
def test_marks_change_no_code(name: str) -> None:
    """tilus's own generator, on a module without marks, writes the same kernel."""
    program = rung_program(name)
    theirs = tilus_source(program)
    theirs = theirs[: theirs.index("DLL void tilus_launch")]
    ours = source_of(program)
    assert plain(ours.text) == plain(theirs)
    assert f" {ours.kernel}(" in theirs


@pytest.mark.parametrize(
    ("script", "arguments", "schedule"),
    [
        ("TmaCopy", (100, 128, "array", "array"), {"block": 32}),
        ("MmaSync", (64, "array", "array", "array"), {}),
        ("Wgmma", (256, 256, 256, "array", "array", "array"), {"in_flight": 1}),
        ("Grouped", (1792, 8, "array"), {}),
        ("Scratch", (100, "array", "array"), {}),
        ("Clusters", (128, "array"), {}),
        ("RowStride", (100, 64, "array"), {}),
    ],
)
def test_passes_left_out_change_no_code(
    script: str, arguments: tuple[object, ...], schedule: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the rungs, `test_marks_change_no_code` says the same: there, tilus runs all of its passes."""
    program = script_program(script, *arguments, **schedule)
    ours = source_of(program).text
    as_tilus_does(monkeypatch)
    assert device_source(lower(program), program).text == ours


@pytest.mark.parametrize(("block_n", "stages"), [(64, 3), (128, 2), (256, 3)])
def test_passes_left_out_change_no_schedule(block_n: int, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = {"block_n": block_n, "stages": stages}
    program = build(bind(rung("v2"), matmul_arguments(), schedule=pins, target="sm_100a"), "sm_100a")
    ours = source_of(program).text
    as_tilus_does(monkeypatch)
    assert device_source(lower(program), program).text == ours


def test_only_device_code() -> None:
    text = source_of(rung_program("v2")).text
    for host in ("tvm", "cuTensorMapEncode", "cudaFuncSetAttribute", "<<<", "stdint.h", "cuda.h", "//@"):
        assert host not in text
    assert text.count("__global__") == 1
    assert 'extern "C" __global__' in text


def test_the_text_quotes_the_kernel() -> None:
    text = source_of(rung_program("v2")).text
    assert re.search(r"// v2.py:\d+  for offset_k in range\(0, k, self.block_k\):", text)
    assert re.search(r"// v2.py:\d+  mma_phase \^= 1", text)
    assert re.search(r"// v2.py:\d+  self.tcgen05.commit\(mbarrier=mma_barrier\)\n.*\n.*tcgen05_commit", text)


def test_numbered_lines_name_existing_lines() -> None:
    numbered = source_of(rung_program("v1")).numbered
    named = set(re.findall(r'#line (\d+) "(.*)"', numbered))
    assert {file for _, file in named} == {"/blackwell_matmul/kernels/blackwell/v1.py"}
    lines = Path(v1.__file__).read_text().splitlines()
    assert all(1 <= int(line) <= len(lines) for line, _ in named)


@pytest.mark.parametrize("name", RUNGS)
def test_lines_and_macros_change_no_instruction(name: str, tmp_path: Path) -> None:
    nvdisasm()  # or there is nothing to compare with
    numbered = rung_bundle(name)
    plain = nvrtc.compile_source(numbered.source, "sm_100a", name)
    assert sass(plain.cubin, tmp_path) == sass(numbered.cubin, tmp_path)


def test_every_instruction_names_a_line_of_the_kernel(tmp_path: Path) -> None:
    text = sass(rung_bundle("v2").cubin, tmp_path, "-g", "-c")
    files = re.findall(r'//## File "(.*?)", line \d+', text)
    assert len(files) > 100
    assert {Path(file).name for file in files} == {"v2.py"}
    assert "inlined" not in text


def test_instructions_are_at_the_line_that_issues_them(tmp_path: Path) -> None:
    text = sass(rung_bundle("v2").cubin, tmp_path, "-g", "-c")
    kernel = Path(rung("v2").__call__.__code__.co_filename).read_text().splitlines()
    expected = {"UTMALDG": "global_to_shared", "UTCHMMA": "tcgen05.mma", "UTMASTG": "shared_to_global",
                "UTCBAR": "tcgen05.commit", "LDTM": "tcgen05.load", "STSM": "store_shared"}  # fmt: skip
    for opcode, call in expected.items():
        before = text[: text.index(opcode)]
        line = int(re.findall(r'//## File ".*?", line (\d+)', before)[-1])
        assert call in kernel[line - 1], (opcode, line)


def test_a_script_with_prints_and_clusters_needs_no_header() -> None:
    source = source_of(script_program("Clusters", 128, "array"))
    assert "#include" not in source.text
    assert "cooperative_groups" in source.text
    assert nvrtc.compile_source(source.numbered, "sm_90a", "Clusters").cubin[:4] == b"\x7fELF"


def test_file_names_are_escaped() -> None:
    from blackwell_matmul.frontend.program import Location

    source = DeviceSource("int a;\n", "k", (Location('C:\\a "b"\\k.py', 3),))
    assert source.numbered == '#line 3 "/C:\\\\a \\"b\\"\\\\k.py"\nint a;\n'
