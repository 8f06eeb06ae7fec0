"""Lines of the diagnosis. Each line has a function, which reads nothing but the facts.

ok: no fault; a missing GPU is no fault. problem: a fault, with the command that fixes it. unknown: a fact that could
not be determined.

Sources: CUDA Toolkit release notes, "CUDA Driver" (driver release for each major version). CUDA Compatibility (minor
versions of one major are interchangeable for compiled code, not for PTX). CUDA Programming Guide, "Binary
Compatibility" (code for x.y runs on x.z, z >= y; "a" targets only on their own architecture).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from blackwell_matmul.base.validation import counted
from blackwell_matmul.cli.doctor.facts import Descriptors, Facts, Need
from blackwell_matmul.hardware.detect import NO_DEVICE, DetectedGpu
from blackwell_matmul.kernels import LADDERS

Status = Literal["ok", "problem", "unknown"]

GIB = 1 << 30
LEAST_FREE_BYTES = GIB
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""First driver release for each major version of CUDA."""

NONE_VISIBLE = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs."""

_TEGRA = {(8, 7)}
"""Compute capabilities of Tegra, which run no code of desktop GPUs (CUDA Programming Guide)."""

FEATURE_NAMES = {"tma": "TMA", "tcgen05": "tensor memory", "clusters": "clusters", "clc": "CLC", "wgmma": "wgmma"}
"""Printed names of GPU features, in the order of printing."""

NO_GPU = "none; kernels run in the simulator"
_AGAIN = "pip install --force-reinstall"
_LOOK = "nvidia-smi || sudo reboot"
_INSTALL_DRIVER = "sudo ubuntu-drivers install && sudo reboot"
_OTHER_CACHE = "export BLACKWELL_MATMUL_CACHE=$(mktemp -d)"
_REFUSALS = {
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "sudo reboot",
    "CUDA_ERROR_SYSTEM_NOT_READY": "sudo systemctl start nvidia-fabricmanager",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "sudo apt-get remove 'cuda-compat-*'",
    "CUDA_ERROR_STUB_LIBRARY": "unset LD_LIBRARY_PATH",
    "CUDA_ERROR_UNKNOWN": "sudo modprobe nvidia_uvm",
}
"""Command that fixes a driver that does not start, by the name of cuInit's error code."""


@dataclass(frozen=True)
class Line:
    """A line of the diagnosis. fix: command that fixes the problem; "" without a problem."""

    name: str
    status: Status
    value: str
    fix: str = ""


def ok(name: str, value: str) -> Line:
    return Line(name, "ok", value)


def problem(name: str, value: str, fix: str) -> Line:
    return Line(name, "problem", value, fix)


def unknown(name: str, value: str) -> Line:
    return Line(name, "unknown", value)


# --- Python and its packages


def python(facts: Facts) -> Line:
    return ok("Python", f"{facts.python} on {facts.platform}")


def package(facts: Facts) -> Line:
    if facts.package is None:
        return problem("blackwell-matmul", "not installed, only found", "pip install -e .")
    return ok("blackwell-matmul", facts.package)


def requirements(facts: Facts) -> Line:
    name, wrong = "requirements", [need for need in facts.needs if not need.fits]
    if not facts.needs:
        return unknown(name, facts.needs_error or "the installed package declares none")
    if wrong:
        wanted = " ".join(f'"{need.name}{need.specifier}"' for need in wrong)
        return problem(name, "; ".join(map(_misfit, wrong)), f"pip install {wanted}")
    return ok(name, f"all {len(facts.needs)} fit: {', '.join(f'{need.name} {need.installed}' for need in facts.needs)}")


def _misfit(need: Need) -> str:
    return f"{need.name} {need.installed or 'is missing'}, where {need.specifier or 'any version'} is needed"


def tilus(facts: Facts) -> Line:
    found, pin = facts.tilus, next((need for need in facts.needs if need.name == "tilus"), None)
    install = f"{_AGAIN} --no-deps tilus{pin.specifier if pin else ''}"
    if found.version is None:
        return problem("tilus", "not installed", install.replace(" --force-reinstall --no-deps", ""))
    if found.error and not facts.torch.usable:
        return problem("tilus", f"{found.version} does not import without torch: {found.error}", _torch_install(facts))
    if found.error:
        return problem("tilus", f"{found.version} does not import: {found.error}", install)
    if pin is not None and not pin.fits:
        return problem("tilus", f"{found.version}; this package drives the internals of {pin.specifier[2:]}", install)
    return ok("tilus", found.version)


def torch(facts: Facts) -> Line:
    found = facts.torch
    if found.version is None:
        return problem("torch", "not installed", "pip install torch")
    if found.error:
        return problem("torch", f"{found.version} does not import: {found.error}", _torch_install(facts))
    return ok("torch", f"{found.version}, {f'for CUDA {found.cuda}' if found.cuda else 'a CPU build'}")


def _torch_install(facts: Facts) -> str:
    """Return the pip command for this version of torch as a CUDA build: on Linux, the version without a "+" part."""
    if facts.torch.version is None:
        return "pip install torch"
    return f"{_AGAIN} torch=={facts.torch.version.partition('+')[0]}"


def torch_gpus(facts: Facts) -> Line:
    name, there, seen = "torch and GPUs", len(facts.gpus), facts.torch.gpu_count
    if not facts.torch.usable:
        return unknown(name, "torch does not import")
    if not there:
        return ok(name, "no GPU for it to see")
    if facts.torch.cuda is None:
        return problem(name, f"a CPU build sees none of {counted(there, 'GPU')}", _torch_install(facts))
    if seen < there:
        first = next(iter(facts.torch.warnings), "it does not say why").partition(". ")[0].rstrip(".")
        return problem(name, f"torch sees {seen} of {counted(there, 'GPU')}: {first}", _torch_install(facts))
    return ok(name, f"it sees {counted(there, 'GPU')}")


def triton(facts: Facts) -> Line:
    found = facts.triton
    if found.error:
        again = f"{_AGAIN} triton{f'=={found.version}' if found.version else ''}"
        return problem("Triton", f"{found.version or 'it'} does not import: {found.error}", again)
    if found.version is None and facts.gpus:
        return problem("Triton", "not installed, and torch.compile needs it on a GPU", "pip install triton")
    return ok("Triton", found.version or "not installed; nothing here needs it without a GPU")


# --- TMA in torch and Triton


def torch_tma(facts: Facts) -> Line:
    name, told = "TMA, says torch", facts.torch.tma
    if told.host is None:
        return unknown(name, "torch.utils._triton does not say" if facts.torch.usable else "torch does not import")
    if facts.torch.gpu_count == 0:
        return ok(name, f"{_descriptors(told)}; it sees no GPU")
    if _any_tma(facts) and facts.triton.usable and not (told.host and told.device):
        return problem(name, _descriptors(told), "pip install --upgrade triton")
    return ok(name, _descriptors(told) + ("" if _any_tma(facts) else "; there is no GPU with TMA"))


def triton_tma(facts: Facts) -> Line:
    name, told = "TMA, says Triton", facts.triton_tma
    if told.host is None:
        return unknown(name, "Triton does not import" if facts.triton.error else "Triton is not installed")
    if _any_tma(facts) and not (told.host and told.device):
        return problem(name, f"{facts.triton.version}: {_descriptors(told)}", "pip install --upgrade triton")
    return ok(name, _descriptors(told))


def _descriptors(told: Descriptors) -> str:
    return f"host descriptors {_yes(told.host)}, device descriptors {_yes(told.device)}"


def _any_tma(facts: Facts) -> bool:
    return any(gpu.tensor_maps for gpu in facts.gpus)


# --- driver and compilers


def driver(facts: Facts) -> Line:
    found = facts.driver
    if found.error:
        return problem("driver", f"cuda.bindings does not import: {found.error}", f"{_AGAIN} cuda-bindings")
    if not found.bindings:
        return unknown("driver", "cuda.bindings, which would ask it, is not installed")
    if found.cuda is None:
        return _no_driver(facts)
    if found.refusal == NO_DEVICE:
        return _no_device(facts)
    if found.refusal:
        return problem("driver", f"does not start: {found.refusal}", _REFUSALS.get(found.refusal, _LOOK))
    return ok("driver", _driver(facts))


def _no_driver(facts: Facts) -> Line:
    if facts.pci_gpus:
        return problem(
            "driver", f"libcuda is not found, with {counted(facts.pci_gpus, 'GPU')} on the PCI bus", _INSTALL_DRIVER
        )
    return ok("driver", "none" if facts.pci_gpus is None else "none, and no GPU on the PCI bus")


def _no_device(facts: Facts) -> Line:
    hidden = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and (hidden.strip() in NONE_VISIBLE or not facts.pci_gpus):
        return ok("driver", f"{_driver(facts)}, and no GPU: CUDA_VISIBLE_DEVICES={hidden!r}")
    if hidden is not None and facts.pci_gpus:
        text = f"CUDA_VISIBLE_DEVICES={hidden!r} names none of {counted(facts.pci_gpus, 'GPU')} on the PCI bus"
        return problem("driver", text, "unset CUDA_VISIBLE_DEVICES")
    if facts.pci_gpus:
        text = f"{_driver(facts)}, and sees none of {counted(facts.pci_gpus, 'GPU')} on the PCI bus"
        return problem("driver", text, "sudo modprobe nvidia && nvidia-smi")
    return ok("driver", f"{_driver(facts)}, and no GPU")


def _driver(facts: Facts) -> str:
    serves = f"serves CUDA {_dotted(facts.driver.cuda)}"
    return f"{facts.driver_release}, {serves}" if facts.driver_release else serves


def driver_and_toolkits(facts: Facts) -> Line | None:
    """Return the line that compares the driver's CUDA version with those of torch and NVRTC; None without a driver."""
    if facts.driver.cuda is None:
        return None
    name = "driver, for CUDA of"
    toolkits = {"torch": _pair(facts.torch.cuda), "NVRTC": _pair(facts.nvrtc.version)}
    known = {whose: version for whose, version in toolkits.items() if version is not None}
    text = ", ".join(f"{whose} {_dotted(version)}" for whose, version in known.items())
    if not known:
        return unknown(name, "neither torch nor NVRTC names a version")
    newest = max(known.values())
    if newest[0] > facts.driver.cuda[0]:
        least = OLDEST_DRIVER.get(newest[0])
        needed = f"; CUDA {newest[0]} needs release {least} or newer" if least else ""
        return problem(name, f"{text}: too new for the driver, {_driver(facts)}{needed}", _newer_driver(newest[0]))
    if newest > facts.driver.cuda:
        return ok(name, f"{text}: compiled code runs, PTX newer than CUDA {_dotted(facts.driver.cuda)} does not")
    return ok(name, text)


def _newer_driver(major: int) -> str:
    release = OLDEST_DRIVER.get(major)
    return f"sudo ubuntu-drivers install nvidia:{release} && sudo reboot" if release else _INSTALL_DRIVER


def nvrtc(facts: Facts) -> Line:
    found = facts.nvrtc
    if found.error:
        packages = ("nvidia-cuda-nvrtc",) if facts.driver.bindings else ("cuda-python", "nvidia-cuda-nvrtc")
        return problem("NVRTC", found.error, " ".join([_AGAIN, *(f'"{name}{_pin(facts, name)}"' for name in packages)]))
    if not found.targets:
        return unknown("NVRTC", found.version or "it does not say what it compiles for")
    return ok("NVRTC", f"{found.version}, compiles for {found.targets[0]} to {found.targets[-1]}")


def _pin(facts: Facts, name: str) -> str:
    """Return this package's version requirement for a package; "" without one."""
    return next((need.specifier for need in facts.needs if need.name == name), "")


def git(facts: Facts) -> Line:
    return ok("git", facts.git or "none; nothing here needs it")


def compiler(facts: Facts) -> Line:
    """Return the line about host compilers: C for Triton's launcher, C++ for torch.compile on the CPU."""
    name, text = "host compilers", f"C {facts.c_compiler or 'none'}, C++ {facts.cxx_compiler or 'none'}"
    if facts.c_compiler is None and facts.gpus and facts.triton.usable:
        return problem(name, f"{text}; Triton builds its launcher with the C compiler", "sudo apt-get install gcc g++")
    if facts.cxx_compiler is None:
        return ok(name, f"{text}; torch.compile needs the C++ compiler on a CPU, and nothing else here does")
    return ok(name, text)


# --- disk


def cache(facts: Facts) -> Line:
    found = facts.cache
    if found.folder is None:
        return ok("cache", "switched off (BLACKWELL_MATMUL_CACHE=off)")
    if found.error:
        text = f"{found.folder} takes no file: {found.error}" if found.folder else found.error
        return problem("cache", text, _OTHER_CACHE)
    return ok("cache", found.folder)


def disk(facts: Facts) -> Line | None:
    free_bytes = facts.cache.free_bytes
    if facts.cache.folder is None:
        return None
    if free_bytes is None:
        return unknown("disk", "not known without a cache folder that can be written")
    text = f"{free_bytes / GIB:.1f} GiB free for the cache"
    return ok("disk", text) if free_bytes >= LEAST_FREE_BYTES else problem("disk", text, _OTHER_CACHE)


# --- GPUs


def gpu_count(facts: Facts) -> Line:
    """Return the line with the number of GPUs. No GPU is no fault."""
    if facts.gpus_error and facts.driver.ready:
        return problem("GPUs", facts.gpus_error, _LOOK)
    if facts.gpus_error or not facts.driver.bindings:
        return unknown("GPUs", "the driver cannot be asked; kernels run in the simulator")
    chosen = facts.environment.get("CUDA_VISIBLE_DEVICES")
    text = str(len(facts.gpus)) if chosen is None else f"{len(facts.gpus)}, of CUDA_VISIBLE_DEVICES={chosen!r}"
    return ok("GPUs", text if facts.gpus else NO_GPU)


def mixed(facts: Facts) -> Line | None:
    """Return the line about GPUs of different targets, which CUDA and nvidia-smi number differently; None for GPUs of
    one target."""
    kinds: dict[str, list[str]] = {}
    for gpu in facts.gpus:
        kinds.setdefault(gpu.arch, []).append(str(gpu.index))
    if len(kinds) < 2:
        return None
    text = "; ".join(f"{arch}: {', '.join(indices)}" for arch, indices in kinds.items())
    if facts.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return ok("mixed GPUs", f"{text}; numbered as nvidia-smi does")
    return problem("mixed GPUs", f"{text}; nvidia-smi may number them otherwise", "export CUDA_DEVICE_ORDER=PCI_BUS_ID")


def gpu(facts: Facts, gpu: DetectedGpu) -> Line:
    clocks = f"{gpu.sm_clock_mhz:.0f} MHz, memory {gpu.memory_clock_mhz:.0f} MHz"
    text = f"{gpu.name}, {gpu.arch}, {gpu.sm_count} SMs, {gpu.memory_bytes / GIB:.0f} GiB, {clocks} at most"
    return ok(f"GPU {gpu.index}", text)


def gpu_features(facts: Facts, gpu: DetectedGpu) -> Line:
    text = ", ".join(f"{word} {_yes(gpu.features[feature])}" for feature, word in FEATURE_NAMES.items())
    name = f"GPU {gpu.index} has"
    return unknown(name, text) if None in gpu.features.values() else ok(name, text)


def gpu_rungs(facts: Facts, gpu: DetectedGpu) -> Line:
    """Return the line with the kernels for this GPU's target."""
    name, rungs = f"GPU {gpu.index} runs", LADDERS.get(gpu.arch, ())
    if rungs:
        return ok(name, ", ".join(sorted(rungs)))
    return ok(name, f"no rung is written for {gpu.arch} yet ({_what_rungs_need()}); all run in the simulator")


def _what_rungs_need() -> str:
    archs: dict[tuple[str, ...], list[str]] = {}
    for arch, names in LADDERS.items():
        archs.setdefault(names, []).append(arch)
    needs = (
        f"{', '.join(sorted(names))} {'need' if names[1:] else 'needs'} {' or '.join(archs[names])}" for names in archs
    )
    return "; ".join(needs)


def gpu_nvrtc(facts: Facts, gpu: DetectedGpu) -> Line:
    name = f"GPU {gpu.index}, NVRTC"
    if not facts.nvrtc.targets:
        return unknown(name, "NVRTC cannot be asked")
    if gpu.arch in facts.nvrtc.targets:
        return ok(name, f"compiles for {gpu.arch}")
    return problem(
        name, f"{facts.nvrtc.version} does not compile for {gpu.arch}", "pip install --upgrade nvidia-cuda-nvrtc"
    )


def gpu_torch(facts: Facts, gpu: DetectedGpu) -> Line:
    """Return the line about torch's code for a GPU. torch may warn of a GPU on which its code runs."""
    name = f"GPU {gpu.index}, torch"
    if not facts.torch.usable or not facts.torch.targets:
        return unknown(name, "torch names no architecture that it has code for")
    serving = _serving(facts.torch.targets, gpu)
    if serving is None:
        text = f"{facts.torch.version} has no code for {gpu.arch}, only for {', '.join(facts.torch.targets)}"
        return problem(name, text, "pip install --upgrade torch")
    newest = max(map(_capability, facts.torch.targets))
    if gpu.compute_capability > newest:
        above = f"{_dotted(gpu.compute_capability)} is above the newest it was built for, {_dotted(newest)}"
        return ok(name, f"its {serving} code runs here; it may warn, since {above}")
    return ok(name, f"its {serving} code runs here")


def _serving(targets: Sequence[str], gpu: DetectedGpu) -> str | None:
    """Return the newest target whose code this GPU can run; None if there is none."""
    return next((t for t in sorted(targets, key=_capability, reverse=True) if _serves(t, gpu.compute_capability)), None)


def _serves(target: str, here: tuple[int, int]) -> bool:
    built = _capability(target)
    if built == here or built > here or target.endswith("a"):
        return built == here
    return target.startswith("compute_") or (built[0] == here[0] and here not in _TEGRA)


def _capability(target: str) -> tuple[int, int]:
    """Return the compute capability of a target: (9, 0) for sm_90, sm_90a or compute_90."""
    found = re.search(r"_(\d+)(\d)[af]?$", target)
    return (int(found[1]), int(found[2])) if found else (0, 0)


# --- all lines


LINES: tuple[Callable[[Facts], Line | None], ...] = (
    *(python, package, requirements, tilus, torch, triton, nvrtc, git, compiler, cache, disk),
    *(driver, driver_and_toolkits, gpu_count, torch_gpus, torch_tma, triton_tma, mixed),
)
GPU_LINES: tuple[Callable[[Facts, DetectedGpu], Line], ...] = (gpu, gpu_features, gpu_rungs, gpu_nvrtc, gpu_torch)


def diagnose(facts: Facts) -> tuple[Line, ...]:
    """Return all lines, in the order of printing."""
    lines = [line(facts) for line in LINES]
    lines += [line(facts, each) for each in facts.gpus for line in GPU_LINES]
    return tuple(filter(None, lines))


# --- words


def _yes(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _pair(version: str | None) -> tuple[int, int] | None:
    """Return the major and minor version: (13, 0) for "13.0" or "13.0.88"."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _dotted(version: tuple[int, int] | None) -> str:
    return ".".join(map(str, version or ()))
