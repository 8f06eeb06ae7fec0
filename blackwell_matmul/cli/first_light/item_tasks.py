"""Tasks of a worker for `first-light`. A task takes and returns plain data, and reports its steps."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from blackwell_matmul.base.digests import digest
from blackwell_matmul.base.errors import EmulationError, UnsupportedError
from blackwell_matmul.base.files import write_whole
from blackwell_matmul.base.records import parsed
from blackwell_matmul.cli.first_light import micro
from blackwell_matmul.cli.first_light.cards import Card, EmulatedCard
from blackwell_matmul.cli.first_light.cases import TIMELINE_RECORDS, Case, pins_of, without_paths
from blackwell_matmul.compiler import Bundle
from blackwell_matmul.emulator import emulate
from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.harness.bench.contenders import torch_block_scaled
from blackwell_matmul.harness.calls.inputs import make_inputs
from blackwell_matmul.harness.calls.scaled_operands import dequantised
from blackwell_matmul.harness.compiled import compile
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.problem.problem import Problem

import_tilus()  # early, as children are forked from a process that has imported this

Step = Callable[[str], None]
Record = dict[str, Any]
MICRO = "micro"
DOCTOR_LIMIT_S = 100.0
SPEED_ROUNDS = 5
MOST_WHOLE = 2
"""Largest absolute value of the integers in exact products. Every element type has all of them."""


def _stops_are_faults(task: Callable[..., Record]) -> Callable[..., Record]:
    """Return the task with one change: it reports an EmulationError of its kernel as a claim that does not hold."""

    @functools.wraps(task)
    def judged(*args: Any, **named: Any) -> Record:
        try:
            return task(*args, **named)
        except EmulationError as error:
            return {"held": False, "told": str(error)}

    return judged


# --- compile


def prepare(step: Step, case: Mapping[str, Any], target: str, folder: str) -> Record:
    """Compile a case into a folder; return it with the digest of the emulator's result for exact operands."""
    found = Case(**case)
    step(f"compile {found}")
    bundle = _compiled(found, target)
    bundle.save(Path(folder) / found.folder)
    step(f"emulate {found}")
    operands = _exact_operands(found, "cpu")
    _launched(bundle, _arguments(bundle, found, operands), "emulator")
    return {"case": dict(case), "folder": found.folder, "digest": _digest(operands[-1])}


def prepare_speed(step: Step, case: Mapping[str, Any], target: str, folder: str) -> Record:
    """Compile into a folder the case whose time is measured."""
    found = Case(**case)
    step(f"compile {found}")
    _compiled(found, target).save(Path(folder) / found.folder)
    return {"case": dict(case), "folder": found.folder}


def _compiled(case: Case, target: str, timeline: int | None = None) -> Bundle:
    given: Any = {"dtype": case.dtype, "schedule": case.pins or None, "target": target, "timeline": timeline}
    return compile(case.kernel, case.m, case.n, case.k, **given)


def prepare_micro(step: Step, target: str, folder: str) -> Record:
    """Compile the microbenchmarks into a folder."""
    step("compile the microbenchmarks")
    found, place = micro.compiled(target), Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / f"{MICRO}.ptx", found.ptx.encode())
    write_whole(place / f"{MICRO}.cubin", found.cubin)
    return {}


def prepare_timeline(step: Step, case: Mapping[str, Any], target: str, folder: str) -> Record:
    """Compile a case with and without a timeline."""
    found = Case(**case)
    step(f"compile {found} with a timeline")
    for name, records in (("plain", None), ("marked", TIMELINE_RECORDS)):
        _compiled(found, target, records).save(Path(folder) / f"{found.folder}_{name}")
    return {"case": dict(case), "folder": found.folder}


# --- values


@_stops_are_faults
def value(step: Step, case: Mapping[str, Any], expected: str, folder: str, device: str) -> Record:
    """Run a case on integers, whose sums are exact, and on normally distributed numbers.

    The exact result is compared with the emulator's bits (digest `expected`), both results with float64.
    """
    found, bundle = Case(**case), Bundle.load(folder)
    step(f"{found}: exact sums")
    exact = _exact_operands(found, _device(device))
    _launched(bundle, _arguments(bundle, found, exact), device)
    same, right = _digest(exact[-1]) == expected, _is_exact(found.problem, exact)
    step(f"{found}: normal values")
    normal = [each.to(_device(device)) for each in make_inputs(found.problem, seed=1)]
    _launched(bundle, _arguments(bundle, found, normal), device)
    verdict = check_product(found.problem, normal)
    wrong = [
        *(["the sums of whole numbers are not float64's"] if not right else ()),
        *(["other bits than in the emulator"] if not same else ()), *([str(verdict)] if not verdict.ok else ()),
    ]  # fmt: skip
    ratio = verdict.ratio if math.isfinite(verdict.ratio) else None
    return {"held": not wrong, "told": "; ".join(wrong) or str(verdict), "schedule": bundle.schedule, "ratio": ratio}


def _device(device: str) -> str:
    return "cpu" if device == "emulator" else "cuda"


def _exact_operands(case: Case, device: str) -> list[torch.Tensor]:
    """Return integer operands, which are the same on every device, and an output full of NaN.

    Elements of 4 bits are any of their type, all multiples of 1/2. Scales are 1/2, 1 or 2.
    """
    made = torch.Generator().manual_seed(0)
    *operands, c = make_inputs(case.problem)
    for each in operands[:2]:
        if each.element_size() == 1 and each.shape[1] < case.k:
            continue  # bytes of fp4: any byte has two exact numbers
        whole = torch.randint(-MOST_WHOLE, MOST_WHOLE + 1, each.shape, generator=made)
        each.copy_(whole.float().to(each.dtype))
    for each in operands[2:]:
        power = torch.randint(-1, 2, each.shape, generator=made)
        each.copy_(power.float().exp2().to(each.dtype))
    return [each.to(device) for each in (*operands, c)]


def _is_exact(problem: Problem, operands: Sequence[torch.Tensor]) -> bool:
    """Return True if C is the exact product, rounded once."""
    a, b, *scales, c = operands
    if scales:
        a, b = (dequantised(problem, data, scale) for data, scale in zip((a, b), scales))
    return torch.equal(c.double(), (a.double() @ b.double().T).to(c.dtype).double())


def _digest(c: torch.Tensor) -> str:
    return digest(c.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())


def _arguments(bundle: Bundle, case: Case, operands: Sequence[torch.Tensor]) -> list[Any]:
    scales = ("scale_a_ptr", "scale_b_ptr") if case.problem.format else ()
    named = dict(zip(("a_ptr", "b_ptr", *scales, "c_ptr"), operands))
    return bundle.ordered(m=case.m, n=case.n, k=case.k, **named)


def _launched(bundle: Bundle, arguments: Sequence[Any], device: str) -> Callable[[], object]:
    """Launch a bundle, wait for its end, and return a function that launches it again."""
    if device == "emulator":
        launch: Callable[[], object] = partial(emulate, bundle, *arguments)
    else:
        from blackwell_matmul.runtime import load

        launch = partial(load(bundle), *arguments)
    launch()
    if device != "emulator":
        torch.cuda.synchronize()
    return launch


# --- microbenchmarks


@_stops_are_faults
def measure(step: Step, name: str, target: str, gpu: str, folder: str, device: str) -> Record:
    """Run one microbenchmark. The result's `rows` has the measured values."""
    step(name)
    place = Path(folder)
    card: Card | EmulatedCard
    if device == "emulator":
        card = EmulatedCard((place / f"{MICRO}.ptx").read_text())
    else:
        card = Card((place / f"{MICRO}.cubin").read_bytes())
    rows = micro.measured(micro.Bench(card, micro.figures_for(gpu)), target, name)
    differ = [row for row in rows if row["held"] is False]
    text = f"{len(rows)} value{'s' * (len(rows) > 1)}" + (f", {len(differ)} unlike the model's" if differ else "")
    return {"held": not differ if any(row["held"] is not None for row in rows) else None, "told": text, "rows": rows}


# --- timelines


@_stops_are_faults
def timeline(step: Step, case: Mapping[str, Any], folder: str, gpu: str, device: str, out: str) -> Record:
    """Run a kernel with a timeline, and write a page with the predicted and the measured timeline."""
    from blackwell_matmul import measured_timeline, timeline_buffer, trace

    found, place = Case(**case), Path(folder)
    plain, marked = (Bundle.load(place.with_name(f"{place.name}_{name}")) for name in ("plain", "marked"))
    step(f"{found}: run")
    operands = [each.to(_device(device)) for each in make_inputs(found.problem)]
    arguments = _arguments(plain, found, operands)
    first = _launched(plain, arguments, device)
    expected = operands[-1].clone()
    buffer = timeline_buffer(marked, *arguments)
    _launched(marked, [*arguments, buffer], device)
    same = torch.equal(operands[-1], expected)
    measured = measured_timeline(marked, buffer)
    step(f"{found}: predict")
    page, predicted = f"{found.folder}.html", None
    if micro.figures_for(gpu) is not None:
        predicted = trace(found.kernel, found.problem, schedule=pins_of(plain.schedule), gpu=gpu)
        predicted.above(measured).save(Path(out) / page)
    else:
        measured.save(Path(out) / page)
    return {
        "held": same, "told": "the same result with marks" if same else "another result with marks", "page": page,
        "measured_cycles": measured.end_cycles, "predicted_cycles": predicted and predicted.end_cycles,
        "time_us": _time_us(first) if device != "emulator" else None,
    }  # fmt: skip


def _time_us(launch: Callable[[], object]) -> float:
    from blackwell_matmul.harness.bench.devices import time_us

    for _ in range(5):
        launch()
    return round(time_us(launch, 20) / 20, 2)


# --- block-scaled products, timed


@_stops_are_faults
def speed(step: Step, case: Mapping[str, Any], folder: str, gpu: str) -> Record:
    """Time a block-scaled kernel and torch's scaled_mm of the same operands, in turns, on the GPU."""
    found, bundle = Case(**case), Bundle.load(folder)
    step(f"{found}: run")
    operands = [each.to("cuda") for each in make_inputs(found.problem, seed=1)]
    launch = _launched(bundle, _arguments(bundle, found, operands), "gpu")
    step(f"{found}: torch's")
    theirs = _torch_product(found.problem, operands)
    times = [[_time_us(each) for each in (launch, theirs) if each is not None] for _ in range(SPEED_ROUNDS)]
    step(f"{found}: compare")
    verdict = check_product(found.problem, operands)
    record: Record = {"held": verdict.ok, "told": str(verdict), "schedule": bundle.schedule}
    if micro.figures_for(gpu) is not None:
        pins = pins_of(bundle.schedule)
        record["predicted_us"] = predict(found.kernel, found.problem, schedule=pins, gpu=gpu).time_us
    return {**record, **_speeds(found.problem.flops, *map(median, zip(*times)))}


def _torch_product(problem: Problem, operands: Sequence[torch.Tensor]) -> Callable[[], object] | None:
    """Return a function that runs torch's scaled_mm of the operands; None if torch refuses them."""
    theirs = partial(torch_block_scaled(problem.dtype), *operands)
    try:
        theirs()
    except UnsupportedError:
        return None
    return theirs


def _speeds(flops: float, ours_us: float, torch_us: float | None = None) -> Record:
    record = {"time_us": ours_us, "tflops": flops / ours_us / 1e6}
    if torch_us is not None:
        record |= {"cublas_tflops": flops / torch_us / 1e6, "percent_of_cublas": 100 * torch_us / ours_us}
    return record


# --- the machine


def doctor(step: Step) -> Record:
    """Run `blackwell-matmul doctor` in a new process, and return its lines without paths."""
    step("look at this machine")
    command = [sys.executable, "-m", "blackwell_matmul", "doctor", "--json"]
    found = parsed(subprocess.run(command, capture_output=True, timeout=DOCTOR_LIMIT_S).stdout)
    rows = [{**line, "value": without_paths(line["value"])} for line in found["lines"]]
    wrong = [f"{line['name']}: {line['value']}" for line in rows if line["status"] == "problem"]
    return {"held": not wrong, "told": "; ".join(wrong) or "nothing is a problem", "rows": rows}


@_stops_are_faults
def emulated_rung(step: Step, case: Mapping[str, Any], folder: str) -> Record:
    """Run a case in the emulator, in place of a timed run, and return the seconds that the emulator took."""
    found, bundle = Case(**case), Bundle.load(folder)
    step(str(found))
    operands, start = make_inputs(found.problem), time.perf_counter()
    _launched(bundle, _arguments(bundle, found, operands), "emulator")
    verdict = check_product(found.problem, operands)
    return {"held": verdict.ok, "told": str(verdict), "seconds_emulated": round(time.perf_counter() - start, 2)}
