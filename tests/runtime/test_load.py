"""`load` and `Loaded` against a driver that records: what reaches cuLaunchKernelEx, and what is refused."""

import ctypes
import dataclasses
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_gpu import BOX, PLAN, WORKING_PLAN, OnGpu, bundle

from blackwell_matmul.base.errors import DriverError, InputError, UnsupportedError
from blackwell_matmul.compiler.plan import Argument, Parameter, TensorMap
from blackwell_matmul.hardware import driver
from blackwell_matmul.runtime import load, maps, torch_cuda
from blackwell_matmul.runtime.recent import Recent
from tests.sentences import one_sentence

pytestmark = pytest.mark.process


@pytest.fixture
def source(on_gpu):
    return on_gpu(torch.zeros(1000, 256, dtype=torch.float16))


@pytest.fixture
def target(on_gpu):
    return on_gpu(torch.zeros(1000, 256, dtype=torch.float16))


def little_endian(value, nbytes):
    return value.to_bytes(nbytes, "little").hex()


def test_a_launch_is_what_the_plan_says(gpu, source, target):
    gpu.parameters(4, 8, 128)
    assert load(bundle())(1000, source, target) is None
    (encoded,) = gpu.calls("cuTensorMapEncodeTiled")
    assert encoded["modulo"] == "0" and int(encoded["address"], 16) == source.data_ptr()
    assert (encoded["dims"], encoded["strides"]) == ("256,1000", "512")
    assert encoded["box"] == f"{BOX[0]},{BOX[1]}" and encoded["element_strides"] == "1,1"
    values = driver.bindings()
    assert int(encoded["type"]) == values.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    assert int(encoded["swizzle"]) == values.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
    assert int(encoded["l2"]) == values.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    (launch,) = gpu.calls("cuLaunchKernelEx")
    assert (launch["grid"], launch["block"], launch["shared"]) == ("32,4,1", "128,1,1", "50000")
    assert launch["stream"] == "0x51" and launch["attributes"] == "0"
    assert launch["p0"] == little_endian(1000, 4) and launch["p1"] == little_endian(target.data_ptr(), 8)
    assert launch["p2"] == "@0:" + little_endian(source.data_ptr(), 8)


def test_a_kernel_that_waits_itself_may_start_early(gpu, source, target):
    load(bundle(dataclasses.replace(PLAN, early_start=1)))(1000, source, target)
    load(bundle())(1000, source, target)
    early, in_turn = gpu.calls("cuLaunchKernelEx")
    assert (early["attributes"], early["early"]) == ("1", "1")
    assert (in_turn["attributes"], in_turn["early"]) == ("0", "0")


def test_what_has_a_default_may_be_left_out(gpu, source, target):
    gpu.parameters(4, 8, 128, 4)
    *fixed, last = (*PLAN.parameters, Parameter("batches", "int32", default=7))
    plan = dataclasses.replace(
        PLAN, parameters=(*fixed, last), arguments=(*PLAN.arguments, Argument("value", "int32", "batches"))
    )
    loaded = load(bundle(plan))
    loaded(1000, source, target)
    loaded(1000, source, target, 9)
    loaded(1000, source, target)
    assert [each["p3"] for each in gpu.calls("cuLaunchKernelEx")] == [little_endian(each, 4) for each in (7, 9, 7)]
    for wrong in ((1000, source), (1000, source, target, 1, 2)):
        with pytest.raises(InputError, match=r"takes 3 to 4 arguments .* but got "):
            loaded(*wrong)


def test_code_is_loaded_once_before_the_first_launch_in_the_relaxed_capture_mode(gpu, source, target):
    loaded = load(bundle())
    loaded(1000, source, target)
    loaded(500, source, target)
    names = [record["function_called"] for record in gpu.calls()]
    assert names.count("cuLibraryLoadData") == names.count("cuKernelSetAttribute") == 1
    assert names.index("cuKernelGetFunction") < names.index("cuLaunchKernelEx") and names.count("cuLaunchKernelEx") == 2
    assert gpu.calls("cuKernelGetFunction")[0]["mode"] == "2"
    assert gpu.calls("cuThreadExchangeStreamCaptureMode")[-1]["mode"] == "0"
    assert gpu.calls("cuKernelSetAttribute")[0]["value"] == "50000"


def test_a_repeated_call_makes_one_call_of_the_driver(gpu, source, target):
    loaded = load(bundle())
    loaded(1000, source, target)
    gpu.clear()
    for _ in range(3):
        loaded(1000, source, target)
    assert [record["function_called"] for record in gpu.calls()] == ["cuLaunchKernelEx"] * 3


def test_whatever_differs_is_a_new_call(gpu, on_gpu, source, target, monkeypatch):
    loaded = load(bundle())
    loaded(1000, source, target)
    loaded(999, source, target)
    loaded(1000, source, on_gpu(torch.zeros_like(target)))
    monkeypatch.setattr(torch_cuda, "_raw_stream", lambda: lambda device: 0x99)
    loaded(1000, source, target)
    launches = gpu.calls("cuLaunchKernelEx")
    assert [launch["stream"] for launch in launches] == ["0x51"] * 3 + ["0x99"]
    assert len({launch["grid"] for launch in launches}) == 1


def test_a_map_is_shared_by_the_calls_that_read_the_same(gpu, on_gpu, source, target):
    loaded = load(bundle())
    for _ in range(3):
        loaded(1000, source, on_gpu(torch.zeros_like(target)))
    assert len(gpu.calls("cuTensorMapEncodeTiled")) == 1


def test_a_call_with_other_addresses_is_moved(gpu, on_gpu, source, target):
    """Nothing is evaluated or encoded anew, and what was packed for the first call stays."""
    *fixed, last = (*PLAN.parameters, Parameter("bias", "pointer", default=0))
    arguments = (*PLAN.arguments, Argument("tensor_map", "", 1), Argument("value", "pointer", "bias"))
    maps_of_both = (*PLAN.tensor_maps, dataclasses.replace(PLAN.tensor_maps[0], pointer="target"))
    plan = dataclasses.replace(PLAN, parameters=(*fixed, last), arguments=arguments, tensor_maps=maps_of_both)
    gpu.parameters(4, 8, 128, 128, 8)
    loaded = load(bundle(plan))
    others = [on_gpu(torch.zeros_like(each)) for each in (source, target)]
    for pair in ((source, source), (source, others[1]), (others[0], target), (source, source)):
        loaded(1000, *pair)
        launch = gpu.calls("cuLaunchKernelEx")[-1]
        read, written = (little_endian(each.data_ptr(), 8) for each in pair)
        assert (launch["p0"], launch["p1"], launch["p4"]) == (little_endian(1000, 4), written, "0" * 16)
        assert (launch["p2"], launch["p3"]) == ("@0:" + read, "@0:" + written)
    assert len(gpu.calls("cuTensorMapEncodeTiled")) == 1  # of the first call, whose two are one
    assert {each["modulo"] for each in gpu.calls("cuTensorMapReplaceAddress")} == {"0"}
    loaded(999, source, target)
    assert len(gpu.calls("cuTensorMapEncodeTiled")) == 3


def test_only_what_is_an_address_moves(gpu, on_gpu, source, target):
    """A number is a part of the call, with its sign, and a pointer may be left out."""
    more = [Parameter("table", "int64"), Parameter("alpha", "float32"), Parameter("other", "pointer", default=0)]
    arguments = [Argument("value", each.type, each.name) for each in more]
    maps_of_both = (*PLAN.tensor_maps, dataclasses.replace(PLAN.tensor_maps[0], pointer="other"))
    plan = dataclasses.replace(
        PLAN,
        parameters=(*PLAN.parameters, *more),
        arguments=(*PLAN.arguments, *arguments, Argument("tensor_map", "", 1)),
        tensor_maps=maps_of_both,
    )
    gpu.parameters(4, 8, 128, 8, 4, 8, 128)
    loaded = load(bundle(plan))
    tables = 1 << 40, 1 << 41
    for table, alpha in ((tables[0], 1), (tables[1], 1), (tables[1], 0.0), (tables[1], -0.0)):
        loaded(1000, source, target, table, alpha)
        launch = gpu.calls("cuLaunchKernelEx")[-1]
        assert launch["p3"] == little_endian(table, 8)
        assert launch["p4"] == struct.pack("<f", alpha).hex() and launch["p5"] == "0" * 16
    loaded(1000, on_gpu(torch.zeros_like(source)), target, tables[0], 1)
    assert gpu.calls("cuTensorMapReplaceAddress")


@pytest.mark.parametrize("refused", [True, False])
def test_a_call_that_cannot_be_moved_is_packed_anew(gpu, on_gpu, source, target, refused):
    """The driver refuses an address, or more than addresses follows from one."""
    by_address = dataclasses.replace(PLAN, grid=(("?:", ("==", "target", target.data_ptr()), 32, 16), 4, 1))
    loaded = load(bundle(PLAN if refused else by_address))
    loaded(1000, source, target)
    gpu.fail("cuTensorMapReplaceAddress", 1)
    loaded(1000, *[on_gpu(torch.zeros_like(each)) for each in (source, target)])
    assert len(gpu.calls("cuTensorMapEncodeTiled")) == 2
    assert [each["grid"] for each in gpu.calls("cuLaunchKernelEx")] == ["32,4,1", "32,4,1" if refused else "16,4,1"]


def test_a_stream_can_be_given(gpu, source, target):
    loaded = load(bundle())
    loaded(1000, source, target, stream=0x77)
    assert gpu.calls("cuLaunchKernelEx")[0]["stream"] == "0x77"
    with pytest.raises(InputError, match=r"stream is 'fast'; it must be a torch.cuda.Stream"):
        loaded(1000, source, target, stream="fast")


def test_a_thread_without_a_context_gets_that_of_torch(gpu, source, target, monkeypatch):
    monkeypatch.setattr(torch_cuda, "_raw_stream", lambda: lambda device: 0)
    loaded = load(bundle())
    done = []
    thread = threading.Thread(target=lambda: done.append(loaded(1000, source, target)))
    thread.start()
    thread.join()
    assert done == [None] and gpu.calls("cuLaunchKernelEx")[-1]["context"] == "c000"


def test_an_empty_grid_is_no_launch(gpu, source, target):
    plan = dataclasses.replace(PLAN, grid=(("//", "m", 32), 4, 1))
    load(bundle(plan))(31, source, target)
    assert not gpu.calls("cuLaunchKernelEx")


def test_workspaces_are_new_cleared_and_not_kept(gpu, source, target, monkeypatch):
    taken = []

    def empty(workspace, device, stream):
        taken.append((workspace.nbytes, workspace.clear, device, stream))
        return torch.zeros(workspace.nbytes, dtype=torch.uint8)

    monkeypatch.setattr(torch_cuda, "empty", empty)
    gpu.parameters(4, 8, 128, 8)
    loaded = load(bundle(WORKING_PLAN))
    loaded(1000, source, target)
    loaded(1000, source, target)
    assert taken == [(16000, True, 0, 0x51)] * 2
    first, second = gpu.calls("cuLaunchKernelEx")
    assert first["p3"] != little_endian(0, 8)
    assert [first[p] for p in ("p0", "p1", "p2")] == [second[p] for p in ("p0", "p1", "p2")]


def test_a_kept_workspace_is_an_argument_of_every_launch(gpu, source, target, monkeypatch):
    memory = torch.zeros(16000, dtype=torch.uint8)
    monkeypatch.setattr(torch_cuda, "empty", lambda workspace, device, stream: memory)
    gpu.parameters(4, 8, 128, 8)
    kept = tuple(dataclasses.replace(each, kept=True) for each in WORKING_PLAN.workspaces)
    loaded = load(bundle(dataclasses.replace(WORKING_PLAN, workspaces=kept)))
    loaded(1000, source, target)
    loaded(1000, source, target)
    assert [each["p3"] for each in gpu.calls("cuLaunchKernelEx")] == [little_endian(memory.data_ptr(), 8)] * 2


@pytest.mark.parametrize(
    "kind, value, packed",
    [("int32", -1, "ffffffff"), ("uint8", 255, "ff"), ("float32", 1.0, "0000803f"), ("float16", 1.0, "003c")]
    + [("bool", True, "01"), ("int64", -2, "feffffffffffffff"), ("float64", 2.0, "0000000000000040")],
)
def test_values_are_packed_by_type(gpu, source, target, kind, value, packed):
    argument = Argument("value", kind, int(value) if isinstance(value, bool) else "m")
    parameter = dataclasses.replace(PLAN.parameters[0], type=kind)
    plan = dataclasses.replace(PLAN, parameters=(parameter, *PLAN.parameters[1:]), arguments=(argument,))
    plan = dataclasses.replace(plan, checks=(), grid=(1, 1, 1), tensor_maps=())
    gpu.parameters(len(packed) // 2)
    load(bundle(plan))(value, source, target)
    assert gpu.calls("cuLaunchKernelEx")[0]["p0"] == packed


def test_an_unknown_type_is_refused(gpu, source, target):
    plan = dataclasses.replace(PLAN, arguments=(Argument("value", "float8", "m"),))
    with pytest.raises(UnsupportedError, match="argument of type float8 cannot be passed; these can: pointer"):
        load(bundle(plan))(1000, source, target)


# --- refusals


def test_another_gpu_is_named(gpu, source, target):
    with pytest.raises(UnsupportedError) as caught:
        load(bundle(target="sm_100a"))(1000, source, target)
    assert str(caught.value) == (
        "Copy was compiled for sm_100a and GPU 0 is an H200, which runs sm_90a; compile it with target='sm_90a'."
    )


def test_a_gpu_without_a_target_is_named(gpu, source, target):
    gpu.is_a("NVIDIA A100-SXM4-80GB", (8, 0), 108, 166912)
    with pytest.raises(
        UnsupportedError, match=r"an NVIDIA A100-SXM4-80GB of compute capability 8.0, for which nothing"
    ):
        load(bundle())(1000, source, target)


def test_a_typed_pointer_takes_tensors_of_its_type_alone(gpu, source, target):
    parameters = (*PLAN.parameters[:2], dataclasses.replace(PLAN.parameters[2], element="float16"))
    typed = load(bundle(dataclasses.replace(PLAN, parameters=parameters)))
    with pytest.raises(InputError, match="target of Copy is a tensor of float32 and the kernel takes ~float16: pass"):
        typed(1000, source, OnGpu.of(target.float()))
    assert not gpu.calls("cuLaunchKernelEx")
    typed(1000, source, target)
    assert len(gpu.calls("cuLaunchKernelEx")) == 1


@pytest.mark.parametrize(("kind", "value"), [("int32", 7), ("int64", 7), ("uint64", 7), ("float32", 2.5)])
def test_a_tensor_and_a_truth_are_no_number(gpu, source, target, kind, value):
    parameters = (dataclasses.replace(PLAN.parameters[0], type=kind), *PLAN.parameters[1:])
    loaded = load(bundle(dataclasses.replace(PLAN, parameters=parameters)))
    with pytest.raises(InputError, match=rf"m of Copy is .*; it takes a number of {kind}\."):
        loaded(OnGpu.of(torch.tensor([value])), source, target)
    with pytest.raises(InputError, match=rf"m of Copy is True; it takes a number of {kind}\."):
        loaded(True, source, target)
    assert not gpu.calls("cuLaunchKernelEx")


def test_too_much_shared_memory_is_refused_with_the_numbers(gpu, source, target):
    plan = dataclasses.replace(PLAN, dynamic_shared_bytes=300000)
    with pytest.raises(
        UnsupportedError, match=r"needs 300000 bytes .* can have 232448; compile it with a smaller tile"
    ):
        load(bundle(plan))(1000, source, target)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda k, s, t: k(1000, s), r"copy takes 3 arguments \(m, source, target\) but got 2"),
        (lambda k, s, t: k(5000, s, t), r"m is too large \(m = 5000\)"),
        (
            lambda k, s, t: k(1000, s, torch.zeros(4)),
            r"argument 1 on cuda:0, argument 2 on cpu; all tensors",
        ),
        (lambda k, s, t: k(1, 2, 3), "no tensor at all"),
        (
            lambda k, s, t: k(1000, OnGpu.of(s.float()), t),
            "source of Copy is torch.float32; the kernel was compiled for",
        ),
        (lambda k, s, t: k(1000, 64, OnGpu.of(s.float()), t), "takes 3 arguments .* but got 4"),
    ],
)
def test_arguments_that_do_not_fit_get_one_sentence(gpu, source, target, call, message):
    with pytest.raises(InputError, match=message):
        call(load(bundle()), source, target)
    assert not gpu.calls("cuLaunchKernelEx")


@pytest.mark.parametrize(
    "function, code, message",
    [
        ("cuLibraryLoadData", 209, r"could not load the cubin of Copy \(10 bytes, sm_90a\): cuLibraryLoadData returned "
         r"CUDA_ERROR_NO_BINARY_FOR_GPU \(209\), some reason: the cubin was compiled for another architecture"),
        ("cuLibraryGetKernel", 500, "could not find copy_kernel in the cubin of Copy: .* does not hold this name"),
        ("cuKernelSetAttribute", 1, "could not allow Copy 50000 bytes of dynamic shared memory on GPU 0"),
        ("cuTensorMapEncodeTiled", 1, r"a tensor of FLOAT16 with dimensions \[256, 1000\] .* invalid argument"),
        ("cuLaunchKernelEx", 701, "launch Copy on GPU 0 with a grid of 32x4x1 CTAs of 128x1x1 threads .* 50000 bytes"),
        ("cuLaunchKernelEx", 700, "an earlier kernel of this process failed on that GPU"),
        ("cuLaunchKernelEx", 4711, "returned the code 4711"),
    ],
)  # fmt: skip
def test_the_driver_refuses_in_a_sentence_and_may_be_asked_again(gpu, on_gpu, source, target, function, code, message):
    loaded = load(bundle())
    fresh = on_gpu(torch.zeros(1000, 256, dtype=torch.float16))
    gpu.fail(function, code)
    with pytest.raises(DriverError, match=message) as caught:
        loaded(1000, fresh, target)
    one_sentence(caught.value)
    loaded(1000, fresh, target)
    assert len([call for call in gpu.calls("cuLaunchKernelEx") if "grid" in call]) == 1


def test_no_tensor_map_has_such_a_rank(gpu):
    described = TensorMap("FLOAT16", 0, (1,) * 6, (2,) * 5, (1,) * 6, (1,) * 6, "NONE", "NONE", "NONE", "NONE")
    with pytest.raises(UnsupportedError, match="rank 6 does not exist; the driver has ranks 1 to 5"):
        maps.encoded(described, 0)
    with pytest.raises(UnsupportedError, match="swizzle '7B', which cuda-python lacks"):
        maps.encoded(dataclasses.replace(described, dims=(8,), strides_bytes=(), box=(8,), swizzle="7B"), 0)


def test_load_wants_a_bundle():
    with pytest.raises(InputError, match="load takes a Bundle or the folder of one; it got 3"):
        load(3)


# --- folders, and what need not be installed

NOTHING_BUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tilus", "tvm_ffi"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refuse())
import ctypes
import torch
sys.path.insert(0, TESTS)
from fake_gpu import FakeGpu, OnGpu
from blackwell_matmul.runtime import calls, load, torch_cuda
gpu = FakeGpu(LIBRARY)
gpu.reset()
calls.PLAIN_TENSORS.add(OnGpu)
torch_cuda._raw_stream = lambda: lambda device: 0x51
kernel = load(FOLDER)
tensor = OnGpu.of(torch.zeros(1000, 256, dtype=torch.float16))
kernel(1000, tensor, OnGpu.of(torch.zeros(1000, 256)))
assert gpu.calls("cuLaunchKernelEx")[0]["grid"] == "32,4,1"
assert "tilus" not in sys.modules
print("launched")
"""


def test_a_saved_bundle_runs_without_tilus(fake_library, tmp_path):
    bundle().save(tmp_path / "copy")
    folder, library = str(tmp_path / "copy"), str(fake_library.path)
    names = {"TESTS": str(Path(__file__).parent), "LIBRARY": library, "FOLDER": folder}
    text = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + NOTHING_BUT
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert done.stdout == "launched\n", done.stderr


def test_a_damaged_folder_is_named(tmp_path):
    bundle().save(tmp_path)
    (tmp_path / "kernel.cubin").write_bytes(b"\x7fELF something else")
    with pytest.raises(InputError, match=r"kernel.cubin is damaged"):
        load(tmp_path)


NO_DRIVER = """
import torch
from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware import driver
try:
    driver.call("cuDeviceGet", "find GPU 0", 0)
except UnsupportedError as error:
    print(error)
"""


def test_a_machine_without_a_driver_gets_one_sentence():
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA driver")
    done = subprocess.run([sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, timeout=120)
    assert done.stdout == "This machine has no CUDA driver (libcuda is not found); CPU tensors are simulated.\n"


# --- what is kept


def test_what_was_not_read_lately_is_forgotten_first():
    kept: Recent[int, str] = Recent(4)
    for number in range(4):
        kept.put(number, f"entry {number}")
    kept.put(4, "entry 4")  # all were new: the older half goes
    assert kept.get(3) == "entry 3" and kept.get(0) is None and len(kept) <= 4
    kept.put(5, "entry 5")
    kept.put(6, "entry 6")
    assert kept.get(3) == "entry 3"
    for number in range(7, 1000):
        kept.put(number, f"entry {number}")
        assert len(kept) <= 4 and kept.get(number) == f"entry {number}"
    assert kept.made(1000, "entry {}".format, 1000) == kept.made(1000, "another {}".format, 1000) == "entry 1000"


def test_memory_of_maps_is_aligned_and_their_own():
    made = [maps.EncodedMap(0) for _ in range(64)]
    assert all(each.address % 128 == 0 for each in made)
    assert len({each.address for each in made}) == 64


@pytest.mark.parametrize("also, place", [((), 0), ((3,), -1)])
def test_a_map_moves_where_its_address_is_all_that_the_driver_changes(gpu, monkeypatch, also, place):
    def replaced(of_map, pointer):
        for word in (0, *also):
            ctypes.c_uint64.from_address(of_map + 8 * word).value = pointer
        return 0

    monkeypatch.setattr(driver, "entry_points", lambda: SimpleNamespace(replace_address=replaced))
    made = maps.EncodedMap(0x7F12_3456_7890)
    made.words[0] = made.pointer
    assert made.place == place and made.words[0] == made.pointer
    copy = made.copy()
    copy.words[0] = 0
    assert copy.place == place and made.words[0] == made.pointer
