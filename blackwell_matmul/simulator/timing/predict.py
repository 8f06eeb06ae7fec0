"""`predict_script`: the predicted time of a script's launch on a GPU; `record_script`: its timeline.

One SM's share of the work is simulated with times (`one_sm.py`). Its clock and memory load follow from the resulting
time: some four rounds until both agree. Every number is a prediction. Cycles are the most certain; a time in µs also
has the clock's uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.processes import uncollected
from blackwell_matmul.hardware.gpu_figures import TimeFigures, figures_of
from blackwell_matmul.hardware.gpus import GPUS, Gpu, by_name
from blackwell_matmul.problem.problem import Schedule
from blackwell_matmul.simulator.cluster_schedule import clusters
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.grid import Position
from blackwell_matmul.simulator.simulate import new_simulation, prepare, types_named
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.timing.explain.beside import Beside, Others
from blackwell_matmul.simulator.timing.explain.explanation import explain
from blackwell_matmul.simulator.timing.explain.what_if import BUSY, PredictedRun, held_by
from blackwell_matmul.simulator.timing.model.loads import ClusterLoad, known_loads
from blackwell_matmul.simulator.timing.model.occupancy import resident
from blackwell_matmul.simulator.timing.model.one_sm import AS_IT_IS, Change, OneSm, SmTime
from blackwell_matmul.simulator.timing.model.path import TRIP
from blackwell_matmul.simulator.timing.model.sm import Conditions, MemoryShare
from blackwell_matmul.simulator.timing.model.spread import Spread
from blackwell_matmul.simulator.timing.model.traffic import Traffic, traffic
from blackwell_matmul.simulator.timing.model.turns import require_no_turns
from blackwell_matmul.simulator.trace.recorder import CycleRecorder
from blackwell_matmul.simulator.trace.timeline import Timeline

ROUNDS = 8
"""Most rounds until clock and memory agree with the time."""

AGREE = 0.001

FEW_TURNS = 3
"""Waves of the shorter of two runs; the longer one's additional time stands for the waves left out."""

MOST_PREDICTED_EVENTS = 60_000
"""Most events of all waves; with more, some waves are left out. It takes about a second."""


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


class Strain(NamedTuple):
    """Load of the whole GPU. tensor, memory: fractions of the time for which they are busy. moved, asked, stored: bytes
    into all SMs, requested and stored by them. Defaults are a first guess."""

    tensor: float = 0.8
    memory: float = 0.3
    moved: float = 1e15
    asked: float = 1e15
    stored: float = 1e15


class TimedLaunch:
    """One launch on one GPU, at conditions that follow from its time."""

    def __init__(self, simulation: Simulation, gpu: Gpu, figures: TimeFigures) -> None:
        self.simulation, self.gpu, self.figures = simulation, gpu, figures
        self.clusters = clusters(simulation.grid)
        self.size = math.prod(simulation.lowered.cluster)
        self.places = figures.clusters_at_once(gpu.sm_count, self.size)
        self.side = min(self.places, len(self.clusters))
        self.slots = resident(simulation.lowered.program, gpu)
        self.turns = math.ceil(len(self.clusters) / self.side)
        require_no_turns(simulation.lowered, simulation.grid, self.clusters)
        self.loads = known_loads(simulation.lowered, simulation.grid, self.clusters)
        shares = [ClusterLoad(1, 1)] * len(self.clusters) if self.loads is None else self.loads.shares
        self.spread = Spread.over(self.side, shares)
        self.events = 0  # of a few turns; 0: not known
        self._traffic: dict[int, Traffic] = {}

    def traffic(self, working: int) -> Traffic:
        if working not in self._traffic:
            lowered, grid = self.simulation.lowered, self.simulation.grid
            side, near = self.side * working, self.figures.near_l2_bytes
            joins = (self.figures.l2_joins or 0.0) * (working == 1)  # CTAs that share an SM are in no step with others
            self._traffic[working] = traffic(lowered, grid, self.clusters, side, near, joins, self.loads)
        return self._traffic[working]

    def at(self, conditions: Conditions, change: Change = AS_IT_IS) -> SmTime:
        """Return the time of one SM. Of many waves some are run in full, and the others extrapolated from two runs."""
        some = FEW_TURNS * self.slots
        if self.turns <= 2 * some or (self.events and self.events * self.turns / some < MOST_PREDICTED_EVENTS):
            return self.run(conditions, self.turns, change)
        short, long = self.run(conditions, some, change), self.run(conditions, 2 * some, change)
        self.events = short.events
        return long.extended(short, (self.turns - 2 * some) / some)

    def shown(self) -> int:
        """Return the number of waves that a timeline shows."""
        some = FEW_TURNS * self.slots
        return self.turns if self.turns <= 2 * some else some

    def run(self, conditions: Conditions, turns: int, change: Change = AS_IT_IS) -> SmTime:
        place = self.spread.most_at if change.place is None else change.place
        mine: list[list[Position]] = self.clusters[place :: self.side][:turns]
        return OneSm(self.simulation, conditions, mine, self.slots, self.gpu.tensor_memory_columns, change).run()

    def conditions(self, ghz: float, load: Strain, moving: Traffic) -> Conditions:
        """Return the conditions of an SM: latency and bandwidth of the L2, whose misses come at the memory's rate."""
        figures, active = self.figures, self.side * self.size
        hits = max(0.0, load.asked * moving.distinct - moving.from_memory)
        needed_ns = moving.from_memory / figures.memory_bytes_per_ns + hits / figures.l2_bytes_per_ns
        latency = figures.memory_ns + figures.queue_ns * min(load.memory, 1) if moving.from_memory else figures.l2_ns
        rate = load.moved / needed_ns if needed_ns else figures.l2_bytes_per_ns
        memory, few_sms = self._memory(load, moving), active <= self.gpu.sm_count / 2
        return Conditions(figures, ghz, latency, rate / active, self._later(load.moved), memory, few_sms)

    def _later(self, moved: float) -> tuple[tuple[float, float], ...]:
        """Return `Conditions.later` for `moved` bytes of all SMs."""
        every = self.spread.full * self.side * self.size
        return tuple((part * moved / every, times) for part, times in self.spread.fewer)

    def _memory(self, load: Strain, moving: Traffic) -> MemoryShare:
        """Return an SM's share of the memory, for L2 misses and stores: no launch is faster than its bytes."""
        rate = self.figures.memory_bytes_per_ns / (self.side * self.size)
        cost = self.figures.memory_store_cost * 1.0
        loaded, stored = moving.from_memory / max(1.0, load.moved), cost * moving.written / max(1.0, load.stored)
        return MemoryShare(rate, loaded, stored, self._later(moving.as_reads(cost)))

    def load(self, took: SmTime, moving: Traffic, ghz: float) -> Strain:
        """Return the load of the GPU that a time causes."""
        every = self.spread.full * self.side * self.size
        tensor = took.busy_cycles["tensor core"] / took.cycles * every / self.gpu.sm_count
        passed = moving.as_reads(self.figures.memory_store_cost * 1.0)
        memory = passed / (took.cycles / ghz * self.figures.memory_bytes_per_ns)
        moved = took.moved_bytes, took.asked_bytes, took.stored_bytes
        return Strain(tensor, memory, *(each * every for each in moved))


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
            return _beside(other, settled(other, ghz), knobs)
        return None

    def beside() -> Iterator[Iterator[Beside]]:
        for some in others.pins() if others else ():
            yield filter(None, map(tried, some))

    tries = (beside, others.every) if others else (None, False)
    with _launch(script, args, gpu, schedule) as (launch, knobs):
        return _prediction(launch, settled(launch, ghz), knobs, products, explained, tries)


def record_script(
    script: Any,
    args: tuple[Any, ...],
    gpu: str = "B200",
    schedule: Mapping[str, object] | Schedule | None = None,
    ghz: float | None = None,
) -> Timeline:
    """Return the timeline of one SM, in all of its waves or in the first ones that `predict_script` runs."""
    with _launch(script, args, gpu, schedule) as (launch, _):
        found = settled(launch, ghz)
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


class Settled(NamedTuple):
    """A time, and the clock, load, traffic and conditions that agree with it."""

    took: SmTime
    ghz: float
    load: Strain
    moving: Traffic
    conditions: Conditions


def settled(launch: TimedLaunch, pinned_ghz: float | None) -> Settled:
    """Run until the clock and the memory load agree with the resulting time."""
    figures, load, working, before = launch.figures, Strain(), 1, 0.0
    for _ in range(ROUNDS):
        ghz = pinned_ghz or figures.clock_ghz - figures.clock_fall_ghz * load.tensor
        moving = launch.traffic(working).within(load.asked, load.stored)
        conditions = launch.conditions(ghz, load, moving)
        took = launch.at(conditions)
        working = took.at_once(launch.slots, launch.turns)
        load = launch.load(took, moving, ghz)
        if abs(took.cycles - before) < AGREE * took.cycles:
            break
        before = took.cycles
    return Settled(took, ghz, load, moving, conditions)


def _prediction(
    launch: TimedLaunch,
    found: Settled,
    schedule: Mapping[str, object],
    products: float | None,
    explained: bool,
    tries: Tries,
) -> Prediction:
    took, ghz, load, moving, _ = found
    lowered, time_us = launch.simulation.lowered, took.cycles / ghz / 1e3
    return Prediction(
        lowered.program.name, launch.gpu.name, schedule, took.cycles, ghz, time_us, load.tensor, moving.total / 1e9,
        load.memory, _bound(launch, found), took.busy_cycles, launch.slots,
        took.at_once(launch.slots, launch.turns), None if products is None else products / time_us / 1e6,
        (*explain(_run(launch, found, _beside(launch, found, schedule), tries), explained), *_reservation(launch)),
    )  # fmt: skip


def _beside(launch: TimedLaunch, found: Settled, schedule: Mapping[str, object]) -> Beside:
    took, ghz, load, moving, _ = found
    working = launch.spread.full * launch.side * launch.size / launch.gpu.sm_count
    gigabytes = load.moved / 1e9, moving.from_memory / 1e9
    return Beside(schedule, took.cycles, took.cycles / ghz, working, load.tensor, *gigabytes, launch.slots, took.path)


Tries = tuple[Callable[[], Iterator[Iterator[Beside]]] | None, bool]
"""Function that runs the launch with other schedules, or None, and whether no others are worth a try."""


def _run(launch: TimedLaunch, found: Settled, as_it_is: Beside, tries: Tries) -> PredictedRun:
    def again(conditions: Conditions, change: Change) -> SmTime:
        return launch.at(conditions, change)

    def watch(*listeners: Listener) -> SmTime:
        launch.simulation.listeners = listeners
        took = launch.run(found.conditions, launch.shown())
        launch.simulation.listeners = ()
        return took

    return PredictedRun(
        launch.simulation.lowered, launch.gpu, found.took, found.conditions, again, watch, launch.slots, launch.turns,
        launch.side, launch.places, len(launch.clusters), launch.spread,
        _mostly_memory(launch.figures, found), found.moving.once, found.load.memory,
        found.moving.distinct * found.load.asked / max(1.0, found.load.moved) or 1.0,
        found.load.tensor, as_it_is, *tries,
    )  # fmt: skip


def _mostly_memory(figures: TimeFigures, found: Settled) -> bool:
    """Return True if memory takes more of the loads' time than the L2 does."""
    missed = found.moving.from_memory
    hits = max(0.0, found.load.asked * found.moving.distinct - missed)
    return missed / figures.memory_bytes_per_ns > hits / figures.l2_bytes_per_ns


def _reservation(launch: TimedLaunch) -> Iterator[str]:
    """Yield a sentence if most figures of the GPU are assumed."""
    every = [each for each in vars(launch.figures).values() if each is not None]
    assumed = [each for each in every if each.how == "assumed"]
    if 2 * len(assumed) > len(every):
        yield f"of this {launch.gpu.name} {len(assumed)} of {len(every)} figures are assumed, most of them as a B200's."


def _bound(launch: TimedLaunch, found: Settled) -> str:
    """Return the part that is busy for most of the time; "latency" where none is, or where the chain of causes is
    mostly the latency of operations, so that a faster part of the SM would save little."""
    name, share = held_by(found.took, found.load.memory, _mostly_memory(launch.figures, found))
    latency = sum(cycles for cause, cycles in found.took.path.items() if cause.kind == TRIP)
    held = share > BUSY and (name == "memory" or 2 * latency <= found.took.cycles)
    return name if held else "latency"
