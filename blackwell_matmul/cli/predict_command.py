"""`predict`: predict times of kernels on a GPU, and their bottlenecks."""

from __future__ import annotations

from typing import Annotated

import typer

from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import NAMES_TEXT, Dtype, Json, Pins, Size, TimedGpu, TimedTarget, known_kernel
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.predict_view import prediction_lines


@takes_form
def predict(
    kernels: Annotated[
        list[str],
        typer.Argument(
            metavar="KERNEL...",
            help=f"Rungs ({NAMES_TEXT}), or scripts of yours: my_kernel.py:MyScript.",
            callback=lambda names: [known_kernel(name) for name in names],
        ),
    ],
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    gpu: TimedGpu = None,
    target: TimedTarget = None,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Predict the time of kernels on a GPU that is not in this machine: cycles, µs, and the bottleneck.

    Nothing is measured: one SM's share of the kernel is simulated with published figures of its parts.

    Exit code 0: predicted. 1: a kernel does not end. 2: could not predict.

    Examples:

    - `blackwell-matmul predict v0 v1 v2 --size 8192 8192 8192`
    - `blackwell-matmul predict v3 --size 4096 4096 4096 --schedule stages=3 --gpu B300`
    - `blackwell-matmul predict h2 h5 --size 4096 4096 4096 --gpu H200`
    - `blackwell-matmul predict my_kernel.py:MyMatmul --size 8192 8192 8192 --json`
    """
    named_gpu = options.one_gpu(gpu, target)
    requests = [options.kernel_request(kernel, size, dtype, schedule, form.form, form.batches) for kernel in kernels]
    with terminal.progress("predicting", quiet=as_json):
        from blackwell_matmul.harness.predicting import predict_call

        found = [(request, predict_call(request.resolved(None, named_gpu))) for request in requests]
    records = [named(request.kernel, each.as_dict()) for request, each in found]
    lines = [(request.kernel, each) for request, each in found]
    finish(as_json, lambda: {"predicted": True, "predictions": records}, lambda: prediction_lines(lines))
