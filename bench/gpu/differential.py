"""simulate against load(compile(...)) on a GPU, over thousands of small scripts: are all bytes the same?

    python bench/gpu/differential.py --out FOLDER                 # on an sm_90a GPU; a second run does what is missing
    python bench/gpu/differential.py --out FOLDER --no-gpu        # anywhere: simulates and compiles
    python bench/gpu/differential.py --out FOLDER --emulate sm_100a   # anywhere: the emulator takes the GPU's place
    python bench/gpu/differential.py --list                       # how many cases each family has
    python bench/gpu/differential.py --only cast/float32/int8/4   # one case, with its script
    python bench/gpu/differential.py --out FOLDER --record FILE   # and, as .json.gz, what the GPU computes of numbers
    python bench/gpu/differential.py --check-record FILE          # anywhere: the simulator against such a record
    python bench/gpu/differential.py --check-record FILE --emulate sm_90a --sample 500   # the emulator against it

Each core but one has a process that does case after case; what crashes or hangs it costs one case. A row goes to
FOLDER/rows.jsonl as its case ends, and FOLDER/differential.json sums up. Outcomes, the worst of a case's launches:

    equal             bit for bit            nan-bits          both are NaN, with other bits
    rounding          within the bound that the row states, with its reason (explanations.py)
    both-refuse       neither runs it        simulate-refuses, compile-refuses: one does
    finding           the simulator reports one, so that the GPU may differ, and does (or was not asked)
    DIFFERENT         with the first values of both, or "outside": bytes around a tensor were written; or no finding
                      where the copy is one that stops a GPU
    not-emulated      an instruction that the emulator lacks
    error             at the step named: a crash, a hang, or an exception that is no refusal
    nothing           a test that calls no simulate       no-gpu: simulated and compiled alone
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import os
import random
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from cases import case_of, keys  # noqa: E402
from explanations import explained  # noqa: E402
from records import RECORDED, against, read, write  # noqa: E402

from blackwell_matmul.base.files import write_json  # noqa: E402
from blackwell_matmul.jobs.worker import TaskOutcome, Worker  # noqa: E402

ROWS, COMPUTED, SUMMARY = "rows.jsonl", "computed.jsonl", "differential.json"
LIMIT_S = 30.0
LEAST_CHUNK = 12
SHOWN_PER_FAMILY = 40
_PLACE = re.compile(rf"{re.escape(str(ROOT))}/|\S*/differential-\w+/")
"""Where a file of a sentence lies is of no interest elsewhere."""
QUIET = ("equal", "no-gpu", "both-refuse", "nothing")
Row = dict[str, Any]


# --- running


class Run:
    """Cases over some processes, until they are done or the time is up."""

    def __init__(
        self, file: Path, gpu: bool, processes: int, until: float, limit_s: float, record: bool = False,
        emulate: str = "",
    ) -> None:  # fmt: skip
        """emulate: the target that the emulator stands for, or ""."""
        self.file, self.gpu, self.processes, self.until, self.limit_s = file, gpu, processes, until, limit_s
        self.record, self.emulate = record, emulate
        self._left: collections.deque[str] = collections.deque()
        self._lock = threading.Lock()

    def run(self, wanted: Sequence[str], task: str = "comparing:compare") -> None:
        self._left.extend(wanted)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as cache:
            paths = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
            environment = {"PYTHONPATH": paths, "BLACKWELL_MATMUL_CACHE": cache, "OMP_NUM_THREADS": "1"}
            environment |= {"DIFFERENTIAL_TARGET": self.emulate} if self.emulate else {}
            threads = [
                threading.Thread(target=self._work, args=(task, environment), daemon=True)
                for _ in range(min(self.processes, len(wanted)))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _work(self, task: str, environment: Mapping[str, str]) -> None:
        while chunk := self._chunk():
            tasks = [{"do": task, "key": key, "gpu": self.gpu, **self._options(key)} for key in chunk]
            module = task.partition(":")[0]
            with Worker(self.limit_s, module, environment) as worker:
                for key, each in zip(chunk, tasks):
                    self._keep(row_of(key, worker.do(each)))
                    if time.monotonic() > self.until:
                        return

    def _options(self, key: str) -> dict[str, bool]:
        recording = {"record": True} if self.record and family(key) in RECORDED else {}
        return recording | ({"emulator": True} if self.emulate else {})

    def _chunk(self) -> list[str]:
        """The next cases of a process: few at the end, so that all end together."""
        with self._lock:
            if time.monotonic() > self.until:
                return []
            size = max(LEAST_CHUNK, len(self._left) // (2 * self.processes))
            return [self._left.popleft() for _ in range(min(size, len(self._left)))]

    def _keep(self, row: Row) -> None:
        recorded = {name: row[name] for name in ("key", "outcome", "recorded") if name in row}
        row.pop("recorded", None)
        if "sentence" in row:
            row["sentence"] = _PLACE.sub("", row["sentence"])
        with self._lock:
            append(self.file, row)
            if "recorded" in recorded:
                append(self.file.with_name(COMPUTED), recorded)


def append(file: Path, row: Row) -> None:
    with file.open("a") as opened:
        opened.write(json.dumps(row) + "\n")


def row_of(key: str, ended: TaskOutcome) -> Row:
    if ended.result is not None:
        return ended.result
    return {
        "key": key,
        "outcome": "error",
        "at": ended.step,
        "hung": ended.timed_out,
        "sentence": ended.failed or ended.refused,
    }


def rows_in(file: Path) -> list[Row]:
    """A row for each case that is done; a line that was cut off is none."""
    found: dict[str, Row] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["key"]] = row
    return list(found.values())


def missing(wanted: Sequence[str], file: Path, gpu: bool) -> list[str]:
    """Cases without a row, in an order that has some of each family wherever the run stops."""
    done = {row["key"] for row in rows_in(file) if not (gpu and row["outcome"] == "no-gpu")}
    left = [key for key in wanted if key not in done]
    random.Random(0).shuffle(left)
    return left


# --- telling


def family(key: str) -> str:
    return key.split("/")[0]


def summary(rows: Sequence[Row], wanted: Sequence[str], gpu: str, seconds: float) -> dict[str, Any]:
    rows = sorted(rows, key=lambda row: (len(row["key"]), row["key"]))
    by_family: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        by_family[family(row["key"])][row["outcome"]] += 1
    return {
        "command": "python " + shlex.join(["bench/gpu/differential.py", *sys.argv[1:]]),
        "gpu": gpu, "versions": versions(), "taken": time.strftime("%Y-%m-%d %H:%M"), "seconds": round(seconds),
        "cases": len(wanted), "done": len(rows), "launches": sum(row.get("launches", 0) for row in rows),
        "outcomes": dict(collections.Counter(row["outcome"] for row in rows)),
        "families": {name: dict(counts) for name, counts in sorted(by_family.items())},
        "rounding": dict(collections.Counter(row["why"] for row in rows if row["outcome"] == "rounding")),
        "findings": dict(collections.Counter(code for row in rows for code in row.get("findings", ()))),
        "differences": differences(rows),
    }  # fmt: skip


def differences(rows: Sequence[Row]) -> dict[str, Any]:
    """By outcome, then by explanation: how many, in which families, and the first of them with both values."""
    groups: dict[str, dict[str, list[Row]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        if row["outcome"] not in QUIET and row["outcome"] != "rounding":
            groups[row["outcome"]][explained(row)].append(row)
    return {outcome: {why: _group(members) for why, members in of.items()} for outcome, of in groups.items()}


def _group(members: Sequence[Row]) -> dict[str, Any]:
    kept = ("key", "sentence", "findings", "arguments", "at", "simulated", "gpu", "ulps", "differ", "of", "outside")
    return {
        "count": len(members),
        "families": dict(collections.Counter(family(row["key"]) for row in members)),
        "first": [{name: row[name] for name in kept if name in row} for row in members[:SHOWN_PER_FAMILY]],
    }


def versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for name in ("torch", "tilus", "numpy", "ml_dtypes", "nvidia-cuda-nvrtc", "cuda-bindings"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def gpu_name(gpu: bool, emulate: str) -> str:
    import torch

    if emulate:
        return f"none: the emulator, for {emulate}"
    return torch.cuda.get_device_name() if gpu else "none: simulated and compiled alone"


def told(counts: Mapping[str, Mapping[str, int]]) -> None:
    for name, of in counts.items():
        print(f"{name:16} {sum(of.values()):6}  {', '.join(f'{number} {what}' for what, number in sorted(of.items()))}")


def one(key: str, gpu: bool, emulate: str = "") -> int:
    """One case, here, with its script."""
    if emulate:
        os.environ["DIFFERENTIAL_TARGET"] = emulate
    from cases.made import Made
    from comparing import compare

    made = None if key.startswith("test/") else case_of(key).make()
    if isinstance(made, Made) and made.text:
        print(made.text)
    row = compare(lambda step: print(f"... {step}", flush=True), key, gpu, emulator=bool(emulate))
    print(json.dumps(row, indent=1))
    return int(row["outcome"] not in (*QUIET, "rounding", "nan-bits"))


def check(file: Path, emulator: bool = False, sample: int | None = None) -> int:
    """A record against the simulator, or the emulator; 1 where a case shows worse than when it was recorded."""
    record = read(file)
    keys_ = sorted(record["cases"])
    chosen = random.Random(0).sample(keys_, min(sample or len(keys_), len(keys_)))
    rows = {key: against(key, record["cases"][key], emulator) for key in chosen}
    worse = [key for key, row in rows.items() if row["worse"]]
    for key in worse:
        print(json.dumps({**rows[key], "recorded": record["cases"][key]["outcome"]}))
    print(dict(collections.Counter(row["outcome"] for row in rows.values())), f"{len(worse)} worse than recorded")
    return int(bool(worse))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ROOT / "build" / "differential")))
    parser.add_argument("--resume-from", type=Path, help="rows.jsonl of an earlier run, copied to --out first")
    parser.add_argument("--no-gpu", action="store_true", help="simulate and compile alone")
    parser.add_argument(
        "--emulate", metavar="TARGET", default="", help="the emulator instead of a GPU: sm_90a, sm_100a"
    )
    parser.add_argument("--list", action="store_true", help="how many cases each family has")
    parser.add_argument("--only", metavar="KEY", help="one case, with its script")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what the GPU computed of numbers")
    parser.add_argument("--check-record", type=Path, metavar="FILE", help="simulate all of a record, and compare")
    parser.add_argument("--families", help="some alone, as cast,loop")
    parser.add_argument("--without", default="", metavar="FAMILY", help="all but one family, as test")
    parser.add_argument("--sample", type=int, help="so many cases alone, of all families")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="stop after so long, and keep what is done")
    parser.add_argument("--case-s", type=float, default=LIMIT_S, help="for one step of one case")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    return parser.parse_args()


def main() -> int:
    options, start = parsed(), time.monotonic()
    gpu = not options.no_gpu and not options.emulate
    if options.only:
        return one(options.only, gpu, options.emulate)
    if options.check_record:
        return check(options.check_record, bool(options.emulate), options.sample)
    wanted = keys(options.families.split(",") if options.families else ())
    wanted = [key for key in wanted if family(key) != options.without]
    if options.list:
        told({name: {"cases": count} for name, count in collections.Counter(map(family, wanted)).items()})
        print(len(wanted), "cases")
        return 0
    file = options.out / ROWS
    if options.resume_from and options.resume_from.exists() and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(options.resume_from.read_bytes())
    left = missing(wanted, file, not options.no_gpu)[: options.sample]
    print(f"{len(left)} of {len(wanted)} cases to do, {options.processes} processes", flush=True)
    until = start + options.limit_s - min(10.0, options.limit_s / 10)
    Run(file, gpu, options.processes, until, options.case_s, bool(options.record), options.emulate).run(left)
    found = summary(rows_in(file), wanted, gpu_name(gpu, options.emulate), time.monotonic() - start)
    write_json(options.out / SUMMARY, found)
    if options.record:
        print(f"{write(options.record, rows_in(file.with_name(COMPUTED)), found['gpu'])} cases in {options.record}")
    told(found["families"])
    print(found["outcomes"], f"in {found['seconds']} s; {options.out / SUMMARY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
