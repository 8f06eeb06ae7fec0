"""`predict`: predicts the time of a kernel on a GPU, without the GPU. `trace`: predicts the timeline of one SM."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.base.validation import number, shown
from blackwell_matmul.frontend import target_for
from blackwell_matmul.hardware.gpu_figures import timed_gpu
from blackwell_matmul.hardware.gpus import Gpu, board, by_name
from blackwell_matmul.harness.calls.kernel_call import FormOf, KernelCall, Target, resolve
from blackwell_matmul.harness.calls.user_kernel import Pins
from blackwell_matmul.harness.run import run_call
from blackwell_matmul.problem.form import check_flag
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.neighbours import knobs_beside, neighbours

if TYPE_CHECKING:
    from blackwell_matmul.simulator.timing.predict import Prediction
    from blackwell_matmul.simulator.trace.timeline import Timeline


MIN_GHZ, MAX_GHZ = 0.1, 10.0


def predict(
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
    ghz: float | None = None,
    explained: bool = True,
) -> Prediction:
    """Predict the time of a call of this size or with these arguments, without a GPU.

    kernel, m, n, k, tensors, dtype, schedule, form: those of `run_matmul`, for any kernel. target: a GPU of
    `gpu_figures.TIME_FIGURES`, by name or compiler target; None: the kernel's first target. gpu: older name of target.
    ghz: clock of the SMs; None: the clock under load. explained: True adds how much time each possible change would
    save, and takes two to ten times as long.

    Raises InputError for a GPU without figures, or a GPU that cannot run the kernel, and the errors of `run_matmul`.
    """
    check_flag("explained", explained)
    clock = None if ghz is None else _plain_ghz(ghz)
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, gpu=gpu)
    return predict_call(call, clock, explained)


def trace(
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
) -> Timeline:
    """Predict the timeline of one SM for a call, without a GPU.

    Arguments and errors are those of `predict`. A notebook displays the result; `trace("v2", 1024, 1024,
    1024).save("v2.html")` writes a page. Other endings are .json, .svg and .png.
    """
    return trace_call(resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, gpu=gpu))


def _plain_ghz(value: object) -> float:
    """Return a clock as a float from `MIN_GHZ` to `MAX_GHZ`; raise InputError for any other value."""
    found = number(value)
    if found is None or not MIN_GHZ <= found <= MAX_GHZ:
        raise InputError(f"ghz is {shown(value)}; it must be a number from {MIN_GHZ} to {MAX_GHZ}, or None.")
    return found


def predict_call(call: KernelCall, ghz: float | None = None, explained: bool = True) -> Prediction:
    """Predict the time of a resolved call."""
    from blackwell_matmul.simulator.timing.explain.beside import Others
    from blackwell_matmul.simulator.timing.predict import predict_script

    gpu, arguments = _timed_gpu(call), call.arguments
    products = None if call.problem is None else float(call.problem.flops)
    with call.kernel.loaded():
        chosen = _chosen(call, gpu)
        others = partial(_beside_script, call, gpu) if chosen is None else partial(_beside, call, chosen)
        tried = Others(others, every=chosen is not None)
        return predict_script(call.script, arguments, gpu, _pins(call, chosen) or None, ghz, products, explained, tried)


def trace_call(call: KernelCall) -> Timeline:
    """Predict the timeline of a resolved call."""
    from blackwell_matmul.simulator.timing.predict import record_script

    gpu, arguments = _timed_gpu(call), call.arguments
    with call.kernel.loaded():
        return record_script(call.script, arguments, gpu, _pins(call, _chosen(call, gpu)) or None)


def _timed_gpu(call: KernelCall) -> str:
    """Return the name of the call's GPU; without one, the GPU of the kernel's first target."""
    named = call.target
    if isinstance(named, Gpu):
        named = (board(named) or named).name
    return timed_gpu(target_for(call.kernel.script_cls) if named is None else named, call.gpu_argument)


class Chosen(NamedTuple):
    """Schedule that a kernel chooses for a problem on a GPU. Other GPUs of the same target may get another schedule."""

    schedule: Schedule
    problem: Problem
    gpu: Gpu


def _chosen(call: KernelCall, gpu: str) -> Chosen | None:
    device = by_name(gpu)
    if not call.kernel.is_of_the_space or call.problem is None or device is None:
        return None
    rung: Any = call.kernel.script_cls
    knobs = {name: value for name, value in call.all_pins.items() if name in rung.knobs}
    return Chosen(space.choose(rung, call.problem, device, knobs), call.problem, device)


def _pins(call: KernelCall, chosen: Chosen | None) -> Mapping[str, object]:
    return call.pins if chosen is None else {**call.pins, **chosen.schedule.as_dict()}


def _beside(call: KernelCall, chosen: Chosen) -> list[list[Mapping[str, object]]]:
    """Return, for each possible change, the pins of schedules that have the change."""
    return [[_pins(call, chosen._replace(schedule=each)) for each in some] for some in neighbours(*chosen)]


def _beside_script(call: KernelCall, gpu: str) -> Iterator[Iterator[Mapping[str, object]]]:
    """Yield, for each possible change, the pins of a user's matmul. Pins with which a small product is wrong are
    skipped."""
    knobs = {name: value for name, value in _knobs(call).items() if name in space.SPACE and type(value) is int}
    for some in knobs_beside(knobs) if call.is_matmul else ():
        yield ({**call.pins, **each} for each in some if _is_right(call, each, gpu))


def _knobs(call: KernelCall) -> Mapping[str, object]:
    """Return all arguments of `__init__`: the pinned values, else the defaults."""
    script_cls: Any = call.kernel.script_cls
    parameters = inspect.signature(script_cls.__init__).parameters.values()
    return {each.name: call.pins.get(each.name, each.default) for each in parameters}


SMALL = 512
"""Maximum m, n and k of the small product that tests other knob values."""


def _is_right(call: KernelCall, pins: Mapping[str, object], gpu: str) -> bool:
    assert call.problem is not None
    size = [min(each, SMALL) for each in (call.problem.m, call.problem.n, call.problem.k)]
    with suppress(BlackwellMatmulError):
        small = resolve(call.script, size, call.problem.dtype, {**call.pins, **pins}, target=gpu, seed=0)
        return run_call(small, workers=1).ok
    return False
