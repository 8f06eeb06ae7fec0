"""Items of `first-light`, by stage, the most important first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

STAGES: Mapping[str, str] = {
    "doctor": "What this machine is",
    "values": "Results beside float64, and beside the emulator's to the bit",
    "micro": "How fast the parts of the GPU are",
    "ladder": "The ladder beside cuBLAS",
    "timelines": "What runs when, measured and predicted",
    "differential": "Small scripts, simulated beside run",
}
"""Headings of the stages, by name, in the order of the run."""

SIZES = ((256, 256, 256), (100, 72, 40), (264, 520, 136))
"""M, N, K of the problems whose values are compared: whole tiles, less than a tile, and partial tiles in each
dimension."""

SCALED_SIZES = ((256, 256, 512), (100, 72, 96), (264, 520, 288))
"""M, N, K of block-scaled problems. K is a multiple of the largest block, 32 elements. In the last two, K ends within
an atom."""

LADDER_SIZES = ((4096, 4096, 4096), (8192, 8192, 8192))
TIMELINE_SIZE, SMALL_SIZE = (4096, 4096, 4096), (128, 256, 256)
TIMELINES: Mapping[str, tuple[str, ...]] = {
    "sm_90a": ("h2", "h6"),
    "sm_100a": ("v1", "v4", "v6"),
    "sm_103a": ("v1", "v4", "v6"),
}
SCALED_TIMELINE = ("s2", "nvfp4")
"""Kernel and type of the block-scaled timeline, for GPUs that can run the kernel."""

TIMED_FORMATS = ("mxfp8", "nvfp4")
"""Formats of the products that are timed, together with torch's `scaled_mm`."""

TIMELINE_RECORDS = 8192
MORE_SCHEDULES = 2
"""Number of schedules of a kernel that are tested in addition to the chosen one."""


@dataclass(frozen=True)
class Case:
    """A kernel and its problem. pins: the schedule as text; "": the schedule that the kernel chooses."""

    kernel: str
    m: int
    n: int
    k: int
    dtype: str = "fp16"
    pins: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kernel, self.dtype, f"{self.m}x{self.n}x{self.k}", self.pins)))

    @property
    def problem(self) -> Problem:
        return Problem(self.m, self.n, self.k, self.dtype)

    @property
    def folder(self) -> str:
        """Return the name of the folder of the bundle."""
        return "".join(each if each.isalnum() else "_" for each in str(self))


def kernels(arch: str) -> tuple[str, ...]:
    """Return the names of the kernels for a target, the fastest first."""
    return LADDERS.get(arch, ())


def scaled_kernels(arch: str) -> tuple[str, ...]:
    """Return the names of the block-scaled kernels for a target, the fastest first."""
    return tuple(name for name in reversed(BLOCK_SCALED_LADDER) if arch in rung(name).targets)


def value_cases(arch: str) -> Iterator[Case]:
    """Yield the cases whose values are compared, a simple case of each kernel first."""
    names, scaled = kernels(arch), scaled_kernels(arch)
    yield from (Case(name, *SCALED_SIZES[0], dtype) for name in scaled for dtype in BLOCK_SCALED)
    for size in SIZES:
        yield from (Case(name, *size) for name in names)
    yield from (Case(name, *SIZES[2], dtype="bf16") for name in names)
    yield from (Case(name, 256, 256, 256, dtype="e4m3") for name in names if "forms" in rung(name).features)
    yield from (Case(name, *size, dtype) for size in SCALED_SIZES[1:] for name in scaled for dtype in BLOCK_SCALED)
    for name in names:
        yield from _other_schedules(Case(name, *SIZES[2]), arch)
    for name in scaled:
        for dtype in TIMED_FORMATS:
            yield from _other_schedules(Case(name, *SCALED_SIZES[2], dtype), arch)


def _other_schedules(case: Case, arch: str) -> Iterator[Case]:
    """Yield the case with two other schedules: the second and the last of those that can run, by predicted cycles."""
    from blackwell_matmul.harness import schedules

    found = schedules(case.kernel, case.m, case.n, case.k, dtype=case.dtype, target=arch)
    able = [str(row.schedule) for row in found.ranked if row.schedule != found.chosen]
    for pins in dict.fromkeys(able[:: max(1, len(able) - 1)][:MORE_SCHEDULES]):
        yield replace(case, pins=pins)


def timeline_cases(arch: str, emulated: bool) -> Iterator[Case]:
    size = SMALL_SIZE if emulated else TIMELINE_SIZE
    yield from (Case(name, *size) for name in TIMELINES.get(arch, ()))
    name, dtype = SCALED_TIMELINE
    if name in scaled_kernels(arch):
        yield Case(name, *size, dtype)


def speed_cases(arch: str) -> Iterator[Case]:
    """Yield the large block-scaled cases that are timed."""
    yield from (Case(name, *LADDER_SIZES[-1], dtype) for name in scaled_kernels(arch) for dtype in TIMED_FORMATS)


def pins_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a compiled schedule without the values that follow from the problem and the GPU."""
    return {knob: value for knob, value in schedule.items() if knob not in ("dtype", "sm_count", "form")}


# --- texts without paths

_PATH = re.compile(r"https?://\S+|(?<![\w.])(?:~|[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]?")


def without_paths(text: str) -> str:
    """Return a text in which each path is replaced by its last part. URLs stay unchanged."""

    def short(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith("http") else re.split(r"[/\\]", found[0].rstrip("/\\"))[-1]

    return _PATH.sub(short, text)
