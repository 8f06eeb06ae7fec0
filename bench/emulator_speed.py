"""How fast the emulator is, beside an older checkout of the project, both in one run.

    git worktree add /tmp/older SOME_COMMIT
    python bench/emulator_speed.py /tmp/older --json bench/results/emulator_speed.json
    python bench/emulator_speed.py /tmp/older --only tiled rung --foreign build/foreign

Kernels: rungs of the ladders; CUDA C++ with blocks of 1,024 threads, compiled by NVRTC; with --foreign, matmuls of
Triton from a folder that `foreign/make.py` has filled. Each kernel runs in both checkouts in turns, `--repeats` times.
A row has the least processor time of each, since other work on the machine adds to a time and never takes from it, and
says if both have computed the same bytes. A time includes the reading of the PTX. Instructions are those of a warp.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
RUNGS = {
    "v0": ("sm_100a", 512), "v2": ("sm_100a", 512), "v4": ("sm_100a", 1024), "v6": ("sm_100a", 512),
    "h2": ("sm_90a", 512), "h5": ("sm_90a", 512), "g0": ("sm_120a", 512),
}  # fmt: skip
"""Rungs with their target and M = N = K."""

FOREIGN = (
    "large_device_maps_f16_sm100", "large_maps_f16_sm100", "large_pointers_f16_sm100", "large_maps_f16_sm90",
    "large_pointers_f16_sm80",
)  # fmt: skip
"""Cases of `foreign/kernels/triton_matmuls.py`."""

CUDA = r"""
extern "C" __global__ void __launch_bounds__(1024) tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 32; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
extern "C" __global__ void __launch_bounds__(1024) plain(const float* a, const float* b, float* c, int n) {
    int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
__device__ float over_block(float value, float* parts, bool adds) {
    for (int i = 16; i; i >>= 1) {
        float other = __shfl_xor_sync(~0u, value, i);
        value = adds ? value + other : fmaxf(value, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[threadIdx.x % 32];
    for (int i = 16; i; i >>= 1) {
        float other = __shfl_xor_sync(~0u, value, i);
        value = adds ? value + other : fmaxf(value, other);
    }
    return value;
}
extern "C" __global__ void __launch_bounds__(1024) softmax(const float* x, float* y, int n) {
    __shared__ float parts[32];
    const float* row = x + blockIdx.x * n;
    float most = -1e30f, sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) most = fmaxf(most, row[i]);
    most = over_block(most, parts, false);
    for (int i = threadIdx.x; i < n; i += 1024) sum += __expf(row[i] - most);
    sum = over_block(sum, parts, true);
    for (int i = threadIdx.x; i < n; i += 1024) y[blockIdx.x * n + i] = __expf(row[i] - most) / sum;
}
extern "C" __global__ void __launch_bounds__(1024) collatz(const int* x, int* y, int n) {
    int i = blockIdx.x * 1024 + threadIdx.x, steps = 0;
    for (unsigned v = x[i]; v != 1; v = v & 1 ? 3 * v + 1 : v >> 1) ++steps;
    y[i] = steps;
}
extern "C" __global__ void __launch_bounds__(1024) histogram(const int* x, int* y, int n) {
    __shared__ int counts[256];
    if (threadIdx.x < 256) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 1024 + threadIdx.x; i < n; i += gridDim.x * 1024) atomicAdd(&counts[x[i] & 255], 1);
    __syncthreads();
    if (threadIdx.x < 256) atomicAdd(&y[threadIdx.x], counts[threadIdx.x]);
}
"""

SCALAR: dict[str, tuple[int, Any, Any, int]] = {
    "tiled": (128, (4, 4), (32, 32), 2), "plain": (128, (4, 4), (32, 32), 2), "softmax": (4096, 16, 1024, 1),
    "collatz": (8192, 8, 1024, 1), "histogram": (32768, 8, 1024, 1),
}  # fmt: skip
"""Kernels of `CUDA`: the number that each takes, its grid and block, and its tensors that are read."""


def main() -> int:
    """Measure, print the table, write the JSON; exit code 1 if bytes differ."""
    options = _options()
    if options.one:
        return _one(Path(options.older), options.one)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in _cases(options.foreign):
            if not options.only or any(each in name for each in options.only):
                case = make(Path(folder) / name.replace(" ", "_"))
                rows.append(_row(name, case, Path(options.older).resolve(), options.repeats))
                print(_line(rows[-1]), flush=True)
                if options.json:
                    about = {"python": platform.python_version(), "numpy": np.__version__, "cpu": _cpu()}
                    options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return int(not all(row["same_bytes"] for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("older", help="the older checkout")
    parser.add_argument("--only", nargs="*", default=(), help="kernels with one of these words in their name")
    parser.add_argument("--foreign", type=Path, help="folder of foreign/make.py")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # in a process of its own: run this case, print a measure
    return parser.parse_args()


def _row(name: str, case: str, older: Path, repeats: int) -> dict[str, Any]:
    measures: dict[str, list[dict[str, Any]]] = {"older": [], "this": []}
    for _ in range(repeats):
        for which, root in (("older", older), ("this", HERE.parent.parent)):
            measures[which].append(_measured(root, case))
    best = {which: min(each["seconds"] for each in some) for which, some in measures.items()}
    instructions = measures["this"][0]["instructions"]
    return {
        "kernel": name, "instructions": instructions,
        "older_s": round(best["older"], 3), "this_s": round(best["this"], 3),
        "older_per_s": round(instructions / best["older"]), "this_per_s": round(instructions / best["this"]),
        "same_bytes": len({each["bytes"] for some in measures.values() for each in some}) == 1,
    }  # fmt: skip


def _line(row: dict[str, Any]) -> str:
    ratio = row["older_s"] / row["this_s"]
    times = f"{row['older_s']:8.2f} s {row['this_s']:8.2f} s {ratio:6.1f} x {row['this_per_s']:12,}/s"
    return f"{row['kernel']:26} {row['instructions']:10,} {times}{'' if row['same_bytes'] else '  BYTES DIFFER'}"


def _measured(root: Path, case: str) -> dict[str, Any]:
    """Return what a process with this checkout prints."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    environment = {**os.environ, **threads, "PYTHONPATH": str(root)}
    command = [sys.executable, str(HERE), str(root), "--one", case]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def _one(root: Path, case: str) -> int:
    import blackwell_matmul.emulator as emulator

    assert Path(emulator.__file__).is_relative_to(root), emulator.__file__
    kind, *rest = json.loads(case)
    code, arguments, launch, results = {"rung": _rung, "scalar": _scalar, "foreign": _foreign}[kind](*rest)
    start = time.process_time()
    found = emulator.emulate(code, *arguments, **launch)
    seconds = time.process_time() - start
    digest = hashlib.sha256(b"".join(each.tobytes() for each in results)).hexdigest()
    print(json.dumps({"seconds": seconds, "instructions": found.instructions, "bytes": digest}))
    return 0


# --- cases: each compiles once, into a folder, and returns what a process needs to run it


def _cases(foreign: Path | None) -> Iterator[tuple[str, Callable[[Path], str]]]:
    for rung, (target, size) in RUNGS.items():
        yield f"rung {rung} {size}", lambda folder, args=(rung, target, size): _compiled(folder, *args)
    for kernel in SCALAR:
        yield f"CUDA C++ {kernel}", lambda folder, kernel=kernel: _ptx(folder, kernel)
    for case in FOREIGN if foreign is not None else ():
        path = str((foreign / f"{case}.json").resolve())  # type: ignore[operator]
        yield f"Triton {case}", lambda folder, path=path: json.dumps(["foreign", path])


def _compiled(folder: Path, rung: str, target: str, size: int) -> str:
    import torch

    from blackwell_matmul.compiler import compile
    from blackwell_matmul.kernels import rung as load

    a, b, c = (torch.zeros(size, size, dtype=torch.float16) for _ in range(3))
    compile(load(rung), size, size, size, a, b, c, target=target).save(folder)
    return json.dumps(["rung", str(folder), size])


def _rung(folder: str, size: int) -> Any:
    import torch

    from blackwell_matmul.compiler.bundle import Bundle

    a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).half() for seed in (1, 2))
    c, bundle = torch.zeros(size, size, dtype=torch.float16), Bundle.load(Path(folder))
    return bundle, bundle.ordered(m=size, n=size, k=size, a_ptr=a, b_ptr=b, c_ptr=c), {}, [c.numpy()]


def _ptx(folder: Path, kernel: str) -> str:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(CUDA.encode(), b"speed.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"])
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    folder.with_suffix(".ptx").write_bytes(text.rstrip(b"\0 "))
    return json.dumps(["scalar", str(folder.with_suffix(".ptx")), kernel])


def _scalar(path: str, kernel: str) -> Any:
    number, grid, block, reads = SCALAR[kernel]
    random = np.random.default_rng(0)
    whole = kernel in ("collatz", "histogram")
    shape = (16, number) if kernel == "softmax" else (number,) * reads if reads > 1 else (number,)
    tensors = [
        random.integers(1, 1000, shape).astype(np.int32) if whole else random.standard_normal(shape).astype(np.float32)
        for _ in range(reads)
    ]
    result = np.zeros(256 if kernel == "histogram" else shape, tensors[0].dtype)
    return path, [*tensors, result, number], {"kernel": kernel, "grid": grid, "block": block}, [result]


def _foreign(path: str) -> Any:
    sys.path.insert(0, str(HERE.parent / "foreign"))
    from run import argument, ptx_of, tensors_of

    record = json.loads(Path(path).read_text())
    tensors = tensors_of(record, "random")
    launch = {key: tuple(record[key]) for key in ("grid", "block", "cluster")}
    launch |= {key: record[key] for key in ("shared_bytes", "kernel")}
    return ptx_of(Path(path)), [argument(each, tensors) for each in record["arguments"]], launch, [*tensors.values()]


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    raise SystemExit(main())
