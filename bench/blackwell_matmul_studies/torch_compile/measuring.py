"""Compile one workload in one configuration, compare it with float64, and time it against eager in the same process.

Two times: of the kernels, from a captured graph of many calls; and of plain calls, one behind the other, in which the
GPU waits for Python wherever its kernels are shorter. A configuration with CUDA graphs of its own has only the second,
and one set of weights, since its graphs know their weights by address and would be recorded anew for each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from blackwell_matmul.harness.bench import protocol
from blackwell_matmul.harness.bench.devices import MAX_SETS, Cpu, device_named
from blackwell_matmul.harness.bench.protocol import Group, Settings, Timing
from blackwell_matmul_studies.torch_compile.kinds import Function, Made, Operands, made
from blackwell_matmul_studies.torch_compile.templates import is_dynamic, template_of

Step = Callable[[str], None]

COMPILE_SETTINGS = Settings(rounds=9, group_us=20_000.0, warmup_s=1.5)
FAR = 1e9
"""For an error that is no number, which JSON cannot write."""

RECORDED_AFTER = 3
"""Calls: CUDA graphs of inductor warm up in the first, record in the second, and replay from then on."""


def measured(
    step: Step,
    *,
    configuration: str,
    options: Mapping[str, bool],
    kind: str,
    sizes: Mapping[str, int],
    dtype: str,
    device: str = "cuda",
    settings: Settings = COMPILE_SETTINGS,
) -> dict[str, Any]:
    """One trial."""
    step("making the inputs")
    here, graphs = device_named(device), options.get("triton.cudagraphs", False)
    work = made(kind, sizes, dtype, here.torch_device)
    sets = _sets(work, here, graphs)
    step("running eager")
    work.baseline(*sets[0])
    step("compiling")
    compiled, code, compile_s = compile_(work.call, sets[0], options)
    step("comparing with float64")
    errors = _errors(work, compiled, sets[0])
    timings = _timings(here, {"eager": work.baseline, "compiled": compiled}, sets, graphs, settings, step)
    return {
        "configuration": configuration,
        "options": dict(options),
        "template": template_of(code),
        "dynamic": is_dynamic(code),
        "compiled_times": _graphs_compiled(),
        "compile_s": compile_s,
        "flops": work.flops,
        **errors,
        "timings": {name: asdict(timing) for name, timing in timings.items()},
    }


def _sets(work: Made, here: Cpu, graphs: bool) -> list[Operands]:
    """So many that twice the L2 is touched between two uses of one; for CUDA graphs one, with weights as a module's,
    which are not copied for each call."""

    def drawn(number: int) -> Operands:
        return work.operands(torch.Generator(here.torch_device).manual_seed(number))

    first = drawn(0)
    if graphs:
        for weight in first[work.activations :]:
            torch._dynamo.mark_static_address(weight)
        return [first]
    needed = 1 + math.ceil(2 * here.l2_bytes / sum(each.nbytes for each in first))
    return [first, *map(drawn, range(1, min(MAX_SETS, needed)))]


def compile_(call: Function, operands: Operands, options: Mapping[str, bool]) -> tuple[Function, str, float]:
    """With sizes as constants and without any cache of an earlier process: the function, inductor's code, the seconds
    of the first call."""
    from torch._inductor.utils import fresh_cache, run_and_get_code

    torch._dynamo.utils.counters.clear()
    with fresh_cache():
        compiled = torch.compile(call, dynamic=False, fullgraph=True, options=dict(options))
        start = time.perf_counter()
        _, codes = run_and_get_code(compiled, *operands)
        taken_s = time.perf_counter() - start
    return compiled, "\n".join(codes), taken_s


def _graphs_compiled() -> int:
    """More than one: a later call did not fit what the first one compiled."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _errors(work: Made, compiled: Function, operands: Operands) -> dict[str, float]:
    exact = work.reference(operands)
    for _ in range(RECORDED_AFTER - 1):
        compiled(*operands)
    results = {"error": compiled(*operands), "eager_error": work.baseline(*operands)}
    return {name: _largest_error(result, exact) for name, result in results.items()}


def _largest_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.double() - exact).abs().nan_to_num(FAR, FAR).max())


def _timings(
    here: Cpu, calls: Mapping[str, Function], sets: Sequence[Operands], graphs: bool, settings: Settings, step: Step
) -> dict[str, Timing]:
    """By "eager kernels", "compiled calls" and so on, all in turn."""
    groups: dict[str, Group] = {}
    for name, call in calls.items():
        step(f"preparing {name}")
        groups[f"{name} calls"], _ = here.group(call, sets, settings.group_us, capture=False)
        if not graphs:
            group, launched_by = here.group(call, sets, settings.group_us)
            groups |= {f"{name} kernels": group} if launched_by == "graph" else {}
    return protocol.measure(groups, settings, time.perf_counter, step)[0]
