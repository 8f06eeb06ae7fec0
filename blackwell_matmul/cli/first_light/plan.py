"""Items of `first-light`, by stage, most valuable first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from blackwell_matmul.kernels import LADDERS, rung

STAGES: Mapping[str, str] = {
    "doctor": "What this machine is",
    "values": "Results beside float64, and beside the emulator's to the bit",
    "micro": "How fast the parts of the GPU are",
    "ladder": "The ladder beside cuBLAS",
    "timelines": "What runs when, measured and predicted",
    "differential": "Small scripts, simulated beside run",
}
"""Stages in order, with their headings."""

SIZES = ((256, 256, 256), (100, 72, 40), (264, 520, 136))
"""M, N, K of the problems whose values are compared: whole tiles, less than a tile, and tails in each direction."""

LADDER_SIZES = ((4096, 4096, 4096), (8192, 8192, 8192))
TIMELINE_SIZE, SMALL_SIZE = (4096, 4096, 4096), (128, 256, 256)
TIMELINES: Mapping[str, tuple[str, ...]] = {
    "sm_90a": ("h2", "h6"),
    "sm_100a": ("v1", "v4", "v6"),
    "sm_103a": ("v1", "v4", "v6"),
}
TIMELINE_RECORDS = 8192
MORE_SCHEDULES = 2
"""Schedules of a rung that are tried besides the chosen one."""


@dataclass(frozen=True)
class Case:
    """A problem of a kernel. pins: its schedule as text, "" for the chosen one."""

    kernel: str
    m: int
    n: int
    k: int
    dtype: str = "fp16"
    pins: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kernel, self.dtype, f"{self.m}x{self.n}x{self.k}", self.pins)))

    @property
    def folder(self) -> str:
        """Return the name of the bundle's folder."""
        return "".join(each if each.isalnum() else "_" for each in str(self))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def kernels(arch: str) -> tuple[str, ...]:
    """Return the kernels of an architecture: its product first, as users call it, then the rungs from the top."""
    return LADDERS.get(arch, ())


def value_cases(arch: str) -> Iterator[Case]:
    """Yield the problems whose values are compared, an easy one of each kernel first."""
    names = kernels(arch)
    for size in SIZES:
        yield from (Case(name, *size) for name in names)
    yield from (Case(name, *SIZES[2], dtype="bf16") for name in names)
    yield from (Case(name, 256, 256, 256, dtype="e4m3") for name in names if "forms" in rung(name).features)
    for name in names:
        yield from (Case(name, *SIZES[2], pins=pins) for pins in _more_schedules(name, arch))


def _more_schedules(name: str, arch: str) -> Iterator[str]:
    """Yield two schedules besides the chosen one: by the model, the next best and the worst that can run."""
    from blackwell_matmul.harness import schedules

    found = schedules(name, *SIZES[2], target=arch)
    able = [str(row.schedule) for row in found.ranked if row.schedule != found.chosen]
    yield from dict.fromkeys(able[:: max(1, len(able) - 1)][:MORE_SCHEDULES])


def timeline_cases(arch: str, emulated: bool) -> Iterator[Case]:
    size = SMALL_SIZE if emulated else TIMELINE_SIZE
    yield from (Case(name, *size) for name in TIMELINES.get(arch, ()))


def pins_of(schedule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pins of a compiled schedule, without what follows from the problem and the GPU."""
    return {knob: value for knob, value in schedule.items() if knob not in ("dtype", "sm_count", "form")}


# --- sentences for others

_PATH = re.compile(r"(?<![\w.])(?:~|[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]?")


def without_paths(text: str) -> str:
    """Return a sentence with the last part of each path alone."""
    return _PATH.sub(lambda found: re.split(r"[/\\]", found[0].rstrip("/\\"))[-1], text)
