"""`tune`: the fastest schedule on this machine's GPU."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from blackwell_matmul import detect
from blackwell_matmul.cli import options
from blackwell_matmul.cli.options import Dtype, Json, Size, checked, known_kernel
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.tune_view import tuning_lines

EXAMPLES = """Examples:

- `blackwell-matmul tune v2 --size 4096 4096 4096`
- `blackwell-matmul tune v2 --size 128 8192 8192 --dtype bf16 --budget 60 --top 8`
- `blackwell-matmul tune my_kernel.py:MyMatmul`

A call that pins no schedule uses the winner from then on, for this n and k and an m of this size, on this GPU. A script
of your own says its candidates with tilus.autotune. `schedules` lists what a rung can choose from, without a GPU.
"""


def tune(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="A rung, or a script: my_kernel.py:MyMatmul.", callback=checked(known_kernel)
        ),
    ],
    size: Size = None,
    dtype: Dtype = None,
    budget: Annotated[str, typer.Option(metavar="SECONDS", help="About how long it may take.")] = "120",
    top: Annotated[str, typer.Option(metavar="INTEGER", help="How many candidates are tried at most.")] = "16",
    limit: Annotated[str, typer.Option(metavar="SECONDS", help="The longest that a candidate may be silent.")] = "30",
    as_json: Json = False,
) -> None:
    """Measure the schedules of a kernel on this machine's GPU, and keep the fastest.

    A candidate that hangs, crashes or is wrong is reported and never chosen.

    Exit code 0: there is a winner. 1: there is none. 2: could not run.
    """
    problem = options.problem_of(options.sizes_of(size), dtype)
    budget_s, most = options.integer("--budget", budget), options.integer("--top", top)
    limit_s = options.integer("--limit", limit)
    detect.require_gpu()  # before torch and tilus are loaded
    with terminal.telling(quiet=as_json) as tell, redirect_stdout(sys.stderr):
        from blackwell_matmul.tuner import tuning

        found = tuning.tune(kernel, problem, budget_s=budget_s, top=most, limit_s=limit_s, progress=tell)
    finish(as_json, lambda: named(kernel, found.as_dict()), lambda: tuning_lines(found), bool(found.winner))
