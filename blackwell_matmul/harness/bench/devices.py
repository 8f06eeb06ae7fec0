"""Devices of a benchmark: operands, outputs filled with NaN, timed groups of calls, and GPU telemetry.

`Cpu` is for tests of the protocol without a GPU; its times mean nothing.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.harness.bench.protocol import Group
from blackwell_matmul.harness.calls.inputs import drawn, unfilled
from blackwell_matmul.problem.problem import Problem

DATA = "A ~ N(0, 1), B ~ N(0, 1/K), so that C ~ N(0, 1)"
"""Distribution of the inputs, on which a GPU's power and clock depend."""

SCALED_DATA = "elements of 8 bits ~ N(0, 1), of 4 bits uniform; scales uniform as bytes, from 1/64 to 15/16"
"""Distribution of block-scaled inputs (`calls.scaled_operands`)."""

Call = Callable[..., "torch.Tensor | None"]
"""Function of a contender: C[m, n] = A[m, k] @ B[n, k].T. Arguments are a, b, c and the further operands of a form, or
a, b, scale_a, scale_b and c for a block-scaled product. It writes c, or returns a new output."""

Arguments = tuple[Any, ...]

MAX_SETS = 512
GUARD_ELEMENTS = 1024
"""Number of elements before and after a poisoned output that must stay unwritten."""
LEAST_CALLS = 32
"""Minimum number of calls in a graph if calls are short. Gaps between graphs then do not matter."""


@dataclass(frozen=True)
class Poisoned:
    """Output full of NaN, and the memory around it. c: the output. room: the whole memory, with `GUARD_ELEMENTS` before
    and after c."""

    c: torch.Tensor
    room: torch.Tensor

    def refill(self) -> None:
        self.room.fill_(math.nan)

    def untouched_around(self) -> bool:
        ends = self.room[:GUARD_ELEMENTS], self.room[-GUARD_ELEMENTS:]
        return all(bool(end.isnan().all()) for end in ends)


class Cpu:
    """The CPU as a device of bench, in place of a GPU."""

    name = "cpu"
    l2_bytes = 1 << 16

    def __init__(self) -> None:
        self.torch_device = torch.device("cpu")

    def synchronize(self) -> None:
        pass

    def operands(self, problem: Problem, seed: int) -> Arguments:
        """Return the arguments of a contender's `Call`, without c."""
        return drawn(problem, torch.Generator(self.torch_device).manual_seed(seed))

    def poisoned(self, problem: Problem) -> Poisoned:
        like = unfilled(problem)[-1]
        elements = like.untyped_storage().nbytes() // like.element_size()
        room = like.new_full((elements + 2 * GUARD_ELEMENTS,), math.nan, device=self.torch_device)
        return Poisoned(room[GUARD_ELEMENTS:].as_strided(like.shape, like.stride(), GUARD_ELEMENTS), room)

    def sets(self, problem: Problem) -> list[Arguments]:
        """Return sets of arguments. So many that twice the L2's bytes are used between two calls with one set."""
        like, seeds = unfilled(problem)[-1], range(sets_needed(problem, self.l2_bytes))
        unfilled_like = partial(
            torch.empty_strided, like.shape, like.stride(), dtype=like.dtype, device=self.torch_device
        )
        return [called_with(problem, self.operands(problem, seed), unfilled_like()) for seed in seeds]

    def group(
        self,
        call: Callable[..., object],
        sets: Sequence[Arguments],
        group_us: float,
        capture: bool = True,
    ) -> tuple[Group, str]:
        """Return a function that runs calls with all sets, for about group_us, and "graph" or "calls": how it launches.

        The function returns the time of one call in µs. capture: True captures the calls in a CUDA graph if possible.
        """

        def run() -> float:
            start = time.perf_counter()
            for operands in sets:
                call(*operands)
            return (time.perf_counter() - start) * 1e6 / len(sets)

        return run, "calls"

    def replayed(self, call: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor] | None:
        """Return a function that replays a CUDA graph of the call; None on a device without graphs."""
        return None

    def telemetry(self) -> Telemetry:
        return Telemetry(None)


def time_us(launch: Callable[[], object], repeats: int = 1) -> float:
    """Return the total time of all repeats in µs, from CUDA events in the current stream."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000


class Cuda(Cpu):
    """A GPU, used through torch: CUDA events measure the time, and a CUDA graph launches each group of calls."""

    def __init__(self, index: int = 0) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        properties = torch.cuda.get_device_properties(index)
        self.name, self.l2_bytes = properties.name, int(properties.L2_cache_size)
        uuid = getattr(properties, "uuid", None)
        self._uuid = None if uuid is None else f"GPU-{uuid}"

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def group(
        self,
        call: Callable[..., object],
        sets: Sequence[Arguments],
        group_us: float,
        capture: bool = True,
    ) -> tuple[Group, str]:
        def once() -> None:
            for operands in sets:
                call(*operands)

        call(*sets[0])  # the first call compiles, tunes or loads
        self.synchronize()
        once()
        pass_us = time_us(once)
        passes = max(1, min(math.ceil(LEAST_CALLS / len(sets)), int(group_us / pass_us)))
        launch, how = self._captured(once, passes) if capture else (partial(_repeat, once, passes), "calls")
        repeats = max(1, round(group_us / time_us(launch)))

        def run() -> float:
            for _ in range(math.ceil(repeats / 2)):  # untimed: the clock adapts to this contender
                launch()
            return time_us(launch, repeats) / (repeats * passes * len(sets))

        return run, how

    def _captured(self, once: Callable[[], None], passes: int) -> tuple[Callable[[], None], str]:
        """Return a function that runs `once` `passes` times, and "graph", or "calls" if a capture fails."""
        launch = partial(_repeat, once, passes)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                launch()
        except RuntimeError:
            self.synchronize()
            return launch, "calls"
        return graph.replay, "graph"

    def replayed(self, call: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()

        def replay() -> torch.Tensor:
            graph.replay()
            return result

        return replay

    def telemetry(self) -> Telemetry:
        return Telemetry(self._uuid)


def _repeat(once: Callable[[], None], passes: int) -> None:
    for _ in range(passes):
        once()


def device_named(name: str) -> Cpu:
    if name == "cpu":
        return Cpu()
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        raise InputError(f"device is {shown(name)}; it must be cuda, cuda:N or cpu.")
    return Cuda(int(index or 0))


def called_with(problem: Problem, operands: Arguments, c: torch.Tensor) -> Arguments:
    """Return the arguments of a `Call`: the operands, with c after a and b, and after the scales of blocks."""
    before = 4 if problem.format else 2
    return *operands[:before], c, *operands[before:]


def sets_needed(problem: Problem, l2_bytes: int) -> int:
    return min(MAX_SETS, 1 + math.ceil(2 * l2_bytes / problem.bytes))


# --- telemetry

QUERY = ("clocks.sm", "power.draw", "temperature.gpu")
UNITS = ("sm_clock_mhz", "power_w", "temperature_c")
EVERY_MS = 100


class Telemetry:
    """Readings of nvidia-smi during a measurement. uuid: the GPU's UUID; None for no readings."""

    def __init__(self, uuid: str | None) -> None:
        self._process: subprocess.Popen[str] | None = None
        if uuid is None:
            return
        command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits", "-i", uuid]
        try:
            self._process = subprocess.Popen(
                [*command, "-lms", str(EVERY_MS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return

    def stop(self) -> dict[str, dict[str, float] | str]:
        """Stop nvidia-smi; return the first, median and last value of each figure, or "unknown" without readings."""
        samples: list[list[float]] = []
        if self._process is not None:
            self._process.terminate()
            out, _ = self._process.communicate()
            samples = [read for line in out.splitlines() if (read := _sample(line)) is not None]
        if not samples:
            return dict.fromkeys(UNITS, "unknown")
        return {
            unit: {"before": column[0], "during": statistics.median(column), "after": column[-1]}
            for unit, column in zip(UNITS, zip(*samples))
        }


def _sample(line: str) -> list[float] | None:
    try:
        values = [float(word) for word in line.split(",")]
    except ValueError:
        return None
    return values if len(values) == len(QUERY) else None
