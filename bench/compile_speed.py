"""How long compiling takes, from a script to a cubin and its launch plan: one program of each rung, then many
schedules.

    python bench/compile_speed.py [--schedules 27] [--workers 2] [--nvcc 2] [--out bench/results/compile_speed.json]

Nothing is read from a cache. The time of one program is that of a warm process, the median of some runs; importing
tilus, which costs two seconds once, is not in it. With --nvcc, where nvcc and g++ are, tilus's own way (the source with
its host code, by nvcc, to a library) is timed on some schedules of V2 in the same run, and multiplied for all: an
extrapolation, and called so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from blackwell_matmul import Problem, schedules
from blackwell_matmul.compiler import Bundle, compile_many
from blackwell_matmul.compiler import compile as compile_kernel
from blackwell_matmul.compiler.compiling import versions
from blackwell_matmul.frontend import bind, build, import_tilus, target
from blackwell_matmul.frontend.build import _cache as programs
from blackwell_matmul.kernels import RUNGS, rung
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

TARGET = "sm_100a"
SIZE = (4096, 4096, 4096)
RUNS = 5


def arguments() -> tuple[Any, ...]:
    m, n, k = SIZE
    return m, n, k, *(torch.empty(shape, dtype=torch.float16) for shape in ((m, k), (n, k), (m, n)))


def one_program(name: str) -> dict[str, Any]:
    """The seconds of each run, from the script to the bundle."""
    seconds = []
    for _ in range(RUNS):
        programs.clear()
        start = time.perf_counter()
        compile_kernel(rung(name), *arguments(), target=TARGET, cache=False)
        seconds.append(time.perf_counter() - start)
    return {"rung": name, "seconds_median": statistics.median(seconds), "seconds": seconds}


def some_schedules(count: int) -> list[dict[str, object]]:
    """That many schedules of V2 that can run, spread over its space."""
    runnable = [dict(row.schedule) for row in schedules("v2", Problem(*SIZE)).runnable]
    if count > len(runnable):
        raise SystemExit(f"V2 has {len(runnable)} schedules for {SIZE}; ask for at most as many.")
    return [runnable[index * len(runnable) // count] for index in range(count)]


def many_programs(pins: list[dict[str, object]], workers: int) -> dict[str, Any]:
    programs.clear()
    start, cpu = time.perf_counter(), _cpu_seconds()
    made = compile_many(rung("v2"), *arguments(), schedules=pins, target=TARGET, cache=False, workers=workers)
    seconds = time.perf_counter() - start
    return {
        "rung": "v2",
        "schedules": len(pins),
        "compiled": sum(isinstance(each, Bundle) for each in made),
        "processes": workers,
        "seconds": seconds,
        "cpu_seconds": _cpu_seconds() - cpu,
    }


def _cpu_seconds() -> float:
    """Of this process and the children that it has waited for: what other work on the machine does not change much."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def with_nvcc(pins: list[dict[str, object]], schedules_in_all: int) -> dict[str, Any]:
    """tilus's own way, for each of these schedules, one after the other."""
    seconds = [_nvcc_seconds(each) for each in pins]
    return {
        "rung": "v2",
        "schedules_timed": len(seconds),
        "seconds_each": seconds,
        "extrapolated_seconds_for_all_in_one_process": statistics.mean(seconds) * schedules_in_all,
        "note": "tilus's passes and code generation, then nvcc with tilus's options; for all: extrapolated",
    }


def _nvcc_seconds(pins: dict[str, object]) -> float:
    import tvm_ffi.libinfo as ffi
    from tilus.drivers import optimize_ir_module
    from tilus.hidet.backend.codegen import codegen
    from tilus.hidet.libinfo import find_include_path

    programs.clear()
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "source.cu", Path(folder) / "lib.so"
        start = time.perf_counter()
        program = build(bind(rung("v2"), arguments(), schedule=pins, target=TARGET), TARGET)
        with target(TARGET):
            codegen(optimize_ir_module(program.lowered, Path(folder)), src_out_path=str(source), target="cuda")
        options = [
            *("-O3", "-std=c++17", "-lineinfo", "-ftz=true", "-prec-div=false", "--cudart", "shared", "--shared"),
            *("-gencode", "arch=compute_100a,code=sm_100a", "--diag-suppress", "177,179,39,550"),
            "-Xcompiler=-fPIC,-m64,-march=native,-O3,-funroll-loops,-ffast-math",
            *(f"-I{folder}" for folder in (ffi.find_include_path(), find_include_path())),
            *("-L" + str(Path(ffi.find_libtvm_ffi()).parent), "-ltvm_ffi"),
        ]
        subprocess.run(["nvcc", *options, str(source), "-o", str(library)], check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=27)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nvcc", type=int, default=2, help="schedules to time with nvcc; 0 for none")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "compile_speed.json")
    options = parser.parse_args()
    import_tilus()
    compile_kernel(rung("v0"), *arguments(), target=TARGET, cache=False)  # what tilus imports lazily
    pins = some_schedules(options.schedules)
    record = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "system": platform.system(),
        },
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "versions": versions(),
        "target": TARGET,
        "size": SIZE,
        "one_program": [one_program(name) for name in RUNGS if name not in BLOCK_SCALED_LADDER],
        "many_schedules": many_programs(pins, options.workers),
    }
    if options.nvcc and shutil.which("nvcc") and shutil.which("g++"):
        record["tilus_nvcc"] = with_nvcc(pins[:: -(-len(pins) // options.nvcc)], len(pins))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    for each in record["one_program"]:
        print(f"{each['rung']}: {each['seconds_median']:.2f} s")
    many = record["many_schedules"]
    what = f"v2, {many['compiled']} of {many['schedules']} schedules, {many['processes']} processes"
    print(f"{what}: {many['seconds']:.1f} s ({many['cpu_seconds']:.1f} s of CPU)")
    if "tilus_nvcc" in record:
        told = record["tilus_nvcc"]
        each, total = statistics.mean(told["seconds_each"]), told["extrapolated_seconds_for_all_in_one_process"]
        print(f"tilus and nvcc: {each:.1f} s a schedule, {total:.0f} s for all in one process (extrapolated)")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
