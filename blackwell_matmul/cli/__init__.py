"""The command line. Results go to stdout, everything else to stderr, one sentence each and never a traceback.

Exit codes: 0 the result is right, or nothing was found; 1 it was computed and is wrong, or the kernel is at fault; 2 it
could not be computed: bad input, or something that this version does not do; 130 interrupted. A subcommand is a
function under `@app.command()` that raises the errors of `blackwell_matmul.errors`; it imports what it needs when it
runs, so that `--help` is instant. What results look like is in `screen`, and for `check` in `screen_check`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackwell_matmul import interrupts, screen
from blackwell_matmul.errors import BlackwellMatmulError, InputError, SimulationError
from blackwell_matmul.validation import spelled

if TYPE_CHECKING:
    from blackwell_matmul.harness import Result, ScriptResult
    from blackwell_matmul.problem import Problem

PROGRAM = "blackwell-matmul"
TRACEBACK_VARIABLE = "BLACKWELL_MATMUL_TRACEBACK"
USAGE_ERRORS: type[Exception] = typer.BadParameter.__mro__[2]
"""What typer raises for a command line that it cannot read; the class itself has no public name."""

OWN_TARGET = "the kernel's own, or sm_100a"

app = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; None: this process's own) and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    try:
        say = partial(_complain_at_once, as_json)
        with interrupts.answered(say, last=argv is None) as came, screen.plain_warnings():
            code = int(app(args=words, prog_name=PROGRAM, standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        code = interrupts.EXIT_CODE
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        if not came.is_set():
            return _complain(*_explained(error), as_json)
        code = interrupts.EXIT_CODE  # an error that follows from it
    if code == interrupts.EXIT_CODE:
        _complain(interrupts.sentence(), code, as_json)
        if argv is None:
            os._exit(code)  # the interpreter would first wait for threads, and take torch down
    return code


def _explained(error: Exception) -> tuple[str, int]:
    """One sentence for what went wrong, and its exit code."""
    if isinstance(error, USAGE_ERRORS):
        text = " ".join(error.format_message().split()).rstrip(".")  # type: ignore[attr-defined]
        asked = getattr(getattr(error, "ctx", None), "command_path", PROGRAM)
        return f"{text}; see {asked} --help.", 2
    if isinstance(error, BlackwellMatmulError):
        return str(error), 1 if isinstance(error, SimulationError) else 2
    if isinstance(error, ImportError) and not (error.name or "").startswith("blackwell_matmul"):
        told = f"a package that this command needs does not import, {spelled(error)}"
        return f"{told}; `{PROGRAM} doctor` says what mends it.", 2
    if isinstance(error, MemoryError):
        return "this machine's memory is too small for it; choose a smaller size.", 2
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}.", 2
    kind, text = type(error).__name__, " ".join(str(error).split())
    more = f"set {TRACEBACK_VARIABLE}=1 to see where; `{PROGRAM} doctor` looks at what is installed"
    return f"a fault of {PROGRAM} itself, {kind}: {text} ({more}).", 2


def _complain(sentence: str, code: int, as_json: bool) -> int:
    """On stderr for people; with --json also on stdout, in place of the result."""
    screen.complain(sentence)
    if as_json:
        with suppress(typer.Exit):
            _print(_json({"error": sentence}))
    return code


def _complain_at_once(as_json: bool) -> None:
    """Of an interrupt, while the main thread is anywhere, perhaps within print or a spinner that hides the cursor."""
    sentence = interrupts.sentence()
    os.write(2, f"{SHOW_CURSOR if os.isatty(2) else ''}error: {sentence}\n".encode())
    if as_json:
        os.write(1, f"{_json({'error': sentence})}\n".encode())


SHOW_CURSOR = "\r\x1b[K\x1b[?25h"


def _print_version(wanted: bool) -> None:
    if wanted:
        import blackwell_matmul

        print(f"{PROGRAM} {blackwell_matmul.__version__}")
        raise typer.Exit


ROOT_EXAMPLES = """Examples:

- `blackwell-matmul run v1`
- `blackwell-matmul run my_kernel.py:MyScript`
- `blackwell-matmul check v1 --size 256 256 256`
- `blackwell-matmul schedules v2 --size 4096 4096 4096`
- `blackwell-matmul compile v2 --target sm_100a -o out/`
- `blackwell-matmul doctor`
- `blackwell-matmul bench`
- `blackwell-matmul tune v2 --size 4096 4096 4096`

`blackwell-matmul run --help`
"""


@app.callback(invoke_without_command=True, epilog=ROOT_EXAMPLES)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Blackwell matmul kernels, and kernels of your own, run and checked on this machine, with or without a GPU.

    Results go to stdout, as text or (with --json) as one JSON object; errors and progress to stderr. With --json an
    error is a JSON object on stdout, too: {"error": "..."}.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


# --- arguments: what can be refused is, before torch and tilus are loaded


def _checked(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    return lambda value: None if value is None else check(value)


def _kernel(name: str) -> str:
    from blackwell_matmul.harness.user_kernel import check_name

    check_name(name)
    return name


def _target(name: str) -> str:
    from blackwell_matmul.gpus import target_named

    return target_named(name)


def _gpu_name(name: str) -> str:
    """As it is: a name may say more than its target."""
    from blackwell_matmul.gpus import gpu_named

    gpu_named(name)
    return name


def _dtype(name: str) -> str:
    from blackwell_matmul.problem import plain_dtype

    return plain_dtype(name)


def _policy(name: str) -> str:
    from blackwell_matmul.problem import plain_policy

    return plain_policy(name)


Size = Annotated[
    tuple[str, str, str] | None,
    typer.Option(metavar="M N K", help="C[M, N] = A[M, K] @ B[N, K].T, in elements.", show_default="1024 1024 1024"),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print the result as one JSON object.")]

Kernel = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL",
        help="A rung (v0–v2, h0–h6, g0), or a script of your own: my_kernel.py:MyScript.",
        callback=_checked(_kernel),
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="fp16|bf16",
        help="Element type of A, B and C.",
        show_default="fp16",
        callback=_checked(_dtype),
    ),
]
Pins = Annotated[
    str,
    typer.Option("--schedule", metavar="KNOB=VALUE,...", help="Arguments of the kernel to pin; it chooses the others."),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="GPU",
        help="B200, or as the compiler calls it, sm_100a.",
        show_default=OWN_TARGET,
        callback=_checked(_target),
    ),
]
Workers = Annotated[
    str | None,
    typer.Option("--workers", metavar="INTEGER", help="Processes to simulate with.", show_default="one a core"),
]

RUN_EXAMPLES = """Examples:

- `blackwell-matmul run v1`
- `blackwell-matmul run v2 --size 512 768 1000 --dtype bf16`
- `blackwell-matmul run v1 --schedule block_m=128,block_n=64 --json`
- `blackwell-matmul run my_kernel.py:MyScript --schedule stages=3,swizzle=true`

A script of your own is a tilus.Script class. Called with (m, n, k, a, b, c), it is checked as C = A @ B.T. For any
other call, write `example_args(m, n, k)` beside the class, which returns the arguments, and `reference(*args)`, which
gets a copy of them and returns what the outputs must be: {"y_ptr": tensor}. Without a reference it is run and not
checked.
"""


@app.command(epilog=RUN_EXAMPLES)
def run(
    kernel: Kernel,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    seed: Annotated[
        str, typer.Option(metavar="INTEGER", help="Gives the inputs and the simulator's order of events.")
    ] = "0",
    target: Target = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="When asynchronous operations complete: adversarial (as late as is legal), eager or random.",
            callback=_checked(_policy),
        ),
    ] = "adversarial",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run one kernel on made-up inputs and check its result.

    Exit code 0: right. 1: wrong, or the kernel is at fault. 2: could not run.
    """
    from blackwell_matmul.harness.user_kernel import names_a_file

    options: dict[str, Any] = {"target": target, "policy": policy, "seed": _seed(seed)}
    options["workers"] = _processes(workers)
    start = _script_run if names_a_file(kernel) else _rung_run
    what, compute = start(kernel, _sizes(size), dtype, schedule, options)
    prints_to = sys.stderr if as_json else sys.stdout  # what the kernel itself prints is no JSON
    with screen.progress(what, quiet=as_json) as tell, redirect_stdout(prints_to):
        result = compute(progress=tell)
    _print(_named(kernel, result.as_dict()) if as_json else screen.rendered(screen.result_lines(result)))
    raise typer.Exit(0 if result.ok else 1)


Sizes = tuple[int, int, int]
Start = tuple[str, "Callable[..., Result | ScriptResult]"]
"""What a run is called while it is under way, and the run itself."""


def _rung_run(rung: str, size: Sizes | None, dtype: str | None, schedule: str, options: dict[str, Any]) -> Start:
    from blackwell_matmul.kernels import parse_schedule

    problem, pins = _problem(size, dtype), parse_schedule(rung, schedule)

    def compute(**more: Any) -> Result:
        from blackwell_matmul.harness import run_matmul

        return run_matmul(rung, problem, pins, **options, **more)

    return f"{rung} {problem}", compute


def _script_run(script: str, size: Sizes | None, dtype: str | None, schedule: str, options: dict[str, Any]) -> Start:
    def compute(**more: Any) -> Result | ScriptResult:
        from blackwell_matmul.harness import run_script

        return run_script(script, size, dtype, schedule, **options, **more)

    return script, compute


CHECK_EXAMPLES = """Examples:

`blackwell-matmul check v1 --size 256 256 256`

`blackwell-matmul check my_kernel.py:MyScript --schedule stages=3 --orders 8 --strict`

`blackwell-matmul check my_kernel.py:MyScript --seed 5` replays the order of a finding

`check` looks at the order of accesses; `run` compares the values. Kernels are given as for `run`.
"""


@app.command(epilog=CHECK_EXAMPLES)
def check(
    kernel: Kernel,
    size: Size = None,
    dtype: Dtype = None,
    schedule: Pins = "",
    orders: Annotated[
        str, typer.Option(metavar="INTEGER", help="How many orders of warps and completions to run.")
    ] = "1",
    seed: Annotated[
        str, typer.Option(metavar="INTEGER", help="The first order; 0 is program order. The inputs stay the same.")
    ] = "0",
    strict: Annotated[
        bool,
        typer.Option("--strict", metavar="", help="Count what works on today's hardware and nothing guarantees, too."),
    ] = False,
    target: Target = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Find races, missing waits and fences, and deadlocks of a kernel, each with the edge that is missing.

    Exit code 0: clean. 1: findings. 2: could not run.
    """
    from blackwell_matmul import screen_check

    options: dict[str, Any] = {"orders": _orders(orders), "seed": _seed(seed), "strict": strict, "target": target}
    options["workers"] = _processes(workers)
    sizes = _sizes(size)
    _require_knobs(kernel, schedule)
    with screen.progress(kernel, quiet=as_json) as tell, redirect_stdout(sys.stderr if as_json else sys.stdout):
        from blackwell_matmul.harness.checking import check_kernel

        try:
            report = check_kernel(kernel, sizes, dtype, schedule, progress=tell, **options)
        except SimulationError as error:
            raise typer.Exit(_complain(str(error), 2, as_json)) from None
    replay = screen_check.replay(kernel, size, dtype, schedule, target)
    _print(_named(kernel, report.as_dict()) if as_json else screen.rendered(screen_check.report_lines(report, replay)))
    raise typer.Exit(0 if report.ok else 1)


SCHEDULES_EXAMPLES = """Examples:

- `blackwell-matmul schedules v1`
- `blackwell-matmul schedules v2 --size 4096 4096 4096 --dtype bf16 --gpu GB200`
- `blackwell-matmul schedules v1 --size 512 512 100 --json`
"""


@app.command(epilog=SCHEDULES_EXAMPLES)
def schedules(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="RUNG", help="A rung (v0–v2, h0–h6, g0), or my_kernel.py:MyMatmul.", callback=_checked(_kernel)
        ),
    ],
    size: Size = None,
    dtype: Dtype = None,
    gpu: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The GPU by name, such as B200.", show_default="one that the rung is for"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="GPU", help="The GPU as the compiler calls it, such as sm_100a; in place of --gpu."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", metavar="", help="Give each rejected schedule a row of its own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the schedules of a rung: which can run, which one is chosen and why, and why not the others.

    A rejected row with several values for a knob stands for every combination of them. `columns` are of tensor memory.

    Exit code 0: some can run. 1: none can. 2: bad input.
    """
    if gpu is not None and target is not None:
        raise InputError("--gpu and --target name the same thing; give one of the two.")
    problem = _problem(_sizes(size), dtype)
    with redirect_stdout(sys.stderr):  # whatever a file of the user's prints while it is loaded
        from blackwell_matmul import harness

        listing = harness.schedules(rung, problem, _gpu(gpu, target))
    _print(_named(rung, listing.as_dict()) if as_json else screen.rendered(screen.schedule_lines(listing, every)))
    raise typer.Exit(0 if listing.runnable else 1)


COMPILE_EXAMPLES = """Examples:

- `blackwell-matmul compile v2 -o out/`
- `blackwell-matmul compile v2 --size 4096 4096 4096 --dtype bf16 --schedule stages=4 --sass`
- `blackwell-matmul compile my_kernel.py:MyScript --target sm_90a -o out/ --json`

Needs no GPU and no CUDA toolkit. The folder gets kernel.cu, kernel.ptx, kernel.cubin and bundle.json with the launch
plan; `blackwell_matmul.runtime.load(folder)` runs it.
"""


@app.command(epilog=COMPILE_EXAMPLES)
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
    from blackwell_matmul.compiler.report import bundle_lines, bundle_record

    sizes = _sizes(size)
    _require_knobs(kernel, schedule)
    with screen.progress(kernel, quiet=as_json), redirect_stdout(sys.stderr):
        from blackwell_matmul.harness.compiled import compile_kernel

        bundle = compile_kernel(kernel, sizes, dtype, schedule, target=target)
    if output is not None:
        bundle.save(output)
    if as_json:
        _print(_named(kernel, bundle_record(bundle, output, sass)))
    else:
        _print(screen.rendered(bundle_lines(bundle, output, sass)))


BENCH_EXAMPLES = """Examples:

- `blackwell-matmul bench`
- `blackwell-matmul bench --suite llm --baselines --out results/`
- `blackwell-matmul bench --size 4096 4096 4096 --rungs v2,my_kernel.py:MyMatmul --dtype bf16`
- `blackwell-matmul bench --compile-only --target H200 --out results/`
- `blackwell-matmul bench --draw results/`
- `blackwell-matmul bench --suite torch-compile --quick --out results/`

Suites: ladder (squares, every rung), llm (layers of language models), odd (tails), stress (thousands of repetitions,
each compared). The folder gets results.json, which a second run goes on with, and a chart where matplotlib is there.

Studies: torch-compile (what torch.compile makes of the matmuls of models, which switches help), triton-tma (large TMA
configurations of Triton against small ones), bandwidth (copies with TMA and without). The folder gets STUDY.json, which
a second run goes on with; --quick takes the few trials that say most.
"""


@app.command(epilog=BENCH_EXAMPLES)
def bench(
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            metavar="SUITE",
            help="ladder, llm, odd or stress; or a study: torch-compile, triton-tma or bandwidth.",
        ),
    ] = "ladder",
    size: Annotated[
        tuple[str, str, str] | None, typer.Option(metavar="M N K", help="One problem, in place of a suite.")
    ] = None,
    rungs: Annotated[
        str,
        typer.Option(metavar="RUNG,...", help="Rungs, or scripts (my_kernel.py:MyMatmul); all that this GPU has."),
    ] = "",
    dtype: Annotated[str, typer.Option(metavar="fp16,bf16", help="Element types.", show_default="the suite's")] = "",
    baselines: Annotated[
        bool, typer.Option("--baselines", metavar="", help="Add Triton's persistent matmul and torch.compile.")
    ] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", metavar="", help="Add each rung with the schedule that tune has found.")
    ] = False,
    rounds: Annotated[str, typer.Option(metavar="INTEGER", help="Rounds that count.")] = "15",
    repetitions: Annotated[str, typer.Option(metavar="INTEGER", help="Of the stress suite.")] = "5000",
    limit: Annotated[str, typer.Option(metavar="SECONDS", help="The longest that a kernel may be silent.")] = "90",
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Where results.json goes.")] = "bench_results",
    bundles: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Compiled kernels.", show_default="OUT/bundles")
    ] = None,
    again: Annotated[bool, typer.Option("--again", metavar="", help="Measure anew what is there already.")] = False,
    compile_only: Annotated[
        bool, typer.Option("--compile-only", metavar="", help="Fill the folder of compiled kernels; needs no GPU.")
    ] = False,
    target: Annotated[
        str, typer.Option(metavar="GPU", help="Of --compile-only: H200, or sm_90a.", callback=_checked(_gpu_name))
    ] = "sm_100a",
    draw: Annotated[str | None, typer.Option(metavar="FOLDER", help="Draw what is there, and measure nothing.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="Of a study, the few trials that say most.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the kernels on this machine's GPU, then time them against cuBLAS, all in turn.

    Exit code 0: what ran is right. 1: something is wrong, crashed or hung. 2: could not run.
    """
    from blackwell_matmul import screen_bench, screen_studies
    from blackwell_matmul.studies import STUDIES

    limit_s = _integer("--limit", limit)
    options = {
        "suite": suite, "size": _sizes(size), "rungs": _words(rungs), "dtypes": _words(dtype),
        "baselines": baselines, "rounds": _integer("--rounds", rounds), "limit_s": limit_s,
        "repetitions": _integer("--repetitions", repetitions), "out": out, "bundles": bundles, "again": again,
    }  # fmt: skip
    if suite in STUDIES:
        outcome = screen_studies.studied(suite, out, limit_s, again, quick, quiet=as_json)
    elif draw is not None:
        outcome = screen_bench.drawn(draw)
    elif compile_only:
        outcome = screen_bench.compiled(options, target, quiet=as_json)
    else:
        outcome = screen_bench.measured(options, tuned, quiet=as_json)
    _print(_json(outcome.record) if as_json else screen.rendered(outcome.lines))
    raise typer.Exit(0 if outcome.ok else 1)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (word.strip() for word in text.split(","))))


TUNE_EXAMPLES = """Examples:

- `blackwell-matmul tune v2 --size 4096 4096 4096`
- `blackwell-matmul tune v2 --size 128 8192 8192 --dtype bf16 --budget 60 --top 8`
- `blackwell-matmul tune my_kernel.py:MyMatmul`

A call that pins no schedule uses the winner from then on, for this n and k and an m of this size, on this GPU. A script
of your own says its candidates with tilus.autotune. `schedules` lists what a rung can choose from, without a GPU.
"""


@app.command(epilog=TUNE_EXAMPLES)
def tune(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="A rung, or a script: my_kernel.py:MyMatmul.", callback=_checked(_kernel)
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
    from blackwell_matmul import detect, screen_tune

    problem = _problem(_sizes(size), dtype)
    figures = {"budget_s": budget, "top": top, "limit_s": limit}
    options = {name: _integer(f"--{name.removesuffix('_s')}", text) for name, text in figures.items()}
    detect.require_gpu()  # before torch and tilus are loaded
    with screen.telling(quiet=as_json) as tell, redirect_stdout(sys.stderr):
        from blackwell_matmul import tuner

        found = tuner.tune(kernel, problem, progress=tell, **options)
    _print(_named(kernel, found.as_dict()) if as_json else screen.rendered(screen_tune.tuning_lines(found)))
    raise typer.Exit(0 if found.winner else 1)


DOCTOR_EXAMPLES = """Examples:

`blackwell-matmul doctor`

`blackwell-matmul doctor --json`
"""


@app.command(epilog=DOCTOR_EXAMPLES)
def doctor(as_json: Json = False) -> None:
    """Look at this machine: what is installed, which GPUs there are and what they can do, and what to mend.

    Exit code 0: nothing is a problem, also without a GPU. 1: something is. 2: could not look.
    """
    with redirect_stdout(sys.stderr):  # whatever a library prints while it is imported
        from blackwell_matmul.doctor import diagnosis_lines, facts, show

        found = facts.gather()
        told = diagnosis_lines.diagnose(found)
    _print(_json(show.diagnosis_record(found, told)) if as_json else show.diagnosis(told))
    raise typer.Exit(1 if any(line.status == "problem" for line in told) else 0)


VERIFY_EXAMPLES = """Examples:

`blackwell-matmul verify`

`blackwell-matmul verify simulator triton`

The layers are simulator, gpu, triton and torch.compile. Each is compiled, run and compared in a process of its own.
"""


@app.command(epilog=VERIFY_EXAMPLES)
def verify(
    layers: Annotated[list[str] | None, typer.Argument(help="The layers to try; all of them by default.")] = None,
    timeout: Annotated[str, typer.Option(metavar="SECONDS", help="The longest that a layer may take.")] = "300",
    as_json: Json = False,
) -> None:
    """Compile, run and compare for real, layer by layer, and say what ran where.

    Exit code 0: all that ran is right. 1: something is wrong, or failed. 2: bad input.
    """
    from blackwell_matmul.doctor import show, verify

    names, seconds = verify.known_layers(layers or verify.LAYERS), _integer("--timeout", timeout)
    outcomes = verify.verify(names, None if as_json else show.starting, seconds)
    _print(_json(show.outcomes_record(outcomes)) if as_json else show.outcomes(outcomes))
    raise typer.Exit(0 if verify.passed(outcomes) else 1)


def _gpu(gpu: str | None, target: str | None) -> Any:
    from blackwell_matmul.gpus import gpu_named

    return gpu if target is None else gpu_named(target)


def _problem(size: Sizes | None, dtype: str | None) -> Problem:
    from blackwell_matmul.problem import Problem

    m, n, k = size or (1024, 1024, 1024)
    return Problem(m, n, k, "fp16" if dtype is None else dtype)


def _sizes(size: tuple[str, str, str] | None) -> Sizes | None:
    from blackwell_matmul.problem import positive

    if size is None:
        return None
    m, n, k = (positive(name, _integer(f"{name} of --size", text)) for name, text in zip("mnk", size))
    return m, n, k


def _require_knobs(kernel: str, schedule: str) -> None:
    """Of a rung, that some rung has them; what a script has says its class."""
    from blackwell_matmul.harness.user_kernel import names_a_file
    from blackwell_matmul.problem import Schedule

    if not names_a_file(kernel):
        Schedule.parse(schedule)


def _seed(text: str) -> int:
    from blackwell_matmul.problem import plain_seed

    return plain_seed(_integer("--seed", text))


def _orders(text: str) -> int:
    from blackwell_matmul.problem import MAX_ORDERS

    return _between("--orders", text, MAX_ORDERS)


def _integer(name: str, text: str) -> int:
    """Read an integer; typer's own message names neither the value nor which of three it was."""
    if not re.fullmatch(r"[+-]?[0-9]{1,100}", text):
        raise InputError(f"{name} is {text[:100]!r}; it must be an integer.")
    return int(text)


def _processes(text: str | None) -> int | None:
    """Those of --workers; None for one a core."""
    from blackwell_matmul.problem import MAX_WORKERS

    return None if text is None else _between("--workers", text, MAX_WORKERS)


def _between(name: str, text: str, most: int) -> int:
    """From 1."""
    count = _integer(name, text)
    if not 1 <= count <= most:
        raise InputError(f"{name} is {text[:100]}; it must be an integer from 1 to {most}.")
    return count


def _named(kernel: str, record: Mapping[str, object]) -> str:
    """A record as JSON, with the rung beside the class: its name on the ladder, null for a script of the user's."""
    from blackwell_matmul.harness.user_kernel import names_a_file

    rung = None if names_a_file(kernel) else kernel.lower()
    return _json({"kernel": record["kernel"], "rung": rung, **record})


def _json(record: dict[str, object]) -> str:
    return json.dumps(record, allow_nan=False)


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # the reader left: nobody to tell, and nothing may be left to flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(2) from None
