"""The study "triton-tma": conservative against aggressive TMA configurations of Triton's GEMM and copy.

One configuration on one size a trial, checked, then timed in turn with torch's own. A configuration that is too large
for this GPU is refused with the numbers; a compiler that crashes or a kernel that hangs costs its trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.harness.bench.devices import Cpu, device_named
from blackwell_matmul.harness.reference import TORCH_DTYPES
from blackwell_matmul.harness.verdict import check_matmul
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul_studies import interleaved
from blackwell_matmul_studies.tma_configurations import KNOWN, TmaConfiguration, refused, why
from blackwell_matmul_studies.trial import Trial

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
TRITON_ENVIRONMENT = {"TRITON_ALWAYS_COMPILE": "1"}
"""Without it, a second run on a machine would find the compiler's time in a cache."""
MINE, TORCH = "triton", "torch"


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
        TRITON_ENVIRONMENT,
    )


# --- what a trial does


def gemm(step: interleaved.Step, size: int, configuration: str, device: str = "cuda") -> dict[str, Any]:
    """C = A @ B.T against torch.mm, in fp16 with host descriptors."""
    place, problem = device_named(device), Problem(size, size, size, DTYPE)
    call = _call(interleaved.triton_kernels().gemm, TmaConfiguration.parse(configuration))
    found = _checked_product(step, call, place, problem)
    timed = interleaved.timed(
        {MINE: call, TORCH: _mm}, place.sets(problem), place, interleaved.INTERLEAVED_SETTINGS, step
    )
    return {**_rate("tflops", problem.flops / 1e6, timed), **found}


def copy(step: interleaved.Step, size: int, configuration: str, device: str = "cuda") -> dict[str, Any]:
    """y = x, square, against torch's copy_."""
    place, moved_bytes = device_named(device), 2 * size**2 * TORCH_DTYPES[DTYPE].itemsize
    call = _call(interleaved.triton_kernels().copy, TmaConfiguration.parse(configuration))
    found = _checked_copy(step, call, *_squares(size, place), place)
    sets = [_squares(size, place) for _ in interleaved.rotating(place, moved_bytes)]
    timed = interleaved.timed({MINE: call, TORCH: _copy}, sets, place, interleaved.INTERLEAVED_SETTINGS, step)
    return {**_rate("gb_per_s", moved_bytes / 1e3, timed), **found}


def _call(kernel: Callable[..., Any], chosen: TmaConfiguration) -> Callable[..., Any]:
    options = {"num_stages": chosen.num_stages, "num_warps": chosen.num_warps}
    return lambda *tensors: kernel(*tensors, "host", chosen.block, **options)


def _checked_product(step: interleaved.Step, call: Callable[..., Any], place: Cpu, problem: Problem) -> dict[str, Any]:
    """What is known of the compiled kernel, and its error; WrongResult where that is too large."""
    (a, b), output = place.operands(problem, SEED), place.poisoned(problem)
    built = _built(step, lambda: call(a, b, output.c), place)
    step("checking")
    verdict = check_matmul(a, b, output.c)
    if not verdict.ok or not output.untouched_around():
        raise interleaved.WrongResult("it wrote outside of C" if verdict.ok else verdict.message)
    return {**built, "error": verdict.max_abs_error, "torch_error": verdict.reference_error}


def _checked_copy(
    step: interleaved.Step, call: Callable[..., Any], x: torch.Tensor, y: torch.Tensor, place: Cpu
) -> dict[str, Any]:
    built = _built(step, lambda: call(x, y), place)
    if not torch.equal(x, y):
        raise interleaved.WrongResult(f"{int((x != y).sum())} of {x.numel()} elements of y differ from x")
    return built


def _squares(size: int, place: Cpu) -> tuple[torch.Tensor, torch.Tensor]:
    """An input, and an output full of NaN."""
    x = torch.randn(size, size, device=place.torch_device).to(TORCH_DTYPES[DTYPE])
    return x, interleaved.poisoned_like(x)


def _mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b.T, out=c)


def _copy(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(x)


def _built(step: interleaved.Step, call: Callable[[], Any], place: Cpu) -> dict[str, Any]:
    """The first call; UnsupportedError where this GPU has too little of something for it."""
    step("compiling")
    try:
        compiled, seconds = interleaved.first_call(call, place)
    except Exception as error:
        if refused(error):
            raise UnsupportedError(f"{why(error)}.") from error
        raise
    return {"first_call_s": seconds, **_about(compiled)}


def _about(compiled: Any) -> dict[str, int | None]:
    """What a compiled kernel tells of itself; Triton's interpreter makes none."""
    metadata = getattr(compiled, "metadata", None)
    told = {"registers": getattr(compiled, "n_regs", None), "spills": getattr(compiled, "n_spills", None)}
    return {**told, "shared_bytes": getattr(metadata, "shared", None)}


def _rate(name: str, in_one_us: float, timed: Mapping[str, Any]) -> dict[str, Any]:
    """in_one_us: the rate of a call that takes 1 µs."""
    mine, torchs = (timed["timings"][who] for who in (MINE, TORCH))
    how = {key: timed[key] for key in ("warmup", "telemetry", "sets")}
    ratio = torchs["median_us"] / mine["median_us"]
    return {name: in_one_us / mine["median_us"], "of_torch": ratio, "mine": mine, "torch": torchs, **how}
