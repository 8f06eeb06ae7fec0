"""How fast the simulator is: every rung against the same product in numpy, on the same cores, in one run.

    python bench/simulator_speed.py                          # 512 to 4096, the schedule that the rule chooses
    python bench/simulator_speed.py --sizes 512 1024 --smallest   # and the smallest schedule of each rung
    python bench/simulator_speed.py --sizes 8192 --rungs v1 h6 --repeats 1
    python bench/simulator_speed.py --json results.json --profile

The baseline is `a.astype(float32) @ b.astype(float32).T`, timed between the simulator's runs; ratios are medians over
medians of one process, because machines differ and drift. `unchecked` is the simulator with `checks=False`, in the same
process, and `checks` what the checks cost: the simulated time over that. On a machine that does other work as well, the
ratio of processor times says more; a warp instruction's cost is processor time too. Memory is the peak resident set of
a process that does nothing else, with its children, less what it had before the first run. --profile samples one run in
one process, by its processor time, without slowing it down; README.md beside this file says where the time goes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from threadpoolctl import threadpool_limits

from blackwell_matmul.kernels import RUNGS
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

PLAIN = [each for each in RUNGS if each not in BLOCK_SCALED_LADDER]
SIZES = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Row:
    """One line of the table; times in seconds, memory in MiB. unchecked: the same with `checks=False`. cpu: processor
    time of all processes and threads, the least of the repeats; numpy's with one thread, because threads that wait for
    each other spin."""

    rung: str
    size: int
    schedule: str
    simulated_s: float
    unchecked_s: float
    checks_cost: float
    numpy_s: float
    ratio: float
    simulated_cpu_s: float
    numpy_cpu_s: float
    cpu_ratio: float
    instructions: int
    us_per_instruction: float
    peak_mib: float
    unchecked_peak_mib: float


def timed(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds that passed, seconds of processor time (with the processes that it started), and the result."""
    start, cpu = time.perf_counter(), _cpu_seconds()
    result = function()
    return time.perf_counter() - start, _cpu_seconds() - cpu, result


def _cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def operands(size: int) -> tuple[Any, Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(size, size, generator=generator).half() for _ in range(2))
    return a, b, torch.full((size, size), float("nan"), dtype=torch.float16)


def measure(rung: str, size: int, schedule: dict[str, int] | None, repeats: int, profile: bool) -> Row:
    """Simulator with and without checks, and baseline, in turn; the first round warms caches and is not counted."""
    from blackwell_matmul.kernels import rung as load
    from blackwell_matmul.simulator import simulate

    a, b, c = operands(size)
    x, y = a.numpy(), b.numpy()
    call: Any = (load(rung), size, size, size, a, b, c)
    options: Any = {"schedule": schedule, "trace": False}
    before = _resident_mib()
    simulated, unchecked, baseline, single, peaks = [], [], [], [], []
    for _ in range(repeats + (size <= 2048)):
        baseline.append(timed(lambda: x.astype(np.float32) @ y.astype(np.float32).T)[:2])
        unchecked.append(timed(lambda: simulate(*call, checks=False, **options))[0])
        peaks.append(_peak_mib() - before)
        *times, run = timed(lambda: simulate(*call, **options))
        simulated.append(times)
        with threadpool_limits(1):
            single.append(timed(lambda: x.astype(np.float32) @ y.astype(np.float32).T)[:2])
    if size <= 2048:
        del simulated[0], unchecked[0], baseline[0], single[0]
    if not run.ok:
        raise SystemExit(f"{rung} at {size}: {run.findings[0]}")
    if profile:
        _profile(lambda: simulate(*call, workers=1, **options))
    ours, theirs = (statistics.median(wall for wall, _ in runs) for runs in (simulated, baseline))
    cpu, cpu_numpy = (min(cpu for _, cpu in runs) for runs in (simulated, single))
    bare, count = statistics.median(unchecked), sum(run.counts.values())
    text = ",".join(f"{k}={v}" for k, v in run.schedule.items() if k != "dtype")
    return Row(
        rung, size, text, ours, bare, ours / bare, theirs, ours / theirs, cpu, cpu_numpy, cpu / cpu_numpy, count,
        1e6 * cpu / count, _peak_mib() - before, peaks[0],
    )  # fmt: skip


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * resource.getpagesize() / 2**20


def _peak_mib() -> float:
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + children) / 2**10


SAMPLE_SECONDS = 0.001
SHOWN_FUNCTIONS = 16


def _profile(function: Callable[[], Any]) -> None:
    """Which function is running, at each millisecond of processor time."""
    samples: Counter[str] = Counter()
    signal.signal(signal.SIGPROF, lambda _, frame: samples.update([_place(frame)]))
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
    start = time.process_time()
    function()
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(f"{time.process_time() - start:.2f} s of processor time")
    for place, count in samples.most_common(SHOWN_FUNCTIONS):
        print(f"{count / samples.total():6.1%}  {place}")


def _place(frame: FrameType | None) -> str:
    if frame is None:
        return "?"
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"


def machine() -> dict[str, Any]:
    """What it ran on, without a name."""
    from importlib.metadata import version

    names = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in names if line.startswith("model name")), platform.machine())
    versions = {name: version(name) for name in ("numpy", "torch", "tilus")}
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_average": load,
        "python": platform.python_version(),
        **versions,
    }


def in_child(*args: Any) -> Row:
    """A fresh process for each row, so that peaks are its own."""
    from blackwell_matmul.base.interrupts import Pool

    with Pool(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *args).result()


def cases(options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, int] | None]]:
    from blackwell_matmul.kernels import rung as load
    from blackwell_matmul.scheduling.space import projection

    for size in options.sizes:
        for name in options.rungs:
            yield name, size, None
            if options.smallest:
                yield name, size, projection(load(name))[0].as_dict()


def table(rows: list[Row]) -> Table:
    columns = (
        "rung", "size", Column("schedule", overflow="fold"), "simulated", "unchecked", "checks", "numpy", "ratio",
        "cpu ratio", "warp insts", "µs each", "MiB", "unchecked MiB",
    )  # fmt: skip
    shown = Table(*columns, title="Simulated time against numpy's product on the same cores")
    for r in rows:
        times = (f"{r.simulated_s:.3f} s", f"{r.unchecked_s:.3f} s", f"{r.checks_cost:.2f}x", f"{r.numpy_s:.3f} s")
        rest = (f"{r.ratio:.2f}", f"{r.cpu_ratio:.2f}", str(r.instructions), f"{r.us_per_instruction:.1f}")
        shown.add_row(
            r.rung, str(r.size), r.schedule, *times, *rest, f"{r.peak_mib:.0f}", f"{r.unchecked_peak_mib:.0f}"
        )
    return shown


def known(name: str) -> str:
    """The name of a rung; any other ends the program with the sentence that lists them."""
    from blackwell_matmul.base.errors import InputError
    from blackwell_matmul.kernels import rung

    try:
        rung(name)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    return name.lower()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument(
        "--rungs",
        nargs="+",
        default=PLAIN,
        type=known,
        metavar="RUNG",
    )
    parser.add_argument("--smallest", action="store_true", help="also the first schedule of each rung's projection")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="print where one process spends its time")
    parser.add_argument("--json", type=Path, help="also add the run to this file")
    options = parser.parse_args()
    rows, planned = [], list(cases(options))
    with Progress(transient=True) as progress:
        task = progress.add_task("measuring", total=len(planned))
        for name, size, schedule in planned:
            rows.append(in_child(name, size, schedule, options.repeats, options.profile))
            progress.advance(task)
    Console(width=190).print(table(rows))
    if options.json:
        runs = json.loads(options.json.read_text()) if options.json.exists() else []
        command = " ".join(["python", "bench/simulator_speed.py", *sys.argv[1:]])
        runs.append({"command": command, "machine": machine(), "rows": [asdict(r) for r in rows]})
        options.json.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
