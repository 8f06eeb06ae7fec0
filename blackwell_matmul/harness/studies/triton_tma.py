"""The study "triton-tma": conservative against aggressive TMA configurations of Triton's GEMM and copy.

One configuration on one size a trial, checked, then timed in turn with torch's own. A configuration that is too large
for this GPU is refused with the numbers; a compiler that crashes or a kernel that hangs costs its trial.
"""

from __future__ import annotations

from typing import Any

import torch

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.harness.bench.devices import Cpu, device_named
from blackwell_matmul.harness.reference import TORCH_DTYPES
from blackwell_matmul.harness.studies import turns
from blackwell_matmul.harness.studies.configurations import KNOWN, Configuration, refused, why
from blackwell_matmul.harness.studies.trial import Trial
from blackwell_matmul.harness.verdict import Verdict, check_matmul
from blackwell_matmul.problem import Problem

SIZES = (2048, 4096, 8192)
QUICK_SIZE = 4096
QUICK = {
    "gemm": (
        *("64x64x32 s1 w4", "128x64x32 s1 w4", "128x128x64 s3 w8", "128x256x64 s3 w8", "128x256x64 s4 w8"),
        "256x256x128 s5 w16",
    ),
    "copy": ("64x64 s1 w4", "64x128 s3 w4", "128x128 s4 w8", "256x256 s5 w16"),
}
DTYPE = "fp16"
"""Which Triton's interpreter has, too: it multiplies no bf16."""
SEED = 100
ENVIRONMENT = {"TRITON_ALWAYS_COMPILE": "1"}
"""Without it, a second run on a machine would find the compiler's time in a cache."""
TORCH = "torch"


def trials(quick: bool) -> tuple[Trial, ...]:
    return tuple(
        _trial(kernel, size, str(configuration))
        for kernel, known in KNOWN.items()
        for size in ((QUICK_SIZE,) if quick else SIZES)
        for configuration in known
        if not quick or str(configuration) in QUICK[kernel]
    )


def _trial(kernel: str, size: int, configuration: str) -> Trial:
    return Trial(
        f"{kernel} {size} {configuration}",
        f"{__name__}:{kernel}",
        {"size": size, "configuration": configuration},
        ENVIRONMENT,
    )


# --- what a trial does


def gemm(step: turns.Step, size: int, configuration: str, device: str = "cuda") -> dict[str, Any]:
    """C = A @ B.T against torch.mm, in fp16 with host descriptors."""
    place, chosen, problem = device_named(device), Configuration.parse(configuration), Problem(size, size, size, DTYPE)
    kernels = turns.triton_kernels()

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> Any:
        return kernels.gemm(a, b, c, "host", chosen.block, **_options(chosen))

    a, b = place.operands(problem, SEED)
    output = place.poisoned(problem)
    built = _built(step, lambda: call(a, b, output.c), place)
    step("checking")
    verdict = check_matmul(a, b, output.c, tile_m=chosen.block[0], tile_n=chosen.block[1])
    if not verdict.ok or not output.untouched_around():
        raise turns.WrongResult(verdict.message if not verdict.ok else "it wrote outside of C.")
    calls = {str(chosen): call, TORCH: _mm}
    timed = turns.in_turns(calls, place.sets(problem), place, turns.SETTINGS, step)
    return _result(str(chosen), timed, built, {"tflops": problem.flops / 1e6}) | _errors(verdict)


def copy(step: turns.Step, size: int, configuration: str, device: str = "cuda") -> dict[str, Any]:
    """y = x, square, against torch's copy_."""
    place, chosen, kernels = device_named(device), Configuration.parse(configuration), turns.triton_kernels()

    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        return kernels.copy(x, y, "host", chosen.block, **_options(chosen))

    x = _square(size, place)
    y = turns.poisoned_like(x)
    built = _built(step, lambda: call(x, y), place)
    if not torch.equal(x, y):
        raise turns.WrongResult(f"{int((x != y).sum())} of {x.numel()} elements of y differ from x")
    moved_bytes = 2 * x.numel() * x.element_size()
    sets = [(_square(size, place), torch.empty_like(x)) for _ in turns.rotating(place, moved_bytes)]
    timed = turns.in_turns({str(chosen): call, TORCH: _copy}, sets, place, turns.SETTINGS, step)
    return _result(str(chosen), timed, built, {"gb_per_s": moved_bytes / 1e3})


def _options(chosen: Configuration) -> dict[str, int]:
    return {"num_stages": chosen.num_stages, "num_warps": chosen.num_warps}


def _square(size: int, place: Cpu) -> torch.Tensor:
    return torch.randn(size, size, device=place.torch_device).to(TORCH_DTYPES[DTYPE])


def _mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b.T, out=c)


def _copy(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(x)


def _built(step: turns.Step, call: Any, place: Cpu) -> dict[str, Any]:
    """The first call, and what the compiled kernel tells of itself."""
    step("compiling")
    try:
        compiled, seconds = turns.first_call(call, place)
    except Exception as error:
        if refused(error):
            raise UnsupportedError(f"{why(error)}.") from error
        raise
    about = {"registers": "n_regs", "spills": "n_spills"}
    shared_bytes = getattr(getattr(compiled, "metadata", None), "shared", None)
    told = {name: getattr(compiled, field, None) for name, field in about.items()}
    return {"first_call_s": seconds, **told, "shared_bytes": shared_bytes}


def _result(name: str, timed: dict[str, Any], built: dict[str, Any], per_us: dict[str, float]) -> dict[str, Any]:
    """per_us: a rate, by its name, of a call that takes one µs."""
    mine, torchs = timed["timings"][name], timed["timings"][TORCH]
    rates = {rate: value / mine["median_us"] for rate, value in per_us.items()}
    return {**rates, "of_torch": torchs["median_us"] / mine["median_us"], "mine": mine, "torch": torchs, **built} | {
        key: timed[key] for key in ("warmup", "telemetry", "sets")
    }


def _errors(verdict: Verdict) -> dict[str, float]:
    return {"error": verdict.max_abs_error, "torch_error": verdict.reference_error}
