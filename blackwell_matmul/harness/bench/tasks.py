"""Tasks of a child process: compile, check, time, stress. Each takes and returns plain data, and reports its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.harness.bench import bundles, protocol
from blackwell_matmul.harness.bench.contenders import Contender, make_call
from blackwell_matmul.harness.bench.devices import Arguments, Call, Cpu, Poisoned, called_with, device_named
from blackwell_matmul.harness.verdict import Verdict, check_product
from blackwell_matmul.problem.problem import Problem

import_tilus()  # early, as children are forked from a process that has imported this

Step = Callable[[str], None]
Record = Mapping[str, Any]
"""Fields of a dataclass, by name."""

CHECK_SEED = 100


def compile_kernel(step: Step, contender: Record, problem: Record, gpu: Record, folder: str) -> dict[str, Any]:
    who = Contender(**contender)
    step(who.name)
    return bundles.compile_into(Path(folder), who, Problem.from_dict(problem), bundles.gpu_of(gpu))


def check(step: Step, contender: Record, problem: Record, bundle: Record | None, device: str) -> dict[str, Any]:
    """Run one call on an output full of NaN, and compare the result with float64."""
    who, what, place = Contender(**contender), Problem.from_dict(problem), device_named(device)
    step(who.name)
    call = make_call(who, what, bundle)
    verdict, _, outside = _checked(call, place, what, place.operands(what, CHECK_SEED), bundle)
    return {"ok": verdict.ok and not outside, "message": _told(verdict, outside), **_errors(verdict)}


def _checked(
    call: Call, place: Cpu, problem: Problem, operands: Arguments, bundle: Record | None
) -> tuple[Verdict, torch.Tensor, bool]:
    """Run one call; return the verdict, the output, and True if the call wrote outside of C."""
    poisoned = place.poisoned(problem)
    result = _run(call, problem, operands, poisoned)
    place.synchronize()
    schedule = (bundle or {}).get("schedule", {})
    tiles = {f"tile_{axis}": schedule.get(f"block_{axis}", 128) for axis in "mn"}
    given = called_with(problem, operands, result)
    return check_product(problem, given, **tiles), result, not poisoned.untouched_around()


def _run(call: Call, problem: Problem, operands: Arguments, poisoned: Poisoned) -> torch.Tensor:
    own = call(*called_with(problem, operands, poisoned.c))
    return poisoned.c if own is None else own


def _told(verdict: Verdict, outside: bool) -> str:
    return "wrong: it wrote outside of C." if verdict.ok and outside else verdict.message


def _errors(verdict: Verdict) -> dict[str, float | None]:
    found = {"error": verdict.max_abs_error, "cublas_error": verdict.reference_error, "ratio": verdict.ratio}
    return {name: value if value < float("inf") else None for name, value in found.items()}


def measure(step: Step, contenders: Sequence[Record], problem: Record, settings: Record, device: str) -> dict[str, Any]:
    """Time all contenders on one problem, in turns. contenders: a contender and its bundle each."""
    what, place, chosen = Problem.from_dict(problem), device_named(device), protocol.Settings(**settings)
    step("buffers")
    sets = place.sets(what)
    groups, how = {}, {}
    for each in contenders:
        who = Contender(**each["contender"])
        step(who.name)
        groups[who.name], how[who.name] = place.group(make_call(who, what, each["bundle"]), sets, chosen.group_us)
    return {**interleaved(groups, how, place, chosen, step), "sets": len(sets)}


def interleaved(
    groups: Mapping[str, protocol.Group], how: Mapping[str, str], place: Cpu, settings: protocol.Settings, step: Step
) -> dict[str, Any]:
    """Time groups in turns; return the timings, the warm-up and the GPU's telemetry. how: "graph" or "calls", by
    name."""
    telemetry = place.telemetry()
    timings, warmup = protocol.measure(groups, settings, time.monotonic, step)
    return {
        "timings": {name: {**asdict(timing), "launched_by": how[name]} for name, timing in timings.items()},
        "warmup": asdict(warmup), "telemetry": telemetry.stop(),
    }  # fmt: skip


BATCH = 100
"""Number of repetitions between two reads of the counter of differing results."""


def stress(
    step: Step, contender: Record, problem: Record, bundle: Record | None, device: str, repetitions: int
) -> dict[str, Any]:
    """Check a call, repeat it on outputs full of NaN, then replay it from a CUDA graph. Each result is compared with
    the first, bit by bit."""
    who, what, place = Contender(**contender), Problem.from_dict(problem), device_named(device)
    step(who.name)
    call = make_call(who, what, bundle)
    operands = place.operands(what, CHECK_SEED)
    verdict, result, outside = _checked(call, place, what, operands, bundle)
    if not verdict.ok or outside:
        return {"ok": False, "message": _told(verdict, outside), "calls": 1, "replays": 0, "different": 1}
    first, poisoned = _bits(result).clone(), place.poisoned(what)

    def plain() -> torch.Tensor:
        return _run(call, what, operands, poisoned)

    calls = _different(plain, first, poisoned, repetitions, _counted(step, f"{who.name}, call"))
    step(f"{who.name}, capture")
    replay = place.replayed(plain)
    replays = 0 if replay is None else repetitions
    replayed = _different(replay or plain, first, poisoned, replays, _counted(step, f"{who.name}, replay"))
    counts = {"calls": repetitions, "replays": replays, "different": calls + replayed}
    return _stress_result(counts, not poisoned.untouched_around())


def _stress_result(counts: Mapping[str, int], outside: bool) -> dict[str, Any]:
    message = "every result is the first, bit by bit."
    if outside:
        message = "it wrote outside of C."
    if counts["different"]:
        message = f"{counts['different']} of {counts['calls'] + counts['replays']} results differ from the first."
    return {"ok": not outside and not counts["different"], "message": message, **counts}


def _counted(step: Step, what: str) -> Callable[[int], None]:
    return lambda done: step(f"{what} {done}")


def _different(
    run: Callable[[], torch.Tensor], first: torch.Tensor, poisoned: Poisoned, times: int, tell: Callable[[int], None]
) -> int:
    """Return the number of results that differ from the first. The device counts."""
    count = torch.zeros((), dtype=torch.int64, device=first.device)
    for number in range(times):
        poisoned.refill()
        count += (_bits(run()) != first).any()
        if number % BATCH == BATCH - 1:
            count.item()  # waits for the device
            tell(number + 1)
    return int(count)


def _bits(result: torch.Tensor) -> torch.Tensor:
    return result.contiguous().view(torch.int16)
