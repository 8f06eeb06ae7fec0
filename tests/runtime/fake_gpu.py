"""The recording driver as Python sees it, tensors that claim to be on a GPU, and small launch plans."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from blackwell_matmul.compiler.bundle import Bundle
from blackwell_matmul.compiler.plan import Argument, Check, LaunchPlan, Parameter, TensorMap, Workspace

SOURCE = Path(__file__).with_name("fakecuda.c")


def build(folder: Path) -> tuple[Path | None, str]:
    """The fake libcuda.so.1, or the reason why there is none."""
    if Path("/dev/nvidiactl").exists():
        return None, "this machine has a GPU, beside whose driver the fake one cannot be"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        return None, "the fake driver needs Linux and a C compiler (cc, gcc or clang)"
    library = folder / "libcuda.so.1"
    flags = ["-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    command = [compiler, *flags, "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library, ""


class FakeGpu:
    """What the fake driver was asked, and what it shall answer."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_log.restype = ctypes.c_char_p
        self.path = library

    def reset(self) -> None:
        self.is_a("NVIDIA H200", (9, 0), 132, 232448)
        self.fail("", 0, count=0)
        self._library.fake_recording(1)
        self._library.fake_forget_context()
        self.parameters()
        self.clear()

    def is_a(self, name: str, capability: tuple[int, int], sms: int, optin_bytes: int, count: int = 1) -> None:
        from blackwell_matmul.runtime import device

        device.gpu_at.cache_clear()
        self._library.fake_gpu(name.encode(), *capability, sms, optin_bytes, count)

    def fail(self, function: str, code: int, count: int = 1) -> None:
        self._library.fake_fail(function.encode(), code, count)

    def parameters(self, *sizes_bytes: int) -> None:
        """How large the arguments of the next kernels are; the real driver reads it in the cubin."""
        self._library.fake_parameters(len(sizes_bytes), (ctypes.c_int * max(1, len(sizes_bytes)))(*sizes_bytes))

    def recording(self, on: bool) -> None:
        self._library.fake_recording(int(on))

    def forget_context(self) -> None:
        """As in a thread that has not used CUDA."""
        self._library.fake_forget_context()

    def clear(self) -> None:
        self._library.fake_clear()

    def calls(self, function: str = "") -> list[dict[str, str]]:
        """The recorded calls, each as its fields by name; of one function, or of all."""
        lines = [line.split() for line in self._library.fake_log().decode().splitlines()]
        records = [
            {"function_called": words[0], **dict(re.findall(r"(\S+?)=(\S+)", " ".join(words)))} for words in lines
        ]
        return [record for record in records if function in ("", record["function_called"])]


class OnGpu(torch.Tensor):
    """A CPU tensor that says it is on a GPU: only its address, shape and type are ever read."""

    index = 0

    @staticmethod
    def of(tensor: torch.Tensor) -> OnGpu:
        return tensor.as_subclass(OnGpu)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def get_device(self) -> int:
        return self.index

    def untyped_storage(self) -> SimpleNamespace:  # type: ignore[override]
        return SimpleNamespace(device=self.device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.index)


def install(monkeypatch) -> None:
    """torch's side of the fake: stream 0x51 is current, `OnGpu` counts as a plain tensor, and no map is kept yet."""
    from blackwell_matmul.runtime import calls, maps, torch_cuda
    from blackwell_matmul.runtime.recent import Recent

    monkeypatch.setattr(maps, "_maps", Recent(maps.KEPT_MAPS))
    monkeypatch.setattr(torch_cuda, "_raw_stream", lambda: lambda device: 0x51)
    monkeypatch.setattr(calls, "PLAIN_TENSORS", {*calls.PLAIN_TENSORS, OnGpu})


# --- a kernel that copies a matrix by TMA, as a plan

BOX = (64, 32)
MAP = TensorMap(
    dtype="FLOAT16",
    pointer="source",
    dims=(256, "m"),
    strides_bytes=(512,),
    box=BOX,
    element_strides=(1, 1),
    interleave="NONE",
    swizzle="128B",
    l2_promotion="L2_128B",
    oob_fill="NONE",
)
PLAN = LaunchPlan(
    kernel="copy_kernel",
    parameters=(Parameter("m", "int32"), Parameter("source", "pointer"), Parameter("target", "pointer")),
    checks=(Check(("<", "m", 4096), "m is too large"),),
    grid=(("//", ("+", "m", 31), 32), 4, 1),
    block=(128, 1, 1),
    cluster=(1, 1, 1),
    dynamic_shared_bytes=50000,
    tensor_maps=(MAP,),
    workspaces=(),
    arguments=(Argument("value", "int32", "m"), Argument("value", "pointer", "target"), Argument("tensor_map", "", 0)),
)
WORKING_PLAN = dataclasses.replace(
    PLAN,
    workspaces=(Workspace(("*", "m", 16), True),),
    arguments=(*PLAN.arguments, Argument("workspace", "pointer", 0)),
)


def bundle(plan: LaunchPlan = PLAN, target: str = "sm_90a", **changes: object) -> Bundle:
    made = Bundle(
        name="Copy", target=target, source="", ptx="", cubin=b"\x7fELF cubin", plan=plan, consts={"n": 256},
        serves="every m", schedule={}, resources=None, versions={}, key="0",
    )  # fmt: skip
    return dataclasses.replace(made, **changes)
