"""`check`: check the order of one kernel's accesses, in its script or in compiled code."""

from __future__ import annotations

from typing import Annotated

import typer

from blackwell_matmul.base.errors import InputError, SimulationError
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Pins, Size, Target, Workers
from blackwell_matmul.cli.output import complain, finish, named
from blackwell_matmul.cli.ptx_options import (
    Arg,
    Block,
    Cluster,
    Entry,
    Grid,
    KernelOrCode,
    LaunchOptions,
    Shared,
    check_compiled,
    is_compiled,
)
from blackwell_matmul.cli.views import check_view, terminal


@takes_form
def check(
    kernel: KernelOrCode,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    orders: Annotated[
        str | None,
        options.word(
            "INTEGER",
            "How many orders of warps and completions to run.",
            default="4 where each takes about a second at most, else 1; with --seed 1",
        ),
    ] = None,
    seed: Annotated[
        str, options.word("INTEGER", "The first order; 0 is program order. The inputs stay the same.")
    ] = "0",
    strict: Annotated[
        bool, options.flag("--strict", "Count what works on today's hardware and nothing guarantees, too.")
    ] = False,
    target: Target = None,
    workers: Workers = None,
    grid: Grid = None,
    block: Block = None,
    cluster: Cluster = None,
    shared: Shared = None,
    entry: Entry = None,
    arg: Arg = None,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Find races, missing waits and fences, and deadlocks of a kernel. Each finding names the missing wait or fence.

    Exit code 0: clean. 1: findings. 2: could not run.

    Examples:

    `blackwell-matmul check v1 --size 256 256 256`

    `blackwell-matmul check my_kernel.py:MyScript --schedule stages=3 --orders 8 --strict`

    `blackwell-matmul check my_kernel.py:MyScript --seed 5` replays the order of a finding

    `blackwell-matmul check kernel.ptx --grid 4 --block 128 --shared 16384 --arg f16[256,64] --arg f16[64,64] --arg 64`

    `check` checks the order of accesses; `run` compares the values. Kernels are given as for `run`.
    """
    launch = LaunchOptions(grid, block, cluster, shared, entry, tuple(arg or ()))
    if is_compiled(kernel):
        _check_code(kernel, launch, strict, as_json)
    if launch != LaunchOptions():
        raise InputError("--grid, --block, --cluster, --shared, --entry and --arg are for a file of PTX or a bundle.")
    simulation = {"orders": options.orders_of(orders), "seed": options.seed_of(seed)}
    processes, request = (
        options.workers_of(workers),
        options.kernel_request(kernel, size, dtype, schedule, form.form, form.batches),
    )
    with terminal.progress(kernel, quiet=as_json, prints=True) as tell:
        from blackwell_matmul.harness import checking

        try:
            call = request.resolved(checking.INPUT_SEED, target)
            more = {"strict": strict, "workers": processes, "progress": tell}
            report = checking.check_call(call, **simulation, **more)
        except SimulationError as error:
            raise typer.Exit(complain(str(error), 2, as_json)) from None
    replay = check_view.replay(kernel, size, dtype, schedule, target, form.words)
    lines = lambda: map(check_view.wrapped, report.paragraphs(replay))  # noqa: E731
    finish(as_json, lambda: named(kernel, report.as_dict()), lines, report.ok)


def _check_code(code: str, launch: LaunchOptions, strict: bool, as_json: bool) -> None:
    report = check_compiled(code, launch)
    found = bool(report.errors or report.stopped or (strict and report.unpromised))
    finish(as_json, report.as_dict, lambda: "\n".join(report.lines()), not found)
