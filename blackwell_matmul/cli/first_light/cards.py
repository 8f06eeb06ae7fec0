"""`Card`, `EmulatedCard`: launch kernels of CUDA C++ by name, on the GPU or in the emulator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from blackwell_matmul.compiler.plan import Argument, Launch, TensorMap
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware import driver


class Card:
    """A GPU that launches kernels. code: cubin with the kernels. scale: divisor of the lengths of loops."""

    scale, device = 1, "cuda"

    def __init__(self, code: bytes) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.sms, self.name = properties.multi_processor_count, properties.name
        torch.zeros(1, device="cuda")
        self._library = driver.call("cuLibraryLoadData", "load the kernels", code, None, None, 0, None, None, 0)
        self._kernels: dict[str, int] = {}

    def prepared(self, kernel: str, arguments: Sequence[Any], grid: int, block: int, shared_bytes: int) -> Any:
        """Return a packed launch on torch's current stream. arguments: tensors, tensor maps and integers."""
        from blackwell_matmul.runtime.launch import Prepared
        from blackwell_matmul.runtime.torch_cuda import current_stream

        maps = tuple(each for each in arguments if isinstance(each, TensorMap))
        packed = tuple(_argument(each, maps) for each in arguments)
        launch = Launch((grid, 1, 1), (block, 1, 1), (1, 1, 1), shared_bytes, maps, (), packed, False)
        return Prepared.of(kernel, self._kernel(kernel), launch, 0, current_stream(0))

    def launch(self, kernel: str, arguments: Sequence[Any], grid: int, block: int, shared_bytes: int) -> None:
        self.prepared(kernel, arguments, grid, block, shared_bytes)()

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def _kernel(self, name: str) -> int:
        if name not in self._kernels:
            found = driver.call("cuLibraryGetKernel", f"find {name}", self._library, name.encode())
            most = driver.device_attribute(0, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
            attribute = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            allowed = f"allow {name} dynamic shared memory"
            static = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
            device = driver.device_handle(0)
            used = int(driver.call("cuKernelGetAttribute", allowed, static, found, device))
            driver.call("cuKernelSetAttribute", allowed, attribute, most - used, found, device)
            self._kernels[name] = int(found)
        return self._kernels[name]


def _argument(value: Any, maps: Sequence[TensorMap]) -> Argument:
    if isinstance(value, torch.Tensor):
        return Argument("value", "pointer", value.data_ptr())
    if isinstance(value, TensorMap):
        return Argument("tensor_map", "", maps.index(value))
    return Argument("value", "int32", int(value))


class EmulatedCard:
    """The emulator in place of a GPU. Its clock counts instructions, which are no time. ptx: PTX of the kernels."""

    name, device = "emulator", "cpu"

    def __init__(self, ptx: str, sms: int = 2, scale: int = 64) -> None:
        self.sms, self.scale = sms, scale
        self._head, self._kernels = parted(ptx)

    def launch(self, kernel: str, arguments: Sequence[Any], grid: int, block: int, shared_bytes: int) -> None:
        shape: Any = {"grid": grid, "block": block, "shared_bytes": shared_bytes}
        emulate(self._head + self._kernels[kernel], *arguments, **shape, kernel=kernel)

    def synchronize(self) -> None:
        pass


@cache
def parted(ptx: str) -> tuple[str, dict[str, str]]:
    """Return the text of a PTX before its kernels, and the text of each kernel, by name. Only one kernel is then
    parsed."""
    head, *kernels = re.split(r"(?=\.visible \.entry )", ptx)
    return head, {each.split("(")[0].split()[-1]: each for each in kernels}
