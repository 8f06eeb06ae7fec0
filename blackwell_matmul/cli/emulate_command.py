"""`emulate`: run a program that launches CUDA kernels, on a machine without a GPU."""

from __future__ import annotations

from typing import Annotated

import typer

from blackwell_matmul.cli.options import integer

EXAMPLES = """Examples:

- `blackwell-matmul emulate -- python my_script.py`
- `blackwell-matmul emulate --target sm_90a -- ./my_program --size 256`

The program is not changed: cuda-python, Triton, CuTe DSL, or CUDA C++ of nvcc with -cudart shared.
"""


def emulate(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")],
    target: Annotated[
        str, typer.Option(metavar="GPU", help="The GPU that the program finds: B200, or sm_100a.")
    ] = "sm_100a",
    sms: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="SMs of the GPU; with few of them, programs that fill a GPU launch less.",
            show_default="as the GPU has",
        ),
    ] = None,
) -> None:
    """Run a program that launches CUDA kernels; each kernel is executed by the emulator.

    Exit code: the program's own. 1: a kernel has a fault; the program has ended, and one sentence has the line. 2: the
    program cannot be run, or needs a feature that is not emulated.
    """
    from blackwell_matmul.emulator.cuda_runtime import run
    from blackwell_matmul.hardware.gpus import target_named

    count = None if sms is None else integer("--sms", sms)
    raise typer.Exit(run(command, target_named(target), count))
