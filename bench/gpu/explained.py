"""Does what `explain` promises come true? Hopper kernels that do one thing badly, and the same without it, on a GPU.

    python bench/gpu/explained.py predict FILE    # anywhere: what is promised, and what the change is predicted to save
    python bench/gpu/explained.py measure FILE    # on an H100 or H200: what it saves

Each case is two kernels for one product. FILE has for each what `explain` says of the first, what that promises, and
what the second takes less, predicted and measured, as a part of the first one's time. Both products must be right. The
two take turns, from graphs, in groups that are long enough for the power limit, as what is promised reckons with the
clock that the tensor cores leave.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blackwell_matmul import compile, predict
from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import Cuda
from blackwell_matmul.harness.bench.protocol import Group, Settings, measure
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import load

sys.path.append(str(Path(__file__).resolve().parents[1]))

from blackwell_matmul_studies.interleaved import verdict_on
from blackwell_matmul_studies.scripts import script

SCRIPTS = Path(__file__).resolve().parents[2] / "tests" / "simulator" / "timing" / "explained_scripts.py"
HOPPER = f"{SCRIPTS}:Hopper"
GPU, TARGET, DTYPE = "H100", "sm_90a", "fp16"
SETTINGS = Settings(rounds=9, group_us=30_000, warmup_s=1.0)

SMALL, LARGE, WIDE = (2048, 2048, 2048), (4096, 4096, 4096), (4096, 4096, 1024)
DEEP, NARROW = (1536, 2816, 4096), (1408, 1536, 4096)
"""132 tiles, one for each SM, of 128 x 256 and of 128 x 128."""

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


@dataclass(frozen=True)
class Variant:
    """A kernel, its schedule, and the product."""

    kernel: str
    schedule: str
    size: tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """about: what the sentence is known by."""

    name: str
    bad: Variant
    good: Variant
    about: str


def case(name: str, kernel: str, size: tuple[int, int, int], bad: str, good: str, about: str) -> Case:
    return Case(name, Variant(kernel, bad, size), Variant(kernel, good, size), about)


TOO_FEW, ISSUES, L2, ROOM = "stages? cannot hide that", "what one warp has to issue", "rate of the L2", "1 CTA at once"
H1 = "block_m=128,block_n=128,block_k=64,e_block_n=64"
H2, H3 = f"{H1},stages={{}}", f"{H1},stages={{}},consumers=2"
H5 = "block_m=128,block_n={},block_k=64,e_block_n=64,stages=4,consumers=2,group_m=8"
CASES = (
    case("small boxes", HOPPER, SMALL, "block_n=128,boxes=16", "block_n=128", ISSUES),
    case("short rows", HOPPER, SMALL, "block_n=128,block_k=16,stages=8", "block_n=128", "the rate of TMA"),
    case("narrow tiles", HOPPER, SMALL, "block_n=64", "block_n=256", L2),
    case("narrow tiles, larger", HOPPER, LARGE, "block_n=64", "block_n=256", L2),
    case("one stage", HOPPER, DEEP, "stages=1", "stages=4", TOO_FEW),
    case("two stages", HOPPER, DEEP, "stages=2", "stages=4", TOO_FEW),
    case("two stages, narrower", HOPPER, NARROW, "block_n=128,stages=2", "block_n=128,stages=4", TOO_FEW),
    case("a stage given back late", HOPPER, DEEP, "stages=3,late=true", "stages=3", TOO_FEW),
    case("a needless fence", HOPPER, DEEP, "stages=4,fences=true", "stages=4", "^fence.proxy.async"),
    case("no room for a second CTA", HOPPER, WIDE, "block_n=128,stages=3,unused=70", "block_n=128,stages=3", ROOM),
    case("no room, narrow tiles", HOPPER, SMALL, "block_n=64,unused=70", "block_n=64", ROOM),
    Case(
        "one tile too many", Variant(HOPPER, "", (133 * 128, 256, 2048)), Variant(HOPPER, "", (132 * 128, 256, 2048)),
        "turns of 132",
    ),
    Case("h1 to h2", Variant("h1", H1, NARROW), Variant("h2", H2.format(4), NARROW), TOO_FEW),
    Case("h2 to h3", Variant("h2", H2.format(4), NARROW), Variant("h3", H3.format(4), NARROW), ISSUES),
    case("h3, two stages", "h3", NARROW, H3.format(2), H3.format(4), TOO_FEW),
    case("h5, narrow tiles", "h5", LARGE, H5.format(64), H5.format(256), L2),
)  # fmt: skip


def promised(variant: Variant, about: str) -> tuple[str, float | None]:
    """What is said, and the part of the time that it promises; all that is said and None where that is not said."""
    told = predicted(variant).explanation
    found = [each for each in told if re.search(about, each)]
    gain = re.search(r"(\d+)% fewer cycles", found[0]) if found else None
    return (found[0], int(gain[1]) / 100) if gain else (" ".join(told), None)


def predicted(variant: Variant, **options: Any) -> Any:
    return predict(variant.kernel, *variant.size, dtype=DTYPE, schedule=variant.schedule or None, gpu=GPU, **options)


@app.command("predict")
def predict_all(file: Path) -> None:
    rows = []
    for each in track(CASES, "predicting"):
        told, gain = promised(each.bad, each.about)
        before, after = (predicted(variant, explained=False) for variant in (each.bad, each.good))
        rows.append({
            "case": each.name, "bad": asdict(each.bad), "good": asdict(each.good), "told": told, "promised": gain,
            "predicted": round(1 - after.time_us / before.time_us, 4),
            "predicted_us": [round(one.time_us, 2) for one in (before, after)],
        })  # fmt: skip
    write(file, {"command": f"python bench/gpu/{Path(__file__).name} predict, then measure", "cases": rows})


def read(file: Path) -> dict[str, Any]:
    """What `predict` has written of these cases; InputError for anything else."""
    try:
        record = dict(json.loads(file.read_bytes()))
        if [row["case"] for row in record["cases"]] == [each.name for each in CASES]:
            return record
    except (KeyError, TypeError, ValueError):
        pass
    raise InputError(f"{file} does not have the cases of this script; its `predict` writes a file that has.")


def write(file: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=1).replace(f"{SCRIPTS.parents[3]}/", "")
    file.write_text(text + "\n", encoding="utf-8")
    show(record["cases"])


def show(rows: list[dict[str, Any]]) -> None:
    shown = Table("case", "promised", "predicted", "measured", title="saved by the change, of the time")
    for row in rows:
        shares = (row.get(name) for name in ("promised", "predicted", "measured"))
        shown.add_row(row["case"], *("-" if share is None else f"{share:.0%}" for share in shares))
    Console(width=100).print(shown)


@app.command("measure")
def measure_all(file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)]) -> None:
    record = read(file)
    record["machine"] = asdict(bench_machine.machine_of(bench_machine.gpu_at_hand()))
    device = Cuda()
    telemetry = device.telemetry()
    for each, row in zip(CASES, record["cases"], strict=True):
        row["measured_us"] = before, after = measured(each, device)
        row["measured"] = round(1 - after / before, 4)
    record["telemetry"] = telemetry.stop()
    write(file, record)


def measured(each: Case, device: Cuda) -> tuple[float, float]:
    """Microseconds of both."""
    variants = {"bad": each.bad, "good": each.good}
    groups = {name: group(variant, device) for name, variant in variants.items()}
    timings, _ = measure(groups, SETTINGS, time.monotonic, lambda what: None)
    return round(timings["bad"].median_us, 3), round(timings["good"].median_us, 3)


def group(variant: Variant, device: Cuda) -> Group:
    m, n, k = variant.size
    sets = device.sets(Problem(m, n, k, DTYPE))
    loaded = load(compile(variant.kernel, m, n, k, *sets[0], schedule=variant.schedule or None, target=TARGET))

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        loaded(*loaded.bundle.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b, c_ptr=c))

    verdict = verdict_on(call, sets[0])
    if not verdict.ok:
        raise UnsupportedError(f"{variant.kernel} with {variant.schedule} is {verdict}")
    return device.group(call, sets, SETTINGS.group_us)[0]


if __name__ == "__main__":
    script(app)
