"""`bench`: measure on this machine's GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.cli import options
from blackwell_matmul.cli.form_options import NO_FORM, FormWords, takes_form
from blackwell_matmul.cli.options import Json, flag, known_gpu, word
from blackwell_matmul.cli.output import finish
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.bench_view import compiled_lines, result_lines
from blackwell_matmul.cli.views.terminal import line
from blackwell_matmul.problem.problem import BITS

if TYPE_CHECKING:
    from blackwell_matmul.harness.bench.contenders import Contender
    from blackwell_matmul.harness.bench.request import Request

SUITE_TEXT = "ladder, llm, odd or stress; or a study: torch-compile, triton-tma or bandwidth."
Suite = Annotated[str, word("SUITE", SUITE_TEXT, "--suite")]
OneSize = Annotated[tuple[str, str, str] | None, word("M N K", "One problem, in place of a suite.")]
Kernels = Annotated[
    list[str] | None, typer.Argument(metavar="[KERNEL...]", help="What takes part, as --rungs says it.")
]
Rungs = Annotated[str, word("RUNG,...", "Rungs, or scripts (my_kernel.py:MyMatmul); all that this GPU has.")]
Dtypes = Annotated[str, word("fp16,...", f"Element types: {', '.join(BITS)}.", default="the suite's")]
Baselines = Annotated[bool, flag("--baselines", "Add Triton's persistent matmul and torch.compile.")]
Tuned = Annotated[bool, flag("--tuned", "Add each rung with the schedule that tune has found.")]
Rounds = Annotated[str, word("INTEGER", "Rounds that count.")]
Repetitions = Annotated[str, word("INTEGER", "Of the stress suite.")]
Limit = Annotated[str, word("SECONDS", "The longest that a kernel may be silent.")]
Out = Annotated[str, word("FOLDER", "Where results.json goes.")]
Bundles = Annotated[str | None, word("FOLDER", "Compiled kernels.", default="OUT/bundles")]
Again = Annotated[bool, flag("--again", "Measure anew what is there already.")]
CompileOnly = Annotated[bool, flag("--compile-only", "Fill the folder of compiled kernels; needs no GPU.")]
ForGpu = Annotated[str, word("GPU", "Of --compile-only: H200, or sm_90a.", check=known_gpu)]
Draw = Annotated[str | None, word("FOLDER", "Draw what is there, and measure nothing.")]
Quick = Annotated[bool, flag("--quick", "Of a study, the few trials that say most.")]


@takes_form
def bench(
    kernels: Kernels = None,
    suite: Suite = "ladder",
    size: OneSize = None,
    rungs: Rungs = "",
    dtype: Dtypes = "",
    baselines: Baselines = False,
    tuned: Tuned = False,
    rounds: Rounds = "15",
    repetitions: Repetitions = "5000",
    limit: Limit = "90",
    out: Out = "bench_results",
    bundles: Bundles = None,
    again: Again = False,
    compile_only: CompileOnly = False,
    target: ForGpu = "sm_100a",
    draw: Draw = None,
    quick: Quick = False,
    as_json: Json = False,
    form: FormWords = NO_FORM,
) -> None:
    """Check the kernels on this machine's GPU, then time them and cuBLAS, in turns.

    Exit code 0: all results are right. 1: something is wrong, crashed or hung. 2: could not run.

    Examples:

    - `blackwell-matmul bench`
    - `blackwell-matmul bench --suite llm --baselines --out results/`
    - `blackwell-matmul bench --size 4096 4096 4096 --rungs v2,my_kernel.py:MyMatmul --dtype bf16`
    - `blackwell-matmul bench --size 4096 4096 4096 --layout nn --epilogue bias,gelu --dtype bf16`
    - `blackwell-matmul bench --size 8192 8192 8192 --dtype e4m3 --epilogue scaled_rows`
    - `blackwell-matmul bench s1 s2 --size 8192 8192 8192 --dtype nvfp4`
    - `blackwell-matmul bench --compile-only --target H200 --out results/`
    - `blackwell-matmul bench --draw results/`
    - `blackwell-matmul bench --suite torch-compile --quick --out results/`

    Suites: ladder (square problems, every rung), llm (layers of language models), odd (sizes that tiles do not divide),
    stress (thousands of repetitions, each compared). The folder gets results.json, which a later run continues, and a
    chart if matplotlib is installed.

    Options such as --layout, --epilogue and --batch change every problem. Then cuBLAS is compared as torch uses it:
    cuBLAS with the operations that it fuses, and torch's kernels for the rest. For block-scaled products it is torch's
    scaled_mm.

    Studies: torch-compile (torch.compile's options on the matmuls of models), triton-tma (large TMA configurations of
    Triton against small ones), bandwidth (copies with TMA and without). The folder gets STUDY.json, which a later run
    continues. --quick runs only the most important trials.
    """
    from blackwell_matmul.harness.studies_part import studies

    sizes, limit_s = options.sizes_of(size), options.integer("--limit", limit)
    counts = options.integer("--rounds", rounds), options.integer("--repetitions", repetitions)
    if suite in studies():
        _study(suite, Path(out), limit_s, again, quick, as_json=as_json)
    if draw is not None:
        _draw(Path(draw), as_json)
    _require_suite(suite)
    from blackwell_matmul.harness.bench.request import Request

    named = (*(kernels or ()), *options.words_of(rungs))
    request = Request(
        suite, sizes, named, options.words_of(dtype), baselines, *counts, limit_s, Path(out),
        None if bundles is None else Path(bundles), again, _winners if tuned and not compile_only else None,
        form.form, form.batches,
    )  # fmt: skip
    importlib.import_module("torch")  # after the request's checks, as torch may be missing
    if compile_only:
        _compile(request, target, as_json)
    _measure(request, as_json)


def _require_suite(suite: str) -> None:
    from blackwell_matmul.harness.bench.suites import SUITES
    from blackwell_matmul.harness.studies_part import studies

    if suite not in SUITES:
        raise InputError(f"suite is {shown(suite)}; the suites are {', '.join((*SUITES, *studies()))}.")


def _winners(*asked: Any) -> Iterable[Contender]:
    from blackwell_matmul.tuner.tuned import winners  # imports torch, and so comes after the request's checks

    return winners(*asked)


def _measure(request: Request, as_json: bool) -> NoReturn:
    """Run the benchmark, and draw a chart if matplotlib is installed."""
    from blackwell_matmul.harness.bench import chart, session

    with terminal.telling(as_json) as tell:
        results = request.run(tell)
    if chart.available():
        chart.draw(results, results.file.parent)
    lines = lambda: [*result_lines(results), line(f"Written: {results.file}")]  # noqa: E731
    finish(as_json, results.as_dict, lines, session.ok(results))


def _compile(request: Request, target: str, as_json: bool) -> NoReturn:
    with terminal.telling(as_json) as tell:
        folder, refused, count = request.compile(target, tell)
    record = {"folder": str(folder), "target": target, "refused": refused}
    finish(as_json, lambda: record, lambda: compiled_lines(folder, target, refused, count), not refused)


def _draw(folder: Path, as_json: bool) -> NoReturn:
    from blackwell_matmul.harness.bench import chart
    from blackwell_matmul.harness.bench.results import saved_results

    files = [str(file) for results in saved_results(folder) for file in chart.draw(results, folder)]
    lines = map(line, files or ["nothing was timed, so nothing is drawn"])
    finish(as_json, lambda: {"files": files}, lambda: lines)


def _study(*asked: object, as_json: bool) -> NoReturn:
    """Run a study of `blackwell_matmul_studies`. asked: the fields of its `StudyRequest`."""
    from blackwell_matmul.harness.studies_part import part

    request = part("running").StudyRequest(*asked)
    with terminal.telling(as_json) as tell:
        results = request.run(tell)
    finish(as_json, results.as_dict, lambda: part("views.studies_view").study_lines(results), results.ok)
