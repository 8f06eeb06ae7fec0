"""Launches of one kernel at the addresses of its tensors, without checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.load import Loaded
from blackwell_matmul.runtime.moving import Moving
from blackwell_matmul.runtime.script_calls import ScriptCalls

KEPT_STREAMS = 64
"""Maximum number of streams with packed launches of one plan."""


class Launches:
    """Launches of one kernel on tensors with equal shapes, strides and types, at any addresses.

    device: index of the GPU; below 0, the kernel is simulated.
    """

    def __init__(self, kernel: Any, device: int) -> None:
        self.kernel, self.device = kernel, device
        self._calls = ScriptCalls(kernel) if device >= 0 else None
        self._code: tuple[Loaded, tuple[int, ...]] | None = None
        self._moving: dict[int, Moving] = {}

    def __call__(self, tensors: Iterable[Tensor], arguments: Callable[[], Sequence[object]]) -> None:
        """Launch the kernel on these tensors.

        arguments: function that returns the call's arguments, for a launch that is not packed yet. Its tensors have the
        order of `tensors`.
        """
        if self._calls is None:
            self.kernel(*arguments())
            return
        addresses = [each.data_ptr() for each in tensors]
        if not self.at(addresses):
            stream = torch_cuda.current_stream(self.device)
            self._packed(self._calls, arguments(), addresses, stream)()

    def calls(self, arguments: Sequence[object]) -> list[tuple[Any, Sequence[object]]]:
        """Return the launches of a call, as pairs of kernel and arguments."""
        return [(self.kernel, arguments)]

    def at(self, addresses: Sequence[int]) -> bool:
        """Launch at these addresses and return True; return False, without effect, if the launch is not packed yet."""
        moving = self._moving.get(torch_cuda.current_stream(self.device))
        return moving is not None and moving(addresses)

    def _packed(
        self, calls: ScriptCalls, arguments: Sequence[object], addresses: Sequence[int], stream: int
    ) -> Prepared:
        """Return the packed launch, and keep it for later calls at other addresses."""
        if self._code is None:
            self._code = calls.code(arguments, self.device)
        loaded, places = self._code
        prepared = loaded.prepare([arguments[place] for place in places], self.device, stream)
        tensors = [i for i, each in enumerate(arguments) if isinstance(each, Tensor)]
        at = {i: tensors.index(place) for i, place in enumerate(places) if place in tensors}
        moving = loaded.moving(prepared, at, addresses)
        if moving is not None:
            if len(self._moving) >= KEPT_STREAMS:
                self._moving.clear()
            self._moving[stream] = moving
        return prepared
