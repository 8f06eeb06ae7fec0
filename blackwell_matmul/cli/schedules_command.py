"""`schedules`: list the schedules of a kernel, and the chosen one."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Size, checked, known_kernel
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views.schedules_view import schedule_lines
from blackwell_matmul.hardware.gpus import gpu_named


@takes_form
def schedules(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="RUNG",
            help="A kernel (v0–v6, s0–s2, h0–h7, g0–g1, ...), or my_kernel.py:MyMatmul.",
            callback=checked(known_kernel),
        ),
    ],
    size: Size = None,
    dtype: Dtype = None,
    gpu: Annotated[
        str | None, options.word("NAME", "The GPU by name, such as B200.", default="one that the rung is for")
    ] = None,
    target: Annotated[str | None, options.word("GPU", options.TARGET_TEXT)] = None,
    every: Annotated[bool, options.flag("--all", "Give each rejected schedule a row of its own.")] = False,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """List the schedules of a rung: which can run, which one is chosen and why, and why others cannot run.

    A rejected row with several values for knobs stands for all their combinations. `columns` are those of tensor
    memory.

    Exit code 0: some can run. 1: none can. 2: bad input.

    Examples:

    - `blackwell-matmul schedules v1`
    - `blackwell-matmul schedules v2 --size 4096 4096 4096 --dtype bf16 --gpu GB200`
    - `blackwell-matmul schedules v1 --size 512 512 100 --json`
    """
    named_gpu = options.one_gpu(gpu, target)
    asked = None if named_gpu is None else gpu_named(named_gpu, "gpu" if target is None else "target")
    problem = options.problem_of(rung, options.sizes_of(size), dtype, form.form, form.batches)
    with redirect_stdout(sys.stderr):  # a user's file may print when it is imported
        from blackwell_matmul.harness import listing

        listed = listing.schedules(rung, problem, target=asked)
    record = partial(named, rung, listed.as_dict())
    finish(as_json, record, lambda: schedule_lines(listed, every), bool(listed.runnable))
