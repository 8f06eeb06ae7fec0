"""`run`: run one kernel on generated inputs, in the simulator or emulator, and check its result."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Kernel, Pins, Policy, Size, Target, Workers
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.result_view import result_lines


@takes_form
def run(
    kernel: Kernel,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    seed: Annotated[str, options.word("INTEGER", "Gives the inputs and the simulator's order of events.")] = "0",
    target: Target = None,
    policy: Policy = "adversarial",
    workers: Workers = None,
    emulate: Annotated[bool, options.flag("--emulate", "Execute the compiled code instead of the script.")] = False,
    check: Annotated[
        bool, options.flag("--check", "With --emulate: find races, missing fences and deadlocks of the compiled code.")
    ] = False,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Run one kernel on generated inputs, and check its result.

    Exit code 0: right. 1: wrong, or the kernel has a fault. 2: could not run.

    Examples:

    - `blackwell-matmul run v1`
    - `blackwell-matmul run v2 --size 512 768 1000 --dtype bf16`
    - `blackwell-matmul run v1 --schedule block_m=128,block_n=64 --json`
    - `blackwell-matmul run blackwell --size 256 256 256 --epilogue bias,gelu --layout nt --batch 4`
    - `blackwell-matmul run v2 --emulate --check`
    - `blackwell-matmul run my_kernel.py:MyScript --schedule stages=3,swizzle=true`

    A script of your own is a tilus.Script class. If it is called with (m, n, k, a, b, c), it must compute C = A @ B.T.
    For any other call, write two functions beside the class. `example_args(m, n, k)` returns the arguments.
    `reference(*args)` takes a copy of them, and returns the expected outputs: {"y_ptr": tensor}. Without a reference,
    the outputs are not checked.
    """
    if check and not emulate:
        raise InputError(
            "--check is for compiled code, as --emulate runs it; for the script there is the command check."
        )
    report = None
    inputs, processes = options.seed_of(seed), options.workers_of(workers)
    request = options.kernel_request(kernel, size, dtype, schedule, form.form, form.batches)
    if emulate and request.size is None and not request.names_a_file:
        request = replace(request, size=options.DEFAULT_EMULATED_SIZE)
    with terminal.progress(request.title, quiet=as_json, prints=True) as tell:
        call = request.resolved(inputs, target)
        if emulate:
            from blackwell_matmul.harness.emulated import check_code, emulate_call

            report = check_code(call, progress=tell) if check else None
            result = emulate_call(call, policy=policy, progress=tell)
        else:
            from blackwell_matmul.harness.run import run_call

            result = run_call(call, policy=policy, workers=processes, progress=tell)
    if report is None:
        finish(as_json, lambda: named(kernel, result.as_dict()), lambda: result_lines(result), result.ok)
    finish(
        as_json,
        lambda: {**named(kernel, result.as_dict()), "order": report.as_dict()},
        lambda: [*result_lines(result), *report.lines()],
        result.ok and report.ok,
    )
