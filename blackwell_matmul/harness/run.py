"""Run a kernel, a rung or a script of the user's, and report: what the command line and the examples are made of."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness import user_kernel
from blackwell_matmul.harness.outputs import compare
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_name
from blackwell_matmul.harness.result import Result, ScriptResult
from blackwell_matmul.harness.user_kernel import UserKernel
from blackwell_matmul.harness.verdict import check_matmul
from blackwell_matmul.problem import Problem, Schedule, as_pins, plain_seed
from blackwell_matmul.validation import plain_values, said, shown

if TYPE_CHECKING:
    from blackwell_matmul.script import Kernel
    from blackwell_matmul.simulator.findings import Run

Progress = Callable[[int, int], None]
"""Told how many CTAs are done, of how many."""


def run_matmul(
    rung: str | type | Kernel,
    problem: Problem,
    schedule: Schedule | Mapping[str, object] | None = None,
    *,
    seed: int = 0,
    target: str | None = None,
    policy: str = "adversarial",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Make inputs, run a kernel in the simulator, and check C against float64.

    rung: "v0", "v1", ..., or a script class or kernel that is called with (m, n, k, a, b, c). A schedule may pin
    some knobs; the others are chosen. `seed` gives the inputs and the simulator's order. policy, workers and progress
    are those of `simulate`. Raises InputError for an argument that breaks a rule, UnsupportedError and CompileError
    when the kernel cannot be simulated, SimulationError when it cannot go on. A wrong result is no exception: see
    `Result.ok`.
    """
    script = _script(rung) if isinstance(rung, str) else rung
    pins, seed = as_pins(schedule), plain_seed(seed)
    a, b, c = make_inputs(problem, seed)
    from blackwell_matmul.simulator import simulate

    options = _Options(target=target, seed=seed, policy=policy, workers=workers, progress=progress)
    run = simulate(script, problem.m, problem.n, problem.k, a, b, c, schedule=pins or None, **options)
    return report(run, a, b, c, seed=seed)


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
    """Run a script of the user's in the simulator, and check what can be checked.

    script: "my_kernel.py:MyScript", or a tilus.Script class. `harness.user_kernel` says what its file may have beside:
    `example_args` and `reference`; without the first it is called with (m, n, k, a, b, c) like a rung, on inputs of
    type `dtype` ("fp16", "bf16"; None: as its pointers say). size: (m, n, k); None is 1024 each, or the defaults of
    `example_args`. schedule: pins arguments of `__init__`, as a mapping or as "block_m=128,swizzle=true". `seed` gives
    the inputs and the simulator's order. policy, workers and progress are those of `simulate`.

    A ScriptResult instead of a Result: the kernel is no matmul, or has a reference of its own. Errors are those of
    `run_matmul`; a file that cannot be loaded is an InputError too.
    """
    seed = plain_seed(seed)
    found = user_kernel.load(script)
    pins = user_kernel.read_schedule(found, schedule if isinstance(schedule, str) else as_pins(schedule))
    options = _Options(target=target, seed=seed, policy=policy, workers=workers, progress=progress)
    sizes = plain_size(size)
    if found.example_args is None:
        problem = user_kernel.matmul_problem(found, sizes, dtype)
        pins = user_kernel.fill_dtype(found, pins, problem)
        args: tuple[Any, ...] = (problem.m, problem.n, problem.k, *make_inputs(problem, seed))
        if found.reference is None:
            run = _simulate(found, args, pins, options)
            return report(run, *args[3:], seed=seed)
        return _run_beside(found, args, (problem.m, problem.n, problem.k), pins, options)
    if dtype is not None:
        raise InputError(
            f"dtype is {shown(dtype)} and {found.name} has example_args, which makes its own; leave it out."
        )
    with seeded(seed):
        args = user_kernel.example_call(found, sizes)
    return _run_beside(found, args, sizes, pins, options)


class _Options(TypedDict):
    """The options that `simulate` shares with those who call it."""

    target: str | None
    seed: int
    policy: str
    workers: int | None
    progress: Progress | None


def _simulate(found: UserKernel, args: tuple[Any, ...], pins: Mapping[str, object], options: _Options) -> Run:
    from blackwell_matmul.simulator import simulate

    with user_kernel.importable(found.folder), user_kernel.surviving_exit(found):
        return simulate(found.script_cls, *args, schedule=pins or None, **options)


def _run_beside(
    found: UserKernel,
    args: tuple[Any, ...],
    size: tuple[int, int, int] | None,
    pins: Mapping[str, object],
    options: _Options,
) -> ScriptResult:
    """Run, and compare with the file's `reference` if it has one, which sees the arguments as they were before."""
    expected = {} if found.reference is None else _expected(found, args, options["seed"])
    run = _simulate(found, args, pins, options)
    names = list(found.parameters)
    outputs = [compare(names[at], args[at], value, found.tolerance) for at, value in expected.items()]
    schedule = plain_values(run.schedule)
    return ScriptResult(
        found.name, size, schedule, run.target, options["seed"], tuple(outputs), run.seconds, run.findings,
        run.disagreements,
    )  # fmt: skip


def _expected(found: UserKernel, args: tuple[Any, ...], seed: int) -> dict[int, Any]:
    try:
        copies = copy.deepcopy(args)
    except Exception as error:
        raise InputError(f"the arguments of {found.name} cannot be copied for its reference: {said(error)}.") from error
    with seeded(seed):
        return user_kernel.expected_outputs(found, copies)


def plain_size(size: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Three positive integers, or None."""
    if size is None:
        return None
    if not isinstance(size, (tuple, list)) or len(size) != 3:
        raise InputError("size must be three integers, (m, n, k), or None.")
    problem = Problem(*size)
    return problem.m, problem.n, problem.k


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch and numpy that depend on the seed alone; what they were goes on afterwards."""
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(before)


def report(run: Run, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, seed: int | None = None) -> Result:
    """Check C = A @ B.T after a run, in the tiles of its schedule, and put all that is known in one `Result`."""
    schedule = {name: value for name, value in plain_values(run.schedule).items() if name != "dtype"}
    tile_m, tile_n = (_tile(schedule.get(name)) for name in ("block_m", "block_n"))
    verdict = check_matmul(a, b, c, tile_m=tile_m, tile_n=tile_n)
    problem = Problem(a.shape[0], b.shape[0], a.shape[1], dtype_name(c.dtype))
    return Result(
        run.kernel, problem, schedule, run.target, seed, verdict, run.seconds,
        findings=run.findings, disagreements=run.disagreements,
    )  # fmt: skip


def make_inputs(problem: Problem, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A[m, k] and B[n, k], normally distributed, and C[m, n] full of NaN, so that an element nobody writes shows.

    The same seed gives the same values. Raises InputError when this machine's memory is too small for them.
    """
    seed = plain_seed(seed)
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; it must be a Problem, such as Problem(m, n, k).")
    _require_memory(problem)
    dtype, generator = TORCH_DTYPES[problem.dtype], torch.Generator().manual_seed(seed)
    try:
        a, b = (
            torch.randn(rows, problem.k, generator=generator, dtype=torch.float32, device="cpu").to(dtype)
            for rows in (problem.m, problem.n)
        )
        return a, b, torch.full((problem.m, problem.n), float("nan"), dtype=dtype, device="cpu")
    except (MemoryError, RuntimeError):
        raise InputError(f"{problem} does not fit into this machine's memory; choose a smaller size.") from None


def _script(rung: str) -> type:
    from blackwell_matmul import kernels

    return kernels.rung(rung)


def _tile(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 128


def _require_memory(problem: Problem) -> None:
    m, n, k = problem.m, problem.n, problem.k
    need_bytes = problem.element_bytes * (m * k + n * k + m * n) + 8 * n * k
    have_bytes = _physical_memory_bytes()
    if have_bytes is not None and need_bytes > have_bytes:
        raise InputError(
            f"{problem} needs {need_bytes / 2**30:.4g} GiB for A, B, C and the check; this machine has "
            f"{have_bytes / 2**30:.4g} GiB, so choose a smaller size."
        )


def _physical_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
