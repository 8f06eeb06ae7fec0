"""Facts for the diagnosis, queried once, without judgement or exceptions.

A missing fact is None or has its error.
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
    """A requirement of this package on this platform. installed: version, None if missing."""

    name: str
    specifier: str
    installed: str | None
    fits: bool


@dataclass(frozen=True)
class Library:
    """An imported library. version: of the installed package; error: of the import."""

    version: str | None = None
    error: str = ""

    @property
    def usable(self) -> bool:
        return self.version is not None and not self.error


@dataclass(frozen=True)
class Descriptors:
    """TMA descriptors made by host and device: True if usable, None if unknown."""

    host: bool | None = None
    device: bool | None = None


@dataclass(frozen=True)
class Torch(Library):
    """Facts of torch. cuda: CUDA version of the build, None for a CPU build. targets: GPU targets of the build, such
    as "sm_90"."""

    cuda: str | None = None
    targets: tuple[str, ...] = ()
    gpu_count: int = 0
    warnings: tuple[str, ...] = ()
    tma: Descriptors = Descriptors()


@dataclass(frozen=True)
class Nvrtc:
    """The CUDA compiler as a library, or the reason why it is missing."""

    version: str = ""
    targets: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Cache:
    """The cache of compiled kernels. folder: None if switched off. error: reason why it is not writable."""

    folder: str | None = None
    error: str = ""
    free_bytes: int | None = None


@dataclass(frozen=True)
class Facts:
    """Facts of one machine. pci_gpus: NVIDIA display devices on the PCI bus, with or without a driver."""

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
    """Query this machine."""
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
    except Exception:  # not installed, or damaged
        return None


def _needs() -> tuple[tuple[Need, ...], str]:
    """Return this package's declared requirements, without extras."""
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
    except Exception as error:  # foreign code
        return Library(_version(name), spelled(error))
    return Library(_version(name) or str(getattr(sys.modules.get(name), "__version__", "of unknown version")))


def _import_tilus() -> None:
    from blackwell_matmul.frontend.faults.tilus_compat import import_tilus

    import_tilus().Script  # noqa: B018  # a folder that pip left behind imports as well


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
    torch.Tensor, torch.version.cuda, torch.cuda.get_arch_list  # noqa: B018  # as of tilus, the folder alone


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
    """Start CUDA in torch, which may warn; return the number of its GPUs, or the error."""
    try:
        if not torch.cuda.is_available():
            return 0, ""
        torch.cuda.init()
        return int(torch.cuda.device_count()), ""
    except Exception as error:
        return 0, spelled(error)


def _torch_tma() -> Descriptors:
    """Return inductor's conditions for a TMA template."""
    try:
        asked = importlib.import_module("torch.utils._triton")
        return Descriptors(bool(asked.has_triton_tensor_descriptor_host_tma()), bool(asked.has_triton_tma_device()))
    except Exception:  # names that a later torch may not have, or a Triton that does not import
        return Descriptors()


# --- driver and GPUs


def _gpus() -> tuple[tuple[DetectedGpu, ...], str]:
    from blackwell_matmul.hardware.detect import detect

    try:
        return detect(), ""
    except Exception as error:
        return (), said(error)


def driver_release(file: str = "/proc/driver/nvidia/version") -> str | None:
    """Return the kernel module's release, such as 580.159.04; only Linux has this file."""
    try:
        found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", Path(file).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1] if found else None


def _pci_gpus(folder: str = "/sys/bus/pci/devices") -> int | None:
    """Count NVIDIA's (0x10de) display controllers (class 0x03); None without the list."""
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
    """Return the first compiler found: the environment variable's, else the first of `names`."""
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
    """Return the cache folder's free bytes, or the system's reason if it is not writable.

    Writes and removes a file there, or in the nearest existing parent.
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
