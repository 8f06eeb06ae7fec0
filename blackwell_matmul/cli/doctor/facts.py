"""Facts about this machine, for the diagnosis. `gather` queries them once and raises nothing.

A fact that could not be determined is None, or has the error.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackwell_matmul.base.validation import said, spelled
from blackwell_matmul.hardware.detect import DetectedGpu, Driver, find_driver

DISTRIBUTION = "blackwell-matmul"
NO_DRIVER = Driver()
ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TRITON_INTERPRET")


@dataclass(frozen=True)
class Need:
    """A package that this package requires on this platform. installed: its version; None if missing."""

    name: str
    specifier: str
    installed: str | None
    fits: bool


@dataclass(frozen=True)
class Library:
    """An imported library. version: version of the installed package. error: error of the import."""

    version: str | None = None
    error: str = ""

    @property
    def usable(self) -> bool:
        return self.version is not None and not self.error


@dataclass(frozen=True)
class Descriptors:
    """Support of TMA descriptors that the host or the kernel makes: True if usable, None if unknown."""

    host: bool | None = None
    device: bool | None = None


@dataclass(frozen=True)
class Torch(Library):
    """Facts about torch. cuda: CUDA version of the build; None for a CPU build. targets: GPU targets of the build, such
    as "sm_90"."""

    cuda: str | None = None
    targets: tuple[str, ...] = ()
    gpu_count: int = 0
    warnings: tuple[str, ...] = ()
    tma: Descriptors = Descriptors()


@dataclass(frozen=True)
class Nvrtc:
    """NVRTC, the CUDA compiler library. error: reason why it is missing."""

    version: str = ""
    targets: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Cache:
    """The cache of compiled kernels. folder: None if the cache is off. error: reason why the folder is not writable."""

    folder: str | None = None
    error: str = ""
    free_bytes: int | None = None


@dataclass(frozen=True)
class Facts:
    """Facts about one machine. pci_gpus: number of NVIDIA display devices on the PCI bus; None if unknown."""

    package: str | None = None
    python: str = ""
    platform: str = ""
    needs: tuple[Need, ...] = ()
    needs_error: str = ""
    tilus: Library = Library()
    torch: Torch = Torch()
    triton: Library = Library()
    triton_tma: Descriptors = Descriptors()
    driver: Driver = NO_DRIVER
    driver_release: str | None = None
    gpus: tuple[DetectedGpu, ...] = ()
    gpus_error: str = ""
    pci_gpus: int | None = None
    nvrtc: Nvrtc = Nvrtc()
    git: str | None = None
    c_compiler: str | None = None
    cxx_compiler: str | None = None
    cache: Cache = Cache()
    environment: Mapping[str, str] = field(default_factory=dict)


def gather() -> Facts:
    """Return the facts about this machine."""
    driver, (gpus, gpus_error) = find_driver(), _gpus()
    needs, needs_error = _needs()
    tilus, triton = _library("tilus", _import_tilus), _library("triton", _import_triton)
    return Facts(
        package=_version(DISTRIBUTION),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        needs=needs,
        needs_error=needs_error,
        tilus=tilus,
        torch=_torch(),
        triton=triton,
        triton_tma=_triton_tma() if triton.usable else Descriptors(),
        driver=driver,
        driver_release=driver_release(),
        gpus=gpus,
        gpus_error=gpus_error,
        pci_gpus=_pci_gpus(),
        nvrtc=_nvrtc(),
        git=shutil.which("git"),
        c_compiler=_compiler("CC", "cc", "gcc", "clang"),
        cxx_compiler=_compiler("CXX", "c++", "g++", "clang++"),
        cache=_cache(),
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )


# --- packages


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except Exception:  # the package is not installed, or damaged
        return None


def _needs() -> tuple[tuple[Need, ...], str]:
    """Return this package's requirements, without extras, and the error if they are unknown."""
    try:
        from packaging.requirements import Requirement

        texts = importlib.metadata.requires(DISTRIBUTION) or []
        wanted = [
            need for need in map(Requirement, texts) if need.marker is None or need.marker.evaluate({"extra": ""})
        ]
        return tuple(_need(each.name, each.specifier) for each in wanted), ""
    except Exception as error:
        return (), spelled(error)


def _need(name: str, specifier: Any) -> Need:
    installed = _version(name)
    fits = installed is not None and bool(specifier.contains(installed, prereleases=True))
    return Need(name, str(specifier), installed, fits)


def _library(name: str, load: Callable[[], object]) -> Library:
    try:
        load()
    except ModuleNotFoundError as error:
        missing = error.name == name
        return Library(None if missing else _version(name), "" if missing else spelled(error))
    except Exception as error:  # an import of other packages may raise anything
        return Library(_version(name), spelled(error))
    return Library(_version(name) or str(getattr(sys.modules.get(name), "__version__", "of unknown version")))


def _import_tilus() -> None:
    from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

    import_tilus().Script  # noqa: B018  # an empty folder that pip left behind can be imported, too


def _import_triton() -> None:
    importlib.import_module("triton")
    importlib.import_module("triton.language")


def _triton_tma() -> Descriptors:
    return Descriptors(
        host=_has("triton.tools.tensor_descriptor", "TensorDescriptor"),
        device=_has("triton.language", "make_tensor_descriptor"),
    )


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except Exception:
        return False


# --- torch


def _import_torch() -> None:
    torch = importlib.import_module("torch")
    torch.Tensor, torch.version.cuda, torch.cuda.get_arch_list  # noqa: B018  # an empty folder lacks these names


def _torch() -> Torch:
    found = _library("torch", _import_torch)
    if not found.usable:
        return Torch(found.version, found.error)
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count, error = _started(torch)
    said_by_torch = [" ".join(str(each.message).split()) for each in caught]
    return Torch(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        targets=tuple(torch.cuda.get_arch_list()),
        gpu_count=count,
        warnings=tuple(dict.fromkeys(filter(None, (*said_by_torch, error)))),
        tma=_torch_tma(),
    )


def _started(torch: Any) -> tuple[int, str]:
    """Start CUDA in torch, which may warn; return the number of GPUs that torch sees, and the error."""
    try:
        if not torch.cuda.is_available():
            return 0, ""
        torch.cuda.init()
        return int(torch.cuda.device_count()), ""
    except Exception as error:
        return 0, spelled(error)


def _torch_tma() -> Descriptors:
    """Return the support of TMA descriptors by the tests that inductor uses."""
    try:
        asked = importlib.import_module("torch.utils._triton")
        return Descriptors(bool(asked.has_triton_tensor_descriptor_host_tma()), bool(asked.has_triton_tma_device()))
    except Exception:  # a later torch may lack these names, and Triton may not import
        return Descriptors()


# --- driver and GPUs


def _gpus() -> tuple[tuple[DetectedGpu, ...], str]:
    from blackwell_matmul.hardware.detect import detect

    try:
        return detect(), ""
    except Exception as error:
        return (), said(error)


def driver_release(file: str = "/proc/driver/nvidia/version") -> str | None:
    """Return the release of the driver, such as 580.159.04; None without this file, which only Linux has."""
    try:
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def _pci_gpus(folder: str = "/sys/bus/pci/devices") -> int | None:
    """Return the number of NVIDIA's (0x10de) display controllers (class 0x03); None without this folder."""
    try:
        return sum(_is_nvidia_display(device) for device in Path(folder).iterdir())
    except OSError:
        return None


def _is_nvidia_display(device: Path) -> bool:
    try:
        vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
    except OSError:
        return False
    return vendor == "0x10de" and kind.startswith("0x03")


# --- tools


def _nvrtc() -> Nvrtc:
    from blackwell_matmul.compiler import nvrtc

    try:
        return Nvrtc(nvrtc.version(), nvrtc.supported_targets())
    except Exception as error:
        return Nvrtc(error=said(error))


def _compiler(variable: str, *names: str) -> str | None:
    """Return the path of the compiler: that of the environment variable, else the first of `names` that exists."""
    wanted = os.environ.get(variable, "").split()[:1] or list(names)
    return next(filter(None, map(shutil.which, wanted)), None)


def _cache() -> Cache:
    from blackwell_matmul.compiler import cache

    try:
        if cache.is_off():
            return Cache()
        folder = cache.folder()
        return Cache("", cache.NO_HOME) if folder is None else _tried(folder)
    except Exception as error:
        return Cache("", said(error))


def _tried(folder: Path) -> Cache:
    """Return the cache folder with its free bytes, or with the reason why it is not writable.

    The test writes and removes a file in the folder, or in its nearest existing parent.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        free_bytes = shutil.disk_usage(place).free
        with tempfile.TemporaryFile(dir=place):
            return Cache(str(folder), "", free_bytes)
    except OSError as error:
        return Cache(str(folder), error.strerror or spelled(error))
