"""A run of `first-light`: runs the items in order, in a worker process. A file keeps a row for each finished item, and
a later run continues with the other items. A crash or a hang ends only its item.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.base.records import content_of, parsed
from blackwell_matmul.cli.first_light import micro
from blackwell_matmul.cli.first_light.cases import SIZES, Case, pins_of, without_paths
from blackwell_matmul.cli.first_light.kit import KIT_TASKS, Kit, ladder_request
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness import studies_part
from blackwell_matmul.harness.bench.contenders import CUBLAS
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.jobs.row_file import RowFile
from blackwell_matmul.jobs.worker import Worker

ROWS_FILE = "rows.jsonl"
NAMES = ("stage", "item")
ITEM_LIMIT_S = 120.0
DIFFERENTIAL_CASES, DIFFERENTIAL_S, LEAST_DIFFERENTIAL_S = 600, 600.0, 30.0
EMULATOR, GPU_DEVICE = "emulator", "gpu"
Tell = Callable[[str], None]
Row = dict[str, Any]
Do = Callable[[], Iterator[Row]]


@dataclass(frozen=True)
class Item:
    """One item of the run.

    task: task for a worker. do: function that yields the rows, in place of a task. why_not: reason why the item cannot
    run.
    """

    stage: str
    name: str
    task: Mapping[str, Any] | None = None
    do: Do | None = None
    why_not: str = ""

    @property
    def named(self) -> Row:
        """Return the fields of a row that identify the item."""
        return {"stage": self.stage, "item": self.name}


@dataclass
class FirstLightRun:
    """A run of `first-light`. device: "gpu" or "emulator". out: folder of the report. minutes: time after which no item
    begins."""

    kit: Kit
    gpu: Gpu
    device: str
    out: Path
    minutes: float
    tell: Tell
    limit_s: float = ITEM_LIMIT_S
    rows: RowFile = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowFile(self.out / ROWS_FILE, NAMES)
        self._until_s = time.monotonic() + 60 * self.minutes

    def run(self) -> None:
        """Run the items that have no row yet."""
        items = list(self.items())
        kept = keeping(lambda: f"{len(list(self.rows))} of {len(items)} items are kept in {self.rows.path}")
        with kept, Worker(self.limit_s, KIT_TASKS) as worker:
            for done, item in enumerate(items, 1):
                if item.named in self.rows:
                    continue
                if time.monotonic() > self._until_s:
                    break
                self.tell(f"{done} of {len(items)}: {item.stage}, {item.name}")
                for row in self._done(item, worker):
                    self.rows.add(row)

    def missing(self) -> int:
        """Return the number of items whose result is not in the report yet."""
        return sum(each.named not in self.rows for each in self.items())

    def _done(self, item: Item, worker: Worker) -> Iterator[Row]:
        named, start = item.named, time.perf_counter()
        if item.why_not:
            yield {**named, "status": "not run", "told": without_paths(item.why_not)}
        elif item.task is not None:
            outcome = worker.do(item.task)
            seconds = {"seconds": round(time.perf_counter() - start, 2)}
            if outcome.result is not None:
                yield {**named, **seconds, **_judged(outcome.result)}
            else:
                why = outcome.refused or f"{outcome.failed}{f', at: {outcome.step}' if outcome.step else ''}"
                status = "not run" if outcome.refused else "failed"
                yield {**named, **seconds, "status": status, "told": without_paths(why)}
        elif item.do is not None:
            try:
                yield from item.do()
            except BlackwellMatmulError as error:
                yield {**named, "status": "failed", "told": without_paths(str(error))}

    # --- items

    def items(self) -> Iterator[Item]:
        yield Item("doctor", "this machine", {"do": f"{KIT_TASKS}:doctor"})
        for entry in self.kit.cases:
            given = {"case": entry["case"], "expected": entry["digest"], "folder": str(self.kit.bundle(entry))}
            yield Item("values", _name(entry), {"do": f"{KIT_TASKS}:value", "device": self.device, **given})
        for name, why in self.kit.refused.items():
            stage, _, case = name.partition(": ")
            yield Item(stage, case, why_not=why)
        where = {"target": self.kit.arch, "gpu": self.gpu.name, "folder": str(self.kit.folder), "device": self.device}
        for name in micro.measurements(self.kit.arch):
            yield Item("micro", name, {"do": f"{KIT_TASKS}:measure", "name": name, **where})
        yield from self._ladder()
        for entry in self.kit.timelines:
            given = {"case": entry["case"], "folder": str(self.kit.bundle(entry)), "out": str(self.out)}
            more = {"gpu": self.gpu.name, "device": self.device}
            yield Item("timelines", _name(entry), {"do": f"{KIT_TASKS}:timeline", **given, **more})
        if self.device == GPU_DEVICE:
            yield Item("differential", "small scripts", do=self._differential)

    def _ladder(self) -> Iterator[Item]:
        if self.device == GPU_DEVICE:
            yield Item("ladder", "all rungs", do=self._timed_ladder)
            for entry in self.kit.speeds:
                task = {"case": entry["case"], "folder": str(self.kit.bundle(entry)), "gpu": self.gpu.name}
                yield Item("ladder", _name(entry), {"do": f"{KIT_TASKS}:speed", **task})
            return
        for entry in self.kit.cases:
            case = Case(**entry["case"])
            if case.m == SIZES[0][0] and not case.pins and (case.problem.format or case.dtype == "fp16"):
                task = {"case": entry["case"], "folder": str(self.kit.bundle(entry))}
                yield Item("ladder", str(case), {"do": f"{KIT_TASKS}:emulated_rung", **task})

    def _timed_ladder(self) -> Iterator[Row]:
        """Yield a row for each kernel of the ladder, with its TFLOPS, cuBLAS's TFLOPS and the predicted time."""
        results = ladder_request(self.kit.folder, self.out / "ladder").run(self.tell)
        for each in results:
            if each.contender == CUBLAS:
                continue
            row = {**Item("ladder", f"{each.contender} {each.problem}").named, "told": each.reason or each.status}
            row["status"] = {"correct": "held", "wrong": "not held"}.get(each.status, "failed")
            if each.timing is not None and each.cublas_us:
                us = each.timing.median_us
                row |= {
                    "time_us": us, "tflops": each.tflops, "cublas_tflops": each.problem.flops / each.cublas_us / 1e6,
                    "percent_of_cublas": each.percent_of_cublas, "predicted_us": self._predicted(each.contender, each),
                }  # fmt: skip
            yield row
        sessions = getattr(results, "sessions", {})
        about = {"status": "measured", "told": "clocks and power", "sessions": sessions}
        yield {**Item("ladder", "all rungs").named, **about}

    def _predicted(self, name: str, row: Any) -> float | None:
        if micro.figures_for(self.gpu.name) is None:
            return None
        try:
            return predict(name.split()[0], row.problem, schedule=pins_of(row.schedule), gpu=self.gpu.name).time_us
        except BlackwellMatmulError:
            return None

    def _differential(self) -> Iterator[Row]:
        """Run a sample of bench/gpu/differential.py, which only a checkout has, and yield one row."""
        named = Item("differential", "small scripts").named
        try:
            script = studies_part.folder("the differential suite is").parent / "gpu" / "differential.py"
        except BlackwellMatmulError as error:
            yield {**named, "status": "not run", "told": without_paths(str(error))}
            return
        out = self.out / "differential"
        command = [sys.executable, str(script), "--out", str(out), "--sample", str(DIFFERENTIAL_CASES)]
        command += ["--without", "test"]  # leaves out the tests of this package
        left_s = max(LEAST_DIFFERENTIAL_S, min(DIFFERENTIAL_S, self._until_s - time.monotonic()))
        done = subprocess.run([*command, "--limit-s", f"{left_s:.0f}"], capture_output=True, text=True)
        try:
            found = parsed(content_of(out / "differential.json"))
            outcomes = dict(found["outcomes"])
        except (OSError, ValueError, KeyError, BlackwellMatmulError):
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            yield {**named, "status": "failed", "told": without_paths(last)}
            return
        bad = {each: outcomes[each] for each in ("DIFFERENT", "error") if outcomes.get(each)}
        text = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        yield {**named, "status": "not held" if bad else "held", "told": text, "outcomes": outcomes}


def _name(entry: Mapping[str, Any]) -> str:
    return str(Case(**entry["case"]))


def _judged(result: Row) -> Row:
    """Return a task's result with the status of its row, and without paths in its text."""
    held = result.pop("held", None)
    status = "measured" if held is None else "held" if held else "not held"
    return {"status": status, **result, "told": without_paths(str(result.get("told", "")))}
