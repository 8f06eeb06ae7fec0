"""`compile`: one kernel for a GPU that need not be here."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from blackwell_matmul.cli import options
from blackwell_matmul.cli.options import Dtype, Json, Kernel, Pins, Size, Target
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal

EXAMPLES = """Examples:

- `blackwell-matmul compile v2 -o out/`
- `blackwell-matmul compile v2 --size 4096 4096 4096 --dtype bf16 --schedule stages=4 --sass`
- `blackwell-matmul compile my_kernel.py:MyScript --target sm_90a -o out/ --json`

Needs no GPU and no CUDA toolkit. The folder gets kernel.cu, kernel.ptx, kernel.cubin and bundle.json with the launch
plan; `blackwell_matmul.runtime.load(folder)` runs it.
"""


def compile(
    kernel: Kernel,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FOLDER", help="Write the bundle.")] = None,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    target: Target = None,
    sass: Annotated[
        bool, typer.Option("--sass", metavar="", help="Show the machine instructions that matter.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compile one kernel for a GPU, and say what it takes of one.

    Exit code 0: compiled. 2: could not be.
    """
    request = options.kernel_request(kernel, size, dtype, schedule)
    with terminal.progress(kernel, quiet=as_json), redirect_stdout(sys.stderr):
        from blackwell_matmul.cli.views.compile_view import bundle_lines, bundle_record
        from blackwell_matmul.harness.compiled import compile_call

        bundle = compile_call(request.resolved(seed=None), target=target)
    if output is not None:
        bundle.save(output)
    shown = bundle, output, sass
    finish(as_json, lambda: named(kernel, bundle_record(*shown)), lambda: bundle_lines(*shown))
