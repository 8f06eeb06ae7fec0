"""Programs that launch kernels, unmodified: what they print, and how a kernel at fault ends them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import EmulationError, InputError, UnsupportedError
from blackwell_matmul.emulator.cuda_runtime import run
from blackwell_matmul.emulator.order.ptx_findings import PtxReport

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler, which builds CUDA's entry points"),
]

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.visible .global .u32 launches = 5;
.visible .entry scale(.param .u64 y, .param .u64 x, .param .u32 factor, .param .u32 n)
{
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %x<8>;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
mad.lo.u32 %r1, %r1, %r2, %r3;
setp.eq.u32 %p, %r1, 0;
@%p atom.global.add.u32 %r7, [launches], 1;
ld.param.u32 %r2, [n];
setp.ge.u32 %p, %r1, %r2;
@%p ret;
ld.param.u64 %x1, [y]; ld.param.u64 %x2, [x]; ld.param.u32 %r4, [factor];
mul.wide.u32 %x3, %r1, 4;
add.u64 %x1, %x1, %x3; add.u64 %x2, %x2, %x3;
ld.global.u32 %r5, [%x2];
mul.lo.u32 %r5, %r5, %r4;
st.global.u32 [%x1], %r5;
ret;
}
.visible .entry meet(.param .u64 y)
{
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %x<4>;
ld.param.u64 %x1, [y];
atom.global.add.u32 %r1, [%x1], 1;
mov.u32 %r2, %nctaid.x;
wait:
ld.acquire.gpu.global.u32 %r3, [%x1];
setp.lt.u32 %p, %r3, %r2;
@%p bra wait;
ret;
}
.visible .entry ranks(.param .u64 y)
{
.reg .b32 %r<4>; .reg .b64 %x<4>;
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank;
ld.param.u64 %x1, [y];
mul.wide.u32 %x2, %r1, 4;
add.u64 %x1, %x1, %x2;
st.global.u32 [%x1], %r2;
ret;
}
"""

DRIVER = f"""
import array, ctypes, struct
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
cuda = ctypes.CDLL("libcuda.so.1")
def address(values): return c_void_p(values.buffer_info()[0])
def check(code): assert code == 0, code
def memory(nbytes):
    place = c_uint64()
    check(cuda.cuMemAlloc_v2(byref(place), c_size_t(nbytes)))
    return place
def launch(kernel, grid, block, *values):
    places = (c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
    check(cuda.cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, None, places, None))
def function(name):
    found = c_void_p()
    check(cuda.cuModuleGetFunction(byref(found), module, name))
    return found
check(cuda.cuInit(0))
module = c_void_p()
check(cuda.cuModuleLoadData(byref(module), {PTX.encode()!r}))
"""


def ran(capfd: pytest.CaptureFixture[str], folder: Path, text: str, *options: str) -> str:
    """What a Python program prints; it must end well."""
    (folder / "program.py").write_text(text)
    status = run([sys.executable, *options, str(folder / "program.py")], "sm_90a")
    out, errors = capfd.readouterr()
    assert status == 0, errors
    return out


def test_the_driver_by_ctypes(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
x, y = array.array("I", range(100)), array.array("I", bytes(400))
dx, dy = memory(400), memory(400)
check(cuda.cuMemcpyHtoD_v2(dx, address(x), c_size_t(400)))
check(cuda.cuMemsetD32_v2(dy, 9, c_size_t(100)))
launch(function(b"scale"), 3, 32, dy, dx, c_uint32(7), c_uint32(90))
check(cuda.cuCtxSynchronize())
check(cuda.cuMemcpyDtoH_v2(address(y), dy, c_size_t(400)))
print(list(y) == [7 * each for each in range(90)] + [9] * 10)
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "True\n"


def test_variables_last_from_launch_to_launch(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
buffer, count, place, nbytes = memory(4), c_uint32(), c_uint64(), c_size_t()
for _ in range(3):
    launch(function(b"scale"), 2, 32, buffer, buffer, c_uint32(1), c_uint32(1))
check(cuda.cuModuleGetGlobal_v2(byref(place), byref(nbytes), module, b"launches"))
check(cuda.cuMemcpyDtoH_v2(byref(count), place, nbytes))
print(count.value, nbytes.value)
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "8 4\n"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_kernel_reads_and_writes_the_programs_memory(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, pinned: bool
) -> None:
    text = f"""
x, y = array.array("I", range(64)), array.array("I", [3] * 64)
if {pinned}:
    for each in (x, y):
        check(cuda.cuMemHostRegister_v2(address(each), c_size_t(256), 0))
places = [c_uint64(each.buffer_info()[0]) for each in (y, x)]
launch(function(b"scale"), 2, 32, *places, c_uint32(2), c_uint32(60))
print(list(y) == [2 * each for each in range(60)] + [3] * 4, list(x) == list(range(64)))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "True True\n"


def test_a_launch_with_attributes_has_clusters(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
y = memory(32)
cluster = ctypes.create_string_buffer(struct.pack("<I4x3I52x", 4, 4, 1, 1))
config = ctypes.create_string_buffer(struct.pack("<7I4xQQI4x", 8, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(cluster), 1))
places = (c_void_p * 1)(ctypes.addressof(y))
check(cuda.cuLaunchKernelEx(config, function(b"ranks"), places, None))
found = (c_uint32 * 8)()
check(cuda.cuMemcpyDtoH_v2(found, y, c_size_t(32)))
print(*found)
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "0 1 2 3 0 1 2 3\n"


def test_the_ctas_of_a_cooperative_launch_meet(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
y, found = memory(4), c_uint32()
check(cuda.cuMemsetD32_v2(y, 0, c_size_t(1)))
places = (c_void_p * 1)(ctypes.addressof(y))
check(cuda.cuLaunchCooperativeKernel(function(b"meet"), 100, 1, 1, 1, 1, 1, 0, None, places))
check(cuda.cuMemcpyDtoH_v2(byref(found), y, c_size_t(4)))
print(found.value, cuda.cuLaunchCooperativeKernel(function(b"meet"), 132 * 32 + 1, 1, 1, 1, 1, 1, 0, None, places))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "100 720\n"


def test_a_graph_repeats_the_work_that_a_stream_captured(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
x, stream, graph, again, status = memory(12), c_void_p(), c_void_p(), c_void_p(), c_int()
check(cuda.cuMemsetD32_v2(x, 1, c_size_t(3)))
check(cuda.cuStreamCreate(byref(stream), 0))
check(cuda.cuStreamBeginCapture_v2(stream, 0))
check(cuda.cuStreamIsCapturing(stream, byref(status)))
launch(function(b"scale"), 1, 32, x, x, c_uint32(3), c_uint32(2))
check(cuda.cuMemcpyDtoDAsync_v2(c_uint64(x.value + 8), x, c_size_t(4), stream))
check(cuda.cuStreamEndCapture(stream, byref(graph)))
values = array.array("I", bytes(12))
def read():
    check(cuda.cuMemcpyDtoH_v2(address(values), x, c_size_t(12)))
    return list(values)
print(status.value, read())
check(cuda.cuGraphInstantiateWithFlags(byref(again), graph, c_uint64(0)))
for _ in range(2):
    check(cuda.cuGraphLaunch(again, stream))
    print(read())
print(cuda.cuStreamEndCapture(stream, byref(graph)), cuda.cuGraphLaunch(stream, stream))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "1 [1, 1, 1]\n[3, 3, 3]\n[9, 9, 9]\n401 400\n"


def test_a_kernel_tells_the_gpu_that_its_ptx_is_for(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        DRIVER
        + """
value = c_int()
for attribute in (5, 6):
    check(cuda.cuFuncGetAttribute(byref(value), attribute, function(b"meet")))
    print(value.value)
"""
    )
    assert run([sys.executable, str(tmp_path / "program.py")], "sm_100a") == 0
    assert capfd.readouterr().out == "90\n100\n"


def test_a_refused_launch_has_a_note(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
places = (c_void_p * 1)(ctypes.addressof(memory(4)))
print(cuda.cuLaunchKernel(function(b"meet"), 0, 1, 1, 32, 1, 1, 0, None, places, None))
"""
    path = tmp_path / "program.py"
    path.write_text(DRIVER + text)
    assert run([sys.executable, str(path)]) == 0
    found = capfd.readouterr()
    assert found.out == "1\n"
    assert "note: the launch of meet is refused: grid (0, 1, 1), block (32, 1, 1), and 0 bytes" in found.err


def test_the_parameters_in_one_buffer(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
x, y = memory(128), memory(128)
check(cuda.cuMemsetD32_v2(x, 5, c_size_t(32)))
buffer = ctypes.create_string_buffer(struct.pack("<QQII", y.value, x.value, 3, 32))
size = c_size_t(24)
extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
check(cuda.cuLaunchKernel(function(b"scale"), 1, 1, 1, 32, 1, 1, 0, None, None, extra))
found = (c_uint32 * 32)()
check(cuda.cuMemcpyDtoH_v2(found, y, c_size_t(128)))
print(set(found))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "{15}\n"


def test_entry_points_that_a_program_finds_by_name(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
place, status, major, name = c_void_p(), c_int(), c_int(), ctypes.c_char_p()
for wanted in (b"cuDeviceGetAttribute", b"cuTensorMapEncodeTiled", b"cuNothingOfTheSort"):
    print(cuda.cuGetProcAddress_v2(wanted, byref(place), 13000, c_uint64(0), byref(status)), status.value, end="; ")
check(cuda.cuDeviceGetAttribute(byref(major), 75, 0))
found = c_void_p()
code = cuda.cuModuleGetFunction(byref(found), module, b"absent")
cuda.cuGetErrorName(code, byref(name))
print(major.value, name.value.decode(), cuda.cuModuleLoadData(byref(found), b"\\x7fELF" + bytes(60)))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "0 0; 0 0; 500 1; 9 CUDA_ERROR_NOT_FOUND 200\n"


def test_a_tensor_map_has_the_bytes_of_the_hardware(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from blackwell_matmul.emulator import tensor_map

    text = """
tma = (c_uint64 * 16)()
dims, strides = (c_uint64 * 2)(64, 100), (c_uint64 * 1)(128)
box, steps = (c_uint32 * 2)(32, 16), (c_uint32 * 2)(1, 1)
check(cuda.cuTensorMapEncodeTiled(tma, 6, 2, c_uint64(1 << 44), dims, strides, box, steps, 0, 2, 3, 1))
print(bytes(tma).hex())
"""
    raw = bytes.fromhex(ran(capfd, tmp_path, DRIVER + text))
    found = tensor_map.decode(raw)
    assert (found.address, found.dims, found.strides, found.box) == (1 << 44, (64, 100), (128,), (32, 16))
    assert (found.type, found.swizzle_bytes, found.fills_nan) == ("f16", 64, True)


def test_a_kernel_at_fault_ends_the_program_with_its_line(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
print("before")
x, y = memory(400), memory(396)
launch(function(b"scale"), 4, 32, y, x, c_uint32(7), c_uint32(100))
print("after")
"""
    sentence = (
        r"^kernel scale: PTX line 21: st.global.u32 \[%x1\], %r5: writes global memory .* 1 bytes behind allocation 2"
    )
    (tmp_path / "program.py").write_text(DRIVER + text)
    with pytest.raises(EmulationError, match=sentence):
        run([sys.executable, str(tmp_path / "program.py")], "sm_90a")
    assert capfd.readouterr().out == "before\n"


@pytest.mark.parametrize("of_program", [False, True], ids=["device memory", "memory of the program"])
def test_the_order_of_each_launch_is_checked(tmp_path: Path, of_program: bool) -> None:
    """The first launch writes elsewhere; in the second, each thread writes what the next thread reads."""
    text = """
x = array.array("I", range(200))
at = x.buffer_info()[0] if OF_PROGRAM else memory(800).value
for y in (at + 400, at + 4):
    launch(function(b"scale"), 2, 32, c_uint64(y), c_uint64(at), c_uint32(7), c_uint32(64))
"""
    (tmp_path / "program.py").write_text(DRIVER + text.replace("OF_PROGRAM", str(of_program)))
    reports: list[PtxReport] = []
    assert run([sys.executable, str(tmp_path / "program.py")], "sm_90a", order="eager", checked=reports.append) == 0
    clean, racy = reports
    assert clean.ok and (clean.kernel, clean.target) == ("scale", "sm_90a")
    assert [each.code for each in racy.errors] == ["data-race"]
    assert {at.text for each in racy.errors for at in (each.first, each.second) if at} == {
        "ld.global.u32 %r5, [%x2]",
        "st.global.u32 [%x1], %r5",
    }


def test_the_command_tells_each_line_once(command_line: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    text = """
at = memory(800).value
for y in (at + 4, at + 4, at + 400):
    launch(function(b"scale"), 2, 32, c_uint64(y), c_uint64(at), c_uint32(7), c_uint32(64))
"""
    (tmp_path / "program.py").write_text(DRIVER + text)
    program = ("--target", "sm_90a", "--", sys.executable, str(tmp_path / "program.py"))
    code, _, errors = command_line("emulate", "--check", *program)
    finding, racy, clean = errors.splitlines()
    assert code == 1 and finding.startswith("error data-race: ")
    assert racy.startswith("scale (sm_90a): errors: 1, ") and clean.startswith("scale (sm_90a): errors: 0, ")
    assert command_line("emulate", *program) == (0, "", "")


def test_a_fault_comes_behind_the_report_of_its_launch(tmp_path: Path) -> None:
    text = """
at = memory(4 * 97).value
launch(function(b"scale"), 4, 32, c_uint64(at + 4), c_uint64(at), c_uint32(7), c_uint32(100))
"""
    (tmp_path / "program.py").write_text(DRIVER + text)
    reports: list[PtxReport] = []
    with pytest.raises(EmulationError, match=r"^kernel scale: PTX line 19: .* reads global memory"):
        run([sys.executable, str(tmp_path / "program.py")], "sm_90a", order="eager", checked=reports.append)
    assert [each.code for report in reports for each in report.errors] == ["data-race"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            "cuda.cuMemcpyDtoH_v2(byref(c_uint64()), memory(4), c_size_t(8))",
            EmulationError,
            "cuMemcpyDtoH: reads 8 byt",
        ),
        ("cuda.cuTensorMapEncodeIm2col()", InputError, "im2col is not emulated"),
    ],
)
def test_a_call_without_a_meaning_is_one_sentence(tmp_path: Path, call: str, error: type[Exception], text: str) -> None:
    (tmp_path / "program.py").write_text(DRIVER + call)
    with pytest.raises(error, match=text):
        run([sys.executable, str(tmp_path / "program.py")], "sm_90a")


def test_the_exit_code_is_the_programs(tmp_path: Path) -> None:
    assert run([sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert run([sys.executable, "-c", "import os; os.kill(os.getpid(), 15)"]) == 128 + 15


def test_what_cannot_be_run_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^cannot run .*: No such file or directory\.$"):
        run([str(tmp_path / "absent")])
    with pytest.raises(InputError, match="target is 'sm_70'; there are sm_80"):
        run(["true"], "sm_70")
    with pytest.raises(InputError, match=r"^sms is 0; a GPU has at least one SM\.$"):
        run(["true"], sms=0)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(sys, "platform", "darwin")
        with pytest.raises(UnsupportedError, match="on Linux and not on darwin"):
            run(["true"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnsupportedError, match="has no cc, gcc or clang on PATH"):
        run(["true"])


@pytest.mark.skipif(importlib.util.find_spec("cuda.bindings") is None, reason="no cuda-python")
def test_cuda_python_by_driver_and_runtime(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = f"""
import numpy as np
from cuda.bindings import driver, runtime

def checked(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None

x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
dx, dy = (checked(runtime.cudaMalloc(256)) for _ in range(2))
kind = runtime.cudaMemcpyKind
checked(runtime.cudaMemcpy(dx, x.ctypes.data, 256, kind.cudaMemcpyHostToDevice))
module = checked(driver.cuModuleLoadData({PTX.encode()!r}))
kernel = checked(driver.cuModuleGetFunction(module, b"scale"))
values = np.array([dy], np.uint64), np.array([dx], np.uint64), np.array([11], np.uint32), np.array([64], np.uint32)
places = np.array([each.ctypes.data for each in values], np.uint64)
checked(driver.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, 0, places.ctypes.data, 0))
checked(runtime.cudaDeviceSynchronize())
checked(runtime.cudaMemcpy(y.ctypes.data, dy, 256, kind.cudaMemcpyDeviceToHost))
print(np.array_equal(y, 11 * x), checked(runtime.cudaGetDeviceCount()))
"""
    assert ran(capfd, tmp_path, text) == "True 1\n"


def test_torch_without_cuda(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
import torch
x, y = torch.arange(64, dtype=torch.int32).cuda(), torch.zeros(64, dtype=torch.int32, device="cuda:0")
before, event = y.cpu(), torch.cuda.Event(enable_timing=True)
launch(function(b"scale"), 2, 32, c_uint64(y.data_ptr()), c_uint64(x.data_ptr()), c_uint32(3), c_uint32(64))
torch.cuda.synchronize()
print(torch.equal(y.cpu(), 3 * x.cpu()), before.any().item(), y.is_cuda)
print(x.__dlpack_device__(), "dltensor" in repr(x.__dlpack__()))
print(torch.cuda.get_device_capability(), torch.cuda.get_device_properties(0).multi_processor_count)
event.record(torch.cuda.current_stream())
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "True False True\n(2, 0) True\n(9, 0) 132\n"


def test_a_graph_of_torch_runs_its_kernels_again(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = """
import torch
x, y = torch.arange(64, dtype=torch.int32, device="cuda"), torch.zeros(64, dtype=torch.int32, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
    launch(function(b"scale"), 2, 32, c_uint64(y.data_ptr()), c_uint64(x.data_ptr()), c_uint32(3), c_uint32(64))
print(y.any().item())
for factor in (1, 5):
    x.mul_(factor)
    graph.replay()
    print(torch.equal(y, 3 * x))
"""
    assert ran(capfd, tmp_path, DRIVER + text) == "False\nTrue\nTrue\n"


def test_a_kernel_that_reads_behind_a_tensor_is_at_fault(tmp_path: Path) -> None:
    text = """
import torch
x, y = torch.arange(128, dtype=torch.int32, device="cuda"), torch.zeros(130, dtype=torch.int32).to("cuda")
host, like = x.to("cpu"), torch.empty_like(x)
x.add_(1)
assert host[0] == 0 and x[0] == 1 and x.data_ptr() % 512 == y.data_ptr() % 512 == like.data_ptr() % 512 == 0
launch(function(b"scale"), 5, 32, c_uint64(y.data_ptr()), c_uint64(x.data_ptr()), c_uint32(3), c_uint32(130))
"""
    (tmp_path / "program.py").write_text(DRIVER + text)
    sentence = r"reads global memory at 0x\w+, which is 1 bytes behind the program's memory at 0x\w+ \(512 bytes\)\.$"
    with pytest.raises(EmulationError, match=sentence):
        run([sys.executable, str(tmp_path / "program.py")], "sm_90a")


CUDA = r"""
#include <cstdio>
__constant__ int factor = 2;
__device__ int calls;
__managed__ int managed = 40;
__global__ void scale(float *y, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) calls++, managed++;
    if (i < n) y[i] = factor * x[i];
}
__global__ void reversed(int *y) {
    extern __shared__ int part[];
    part[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
__global__ void past(float *y) { y[threadIdx.x + 1] = 1; }
int main(int count, char **) {
    const int n = 100;
    float x[n], y[n], *dx, *dy, *none = x;
    cudaMalloc(&none, 0);
    for (int i = 0; i < n; i++) x[i] = i;
    cudaMalloc(&dx, sizeof x);
    cudaMalloc(&dy, sizeof y);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);
    scale<<<4, 32>>>(dy, dx, n);
    int seven = 7, calls, wrong = none != nullptr, *order;
    cudaMemcpyToSymbol(factor, &seven, sizeof seven);
    scale<<<4, 32>>>(dy, dx, n);
    cudaMemcpyFromSymbol(&calls, ::calls, sizeof calls);
    cudaMemcpy(y, dy, sizeof y, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) wrong += y[i] != 7 * x[i];
    cudaMallocManaged(&order, 64 * sizeof(int));
    for (int i = 0; i < 64; i++) order[i] = i;
    reversed<<<1, 64, 64 * sizeof(int)>>>(order);
    cudaDeviceSynchronize();
    reversed<<<1, 64, 200 * 1024>>>(order);  // more than the default, without the attribute
    cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, 0);
    const char *last = cudaGetErrorName(cudaGetLastError());
    printf("%d %d %d %d %s %d\n", wrong, calls, managed, order[0], last, properties.major);
    if (count > 1) past<<<1, 100>>>(dy);
}
"""


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_cuda_cpp(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(CUDA)
    options = ["-cudart", "shared", "-lineinfo", "-arch=sm_90", "-o", str(tmp_path / "scale")]
    subprocess.run(["nvcc", *options, str(tmp_path / "scale.cu")], check=True)
    capfd.readouterr()
    assert run([str(tmp_path / "scale")], "sm_90a") == 0
    assert capfd.readouterr().out == "0 2 42 63 cudaErrorInvalidValue 9\n"
    line = 1 + CUDA.splitlines().index("__global__ void past(float *y) { y[threadIdx.x + 1] = 1; }")
    with pytest.raises(
        EmulationError, match=rf"^kernel _Z4pastPf: PTX line \d+, scale.cu:{line}: st.global.* writes gl"
    ):
        run([str(tmp_path / "scale"), "fault"], "sm_90a")


TRITON = """
import numpy as np
import triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)

class Array(np.ndarray):
    def data_ptr(self):
        return self.ctypes.data

x, y = np.arange(1000, dtype=np.float32).view(Array), np.full(1000, 0.5, np.float32).view(Array)
out = np.empty_like(x)
add[(4,)](x, y, out, 1000, block=256)
print(np.array_equal(out, x + y))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")
def test_triton(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert ran(capfd, tmp_path, TRITON, "-W", "ignore") == "True\n"


CUTE = """
import numpy as np
import cutlass
import cutlass.cute as cute
from cuda.bindings import driver
from cutlass.cute.runtime import make_ptr

@cute.kernel
def twice_kernel(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    y[block * 32 + thread] = x[block * 32 + thread] * 2.0

@cute.jit
def twice(x_ptr: cute.Pointer, y_ptr: cute.Pointer, n: cutlass.Constexpr):
    layout = cute.make_layout(n)
    x, y = cute.make_tensor(x_ptr, layout), cute.make_tensor(y_ptr, layout)
    twice_kernel(x, y).launch(grid=[n // 32, 1, 1], block=[32, 1, 1])

def checked(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None

checked(driver.cuInit(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(0))))
x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
dx, dy = checked(driver.cuMemAlloc(x.nbytes)), checked(driver.cuMemAlloc(y.nbytes))
checked(driver.cuMemcpyHtoD(dx, x.ctypes.data, x.nbytes))
twice(*(make_ptr(cutlass.Float32, int(each), cute.AddressSpace.gmem, assumed_align=16) for each in (dx, dy)), 128)
checked(driver.cuCtxSynchronize())
checked(driver.cuMemcpyDtoH(y.ctypes.data, dy, y.nbytes))
print(np.array_equal(y, 2 * x))
"""


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="no nvidia-cutlass-dsl")
def test_cute_dsl(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert ran(capfd, tmp_path, CUTE) == "True\n"
