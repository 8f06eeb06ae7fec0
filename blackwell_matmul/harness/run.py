"""`run_matmul`, `run_script`: simulate any kernel and check its outputs. `report`: the `Result` of an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_values
from blackwell_matmul.harness.calls.kernel_call import FormOf, KernelCall, Target, resolve
from blackwell_matmul.harness.calls.user_kernel import Pins, load
from blackwell_matmul.harness.reference import dtype_name
from blackwell_matmul.harness.result import Ran, Result, ScriptResult
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.problem import OF_THE_PROBLEM, Problem, Schedule, plain_seed

if TYPE_CHECKING:
    from blackwell_matmul.simulator.findings import Run

Progress = Callable[[int, int], None]
"""Callback with the number of finished CTAs and their total."""


def run_matmul(
    kernel: Any,
    m: Any = None,
    n: Any = None,
    k: Any = None,
    *tensors: Any,
    dtype: str | None = None,
    schedule: Pins = None,
    target: Target = None,
    form: FormOf = None,
    seed: int = 0,
    policy: str = "adversarial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a matmul kernel in the simulator, and compare C with float64.

    kernel: "v1", "my_kernel.py:MyMatmul", a script class, or a kernel that is called with (m, n, k, a, b, c). m, n, k:
    size for which inputs of type `dtype` ("fp16", "bf16", ...) are generated, or m is a `Problem`. If the tensors a, b
    and c follow, they are used. schedule: pinned knobs, as a `Schedule`, by name, or as "block_m=128"; the kernel
    chooses the others. target: the GPU, such as "B200" or "sm_100a"; None: the kernel's first target. form: layouts of
    the matrices and the epilogue, for kernels that take a `Form`. seed: seed of the inputs and of the simulator's
    order. policy, workers, progress: those of `simulate`.

    Raises InputError for arguments that do not fit. Raises UnsupportedError or CompileError if the kernel cannot be
    simulated, SimulationError if it stops. A wrong result raises nothing: see `Result.ok`.
    """
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, seed=plain_seed(seed))
    if not call.is_matmul:
        beside = "a reference" if call.kernel.reference is not None else "other arguments"
        raise InputError(f"{call.kernel.name} has {beside} of its own, not C = A @ B.T; run_script runs it.")
    result = run_call(call, policy=policy, workers=workers, progress=progress)
    assert isinstance(result, Result)
    return result


def run_script(
    script: str | type,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
    *,
    seed: int = 0,
    target: str | None = None,
    policy: str = "adversarial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result | ScriptResult:
    """Run a user's script in the simulator, and check its outputs if possible.

    script: "my_kernel.py:MyScript", or a tilus.Script class. Its file may define `example_args` and `reference`
    (`calls/user_kernel.py`). Without `example_args` the script is called with (m, n, k, a, b, c), on inputs of type
    `dtype` ("fp16", "bf16"; None: the type of its pointers). size: (m, n, k); None: 1024 each, or the defaults of
    `example_args`. schedule: pinned arguments of `__init__`, as a mapping or as "block_m=128,swizzle=true". seed: seed
    of the inputs and of the simulator's order. policy, workers, progress: those of `simulate`.

    Returns a Result for a plain matmul, else a ScriptResult. Errors are those of `run_matmul`. A file that cannot be
    loaded raises InputError, too.
    """
    if size is not None and (not isinstance(size, (tuple, list)) or len(size) != 3):
        raise InputError("size must be three integers, (m, n, k), or None.")
    call = resolve(load(script), (), dtype, schedule, size=size, target=target, seed=plain_seed(seed))
    return run_call(call, policy=policy, workers=workers, progress=progress)


def run_call(
    call: KernelCall,
    *,
    policy: str = "adversarial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result | ScriptResult:
    """Simulate a resolved call, and compare its outputs with the file's `reference`, or else with A @ B.T."""
    from blackwell_matmul.simulator import simulate

    expected = call.expected()
    options: Any = {"policy": policy, "workers": workers, "progress": progress}
    with call.kernel.loaded():
        pins, seed = call.pins or None, call.seed or 0
        run = simulate(call.script, *call.arguments, schedule=pins, target=call.arch, seed=seed, **options)
    return judged(call, expected, _ran(run))


def _ran(run: Run) -> Ran:
    return Ran(run.kernel, run.schedule, run.target, run.seconds, "simulated", run.findings, run.disagreements)


def judged(call: KernelCall, expected: Mapping[int, Any], ran: Ran) -> Result | ScriptResult:
    """Return the result of a call after its run. expected: outputs of the `reference`, by position."""
    if call.is_matmul and call.problem is not None:
        return _product(ran, call.problem, call.arguments[3:], call.seed)
    about: Any = {**vars(ran), "schedule": plain_values(ran.schedule), "seed": call.seed or 0}
    return ScriptResult(**about, size=call.size, outputs=call.compared(expected))


def _product(ran: Ran, problem: Problem, operands: Sequence[Any], seed: int | None) -> Result:
    """Return the result of a product. operands: those of `check_product`. Errors are located by the tiles of C."""
    schedule = {name: value for name, value in plain_values(ran.schedule).items() if name not in OF_THE_PROBLEM}
    tile_m, tile_n = tile_of_c(schedule)
    verdict = check_product(problem, operands, tile_m=tile_m, tile_n=tile_n)
    about: Any = {**vars(ran), "schedule": schedule, "seed": seed}
    return Result(**about, problem=problem, verdict=verdict)


def report(run: Run, a: torch.Tensor, b: torch.Tensor, *rest: torch.Tensor, seed: int | None = None) -> Result:
    """Return the `Result` of a run that computed C = A @ B.T.

    rest: c; or scale_a, scale_b and c of a block-scaled product. Errors are located by the tiles of C.
    """
    named = run.schedule.get("dtype") if len(rest) > 1 else None
    dtype = dtype_name(a.dtype) if named is None else str(named)
    elements = a.shape[1] if named is None else a.shape[1] * BLOCK_SCALED[dtype].per_byte
    return _product(_ran(run), Problem(a.shape[0], b.shape[0], elements, dtype), (a, b, *rest), seed)


def tile_of_c(schedule: Mapping[str, object]) -> tuple[int, int]:
    """Return the rows and columns of a schedule's tile of C; 128 for a missing knob."""
    rows, columns = ("block_n", "block_m") if schedule.get("swap_ab") else ("block_m", "block_n")
    return _tile(schedule.get(rows)), _tile(schedule.get(columns))


def _tile(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 128
