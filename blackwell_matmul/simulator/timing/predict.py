"""`predict_script`: the predicted time of a script's launch on a GPU; `record_script`: its timeline.

One SM's share of the work is simulated with times (`one_sm.py`). Its clock and memory load follow from the resulting
time: some four rounds until both agree. Every number is a prediction. Cycles are the most certain; a time in µs also
has the clock's uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.processes import uncollected
from blackwell_matmul.hardware.gpu_figures import figures_of
from blackwell_matmul.hardware.gpus import GPUS, by_name
from blackwell_matmul.problem.problem import Schedule
from blackwell_matmul.simulator.simulate import new_simulation, prepare, types_named
from blackwell_matmul.simulator.timing.explain.beside import Beside, Others
from blackwell_matmul.simulator.timing.explain.explanation import explain
from blackwell_matmul.simulator.timing.explain.what_if import BUSY, PredictedRun
from blackwell_matmul.simulator.timing.model.path import TRIP
from blackwell_matmul.simulator.timing.model.timed_launch import Settled, TimedLaunch, settled
from blackwell_matmul.simulator.trace.recorder import CycleRecorder
from blackwell_matmul.simulator.trace.timeline import Timeline


@dataclass(frozen=True, repr=False)
class Prediction(OneLine):
    """Predicted time of a launch, and its bottleneck.

    cycles: of an SM, from the launch to the last store. ghz: the clock under its load. tflops: None if the number of
    products is not given. tensor_utilisation: fraction of all SMs' time in which tensor cores multiply. memory_gb: read
    and written. memory_utilisation: fraction of the memory bandwidth. bound: the part that bounds it. by_resource: busy
    cycles of each part of the first SM. resident: CTAs that an SM has room for; working: maximum number that works on
    an SM at once; the others wait for tensor memory, or there are no more. explanation: sentences on the bottlenecks
    (`explain.py`).
    """

    kernel: str
    gpu: str
    schedule: Mapping[str, object]
    cycles: float
    ghz: float
    time_us: float
    tensor_utilisation: float
    memory_gb: float
    memory_utilisation: float
    bound: str
    by_resource: Mapping[str, float]
    resident: int
    working: int
    tflops: float | None
    explanation: tuple[str, ...]
    predicted: bool = True

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        speed = "" if self.tflops is None else f", {self.tflops:,.1f} TFLOPS"
        time = f"predicted {self.time_us:.1f} us{speed}, held by {self.bound}"
        return "  ".join(filter(None, (self.kernel, self.gpu, spelled_out(self.schedule), time)))

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "GPU": self.gpu, "schedule": spelled_out(self.schedule)}
        times = {"predicted us": f"{self.time_us:.1f}", "cycles": f"{self.cycles:,.0f}", "GHz": f"{self.ghz:.2f}"}
        speed = {
            "TFLOPS": None if self.tflops is None else f"{self.tflops:,.1f}",
            "tensor cores, of all SMs": f"{self.tensor_utilisation:.0%}",
        }
        memory = {"memory": f"{self.memory_utilisation:.0%}", "CTAs on an SM": self.resident}
        return {**known, **times, **speed, **memory, "held by": self.bound, "why": " ".join(self.explanation)}


def predict_script(
    script: Any,
    args: tuple[Any, ...],
    gpu: str = "B200",
    schedule: Mapping[str, object] | Schedule | None = None,
    ghz: float | None = None,
    products: float | None = None,
    explained: bool = True,
    others: Others | None = None,
) -> Prediction:
    """Predict the time of a launch.

    args: as for `simulate`; their values do not matter. ghz: the clock, if it is known. products: the number that
    TFLOPS count. explained: with gains, which takes two to ten times as long. Raises InputError for a GPU without
    figures, and the errors of `simulate`.
    """

    def tried(pins: Mapping[str, object]) -> Beside | None:
        with suppress(BlackwellMatmulError), _launch(script, args, gpu, pins) as (other, knobs):
            return _beside(settled(other, ghz), knobs)
        return None

    def beside() -> Iterator[Iterator[Beside]]:
        for some in others.pins() if others else ():
            yield filter(None, map(tried, some))

    with _launch(script, args, gpu, schedule) as (launch, knobs):
        found = settled(launch, ghz)
        run = PredictedRun(**vars(found), as_it_is=_beside(found, knobs), neighbours=beside, others=others)
        return _prediction(run, knobs, products, explained)


def record_script(
    script: Any,
    args: tuple[Any, ...],
    gpu: str = "B200",
    schedule: Mapping[str, object] | Schedule | None = None,
) -> Timeline:
    """Return the timeline of one SM, in all of its waves or in the first ones that `predict_script` runs."""
    with _launch(script, args, gpu, schedule) as (launch, _):
        found = settled(launch, None)
        turns, recorder = launch.shown(), CycleRecorder()
        launch.simulation.listeners = (recorder,)
        took = launch.run(found.conditions, turns)
        part = f"{turns} of {launch.turns} {'clusters' if launch.size > 1 else 'CTAs'} that one SM gets"
        return recorder.timeline(launch.simulation.lowered.program.name, launch.gpu.name, part, found.ghz, took.cycles)


@contextmanager
def _launch(
    script: Any, args: tuple[Any, ...], gpu: str, schedule: Mapping[str, object] | Schedule | None
) -> Iterator[tuple[TimedLaunch, dict[str, object]]]:
    """Prepare a launch; yield it with the schedule's knobs."""
    figures, device = figures_of(gpu), by_name(gpu)
    assert device is not None and device.name in GPUS
    bound, lowered = prepare(script, args, schedule, device.arch)
    simulation = new_simulation(bound, lowered, "timed", 0, checks=False)
    for segment in simulation.grid.memory.segments:
        segment.constant = False  # nobody reads it, so that it need not be converted
    try:
        with uncollected():
            yield TimedLaunch(simulation, device, figures), types_named(bound.init_kwargs)
    finally:
        simulation.grid.memory.close()


def _prediction(
    run: PredictedRun, schedule: Mapping[str, object], products: float | None, explained: bool
) -> Prediction:
    launch, took, load = run.launch, run.took, run.load
    time_us = took.cycles / run.ghz / 1e3
    return Prediction(
        run.lowered.program.name, launch.gpu.name, schedule, took.cycles, run.ghz, time_us, load.tensor,
        run.moving.total / 1e9, load.memory, _bound(run), took.busy_cycles, launch.resident,
        took.at_once(launch.resident, launch.turns), None if products is None else products / time_us / 1e6,
        (*explain(run, explained), *_reservation(launch)),
    )  # fmt: skip


def _beside(found: Settled, schedule: Mapping[str, object]) -> Beside:
    launch, took, load = found.launch, found.took, found.load
    working = launch.spread.full * launch.side * launch.size / launch.gpu.sm_count
    gigabytes = load.moved / 1e9, found.moving.from_memory / 1e9
    ns = took.cycles / found.ghz
    return Beside(schedule, took.cycles, ns, working, load.tensor, *gigabytes, launch.resident, took.path)


def _reservation(launch: TimedLaunch) -> Iterator[str]:
    """Yield a sentence if most figures of the GPU are assumed."""
    every = [each for each in vars(launch.figures).values() if each is not None]
    assumed = [each for each in every if each.how == "assumed"]
    if 2 * len(assumed) > len(every):
        yield f"of this {launch.gpu.name} {len(assumed)} of {len(every)} figures are assumed, most of them as a B200's."


def _bound(run: PredictedRun) -> str:
    """Return the part that is busy for most of the time. "latency" if there is none, or if the critical path is mostly
    latency, so that a faster part would save little."""
    name, share = run.held_by
    latency = sum(cycles for cause, cycles in run.took.path.items() if cause.kind == TRIP)
    held = share > BUSY and (name == "memory" or 2 * latency <= run.took.cycles)
    return name if held else "latency"
