"""Runs a program with a replaced CUDA driver and runtime; the emulator executes the program's kernels."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from blackwell_matmul.base.errors import BlackwellMatmulError, EmulationError, InputError, UnsupportedError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.emulator.cuda_runtime import libraries
from blackwell_matmul.emulator.cuda_runtime.channel import Channel, Ended
from blackwell_matmul.emulator.cuda_runtime.entry_points import ENTRY_POINTS
from blackwell_matmul.emulator.cuda_runtime.host import EmulatedGpu, Host, Refused
from blackwell_matmul.emulator.order.ptx_findings import PtxReport
from blackwell_matmul.emulator.scheduler import Choices, Limit, own_fault

SMS = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 148, 120: 188, 121: 48}
"""Number of SMs of the GPU emulated for each architecture. From NVIDIA's data sheets: A100, RTX A6000 (84), L40, H100
SXM, B200, B300, RTX PRO 6000 Blackwell, GB10."""

MEMORY_BYTES = 8 << 30


def run(
    command: Sequence[str],
    target: str = "sm_100a",
    sms: int | None = None,
    order: str = "late",
    limit: Limit | None = None,
    checked: Callable[[PtxReport], None] | None = None,
) -> int:
    """Run a program with an emulated GPU, and return its exit code: 128 + n if signal n ended it, as shells do.

    command: the program and its arguments. target: the GPU, such as sm_90a. sms: number of SMs, by which programs size
    their grids; None: a real GPU's. order, limit: as of `emulate`, for each launch. checked: called after each launch
    with the report of its order; None: the order is not checked. Raises EmulationError or UnsupportedError, one
    sentence with the line, for a fault in a kernel; the program has ended then. Raises InputError for a program that
    cannot be run.
    """
    if sys.platform != "linux":
        raise UnsupportedError(f"programs are emulated on Linux and not on {sys.platform}; give the PTX to emulate().")
    gpu = _gpu(target, sms)
    choices = Choices(order, unwritten="note", limit=limit or Limit())
    with tempfile.TemporaryDirectory(prefix="blackwell-matmul-") as name:
        folder = Path(name)
        libraries.build(folder)
        with _Service(folder / "host", gpu, choices, checked) as service:
            status = _run(command, _environment(folder, target))
    if service.fault is not None:
        raise service.fault
    return status


def _gpu(target: str, sms: int | None) -> EmulatedGpu:
    digits = target.removeprefix("sm_").rstrip("af")
    if not digits.isdigit() or int(digits) not in SMS:
        raise InputError(f"target is {shown(target)}; there are {', '.join(f'sm_{each}' for each in SMS)}.")
    if sms is not None and sms < 1:
        raise InputError(f"sms is {sms}; a GPU has at least one SM.")
    return EmulatedGpu(int(digits), sms or SMS[int(digits)], MEMORY_BYTES)


def _environment(folder: Path, target: str) -> dict[str, str]:
    """Return the environment in which a program finds the libraries, and compilers keep the PTX in their output."""
    paths = {
        name: os.pathsep.join([str(folder), *filter(None, [os.environ.get(name)])])
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH")
    }
    return os.environ | paths | {
        "BLACKWELL_MATMUL_HOST": str(folder / "host"),
        "PYTHONUNBUFFERED": "1",  # a program's output appears before the fault of its kernel
        "TRITON_LIBCUDA_PATH": str(folder),
        "TRITON_DISABLE_LINE_INFO": "0",
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_EXPERIMENTAL_DSL_LINEINFO": "1",
    }  # fmt: skip


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        process = subprocess.Popen(list(command), env=environment)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot run {shown(' '.join(command))}: {why}.") from error
    try:
        code = process.wait()
        return code if code >= 0 else 128 - code
    finally:
        process.kill()


class _Service:
    """Answers programs at a socket, each in a thread of its own. fault: the first error of a kernel."""

    def __init__(
        self, path: Path, gpu: EmulatedGpu, choices: Choices, checked: Callable[[PtxReport], None] | None
    ) -> None:
        self.gpu, self.choices, self.checked = gpu, choices, checked
        self.fault: BlackwellMatmulError | None = None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()

    def __enter__(self) -> _Service:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the socket is closed
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        program = Channel(connection)
        host = Host(program, self.gpu, self.choices, self.checked)
        with connection, suppress(Ended, OSError):
            while (call := program.call()) is not None:
                try:
                    program.give(answer(host, *call))
                except BlackwellMatmulError as fault:
                    self.fault = self.fault or fault
                    program.end(1)
                    return


def answer(host: Host, number: int, words: Sequence[int]) -> int:
    """Return the result of a call. Raise an error for a fault in a kernel, and for a call that is not emulated."""
    name, function, count = ENTRY_POINTS[number]
    try:
        return function(host, *words[:count]) or 0
    except Refused as refused:
        if "cuda" in name:
            host.last = refused.code
        return refused.code
    except BlackwellMatmulError as error:
        text = str(error)
        raise type(error)(text if text.startswith("kernel ") else f"{name}: {text.removesuffix('.')}.") from error
    except (Ended, OSError):
        raise
    except Exception as error:
        raise EmulationError(f"{name}: {own_fault(error)}.") from error
