"""The launch plan against tilus's own host code, call by call, on a driver that only writes down what it is asked."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from compiler_samples import (
    EVERY_RUNG,
    RUNGS,
    lowered,
    nvdisasm,
    rung_bundle,
    rung_program,
    sass,
    script_program,
    source_of,
    tilus_host_source,
    tilus_source,
)

from blackwell_matmul.compiler import nvrtc
from blackwell_matmul.compiler.host_code import launch_plan
from blackwell_matmul.compiler.plan import Launch, LaunchPlan, TensorMap
from blackwell_matmul.frontend import Program
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

HERE = Path(__file__).parent
WORKSPACES = {True: 0xC1EA0000, False: 0xD1270000}
"""The addresses that fake_driver.h gives out, by whether the memory is cleared."""
SIZES = (1, 2, 127, 128, 129, 1000, 1024, 1792, 4096, 8191, 65536, 1_000_000)
COMPILER = shutil.which("g++") or shutil.which("c++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler, such as g++")


def host_code(text: str) -> str:
    """The functions for the host in what tilus's own generator writes, for `fake_driver.h`."""
    functions = re.split(r"\n(?=static |DLL |TVM_FFI_DLL)", text)
    kept = [each for each in functions if each.startswith(("DLL ", "static __forceinline__ "))]
    (kernel,) = set(re.findall(r"(\w+)<<<", text))
    launch = re.compile(rf"{kernel}<<<(.*)>>>\(")
    return f'static const char *{kernel} = "{kernel}";\n' + launch.sub(rf"fake_launch({kernel}, \1)(", "\n".join(kept))


def built(program: Program, folder: Path, written: Callable[[Program], str] = tilus_source) -> Callable[..., list[str]]:
    """tilus's host code as a function of the arguments, which gives the calls it makes."""
    source, library = folder / "host.cpp", folder / f"{program.name}.so"
    source.write_text('#include "fake_driver.h"\n' + host_code(written(program)))
    options = ["-std=c++17", "-w", "-shared", "-fPIC", f"-I{HERE}", f"-I{nvrtc._cuda_headers()}"]
    subprocess.run([str(COMPILER), *options, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.take_record.restype = ctypes.c_char_p

    def call(*arguments: Any) -> list[str]:
        loaded.tilus_launch(*(arg if kind == "int32" else ctypes.c_void_p(arg) for arg, kind in arguments))
        return loaded.take_record().decode().splitlines()

    return call


def plan_of(program: Program) -> LaunchPlan:
    return launch_plan(lowered(program).module, program, source_of(program).kernel)


def enum_value(kind: str, name: str) -> int:
    from cuda.bindings import driver

    found = getattr(driver, kind)
    return int(next(each for each in found if each.name.endswith(f"_{name}")))


def map_call(each: TensorMap) -> str:
    numbers = [each.pointer, *each.dims, *each.strides_bytes, *each.box, *each.element_strides]
    enums = [
        ("Interleave", f"INTERLEAVE_{each.interleave}"),
        ("Swizzle", f"SWIZZLE_{each.swizzle}"),
        ("L2promotion", f"L2_PROMOTION_{each.l2_promotion}"),
        ("FloatOOBfill", f"OOB_FILL_{each.oob_fill}"),
    ]
    dtype = enum_value("CUtensorMapDataType", f"DATA_TYPE_{each.dtype}")
    tail = [enum_value(f"CUtensorMap{kind}", name) for kind, name in enums]
    return " ".join(map(str, ["map", dtype, *numbers, *tail]))


def expected_calls(launch: Launch) -> list[str]:
    """What the driver would be asked for to make this launch."""
    calls = [f"workspace {each.nbytes} {int(each.clear)}" for each in launch.workspaces]
    calls += [map_call(each) for each in launch.tensor_maps]
    arguments = []
    for each in launch.arguments:
        if each.kind == "tensor_map":
            arguments.append(f"map{each.value}")
        elif each.kind == "workspace":
            arguments.append(str(WORKSPACES[launch.workspaces[int(each.value)].clear]))
        else:
            arguments.append(str(each.value))
    numbers = [*launch.grid, *launch.block, launch.dynamic_shared_bytes, *arguments]
    return [*calls, f"launch {' '.join(map(str, numbers))}"]


def ordered(calls: list[str]) -> list[str]:
    """The calls, with the workspaces, whose order is free, first and sorted."""
    workspaces = sorted(line for line in calls if line.startswith("workspace"))
    return workspaces + [line for line in calls if not line.startswith(("workspace", "attribute"))]


def divided(plan: LaunchPlan, calls: list[str]) -> list[str]:
    """Without the numbers that stand for divisors, which tilus has wrong for some."""
    before = 1 + 3 + 3 + 1  # "launch", the grid, the block and shared memory
    ours = [before + i for i, each in enumerate(plan.arguments) if "fastdiv" in str(each.value)]

    def without(call: str) -> str:
        words = call.split()
        return " ".join(word for i, word in enumerate(words) if words[0] != "launch" or i not in ours)

    return [without(call) for call in calls]


def compare(program: Program, folder: Path, sizes: Sequence[int] = SIZES, **fixed: int) -> None:
    compare_calls(plan_of(program), built(program, folder), sizes, **fixed)


def compare_calls(plan: LaunchPlan, call: Callable[..., list[str]], sizes: Sequence[int] = SIZES, **fixed: int) -> None:
    for size in sizes:
        given = {"m": size, "n": 1024, "k": 1024, "batches": 3, **fixed}
        values = [given.get(each.name, 0x10000 * (place + 1)) for place, each in enumerate(plan.parameters)]
        theirs = call(*((value, each.type) for value, each in zip(values, plan.parameters, strict=True)))
        attributes = [line for line in theirs if line.startswith("attribute")]
        launch = plan.evaluate(values)
        assert ordered(divided(plan, theirs)) == ordered(divided(plan, expected_calls(launch)))
        assert set(attributes) <= {f"attribute {launch.dynamic_shared_bytes}"}
        assert bool(attributes) == (launch.dynamic_shared_bytes > 48 * 1024)


@pytest.mark.process
@pytest.mark.parametrize("name", [each for each in EVERY_RUNG if each not in BLOCK_SCALED_LADDER])
def test_rungs(name: str, tmp_path: Path) -> None:
    """tilus's own host code has no name for types of 4 bits and their scales, which block-scaled rungs have."""
    compare_calls(rung_bundle(name).plan, built(rung_program(name), tmp_path, tilus_host_source))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNGS)
def test_host_code_is_the_same_around_an_empty_kernel(name: str) -> None:
    """A division that tilus makes fast adds arguments (see below), which no rung's plan has."""
    program = rung_program(name)
    assert host_code(tilus_host_source(program)) == host_code(tilus_source(program))


@pytest.mark.process
def test_workspaces(tmp_path: Path) -> None:
    compare(script_program("Scratch", 100, "array", "array"), tmp_path, sizes=[1, 64, 1000, 65536])


@pytest.mark.process
def test_a_size_that_overflows_in_tilus_is_exact_here(tmp_path: Path) -> None:
    """The bits of a workspace are counted in int32: from 2 GiB bits on, tilus asks for another amount."""
    program = script_program("Scratch", 100, "array", "array")
    theirs = built(program, tmp_path)((1_000_000, "int32"), (16, "pointer"), (32, "pointer"))
    launch = plan_of(program).evaluate([1_000_000, 16, 32])
    assert sorted(each.nbytes for each in launch.workspaces) == [4_000_000, 256_000_000]
    assert ordered(theirs) != ordered(expected_calls(launch))


@pytest.mark.process
def test_maps_of_other_targets(tmp_path: Path) -> None:
    compare(script_program("TmaCopy", 100, 128, "array", "array"), tmp_path)


@pytest.mark.process
def test_clusters(tmp_path: Path) -> None:
    compare(script_program("Clusters", 128, "array"), tmp_path)


@pytest.mark.process
def test_strides_from_arguments(tmp_path: Path) -> None:
    compare(script_program("RowStride", 100, 64, "array"), tmp_path, k=72)


@pytest.mark.process
def test_fast_division_differs_where_tilus_is_wrong(tmp_path: Path) -> None:
    program = script_program("Grouped", 1792, 8, "array")
    plan, call = plan_of(program), built(program, tmp_path)
    differ = []
    for rows in range(1, 40):
        (theirs,) = call((256 * rows, "int32"), (16, "pointer"))
        (ours,) = expected_calls(plan.evaluate([256 * rows, 16]))
        if theirs != ours:
            differ.append(rows)
        assert theirs.split()[:8] == ours.split()[:8]
    assert 7 in differ
    assert not {1, 2, 4, 8, 16, 32} & set(differ)


@pytest.mark.process
def test_a_wrong_plan_is_noticed(tmp_path: Path) -> None:
    """The comparison can fail: a plan of another schedule."""
    program = rung_program("v1")
    call = built(program, tmp_path)
    launch = plan_of(rung_program("v2")).evaluate([1000, 16, 32, 48])
    theirs = call((1000, "int32"), (16, "pointer"), (32, "pointer"), (48, "pointer"))
    assert ordered(theirs) != ordered(expected_calls(launch))


@pytest.mark.process
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, to compare with")
@pytest.mark.parametrize("name", EVERY_RUNG)
def test_the_code_is_that_of_nvcc(name: str, tmp_path: Path) -> None:
    """NVRTC's cubin against nvcc's, of the same source: byte for byte if both are of one version, else by opcodes.

    Only V1 and V2 are the same to the byte: NVRTC's front end takes the address of shared memory in 64
    bits, and registers move where a kernel keeps much in them.
    """
    nvdisasm()  # or there is nothing to compare with
    ours = rung_bundle(name)
    file, cubin = tmp_path / "kernel.cu", tmp_path / "nvcc.cubin"
    file.write_text(re.sub(r"^typedef .*?int\d+_t;$|^struct alignas.*$", "", ours.source, flags=re.MULTILINE))
    text = "#include <cstdint>\n#include <cuda.h>\n" + file.read_text()
    file.write_text(text)
    options = ["-std=c++17", "-ftz=true", "-prec-div=false", "-lineinfo", f"-arch={ours.target}"]
    options.append(f"-I{nvrtc._cuda_headers()}")
    subprocess.run(["nvcc", *options, "-cubin", "-o", str(cubin), str(file)], check=True, capture_output=True)
    version = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    same = re.findall(r"V([\d.]+)", version)[0] == nvrtc.version()
    theirs = sass(cubin.read_bytes(), tmp_path)
    mine = sass(ours.cubin, tmp_path)
    if same and name in ("v1", "v2"):
        assert theirs == mine
    for opcode in ("UTMALDG", "UTMASTG", "UTCHMMA", "UTCBAR", "LDTM", "LDGSTS", "SYNCS.EXCH", "HGMMA", "HMMA"):
        assert theirs.count(opcode) == mine.count(opcode), opcode
