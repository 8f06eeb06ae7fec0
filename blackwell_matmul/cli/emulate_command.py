"""`emulate`: run a program that launches CUDA kernels, without a GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from blackwell_matmul.cli.options import flag, integer, word
from blackwell_matmul.hardware.gpus import target_named

if TYPE_CHECKING:
    from blackwell_matmul.emulator.order.ptx_findings import PtxReport

SMS_TEXT = "SMs of the GPU; with few of them, programs that fill a GPU launch less."


def emulate(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")],
    target: Annotated[str, word("GPU", "The GPU that the program finds: B200, or sm_100a.")] = "sm_100a",
    sms: Annotated[str | None, word("COUNT", SMS_TEXT, default="as the GPU has")] = None,
    check: Annotated[
        bool, flag("--check", "Check the order of each kernel's accesses, and print findings on stderr.")
    ] = False,
) -> None:
    """Run a program that launches CUDA kernels; the emulator executes each kernel.

    Exit code: the program's own. 1: a kernel has a fault; the program is ended, and a message names the line. With
    --check also 1: an error of order. 2: the program cannot be run, or needs a feature that is not emulated.

    Examples:

    - `blackwell-matmul emulate -- python my_script.py`
    - `blackwell-matmul emulate --target sm_90a -- ./my_program --size 256`
    - `blackwell-matmul emulate --check -- ./my_program`

    The program runs unchanged. It may use cuda-python, Triton, CuTe DSL, or CUDA C++ of nvcc with -cudart shared.
    """
    from blackwell_matmul.emulator.cuda_runtime import run

    count = None if sms is None else integer("--sms", sms)
    gpu, told = target_named(target), _Told()
    status = run(command, gpu, count, order="eager", checked=told) if check else run(command, gpu, count)
    raise typer.Exit(status or int(told.errors))


class _Told:
    """Callback that prints reports on stderr, equal lines once. errors: True after a report with an error."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self.errors = False

    def __call__(self, report: PtxReport) -> None:
        self.errors |= not report.ok
        for line in report.lines():
            if line not in self.lines:
                self.lines.add(line)
                print(line, file=sys.stderr, flush=True)
