"""doctor and verify: every architecture and every trap from made-up facts, and this machine as it is."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from blackwell_matmul import cli
from blackwell_matmul.base.errors import DriverError, InputError
from blackwell_matmul.cli.doctor import checks, diagnosis_lines, verify
from blackwell_matmul.cli.doctor import facts as facts_room
from blackwell_matmul.cli.doctor.diagnosis_lines import GPU_LINES, LINES, NO_GPU, Line, diagnose
from blackwell_matmul.cli.doctor.facts import Cache, Descriptors, Facts, Library, Need, Nvrtc, Torch
from blackwell_matmul.cli.doctor.verify import LayerOutcome
from blackwell_matmul.cli.views import doctor_view
from blackwell_matmul.hardware import detect, gpus
from blackwell_matmul.hardware import driver as runtime_driver
from blackwell_matmul.hardware.detect import DetectedGpu, Driver, find_driver
from blackwell_matmul.kernels import KERNELS, LADDERS, rung
from blackwell_matmul.scheduling.mma import spec_of

importlib.import_module("torch")  # before a test lets imports fail, which would leave half of it to the next ones

GIB = 1 << 30
YES = Descriptors(True, True)
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
NVRTC_TARGETS = tuple(
    f"sm_{n}{a}" for n in (80, 86, 87, 89, 90, 100, 103, 110, 120, 121) for a in ("", "a")[: 1 + (n >= 90)]
)


def a_gpu(major: int, minor: int, index: int = 0, name: str = "NVIDIA GPU") -> DetectedGpu:
    tma = major >= 9
    return DetectedGpu(index, name, (major, minor), 132, 80 * GIB, 232448, 1980.0, 2619.0, tma, tma)


H100 = a_gpu(9, 0, name="NVIDIA H100 80GB HBM3")
B200 = a_gpu(10, 0, name="NVIDIA B200")

HEALTHY = Facts(
    package="0.1.0",
    python="3.12.3",
    platform="Linux x86_64",
    needs=(Need("tilus", "==0.2.0", "0.2.0", True), Need("nvidia-cuda-nvrtc", "<14,>=13.0.88", "13.0.88", True)),
    tilus=Library("0.2.0"),
    torch=Torch("2.11.0+cu130", "", "13.0", TARGETS, 1, (), YES),
    triton=Library("3.6.0"),
    triton_tma=YES,
    driver=Driver(cuda=(13, 0)),
    driver_release="580.159.04",
    gpus=(H100,),
    pci_gpus=1,
    nvrtc=Nvrtc("13.0.88", NVRTC_TARGETS),
    git="/usr/bin/git",
    c_compiler="/usr/bin/cc",
    cxx_compiler="/usr/bin/c++",
    cache=Cache("/cache", "", 50 * GIB),
)
NO_GPU_AT_ALL = dataclasses.replace(
    HEALTHY,
    torch=Torch("2.13.0+cpu", tma=Descriptors(False, False)),
    triton=Library(),
    triton_tma=Descriptors(),
    driver=Driver(),
    driver_release=None,
    gpus=(),
    pci_gpus=0,
)


def but(facts: Facts = HEALTHY, **changes: Any) -> Facts:
    return dataclasses.replace(facts, **changes)


def with_gpus(*found: DetectedGpu, **changes: Any) -> Facts:
    torch = dataclasses.replace(HEALTHY.torch, gpu_count=len(found))
    return but(**{"gpus": found, "torch": torch, "pci_gpus": len(found), **changes})


def problems(facts: Facts) -> dict[str, Line]:
    return {line.name: line for line in diagnose(facts) if line.status == "problem"}


def line(facts: Facts, name: str) -> Line:
    (found,) = (each for each in diagnose(facts) if each.name == name)
    return found


def the_problem(facts: Facts, name: str) -> Line:
    """The only problem there is."""
    found = problems(facts)
    assert list(found) == [name], found
    return found[name]


# --- the whole


@pytest.mark.parametrize("facts", [HEALTHY, NO_GPU_AT_ALL, Facts()])
def test_every_line_has_a_name_a_value_and_a_fix_exactly_when_it_is_a_problem(facts: Facts) -> None:
    told = diagnose(facts)
    assert len({each.name for each in told}) == len(told)
    for each in told:
        assert each.name and each.value and "\n" not in each.value
        assert bool(each.fix) == (each.status == "problem")


def test_a_healthy_machine_has_no_problem() -> None:
    assert problems(HEALTHY) == {}
    assert {each.status for each in diagnose(HEALTHY)} == {"ok"}


def test_no_gpu_is_a_mode() -> None:
    assert problems(NO_GPU_AT_ALL) == {}
    assert line(NO_GPU_AT_ALL, "GPUs") == Line("GPUs", "ok", NO_GPU)
    assert line(NO_GPU_AT_ALL, "driver").value == "none, and no GPU on the PCI bus"


def test_nothing_known_is_no_crash_and_mostly_unknown() -> None:
    states = {each.name: each.status for each in diagnose(Facts())}
    assert states["requirements"] == states["NVRTC"] == states["torch and GPUs"] == "unknown"
    assert states["tilus"] == states["torch"] == "problem"


# --- architectures


ARCHITECTURES = {
    (8, 0): ("sm_80", "TMA no, tensor memory no, clusters no, CLC no, wgmma no"),
    (8, 6): ("sm_86", "TMA no, tensor memory no, clusters no, CLC no, wgmma no"),
    (8, 7): ("sm_87", "TMA no, tensor memory no, clusters no, CLC no, wgmma no"),
    (8, 9): ("sm_89", "TMA no, tensor memory no, clusters no, CLC no, wgmma no"),
    (9, 0): ("sm_90a", "TMA yes, tensor memory no, clusters yes, CLC no, wgmma yes"),
    (10, 0): ("sm_100a", "TMA yes, tensor memory yes, clusters yes, CLC yes, wgmma no"),
    (10, 3): ("sm_103a", "TMA yes, tensor memory yes, clusters yes, CLC yes, wgmma no"),
    (11, 0): ("sm_110a", "TMA yes, tensor memory yes, clusters yes, CLC yes, wgmma no"),
    (12, 0): ("sm_120a", "TMA yes, tensor memory no, clusters yes, CLC yes, wgmma no"),
    (12, 1): ("sm_121a", "TMA yes, tensor memory no, clusters yes, CLC yes, wgmma no"),
}


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_what_an_architecture_has(capability: tuple[int, int]) -> None:
    arch, features = ARCHITECTURES[capability]
    facts = with_gpus(a_gpu(*capability))
    assert line(facts, "GPU 0").value == f"NVIDIA GPU, {arch}, 132 SMs, 80 GiB, 1980 MHz, memory 2619 MHz at most"
    assert line(facts, "GPU 0 has") == Line("GPU 0 has", "ok", features)
    assert line(facts, "GPU 0, NVRTC").value == f"compiles for {arch}"


def test_an_architecture_of_the_future_is_unknown() -> None:
    facts = with_gpus(a_gpu(13, 0))
    assert line(facts, "GPU 0 has").status == "unknown"
    assert line(facts, "GPU 0 has").value == "TMA yes, tensor memory unknown, clusters yes, CLC unknown, wgmma unknown"
    assert line(facts, "GPU 0, NVRTC").fix == "pip install --upgrade nvidia-cuda-nvrtc"


@pytest.mark.parametrize("known", gpus.GPUS.values(), ids=str)
def test_features_agree_with_the_table_of_known_gpus(known: gpus.Gpu) -> None:
    found = dataclasses.replace(a_gpu(*known.compute_capability))
    assert found.arch == known.arch
    assert {name for name, has in found.features.items() if has} == known.features & set(found.features)


def test_which_rungs_a_gpu_runs() -> None:
    blackwell, hopper = (", ".join(sorted(LADDERS[arch])) for arch in ("sm_100a", "sm_90a"))
    assert line(with_gpus(B200), "GPU 0 runs").value == blackwell
    assert line(with_gpus(a_gpu(9, 0)), "GPU 0 runs").value == hopper
    assert line(with_gpus(a_gpu(12, 1)), "GPU 0 runs").value == "g0"
    for capability, arch in (((8, 0), "sm_80"), ((11, 0), "sm_110a")):
        value = line(with_gpus(a_gpu(*capability)), "GPU 0 runs").value
        needs = f"{blackwell} need sm_100a or sm_103a; {hopper} need sm_90a; g0 needs sm_120a or sm_121a"
        assert value == f"no rung is written for {arch} yet ({needs}); all run in the simulator"


# --- torch and its targets


@pytest.mark.parametrize(
    ("capability", "targets", "serving"),
    [
        ((9, 0), ("sm_80", "sm_90"), "sm_90"),
        ((8, 9), ("sm_80", "sm_86", "sm_90"), "sm_86"),
        ((8, 7), ("sm_80", "sm_86"), None),
        ((8, 7), ("sm_80", "compute_80"), "compute_80"),
        ((10, 3), ("sm_90", "sm_100"), "sm_100"),
        ((10, 3), ("sm_100a",), None),
        ((12, 1), ("sm_90", "sm_120"), "sm_120"),
        ((12, 0), ("sm_80", "sm_90"), None),
        ((12, 0), ("sm_90", "compute_90"), "compute_90"),
        ((9, 0), ("sm_100", "sm_120"), None),
    ],
)
def test_which_code_of_torch_a_gpu_runs(
    capability: tuple[int, int], targets: tuple[str, ...], serving: str | None
) -> None:
    torch = dataclasses.replace(HEALTHY.torch, targets=targets)
    facts = with_gpus(a_gpu(*capability), torch=torch)
    told = line(facts, "GPU 0, torch")
    if serving is None:
        assert told.status == "problem" and told.fix == "pip install --upgrade torch"
        assert f"has no code for {facts.gpus[0].arch}, only for {', '.join(targets)}" in told.value
    else:
        assert told.status == "ok" and told.value.startswith(f"its {serving} code runs here")


def test_a_capability_above_the_newest_is_a_warning_of_torch_and_no_problem() -> None:
    torch = dataclasses.replace(HEALTHY.torch, targets=("sm_90", "sm_120"))
    told = line(with_gpus(a_gpu(12, 1), torch=torch), "GPU 0, torch")
    assert told.status == "ok" and told.value.endswith(
        "it may warn, since 12.1 is above the newest it was built for, 12.0"
    )


def test_torch_missing_broken_or_without_cuda() -> None:
    missing = problems(but(torch=Torch()))
    assert missing["torch"] == Line("torch", "problem", "not installed", "pip install torch")
    broken = problems(but(torch=Torch("2.11.0", "ImportError: libcudart.so.13: cannot open")))
    assert broken["torch"].value == "2.11.0 does not import: ImportError: libcudart.so.13: cannot open"
    assert broken["torch"].fix == "pip install --force-reinstall torch==2.11.0"
    told = the_problem(but(torch=Torch("2.13.0+cpu", tma=YES)), "torch and GPUs")
    assert told.value == "a CPU build sees none of 1 GPU"
    assert told.fix == "pip install --force-reinstall torch==2.13.0"


def test_torch_sees_fewer_gpus_than_the_driver() -> None:
    torch = dataclasses.replace(HEALTHY.torch, gpu_count=0, warnings=("CUDA initialization: too old. Update.",))
    assert (
        the_problem(but(torch=torch), "torch and GPUs").value == "torch sees 0 of 1 GPU: CUDA initialization: too old"
    )


# --- packages


def test_wrong_pins_name_the_versions_and_one_command() -> None:
    needs = (Need("tilus", "==0.2.0", "0.3.0", False), Need("jinja2", ">=3.1", None, False), HEALTHY.needs[1])
    found = problems(but(needs=needs, tilus=Library("0.3.0")))
    assert found["requirements"].fix == 'pip install "tilus==0.2.0" "jinja2>=3.1"'
    assert "tilus 0.3.0, where ==0.2.0 is needed; jinja2 is missing" in found["requirements"].value
    assert found["tilus"].fix == "pip install --force-reinstall --no-deps tilus==0.2.0"


@pytest.mark.parametrize(
    ("tilus", "value", "fix"),
    [
        (Library(), "not installed", "pip install tilus==0.2.0"),
        (Library("0.2.0", "ImportError: x"), "0.2.0 does not import: ImportError: x", "pip install --force-reinstall"),
    ],
)
def test_tilus_missing_or_broken(tilus: Library, value: str, fix: str) -> None:
    told = the_problem(but(tilus=tilus), "tilus")
    assert told.value == value and told.fix.startswith(fix)


def test_tilus_without_torch_is_mended_by_torch() -> None:
    for error in ("ModuleNotFoundError: No module named 'torch'", "ImportError: libcudart.so.13: cannot open"):
        assert problems(but(tilus=Library("0.2.0", error), torch=Torch()))["tilus"].fix == "pip install torch"


def test_triton_broken_missing_or_old() -> None:
    assert the_problem(but(triton=Library("3.6.0", "ImportError: libtriton")), "Triton").fix == (
        "pip install --force-reinstall triton==3.6.0"
    )
    assert the_problem(but(triton=Library(), triton_tma=Descriptors()), "Triton").fix == "pip install triton"
    old = problems(but(triton=Library("3.2.0"), triton_tma=Descriptors(False, False)))
    assert old["TMA, says Triton"].value == "3.2.0: host descriptors no, device descriptors no"
    assert the_problem(
        but(torch=dataclasses.replace(HEALTHY.torch, tma=Descriptors(False, True))), "TMA, says torch"
    ).fix


def test_torch_without_a_gpu_is_not_mended_by_triton() -> None:
    facts = but(torch=Torch("2.13.0+cpu", tma=Descriptors(False, False)))
    assert list(problems(facts)) == ["torch and GPUs"]
    assert line(facts, "TMA, says torch").value == "host descriptors no, device descriptors no; it sees no GPU"


def test_no_tma_on_a_gpu_without_it_is_no_problem() -> None:
    torch = dataclasses.replace(HEALTHY.torch, tma=Descriptors(False, False), gpu_count=1)
    facts = with_gpus(a_gpu(8, 0), torch=torch, triton_tma=Descriptors(False, False))
    assert problems(facts) == {}
    assert line(facts, "TMA, says torch").value.endswith("there is no GPU with TMA")


# --- driver


def test_no_driver_with_a_gpu_on_the_bus() -> None:
    told = the_problem(but(NO_GPU_AT_ALL, pci_gpus=2), "driver")
    assert told.value == "libcuda is not found, with 2 GPUs on the PCI bus" and "ubuntu-drivers" in told.fix


@pytest.mark.parametrize(("refusal", "fix"), diagnosis_lines._REFUSALS.items())
def test_a_driver_that_does_not_start(refusal: str, fix: str) -> None:
    facts = but(NO_GPU_AT_ALL, driver=Driver(cuda=(13, 0), refusal=refusal), gpus_error="refused", pci_gpus=1)
    assert the_problem(facts, "driver") == Line("driver", "problem", f"does not start: {refusal}", fix)
    assert line(facts, "GPUs").status == "unknown"


def test_a_driver_without_a_device() -> None:
    none = but(NO_GPU_AT_ALL, driver=Driver(cuda=(13, 0), refusal=detect.NO_DEVICE))
    assert problems(none) == {}
    hidden = but(none, pci_gpus=1, environment={"CUDA_VISIBLE_DEVICES": ""})
    assert line(hidden, "driver") == Line("driver", "ok", "serves CUDA 13.0, and no GPU: CUDA_VISIBLE_DEVICES=''")
    for value in ("7", "GPU-00000000"):
        wrong = the_problem(but(hidden, environment={"CUDA_VISIBLE_DEVICES": value}), "driver")
        assert wrong.value == f"CUDA_VISIBLE_DEVICES={value!r} names none of 1 GPU on the PCI bus"
        assert wrong.fix == "unset CUDA_VISIBLE_DEVICES"
    assert "sees none of 1 GPU on the PCI bus" in the_problem(but(none, pci_gpus=1), "driver").value


def test_a_driver_too_old_for_the_toolkit() -> None:
    told = the_problem(but(driver=Driver(cuda=(12, 8)), driver_release="570.86.10"), "driver, for CUDA of")
    assert told.value.startswith("torch 13.0, NVRTC 13.0: too new for the driver, 570.86.10, serves CUDA 12.8")
    assert told.value.endswith("CUDA 13 needs release 580 or newer")
    assert told.fix == "sudo ubuntu-drivers install nvidia:580 && sudo reboot"


def test_an_older_minor_version_of_the_driver_is_compatible() -> None:
    told = line(but(nvrtc=Nvrtc("13.5.37", NVRTC_TARGETS)), "driver, for CUDA of")
    assert told.status == "ok" and told.value.endswith("compiled code runs, PTX newer than CUDA 13.0 does not")


def test_gpus_that_cannot_be_listed() -> None:
    assert the_problem(but(gpus=(), gpus_error="The driver could not."), "GPUs").value == "The driver could not."


# --- compilers, cache, disk


def test_nvrtc_that_does_not_load() -> None:
    told = problems(but(nvrtc=Nvrtc(error="Compiling needs NVRTC")))["NVRTC"]
    assert told.fix == 'pip install --force-reinstall "nvidia-cuda-nvrtc<14,>=13.0.88"'
    both = problems(but(nvrtc=Nvrtc(error="Compiling needs NVRTC"), driver=Driver(bindings=False), gpus=()))["NVRTC"]
    assert both.fix == 'pip install --force-reinstall "cuda-python" "nvidia-cuda-nvrtc<14,>=13.0.88"'


def test_a_host_compiler_matters_where_triton_builds_its_launcher() -> None:
    assert the_problem(but(c_compiler=None, cxx_compiler=None), "host compilers").fix == "sudo apt-get install gcc g++"
    assert problems(but(NO_GPU_AT_ALL, c_compiler=None, cxx_compiler=None)) == {}


def test_cache_and_disk() -> None:
    told = the_problem(but(cache=Cache("/ro", "Read-only file system", GIB * 9)), "cache")
    assert told.value == "/ro takes no file: Read-only file system" and "BLACKWELL_MATMUL_CACHE=" in told.fix
    assert the_problem(but(cache=Cache("/c", "", GIB // 2)), "disk").value == "0.5 GiB free for the cache"
    assert "switched off" in line(but(cache=Cache()), "cache").value


def test_git_is_not_needed() -> None:
    assert line(but(git=None), "git") == Line("git", "ok", "none; nothing here needs it")


# --- several GPUs


def test_mixed_gpus_are_numbered_in_two_ways() -> None:
    mixed = with_gpus(H100, a_gpu(12, 0, index=1))
    told = the_problem(mixed, "mixed GPUs")
    assert told.value.startswith("sm_90a: 0; sm_120a: 1") and told.fix == "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    assert problems(but(mixed, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})) == {}
    assert [each.name for each in diagnose(mixed) if each.name.startswith("GPU 1")] == [
        *("GPU 1", "GPU 1 has", "GPU 1 runs", "GPU 1, NVRTC", "GPU 1, torch")
    ]


def test_gpus_of_one_kind_are_not_mixed() -> None:
    assert "mixed GPUs" not in {each.name for each in diagnose(with_gpus(H100, a_gpu(9, 0, index=1)))}


# --- what is asked of the machine


class FakeDriver(types.ModuleType):
    """cuda.bindings.driver with GPUs of our own, or one that refuses."""

    def __init__(self, found: tuple[DetectedGpu, ...] = (), version: int = 13000, refusal: str = "") -> None:
        super().__init__("cuda.bindings.driver")
        self.found, self.version, self.refusal = found, version, refusal
        self.unknown_attributes: tuple[str, ...] = ()
        self.CUdevice_attribute = types.SimpleNamespace(
            **{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in self.attributes(H100)}
        )

    @staticmethod
    def attributes(gpu: DetectedGpu) -> dict[str, int]:
        return {
            "COMPUTE_CAPABILITY_MAJOR": gpu.compute_capability[0],
            "COMPUTE_CAPABILITY_MINOR": gpu.compute_capability[1],
            "MULTIPROCESSOR_COUNT": gpu.sm_count,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": gpu.shared_memory_per_block_bytes,
            "CLOCK_RATE": int(gpu.sm_clock_mhz * 1000),
            "MEMORY_CLOCK_RATE": int(gpu.memory_clock_mhz * 1000),
            "TENSOR_MAP_ACCESS_SUPPORTED": int(gpu.tensor_maps),
            "CLUSTER_LAUNCH": int(gpu.clusters),
        }

    def code(self, failed: bool = False) -> Any:
        return _Code(100 if failed else 0, self.refusal)

    def CUresult(self, code: int) -> int:
        return code

    def cuDriverGetVersion(self) -> tuple[Any, int]:
        return self.code(), self.version

    def cuInit(self, flags: int) -> tuple[Any]:
        return (self.code(bool(self.refusal)),)

    def cuGetErrorName(self, code: int) -> tuple[int, bytes]:
        return 0, self.refusal.encode()

    cuGetErrorString = cuGetErrorName

    def cuDeviceGetCount(self) -> tuple[Any, int]:
        return self.code(), len(self.found)

    def cuDeviceGet(self, index: int) -> tuple[Any, int]:
        return self.code(), index

    def cuDeviceGetName(self, length: int, handle: int) -> tuple[Any, bytes]:
        return self.code(), self.found[handle].name.encode().ljust(length, b"\0")

    def cuDeviceGetAttribute(self, attribute: str, handle: int) -> tuple[Any, int]:
        return self.code(attribute in self.unknown_attributes), self.attributes(self.found[handle])[attribute]

    def cuDeviceTotalMem(self, handle: int) -> tuple[Any, int]:
        return self.code(), self.found[handle].memory_bytes


class _Code(int):
    name: str

    def __new__(cls, value: int, name: str) -> _Code:
        made = super().__new__(cls, value)
        made.name = name
        return made


@pytest.fixture
def use_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    cached = (runtime_driver.bindings, runtime_driver.device_handle)

    def use(fake: types.ModuleType | None) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
        for function in cached:
            function.cache_clear()

    yield use
    monkeypatch.undo()
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize(("chosen", "count"), [("7", 0), ("", 0), ("GPU-5a3f", 1), ("MIG-41f6", 1), ("0,1", 2)])
def test_detect_takes_the_gpus_that_the_driver_lets_through(
    use_driver: Any, monkeypatch: pytest.MonkeyPatch, chosen: str, count: int
) -> None:
    """The driver reads CUDA_VISIBLE_DEVICES and numbers what is left from 0; with nothing left it says NO_DEVICE."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    slice_of = dataclasses.replace(H100, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", sm_count=16, memory_bytes=10 * GIB)
    there = tuple(dataclasses.replace(slice_of, index=index) for index in range(count))
    use_driver(FakeDriver(there, refusal="" if count else detect.NO_DEVICE))
    assert gpus.detect() == there
    found = facts_room.gather()
    assert found.gpus == there and found.environment["CUDA_VISIBLE_DEVICES"] == chosen
    assert line(found, "GPUs").value == (f"{count}, of CUDA_VISIBLE_DEVICES={chosen!r}" if count else NO_GPU)


def test_bindings_that_do_not_import(use_driver: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_driver(FakeDriver())
    monkeypatch.delitem(sys.modules, "cuda.bindings.driver")
    monkeypatch.setattr(detect.importlib, "import_module", lambda name: 1 / 0)
    broken = Driver(bindings=False, error="ZeroDivisionError: division by zero")
    assert find_driver() == broken and gpus.detect() == ()
    told = the_problem(but(NO_GPU_AT_ALL, driver=broken), "driver")
    assert told.value == "cuda.bindings does not import: ZeroDivisionError: division by zero"
    assert told.fix == "pip install --force-reinstall cuda-bindings"


def test_detect_gives_what_the_driver_reports(use_driver: Any) -> None:
    there = (H100, a_gpu(12, 1, index=1, name="NVIDIA GB10"))
    use_driver(FakeDriver(there))
    assert gpus.detect() == there
    assert find_driver() == Driver(cuda=(13, 0))


def test_detect_without_bindings_driver_or_device_is_empty(use_driver: Any) -> None:
    use_driver(None)
    assert gpus.detect() == () and find_driver() == Driver(bindings=False)
    no_library = FakeDriver()
    no_library.cuDriverGetVersion = lambda: 1 / 0  # type: ignore[assignment]
    use_driver(no_library)
    assert gpus.detect() == () and find_driver() == Driver()
    use_driver(FakeDriver(refusal=detect.NO_DEVICE))
    assert gpus.detect() == () and find_driver() == Driver(cuda=(13, 0), refusal=detect.NO_DEVICE)


def test_detect_raises_where_the_driver_refuses(use_driver: Any) -> None:
    use_driver(FakeDriver((H100,), refusal="CUDA_ERROR_SYSTEM_NOT_READY"))
    with pytest.raises(DriverError, match="CUDA_ERROR_SYSTEM_NOT_READY"):
        gpus.detect()


def test_a_driver_from_before_tma_has_none(use_driver: Any) -> None:
    old = FakeDriver((H100,), version=11040)
    old.unknown_attributes = ("TENSOR_MAP_ACCESS_SUPPORTED", "CLUSTER_LAUNCH")
    use_driver(old)
    (found,) = gpus.detect()
    assert not found.tensor_maps and not found.clusters and found.features["wgmma"]


def test_the_release_of_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 13.3.0\n"
    )
    assert facts_room.driver_release(str(file)) == "580.159.04"
    assert facts_room.driver_release(str(tmp_path / "none")) is None


def test_gpus_on_the_bus_are_display_devices_of_nvidia(tmp_path: Path) -> None:
    for name, vendor, kind in (("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x1002", "0x030000")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "d").mkdir()
    assert facts_room._pci_gpus(str(tmp_path)) == 1
    assert facts_room._pci_gpus(str(tmp_path / "none")) is None


def test_a_cache_is_tried_without_leaving_anything(tmp_path: Path) -> None:
    found = facts_room._tried(tmp_path / "not" / "yet")
    assert found.error == "" and found.free_bytes and list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert facts_room._tried(tmp_path / "file" / "below").error


def test_a_library_that_is_missing_and_one_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise RuntimeError('libtriton.so: bad ELF')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    assert facts_room._library("triton", facts_room._import_triton).error == "RuntimeError: libtriton.so: bad ELF"
    assert facts_room._library("no_such", lambda: __import__("no_such")) == Library()


def test_this_machine_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts_room.gather()
    assert found.python == sys.version.split()[0] and found.tilus.version == "0.2.0"
    assert {each.name for each in found.needs} >= {"tilus", "torch", "numpy"}
    assert found.nvrtc.targets and found.cache.folder


# --- the command line


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(facts: Facts, *argv: str) -> tuple[int, str, str]:
        monkeypatch.setattr(facts_room, "gather", lambda: facts)
        code = cli.main(["doctor", *argv])
        return (code, *capsys.readouterr())

    return run


def test_exit_codes_and_fixes_on_the_screen(doctor: Any) -> None:
    code, out, err = doctor(NO_GPU_AT_ALL)
    assert (code, err) == (0, "") and NO_GPU in out and "To mend it" not in out
    code, out, err = doctor(but(cache=Cache("/ro", "Read-only file system")))
    assert (code, err) == (1, "") and out.endswith("To mend it:\n  cache: export BLACKWELL_MATMUL_CACHE=$(mktemp -d)\n")


def test_what_could_not_be_looked_at_is_exit_code_2(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_room, "gather", lambda: 1 / 0)
    assert cli.main(["doctor"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_json_has_the_lines_and_the_gpus(doctor: Any) -> None:
    code, out, _ = doctor(with_gpus(B200), "--json")
    record = json.loads(out)
    assert code == 0 and record["ok"] and record["mode"] == "gpu" and out.count("\n") == 1
    assert record["lines"][0] == {"name": "Python", "status": "ok", "value": "3.12.3 on Linux x86_64", "fix": ""}
    (gpu,) = record["gpus"]
    rungs = sorted(LADDERS["sm_100a"])
    assert (gpu["arch"], gpu["rungs"], gpu["features"]["tcgen05"]) == ("sm_100a", rungs, True)
    assert json.loads(doctor(NO_GPU_AT_ALL, "--json")[1])["mode"] == "simulator"


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_the_table_is_wider_than_the_terminal(
    doctor: Any, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    needs = (Need("x" * 40, "==1", None, False), *HEALTHY.needs)
    _, out, _ = doctor(with_gpus(H100, a_gpu(12, 0, 1), needs=needs))
    table, _, fixes = re.sub(r"\x1b\[[0-9;]*m", "", out).partition("\nTo mend it:\n")
    assert max(map(len, table.splitlines())) <= width and "…" not in table
    assert [each.split(":")[0].strip() for each in fixes.splitlines()] == ["requirements", "mixed GPUs"]


def test_every_line_function_is_in_the_diagnosis() -> None:
    listed = {function.__name__ for function in (*LINES, *GPU_LINES)}
    told = {name for name, value in vars(diagnosis_lines).items() if name[0] != "_" and _gives_a_line(value)}
    assert told - {"ok", "problem", "unknown"} == listed


def _gives_a_line(function: Any) -> bool:
    return str(getattr(function, "__annotations__", {}).get("return", "")) in ("Line", "Line | None")


# --- verify


def outcome(status: Any, detail: str = "") -> LayerOutcome:
    return LayerOutcome("gpu", "TmaCopy", "on GPU 0", status, detail, 0.25)


def test_passed_means_that_something_ran_and_nothing_was_wrong() -> None:
    assert verify.passed([outcome("correct"), outcome("not run")])
    assert not verify.passed([outcome("not run")])
    assert not verify.passed([outcome("correct"), outcome("wrong")])
    assert not verify.passed([outcome("correct"), outcome("failed")])


def test_an_outcome_in_words() -> None:
    assert str(outcome("failed", "why")) == "TmaCopy, on GPU 0, 0.2 s: why"
    assert doctor_view.outcomes([outcome("correct")]) == "correct  gpu  TmaCopy, on GPU 0, 0.2 s"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"layers": ["gpu", "x"]}, "layer is 'x'; the layers are simulator, emulator, gpu, triton, torch.compile."),
        ({"layers": [["gpu"]]}, "layer is ['gpu']; the layers are"),
        ({"layers": "gpu"}, "layers is 'gpu'; it must be a list of layers, of simulator,"),
        ({"layers": ()}, "layers is (); it must be a list of layers"),
        ({"timeout_s": 0}, "timeout is 0 s; it must be from 1 to 86400 s."),
        ({"timeout_s": "9"}, "timeout is '9' s; it must be from 1"),
        ({"progress": 3}, "progress is 3; it must be a function of a layer's name, or None."),
    ],
)
def test_verify_says_which_argument_is_wrong_and_starts_nothing(
    wrong: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "Worker", None)
    with pytest.raises(InputError) as refused:
        verify.verify(**wrong)
    assert str(refused.value).startswith(text)


@pytest.fixture
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[LayerOutcome, ...]]:
    """The outcomes of a layer that does these statements."""

    def found(body: str, before: str = "", timeout_s: float = 30) -> tuple[LayerOutcome, ...]:
        text = f"import json, os, signal, subprocess, sys, time\n{before}\ndef run_layer(step, layer):\n    {body}\n"
        (tmp_path / "layers.py").write_text(text)
        return verify.verify(("triton",), timeout_s=timeout_s)

    monkeypatch.setattr(verify, "CHECKS", "layers")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return found


ONE = "print('noise'); step(json.dumps({'what': 'copy', 'where': 'here', 'status': 'correct'}));"


@pytest.mark.process
def test_a_layer_that_crashes_keeps_what_it_had_done(layer: Any) -> None:
    first, second = layer(f"{ONE} os.kill(os.getpid(), signal.SIGSEGV)")
    assert (first.what, first.status) == ("copy", "correct")
    assert (second.status, second.detail) == ("failed", "its process was ended by signal 11 (SIGSEGV)")


@pytest.mark.process
def test_a_layer_that_raises_says_what(layer: Any) -> None:
    (found,) = layer("pass", before="raise ImportError('libtriton.so is broken')")
    assert (found.status, found.detail) == ("failed", "ImportError: libtriton.so is broken")


@pytest.mark.process
def test_a_layer_that_hangs_ends_with_its_children(layer: Any, tmp_path: Path) -> None:
    grandchild = "made = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    written = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(made.pid));"
    found = layer(f"{grandchild} {written} {ONE} time.sleep(60)", timeout_s=3)
    assert [each.status for each in found] == ["correct", "failed"]
    assert found[1].detail == "its time is up: no end after 3 s"
    deadline, pid = time.monotonic() + 20, int((tmp_path / "pid").read_text())
    while (there := is_there(pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not there


def is_there(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Outcomes that checks in this process tell."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(checks, "_report", lambda text: found.append(json.loads(text)))
    return found


def test_triton_that_is_not_installed_is_not_run(monkeypatch: pytest.MonkeyPatch, told: list[dict[str, Any]]) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "triton" else real(name, *rest)
    )
    checks.triton()
    (found,) = told
    assert (found["status"], found["detail"]) == ("not run", "Triton is not installed")


@pytest.mark.slow
def test_the_simulator_layer_for_real(told: list[dict[str, Any]]) -> None:
    """In this process, which has torch and tilus."""
    checks.simulator()
    found = [LayerOutcome("simulator", **each) for each in told]
    assert verify.passed(found) and {each.status for each in found} == {"correct"}
    names = [each.what.partition(" ")[0] for each in found]
    assert names == ["TmaCopy", "VectorAdd", "GemmTile"] * 2 + list(KERNELS)
    assert {each.where for each in found} == {
        f"in the simulator for {target}" for target in ("sm_90a", "sm_100a", "sm_120a")
    }


@pytest.mark.parametrize(
    ("gpu", "others"),
    [
        (H100, {"block_scale", "tcgen05"}),
        (B200, {"block_scale", "wgmma"}),
        (a_gpu(12, 0), {"tcgen05", "wgmma"}),
        (a_gpu(8, 0), {"block_scale", "tcgen05", "tma", "wgmma"}),
    ],
)
def test_rungs_for_other_gpus_take_one_short_line(
    monkeypatch: pytest.MonkeyPatch, told: list[dict[str, Any]], gpu: DetectedGpu, others: set[str]
) -> None:
    tried: list[tuple[str, bool]] = []
    monkeypatch.setattr(checks, "_primitives", lambda device: ())
    monkeypatch.setattr(checks, "_product", lambda what, kernel, device: (what, kernel, (), bool))
    monkeypatch.setattr(checks, "check", lambda what, where, run, may_refuse: tried.append((what, may_refuse)))
    checks._on_gpu(gpu)
    found = [LayerOutcome("gpu", **each) for each in told]
    needs = {name: spec_of(rung(name).mma, rung(name).features).gpu_feature for name in KERNELS}
    assert {each.detail: each.what for each in found} == {
        f"this GPU has no {need}": ", ".join(name for name in KERNELS if needs[name] == need) for need in others
    }
    assert {(each.status, each.where) for each in found} == {("not run", f"on GPU 0, {gpu.name} ({gpu.arch})")}
    here = [name for name in KERNELS if needs[name] not in others]
    assert tried == [(name, name not in LADDERS.get(gpu.arch, ())) for name in here]


# --- provoked on purpose, in processes of their own


def shadowed(folder: Path, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line where what lies in a folder comes before what is installed."""
    path = os.pathsep.join([str(folder), str(Path(cli.__file__).parents[2])])
    command = [sys.executable, "-m", "blackwell_matmul", *argv]
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def module(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(text, encoding="utf-8")


def mended(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    assert done.returncode == 1
    return {each["name"]: each["fix"] for each in json.loads(done.stdout)["lines"] if each["fix"]}


@pytest.mark.process
def test_without_torch_what_needs_none_works_and_the_rest_says_who_mends_it(tmp_path: Path) -> None:
    module(tmp_path, "torch", "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    fixes = mended(shadowed(tmp_path, "doctor", "--json"))
    assert fixes["torch"] == fixes["tilus"] == "pip install torch"
    assert shadowed(tmp_path, "--version").stdout.startswith("blackwell-matmul ")
    assert "--schedule" in shadowed(tmp_path, "run", "--help").stdout
    for argv in (("run", "v1"), ("check", "v1"), ("bench",)):
        done = shadowed(tmp_path, *argv)
        assert done.returncode == 2 and done.stderr == (
            "error: a package that this command needs does not import, ModuleNotFoundError: No module named 'torch'; "
            "`blackwell-matmul doctor` says what mends it.\n"
        )
    tried = shadowed(tmp_path, "verify", "simulator")
    assert (
        tried.returncode == 1
        and "No module named 'torch'\n\nTo find what mends it: blackwell-matmul doctor" in tried.stdout
    )


@pytest.mark.process
def test_a_broken_triton_a_wrong_tilus_and_a_cache_that_is_a_file(tmp_path: Path) -> None:
    module(tmp_path, "triton", "raise ImportError('libtriton.so: undefined symbol')")
    older = tmp_path / "tilus-0.1.1.dist-info"
    older.mkdir()
    (older / "METADATA").write_text("Metadata-Version: 2.1\nName: tilus\nVersion: 0.1.1\n", encoding="utf-8")
    (tmp_path / "file").touch()
    fixes = mended(shadowed(tmp_path, "doctor", "--json", BLACKWELL_MATMUL_CACHE=str(tmp_path / "file")))
    assert fixes["Triton"].startswith("pip install --force-reinstall triton")
    assert fixes["tilus"] == "pip install --force-reinstall --no-deps tilus==0.2.0"
    assert fixes["cache"].startswith("export BLACKWELL_MATMUL_CACHE=")


@pytest.mark.process
def test_what_pip_left_of_torch_and_tilus_does_not_count(tmp_path: Path) -> None:
    module(tmp_path, "torch", "")
    module(tmp_path, "tilus", "")
    fixes = mended(shadowed(tmp_path, "doctor", "--json", BLACKWELL_MATMUL_CACHE="~nobody-of-this-name/x"))
    assert fixes["torch"].startswith("pip install --force-reinstall torch==") and fixes["tilus"]
    assert fixes["cache"].startswith("export BLACKWELL_MATMUL_CACHE=")


def test_verify_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "verify", lambda *_: (outcome("correct"), outcome("wrong", "differs")))
    code = cli.main(["verify", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == 1 and record["ok"] is False
    assert record["fix"] == "" and doctor_view.outcomes_record([outcome("failed")])["fix"] == "blackwell-matmul doctor"
    assert record["outcomes"][1]["detail"] == "differs" and os.environ.get("TRITON_INTERPRET") is None
