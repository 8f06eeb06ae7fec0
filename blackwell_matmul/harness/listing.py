"""`schedules`: a kernel's schedules for a problem and a GPU, the chosen one, and reasons against others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.validation import counted
from blackwell_matmul.frontend import target_for
from blackwell_matmul.hardware.gpus import Gpu, gpu_named
from blackwell_matmul.harness.calls.kernel_call import FormOf, KernelCall, Target, resolve
from blackwell_matmul.harness.calls.user_kernel import DEFAULT_SIZE, Pins, UserKernel, find
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not

CHOICE_RULE = (
    "Of the schedules that can run the one with the fewest predicted cycles, on the SM that has the most tiles; of "
    "equals the one with the largest tile, then the widest strip, then the most stages that the k-tiles can fill."
)
"""Sentence about the rule by which `space.choose` chooses."""


@dataclass(frozen=True)
class ScheduleRow:
    """A schedule with its resources.

    ctas: number of tiles of C, rounded up to whole clusters. shared_memory_bytes: shared memory of one CTA.
    tensor_memory_columns: columns of its accumulators. predicted_cycles: cycles of the kernel by
    `scheduling.cost_model`. reasons: reasons why the schedule cannot run; empty if it can.
    """

    schedule: Schedule
    ctas: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    predicted_cycles: int
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reasons


MOST_ROWS = 10
"""Maximum number of rows of a notebook's table."""


@dataclass(frozen=True, repr=False)
class ScheduleList(OneLine):
    """All schedules of a kernel for a problem on a GPU.

    kernel: name of the kernel's class. chosen: the default schedule; None if no schedule can run.
    """

    kernel: str
    problem: Problem
    gpu: Gpu
    rows: tuple[ScheduleRow, ...]
    chosen: Schedule | None

    @cached_property
    def runnable(self) -> tuple[ScheduleRow, ...]:
        return tuple(row for row in self.rows if row.ok)

    @cached_property
    def ranked(self) -> tuple[ScheduleRow, ...]:
        """Return the schedules that can run, the chosen schedule first."""
        return tuple(sorted(self.runnable, key=self._preference))

    def _preference(self, row: ScheduleRow) -> tuple[int, ...]:
        tile = tile_config(row.schedule, self.problem, self.gpu)
        return space.preference(row.schedule, tile, row.predicted_cycles)

    @property
    def rejected(self) -> tuple[ScheduleRow, ...]:
        return tuple(row for row in self.rows if not row.ok)

    @property
    def why(self) -> str:
        """Return a sentence about the choice: the tiles of each SM, and the predicted cycles."""
        if self.chosen is None:
            return "No schedule can run it."
        row = next(row for row in self.rows if row.schedule == self.chosen)
        most = -(-row.ctas // self.gpu.sm_count)
        one, of_what = ("tile", "C") if self.chosen.split_k in (None, 1) else ("part", "the tiles of C")
        have = (
            f"{counted(row.ctas, one)} of {of_what} for {self.gpu.sm_count} SMs, {counted(most, one)} at most for each"
        )
        return f"{have}; {row.predicted_cycles} cycles predicted, and at least as many for any other that can run."

    def as_dict(self) -> dict[str, object]:
        """Return the list as a dict of plain values, with stable keys."""
        return {
            "kernel": self.kernel,
            **self.problem.as_dict(),
            "gpu": self.gpu.name,
            "target": self.gpu.arch,
            "count": len(self.rows),
            "runnable": len(self.runnable),
            "chosen": None if self.chosen is None else self.chosen.as_dict(),
            "rule": CHOICE_RULE,
            "why": self.why,
            "schedules": [self._row_as_dict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        chosen = "none" if self.chosen is None else spelled_out(self.chosen.as_dict())
        able = f"{len(self.runnable)} of {counted(len(self.rows), 'schedule')} can run"
        return "  ".join((self.kernel, str(self.problem), self.gpu.name, able, f"chosen: {chosen}"))

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "problem": self.problem, "GPU": f"{self.gpu.name} ({self.gpu.arch})"}
        return {**known, "can run": f"{len(self.runnable)} of {len(self.rows)}", "why": self.why}

    def _rows(self) -> list[Mapping[str, object]]:
        """Return the best schedules that can run."""
        return [
            {
                **row.schedule.as_dict(),
                "CTAs": row.ctas,
                "shared memory (bytes)": row.shared_memory_bytes,
                "predicted cycles": row.predicted_cycles,
            }
            for row in self.ranked[:MOST_ROWS]
        ]

    def _row_as_dict(self, row: ScheduleRow) -> dict[str, object]:
        return {
            "schedule": row.schedule.as_dict(),
            "ok": row.ok,
            "chosen": row.schedule == self.chosen,
            "ctas": row.ctas,
            "shared_memory_bytes": row.shared_memory_bytes,
            "tensor_memory_columns": row.tensor_memory_columns,
            "predicted_cycles": row.predicted_cycles,
            "reasons": list(row.reasons),
        }


def schedules(
    kernel: Any,
    m: Any = None,
    n: Any = None,
    k: Any = None,
    *tensors: Any,
    dtype: str | None = None,
    schedule: Pins = None,
    target: Target = None,
    gpu: Target = None,
    form: FormOf = None,
) -> ScheduleList:
    """Return all schedules of a kernel for a problem on a GPU, and the chosen one.

    kernel: "v1", "my_kernel.py:MyMatmul", or a class or kernel whose `knobs` are those of `Schedule`. m, n, k, dtype,
    form: those of `run_matmul`; tensors only determine the problem. schedule: knob values that all listed schedules
    have. target: "B200", "sm_100a", a `Gpu`, or None for the kernel's first target. gpu: older name of target.

    Raises InputError for an unknown kernel, problem or GPU.
    """
    script_cls = _script_cls(find(kernel))
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, gpu=gpu)
    problem, pins = _problem(call), _pins(call)
    named = target_for(script_cls) if call.target is None else call.target
    found = named if isinstance(named, Gpu) else gpu_named(named, call.gpu_argument)
    rows = tuple(_row(each, problem, found) for each in space.matching(script_cls, pins))
    chosen = space.choose(script_cls, problem, found, pins) if any(row.ok for row in rows) else None
    return ScheduleList(script_cls.__name__, problem, found, rows, chosen)


def _row(schedule: Schedule, problem: Problem, gpu: Gpu) -> ScheduleRow:
    config = tile_config(schedule, problem, gpu)
    return ScheduleRow(
        schedule=schedule,
        ctas=config.ctas,
        shared_memory_bytes=config.shared_bytes,
        tensor_memory_columns=config.tensor_memory_columns,
        predicted_cycles=predicted_cycles(config),
        reasons=tuple(why_not(schedule, problem, gpu)),
    )


def _script_cls(found: UserKernel) -> Any:
    """Return the kernel's class; raise InputError if its knobs are not those of `Schedule`."""
    knobs: Sequence[str] | None = getattr(found.script_cls, "knobs", None)
    if not knobs or not {"block_m", "block_n", "block_k"} <= set(knobs):
        raise InputError(f"{found.name} has no knobs of the space; the rungs, such as v1, and their subclasses have.")
    return found.script_cls


def _problem(call: KernelCall) -> Problem:
    if call.problem is None and call.given is not None:
        raise InputError(f"{call.kernel.name} is called with tensors of no matmul; give m, n and k.")
    return call.problem or Problem(*call.size or DEFAULT_SIZE, call.dtype or "fp16")


def _pins(call: KernelCall) -> dict[str, object]:
    """Return the knob values that the kernel or the call pins."""
    return {name: value for name, value in call.all_pins.items() if name != "form"}
