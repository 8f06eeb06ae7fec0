"""How good is `predict`? Predicted cycles beside those of the published kernels on a B200; no GPU needed.

    git clone --branch v0.2.0 https://github.com/NVIDIA/tilus
    python bench/time_model.py tilus/examples/blackwell_matmul

NVIDIA/tilus publishes samples V0 to V6 with what Nsight Compute says of each at 8192x8192x8192 in fp16. They are
predicted at one schedule each, fixed before the first comparison: 128x256x64 with the most stages; V6 256x256x64 with
five. The rungs of this repository are predicted beside them, at the same schedules. The figures of the model come from
microbenchmarks (gpu_figures.py), none from these kernels; but whoever chose among the sources had seen these totals.
"""

from __future__ import annotations

import json
import statistics
import sys
import types
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.harness.predicting import predict

RESULT = Path(__file__).parent / "results" / "time_model.json"
SIZE = (8192, 8192, 8192)
TILE = "block_m=128,block_n=256,block_k=64"
PAIR = "block_m=256,block_n=256,block_k=64"


@dataclass(frozen=True)
class Sample:
    """A published kernel: its time in ms and the SMs' clock in GHz, by Nsight Compute. own: the schedule of the rung
    of this repository that is like it."""

    name: str
    ms: float
    ghz: float
    schedule: str
    own: str

    @property
    def cycles(self) -> float:
        """The busy tensor cores say more of them than the rounded clock: 2MNK / 8192 products a cycle on 148 SMs."""
        return UTILISED_CYCLES / TENSOR[self.name]


UTILISED_CYCLES = 2 * SIZE[0] * SIZE[1] * SIZE[2] / 8192 / 148
TENSOR = dict(zip(("v0", "v1", "v2", "v3", "v4", "v5", "v6"), (0.2324, 0.2102, 0.5755, 0.7935, 0.8319, 0.9399, 0.9606)))
"""For which part of the time the tensor cores are busy, as published."""

SAMPLES = (
    Sample("v0", 2.24, 1.75, TILE, TILE),
    Sample("v1", 2.42, 1.77, f"{TILE},e_block_n=32", f"{TILE},e_block_n=32"),
    Sample("v2", 0.99667, 1.58, f"{TILE},stages=4,e_block_n=16", f"{TILE},stages=4,e_block_n=16"),
    Sample("v3", 0.81376, 1.41, f"{TILE},stages=4,e_block_n=16", f"{TILE},stages=4,e_block_n=16"),
    Sample(
        "v4", 0.77629, 1.40, f"{TILE},stages=4,e_block_n=16,swizzle_size=8", f"{TILE},stages=4,e_block_n=16,group_m=8"
    ),
    Sample(
        "v5", 0.72995, 1.32, f"{TILE},tma_stages=4,mma_stages=2,e_block_n=16,swizzle_size=8",
        f"{TILE},stages=4,e_block_n=16,group_m=8",
    ),
    Sample(
        "v6", 0.68285, 1.38, f"{PAIR},tma_stages=5,mma_stages=2,e_block_n=16,swizzle_size=8",
        f"{PAIR},stages=4,e_block_n=16,group_m=8",
    ),
)  # fmt: skip
"""NVIDIA/tilus at 9a22de0, docs/source/tutorials/matmul-blackwell."""


@dataclass(frozen=True)
class Compared:
    """In millions of cycles. at_clock: predicted at the clock that was measured. own: this repository's rung at the
    same schedule; chosen: at the one that it chooses."""

    name: str
    schedule: str
    published: float
    predicted: float
    error: float
    ghz: float
    at_clock: float
    error_at_clock: float
    memory_gb: float
    bound: str
    own: float
    chosen: float
    explanation: tuple[str, ...]


def compared(folder: Path, sample: Sample) -> Compared:
    kernel, cycles = f"{folder / f'matmul_{sample.name}.py'}:BlackwellMatmul{sample.name.upper()}", sample.cycles / 1e6
    free = predict(kernel, *SIZE, schedule=sample.schedule)
    pinned = predict(kernel, *SIZE, schedule=sample.schedule, ghz=sample.ghz)
    own, chosen = (predict(sample.name, *SIZE, schedule=schedule) for schedule in (sample.own, None))
    mine, there = free.cycles / 1e6, pinned.cycles / 1e6
    numbers = (cycles, mine, mine / cycles - 1, free.ghz, there, there / cycles - 1, free.memory_gb)
    rounded = [round(number, 4) for number in numbers]
    rest = (round(own.cycles / 1e6, 4), round(chosen.cycles / 1e6, 4), free.explanation)
    return Compared(sample.name, sample.schedule, *rounded, free.bound, *rest)


def summary(found: list[Compared]) -> dict[str, object]:
    """order: who is faster than whom is right. slower: so is that V1 is slower than V0."""
    names = [sorted(found, key=lambda each: getattr(each, key)) for key in ("published", "predicted")]
    errors, at_clock = [abs(each.error) for each in found], [abs(each.error_at_clock) for each in found]
    return {
        "mean_error": round(statistics.mean(errors), 4), "worst_error": max(errors),
        "mean_error_at_clock": round(statistics.mean(at_clock), 4), "worst_error_at_clock": max(at_clock),
        "order_right": names[0] == names[1],
    }  # fmt: skip


def main(
    folder: Annotated[Path, typer.Argument(help="examples/blackwell_matmul of a checkout of NVIDIA/tilus, v0.2.0")],
    result: Annotated[Path, typer.Option(help="The file to write.")] = RESULT,
) -> None:
    """Predict each sample, print the table, and write it."""
    sys.modules.setdefault("pandas", types.ModuleType("pandas"))  # the samples import it, for tables of their own
    found = [compared(folder, sample) for sample in SAMPLES]
    title = "millions of SM cycles on a B200, 8192x8192x8192 fp16; predicted, but for the first column"
    shown = Table(
        "sample", "published", "predicted", "error", "GHz", "at measured GHz", "error", "held by", "own", "own, chosen",
        title=title,
    )  # fmt: skip
    for each in found:
        cells = (each.name, f"{each.published:.3f}", f"{each.predicted:.3f}", f"{each.error:+.1%}", f"{each.ghz:.2f}")
        more = (f"{each.at_clock:.3f}", f"{each.error_at_clock:+.1%}", each.bound, f"{each.own:.3f}")
        shown.add_row(*cells, *more, f"{each.chosen:.3f}")
    summed = summary(found)
    Console(width=130).print(shown, summed)
    command = f"python bench/{Path(__file__).name} <checkout>/examples/blackwell_matmul"
    record = {"command": command, "predicted": True, "gpu": "B200", **summed, "samples": [asdict(e) for e in found]}
    result.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
