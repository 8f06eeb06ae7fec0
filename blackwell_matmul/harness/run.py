"""Run a rung on made-up inputs and report: what the command line and the examples are made of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_name
from blackwell_matmul.harness.result import Result
from blackwell_matmul.harness.verdict import check_matmul
from blackwell_matmul.problem import Problem, Schedule

if TYPE_CHECKING:
    from blackwell_matmul.script import Kernel
    from blackwell_matmul.simulator.findings import Run


def run_matmul(
    rung: str | type | Kernel,
    problem: Problem,
    schedule: Schedule | Mapping[str, object] | None = None,
    *,
    seed: int = 0,
    target: str = "sm_100a",
) -> Result:
    """Make inputs, run a kernel in the simulator, and check C against float64.

    rung: "v0", "v1", ..., or a script class or kernel that is called with (m, n, k, a, b, c). A schedule may pin
    some knobs; the others are chosen. `seed` gives the inputs and the simulator's order. Raises InputError for a
    problem, schedule, seed or target that breaks a rule, UnsupportedError and CompileError when the kernel cannot
    be simulated, SimulationError when it cannot go on. A wrong result is no exception: see `Result.ok`.
    """
    script = _script(rung) if isinstance(rung, str) else rung
    a, b, c = make_inputs(problem, seed)
    from blackwell_matmul.simulator import simulate

    pins = schedule.as_dict() if isinstance(schedule, Schedule) else schedule
    run = simulate(script, problem.m, problem.n, problem.k, a, b, c, schedule=pins or None, target=target, seed=seed)
    name = rung if isinstance(rung, str) else run.kernel
    return report(run, a, b, c, rung=name, seed=seed)


def report(
    run: Run, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *, rung: str | None = None, seed: int | None = None
) -> Result:
    """Check C = A @ B.T after a run, in the tiles of its schedule, and put all that is known in one `Result`."""
    schedule = _knobs(run.schedule)
    tile_m, tile_n = (_tile(schedule.get(name)) for name in ("block_m", "block_n"))
    verdict = check_matmul(a, b, c, tile_m=tile_m, tile_n=tile_n)
    problem = Problem(a.shape[0], b.shape[0], a.shape[1], dtype_name(c.dtype))
    name = run.kernel if rung is None else rung
    return Result(name, problem, schedule, run.target, seed, verdict, run.seconds, findings=run.findings)


def make_inputs(problem: Problem, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A[m, k] and B[n, k], normally distributed, and C[m, n] full of NaN, so that an element nobody writes shows.

    The same seed gives the same values. Raises InputError when this machine's memory is too small for them.
    """
    if not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; it must be an integer from 0 to 2**63 - 1.")
    _require_memory(problem)
    dtype, generator = TORCH_DTYPES[problem.dtype], torch.Generator().manual_seed(seed)
    try:
        a = torch.randn(problem.m, problem.k, generator=generator).to(dtype)
        b = torch.randn(problem.n, problem.k, generator=generator).to(dtype)
        return a, b, torch.full((problem.m, problem.n), float("nan"), dtype=dtype)
    except (MemoryError, RuntimeError):
        raise InputError(f"{problem} does not fit into this machine's memory; choose a smaller size.") from None


def _script(rung: str) -> type:
    from blackwell_matmul import kernels

    return kernels.rung(rung)


def _knobs(schedule: Mapping[str, object]) -> dict[str, object]:
    """The schedule in plain values, without the element type, which the problem names."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value if isinstance(value, plain) else str(value) for name, value in schedule.items() if name != "dtype"
    }


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
