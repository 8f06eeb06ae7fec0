"""View of `blackwell-matmul predict`: a row for each kernel, and its bottleneck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.cli.views.tables import Column, TableRow, numbers, table
from blackwell_matmul.hardware.gpus import GPUS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.simulator.timing.predict import Prediction

PREDICTION_COLUMNS = (
    Column("kernel"),
    *numbers("Mcycles", "µs", "TFLOPS", "GHz", "tensor cores", "memory"),
    Column("held by"),
    Column("schedule", long="wraps"),
)
SHARES = (
    "tensor cores: for how much of the time those of all {sms} SMs multiply, on average; memory: how much of what it "
    "delivers at most. The sentences below are about one SM that has work."
)


def prediction_lines(predictions: Sequence[tuple[str, Prediction]]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    gpus = list(dict.fromkeys(each.gpu for _, each in predictions))
    yield Text(f"predicted for {', '.join(gpus)}, not measured", "bold")
    if len(gpus) > 1:  # the kernels are predicted for different GPUs
        predictions = [(f"{name} ({each.gpu})", each) for name, each in predictions]
    yield table(PREDICTION_COLUMNS, [TableRow(_cells(name, each)) for name, each in predictions])
    counts = " or ".join(str(GPUS[gpu].sm_count) for gpu in gpus)
    yield Text(SHARES.format(sms=counts), "dim")
    for name, each in predictions:
        for sentence in each.explanation:
            yield Padding(Text(f"{name}: {sentence}"), (0, 0, 0, 2))


def _cells(name: str, each: Prediction) -> list[str]:
    schedule = ", ".join(f"{knob}={value}" for knob, value in each.schedule.items() if knob != "dtype")
    return [
        name, f"{each.cycles / 1e6:.3f}", f"{each.time_us:.1f}", "" if each.tflops is None else f"{each.tflops:.0f}",
        f"{each.ghz:.2f}", f"{each.tensor_utilisation:.0%}", f"{each.memory_utilisation:.0%}", each.bound, schedule,
    ]  # fmt: skip
