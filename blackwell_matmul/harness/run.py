"""Runs a kernel, a rung or a user's script, and reports, for the command line and the examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_values
from blackwell_matmul.harness.calls.calling import FormOf, Target, arch_of, resolve_call
from blackwell_matmul.harness.calls.kernel_call import KernelCall, resolve
from blackwell_matmul.harness.calls.user_kernel import Pins, load
from blackwell_matmul.harness.reference import dtype_name
from blackwell_matmul.harness.result import How, Result, ScriptResult
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.problem.problem import Problem, Schedule, plain_seed

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
    """Run a matmul kernel in the simulator, and check C against float64.

    kernel: "v1", "my_kernel.py:MyMatmul", a script class or a kernel that is called with (m, n, k, a, b, c). m, n, k:
    the size, for which inputs of type `dtype` ("fp16", "bf16", ...) are made up, or m a `Problem`; with the tensors a,
    b and c behind them, these are used. schedule: pins some knobs, as a `Schedule`, by name or as "block_m=128"; the
    others are chosen. target: the GPU, as "B200" or "sm_100a"; None is one that the kernel is for. form: for products,
    how the matrices lie in memory, and the epilogue; C is checked against the same epilogue in float64.
    `seed` gives the inputs and the simulator's order. policy, workers and progress are those of `simulate`.

    Raises InputError for an argument that breaks a rule, UnsupportedError and CompileError when the kernel cannot be
    simulated, SimulationError when it cannot go on. A wrong result is no exception: see `Result.ok`.
    """
    call = resolve_call(kernel, (m, n, k, *tensors), dtype, schedule, form, seed=plain_seed(seed))
    _require_matmul(call)
    result = run_call(call, target=arch_of(target), policy=policy, workers=workers, progress=progress)
    assert isinstance(result, Result)
    return result


def _require_matmul(call: KernelCall) -> None:
    if not call.is_matmul:
        beside = "a reference" if call.kernel.reference is not None else "other arguments"
        raise InputError(f"{call.kernel.name} has {beside} of its own, not C = A @ B.T; run_script runs it.")


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

    script: "my_kernel.py:MyScript", or a tilus.Script class. Its file may define `example_args` and `reference`, see
    `harness.user_kernel`. Without the first it is called with (m, n, k, a, b, c) like a rung, on inputs of type `dtype`
    ("fp16", "bf16"; None: as its pointers say). size: (m, n, k); None is 1024 each, or the defaults of `example_args`.
    schedule: pins arguments of `__init__`, as a mapping or as "block_m=128,swizzle=true". seed: of the inputs and the
    simulator's order. policy, workers, progress: those of `simulate`.

    Returns a ScriptResult, as the kernel is no matmul or has a reference of its own. Errors are those of `run_matmul`;
    a file that cannot be loaded is an InputError too.
    """
    seed = plain_seed(seed)
    call = resolve(load(script), size, dtype, schedule, seed=seed)
    return run_call(call, target=target, policy=policy, workers=workers, progress=progress)


def run_call(
    call: KernelCall,
    *,
    target: str | None = None,
    policy: str = "adversarial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result | ScriptResult:
    """Run a resolved call, and compare with the file's `reference`, if any, or as a matmul."""
    from blackwell_matmul.simulator import simulate

    expected = call.expected()
    options = _Options(target=target, seed=call.seed, policy=policy, workers=workers, progress=progress)
    with call.loaded():
        run = simulate(call.script, *call.arguments, schedule=call.pins or None, **options)
    if call.is_matmul and call.problem is not None:
        return _reported(run, call.problem, call.arguments[3:], call.seed)
    outputs, schedule = tuple(call.compared(expected)), plain_values(run.schedule)
    return ScriptResult(
        call.kernel.name, call.size, schedule, run.target, call.seed, outputs, run.seconds, run.findings,
        run.disagreements,
    )  # fmt: skip


class _Options(TypedDict):
    """Options that `simulate` shares with its callers."""

    target: str | None
    seed: int
    policy: str
    workers: int | None
    progress: Progress | None


def report(run: Run, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, seed: int | None = None) -> Result:
    """Check C = A @ B.T after a run, by its schedule's tiles, and return a `Result`."""
    problem = Problem(a.shape[0], b.shape[0], a.shape[1], dtype_name(a.dtype))
    return _reported(run, problem, (a, b, c), seed)


def _reported(run: Run, problem: Problem, operands: Sequence[Any], seed: int | None) -> Result:
    schedule = plain_values(run.schedule)
    result = matmul_result(run.kernel, problem, schedule, run.target, operands, seed, run.seconds)
    return replace(result, findings=run.findings, disagreements=run.disagreements)


def matmul_result(
    kernel: str,
    problem: Problem,
    schedule: Mapping[str, object],
    target: str,
    operands: Sequence[Any],
    seed: int | None,
    seconds: float,
    how: How = "simulated",
) -> Result:
    """Check A, B and C after a run, by its schedule's tiles. operands: those of `check_product`."""
    schedule = {name: value for name, value in schedule.items() if name not in ("dtype", "form")}
    tile_m, tile_n = tile_of_c(schedule)
    verdict = check_product(problem, operands, tile_m=tile_m, tile_n=tile_n)
    return Result(kernel, problem, schedule, target, seed, verdict, seconds, how=how)


def tile_of_c(schedule: Mapping[str, object]) -> tuple[int, int]:
    """Return rows and columns of a schedule's tile; 128 if not given."""
    rows, columns = ("block_n", "block_m") if schedule.get("swap_ab") else ("block_m", "block_n")
    return _tile(schedule.get(rows)), _tile(schedule.get(columns))


def _tile(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 128
