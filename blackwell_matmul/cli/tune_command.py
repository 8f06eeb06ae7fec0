"""`tune`: find the fastest schedule on this machine's GPU, or rank schedules for a GPU by predicted time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Dtype, Json, Size, checked, known_executor, known_kernel, known_timed_gpu, word
from blackwell_matmul.cli.output import finish, named
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.tune_view import ranking_lines, tuning_lines
from blackwell_matmul.hardware import detect
from blackwell_matmul.harness.bench import TASKS
from blackwell_matmul.jobs import fork_server
from blackwell_matmul.jobs.row_file import usable
from blackwell_matmul.problem.problem import Problem

GPUS_TEXT = "The GPUs that measure, as torch numbers them, if there are 8 candidates for each."
MeasuringGpus = Annotated[str | None, word("INDEX,...", GPUS_TEXT, "--gpus", default="all of the first one's kind")]
Tuned = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL", help="A rung, or a script: my_kernel.py:MyMatmul.", callback=checked(known_kernel)
    ),
]
OtherGpu = Annotated[
    str | None,
    word(
        "NAME", "Predict for this GPU, and measure nothing.", default="measure on this machine's", check=known_timed_gpu
    ),
]
Budget = Annotated[str, word("SECONDS", "About how long it may take.")]
Predicted = Annotated[
    str | None,
    word(
        "INTEGER",
        "How many candidates are predicted, where the GPU has figures.",
        default="40; none of a rung that a Hopper measures",
    ),
]
Measured = Annotated[
    str | None,
    word("INTEGER", "How many candidates are measured at most.", default="8, or 16 in an order by rule of thumb"),
]
EXECUTOR_TEXT = "Who predicts: processes:4, dask, dask:ADDRESS or package.module:EXECUTOR."
Executor = Annotated[
    str | None, word("EXECUTOR", EXECUTOR_TEXT, "--executor", default="a process a core", check=known_executor)
]
ROWS_TEXT = "Keep what is predicted; several runs may share it."
Rows = Annotated[str, word("FILE", ROWS_TEXT, "--rows", check=lambda name: name and str(usable(name)))]
Limit = Annotated[str, word("SECONDS", "The longest that a candidate may be silent.")]


@takes_form
def tune(
    kernel: Tuned,
    size: Size = None,
    dtype: Dtype = None,
    gpu: OtherGpu = None,
    budget: Budget = "120",
    predict: Predicted = None,
    top: Measured = None,
    executor: Executor = None,
    rows: Rows = "",
    limit: Limit = "30",
    gpus: MeasuringGpus = None,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Rank the schedules of a kernel, measure the best on this machine's GPU, and keep the fastest.

    A candidate that hangs, crashes or is wrong is reported and never chosen.

    Exit code 0: there is a winner, or an order. 1: there is none. 2: could not run.

    Examples:

    - `blackwell-matmul tune v2 --size 4096 4096 4096`
    - `blackwell-matmul tune v2 --size 128 8192 8192 --dtype bf16 --budget 60 --top 4`
    - `blackwell-matmul tune hopper --size 4096 4096 4096 --top 32 --gpus 0,1,2,3`
    - `blackwell-matmul tune v5 --size 4096 4096 4096 --gpu B200`
    - `blackwell-matmul tune v5 --size 4096 4096 4096 --gpu B200 --executor dask:tcp://HOST:8786 --rows v5.jsonl`
    - `blackwell-matmul tune hopper --size 4096 11008 4096 --layout nn --epilogue bias,gelu`
    - `blackwell-matmul tune s2 --size 8192 8192 8192 --dtype nvfp4`
    - `blackwell-matmul tune my_kernel.py:MyMatmul`

    Later calls that pin no schedule use the winner, for this n and k and similar m, on this GPU. A script of your own
    names its candidates with tilus.autotune. Several GPUs of one model measure at the same time, and the best
    candidates of each are measured again on one GPU. With fewer than 8 candidates for each GPU, fewer GPUs measure
    (--top takes more candidates). --gpu needs no GPU: schedules are listed in the order of their predicted time, and
    nothing is kept. `schedules` lists the shared memory and tensor memory of each.
    """
    problem = options.problem_of(kernel, options.sizes_of(size), dtype, form.form, form.batches)
    budget_s, most = (
        options.integer("--budget", budget),
        None if predict is None else options.integer("--predict", predict),
    )
    first, limit_s = None if top is None else options.integer("--top", top), options.integer("--limit", limit)
    by: dict[str, Any] = {"executor": executor or "", "rows": Path(rows) if rows else None}
    measuring = None if gpus is None else [options.integer("--gpus", word) for word in options.words_of(gpus)]
    if gpu is not None:
        if measuring is not None:
            raise InputError("--gpu predicts and --gpus says who measures; give one of the two.")
        _rank(kernel, problem, gpu, most, by, as_json)
        return
    detect.require_gpu()  # before the slow imports of torch and tilus
    fork_server.preload(TASKS)
    with terminal.telling(quiet=as_json) as tell:
        from blackwell_matmul.tuner import tuning

        asked = partial(tuning.tune, kernel, problem, budget_s=budget_s, top=first, predict=most, limit_s=limit_s)
        found = asked(progress=tell, gpus=measuring, **by)
    finish(as_json, lambda: named(kernel, found.as_dict()), lambda: tuning_lines(found), bool(found.winner))


def _rank(kernel: str, problem: Problem, gpu: str, most: int | None, by: dict[str, Any], as_json: bool) -> None:
    """Rank the schedules for a GPU by predicted time, and print them."""
    with terminal.telling(quiet=as_json) as tell:
        from blackwell_matmul.tuner import ranking

        asked = ranking.MOST_PREDICTIONS if most is None else most
        found = ranking.rank(kernel, problem, gpu, most=asked, progress=tell, **by)
    finish(as_json, lambda: named(kernel, found.as_dict()), lambda: ranking_lines(found), bool(found.predicted))
