"""The same PTX on a GPU and in the emulator, byte for byte: foreign kernels, and the rungs of this project.

    triton_venv/bin/python bench/foreign/make.py build/foreign     # anywhere; the PTX and its records
    python bench/gpu/foreign_on_gpu.py build/foreign --out FOLDER  # on an sm_90a GPU
    python bench/gpu/foreign_on_gpu.py build/foreign --rungs       # with the rungs that it runs

Each case has two kinds of data: exact, small integers whose sums fp32 holds, where every byte must be the same; and
random, where a product may differ by the rounding inside one instruction. A row says how: equal, nan-bits, rounding
(with the largest distance in units of the output's last place, and as a share of what the sums of magnitudes allow),
DIFFERENT, or the sentence of what failed. Each case has a process of its own. A driver refuses text of a newer version
of PTX than its own, whatever is in it: it gets such text under its own version, and the row says so (ptx_version).
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "foreign"), str(HERE.parents[1])]

SIZES = ((129, 136, 64), (200, 264, 136), (333, 128, 200))
SCHEDULES = 8
Row = dict[str, Any]


def main() -> int:
    options = _options()
    wanted = [(str(path), data) for path in sorted(options.folder.glob("*.json")) for data in ("exact", "random")]
    wanted = [(path, data) for path, data in wanted if _target(path) == options.target and options.only in path]
    if options.rungs:
        wanted += [(f"rung/{name}", data) for name in _rungs(options.target) for data in ("exact", "random")]
    start, rows = time.perf_counter(), []
    for row in _rows(wanted, options.processes):
        rows.append(row)
        if row["outcome"] not in ("equal", "nan-bits"):
            print(json.dumps(row), flush=True)
    found = {
        "command": f"python bench/gpu/foreign_on_gpu.py {options.folder.name}" + " --rungs" * options.rungs,
        "gpu": _gpu(), "taken": time.strftime("%Y-%m-%d %H:%M"), "seconds": round(time.perf_counter() - start),
        "outcomes": {data: dict(collections.Counter(row["outcome"] for row in rows if row["data"] == data))
                     for data in ("exact", "random")},
        "rows": sorted(rows, key=lambda row: (row["case"], row["data"])),
    }  # fmt: skip
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "foreign_on_gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    print(found["outcomes"], f"{found['seconds']} s")
    return int(any(row["outcome"] not in ("equal", "nan-bits", "rounding") for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", default="")
    parser.add_argument("--rungs", action="store_true")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("build"))
    return parser.parse_args()


def _target(path: str) -> str:
    return str(json.loads(Path(path).read_text()).get("target", "")) if "refused" not in path else ""


def _rungs(target: str) -> list[str]:
    from blackwell_matmul.kernels import LADDERS

    return list(LADDERS[target])


def _gpu() -> str:
    import torch

    return str(torch.cuda.get_device_name())


def _rows(wanted: list[tuple[str, str]], processes: int) -> Iterator[Row]:
    """A row for each. What a kernel breaks, an error of CUDA stays with its process, costs the one case."""
    with ThreadPoolExecutor(processes) as threads:
        for rows in threads.map(_alone, wanted):
            yield from rows


_own = threading.local()
"""Of each thread, the process that does its cases."""


def _alone(each: tuple[str, str]) -> list[Row]:
    if not hasattr(_own, "process"):
        _own.process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    try:
        rows: list[Row] = _own.process.submit(compare, *each).result()
    except BrokenProcessPool:
        rows = [{"case": Path(each[0]).stem, "data": each[1], "outcome": "error", "sentence": "its process died"}]
    if any(row["outcome"] == "error" for row in rows):
        _own.process.shutdown(wait=False)
        del _own.process
    return rows


def compare(case: str, data: str) -> list[Row]:
    import torch
    from run import ptx_of

    torch.set_num_threads(1)
    row = {"case": Path(case).stem, "data": data}
    try:
        if case.startswith("rung/"):
            return _rung(case, data)
        text, lowered = for_driver(ptx_of(Path(case)), newest_ptx(_driver_version()))
        row |= {"ptx_version": lowered} if lowered else {}
        row |= _foreign(Path(case), data, text)
    except Exception as error:
        row |= {"outcome": "error", "sentence": f"{type(error).__name__}: {error}"[:400]}
    return [row]


# --- foreign kernels


def newest_ptx(cuda: int) -> tuple[int, int]:
    """The newest version of PTX that a driver takes, by its version of CUDA, such as 13000 (PTX ISA, "Release Notes").

    CUDA 12.6 brought none, so that those of 12.y are one behind from there.
    """
    major, minor = cuda // 1000, cuda % 1000 // 10
    return major - 4, minor - (major == 12 and minor > 5)


def for_driver(ptx: str, newest: tuple[int, int]) -> tuple[str, str]:
    """The text in a version that the driver takes, and what was done for it: "" or such as "9.4 lowered to 9.0"."""
    found = re.search(r"^\s*\.version\s+(\d+)\.(\d+)", ptx, re.MULTILINE)
    if found is None or (int(found[1]), int(found[2])) <= newest:
        return ptx, ""
    (start, end), version = (found.start(1), found.end(2)), "{}.{}".format(*newest)
    return ptx[:start] + version + ptx[end:], f"{ptx[start:end]} lowered to {version}"


def _driver_version() -> int:
    from blackwell_matmul.hardware import driver

    return int(driver.call("cuDriverGetVersion", "read its version"))


def _foreign(path: Path, data: str, for_gpu: str) -> Row:
    """The emulator gets the text as it was compiled."""
    from run import argument, ptx_of, tensors_of

    from blackwell_matmul.emulator import emulate

    record = json.loads(path.read_text())
    ours, theirs = tensors_of(record, data), tensors_of(record, data)
    arguments = [argument(each, ours) for each in record["arguments"]]
    launch = {key: tuple(record[key]) for key in ("grid", "block", "cluster")}
    emulate(ptx_of(path), *arguments, **launch, shared_bytes=record["shared_bytes"], kernel=record["kernel"])
    on_gpu(for_gpu, record, theirs)
    return _worst([difference(ours[name], theirs[name], _share(record)) for name in ours])


def on_gpu(ptx: str, record: Row, tensors: dict[str, Any]) -> None:
    """Launch PTX through the driver; the tensors get what the GPU leaves in them."""
    import ctypes

    import numpy as np
    import torch

    from blackwell_matmul.hardware import driver

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    held = {name: torch.from_numpy(values.reshape(-1).view(np.uint8).copy()).cuda() for name, values in tensors.items()}
    module = driver.call("cuModuleLoadData", "load PTX", ptx.encode() + b"\0")
    function = driver.call("cuModuleGetFunction", "find the kernel", module, record["kernel"].encode())
    _allow(function, record)
    values, kept = [], []
    for each in record["arguments"]:
        slot, keep = _slot(each, held, tensors)
        values.append(slot)
        kept.append(keep)
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    _launch(function, record, ctypes.addressof(pointers))
    torch.cuda.synchronize()
    for name, values_ in tensors.items():
        values_.reshape(-1).view(np.uint8)[:] = held[name].cpu().numpy()


def _allow(function: Any, record: Row) -> None:
    from blackwell_matmul.hardware import driver

    kinds = driver.bindings().CUfunction_attribute
    shared = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.call("cuFuncSetAttribute", "allow shared memory", function, shared, record["shared_bytes"])


def _slot(recipe: Row, held: dict[str, Any], tensors: dict[str, Any]) -> tuple[Any, Any]:
    """The value of a parameter where the driver can read it, and what has to live as long."""
    import ctypes

    import torch
    from run import MAP_FIELDS

    from blackwell_matmul.compiler.plan import TensorMap
    from blackwell_matmul.runtime.maps import encoded

    if "map" in recipe:
        fields = {k: tuple(v) if k in MAP_FIELDS else v for k, v in recipe["map"].items() if k != "tensor"}
        made = encoded(TensorMap(pointer=held[recipe["map"]["tensor"]].data_ptr(), **fields), 0)
        return (ctypes.c_char * 128).from_address(made.address), made
    if "scratch" in recipe:
        scratch = torch.zeros(max(recipe["scratch"], 1), dtype=torch.uint8, device="cuda")
        return ctypes.c_uint64(scratch.data_ptr() if recipe["scratch"] else 0), scratch
    if "tensor" in recipe:
        return ctypes.c_uint64(held[recipe["tensor"]].data_ptr()), None
    value = recipe["value"]
    return (ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int64(value)), None


def _launch(function: Any, record: Row, pointers: int) -> None:
    """With the cluster as an attribute of the launch."""
    from blackwell_matmul.hardware import driver

    cuda = driver.bindings()
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = record["grid"]
    config.blockDimX, config.blockDimY, config.blockDimZ = record["block"]
    config.sharedMemBytes, config.hStream = record["shared_bytes"], 0
    if tuple(record["cluster"]) != (1, 1, 1):
        attribute = cuda.CUlaunchAttribute()
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = record["cluster"]
        config.attrs, config.numAttrs = [attribute], 1
    driver.call("cuLaunchKernelEx", "launch", config, function, pointers, 0)


# --- the rungs


def _rung(case: str, data: str) -> list[Row]:
    """Some schedules on some sizes."""
    import random

    import torch

    from blackwell_matmul.compiler import compile
    from blackwell_matmul.emulator import emulate
    from blackwell_matmul.hardware.gpus import gpu_for_target
    from blackwell_matmul.kernels import rung
    from blackwell_matmul.problem.problem import Problem
    from blackwell_matmul.runtime import load
    from blackwell_matmul.scheduling.rules import why_not
    from blackwell_matmul.scheduling.space import projection

    name, rows = case.split("/")[1], []
    script = rung(name)
    gpu, listed = gpu_for_target(script.target), list(projection(script))
    for m, n, k in SIZES:
        fitting = [each for each in listed if not why_not(each, Problem(m, n, k, "fp16"), gpu)]
        for schedule in random.Random(f"{name} {m}").sample(fitting, min(SCHEDULES, len(fitting))):
            generator = torch.Generator().manual_seed(m)
            a, b = (_operand(rows_, k, data, generator) for rows_ in (m, n))
            ours, theirs = (torch.full((m, n), float("nan"), dtype=torch.float16) for _ in range(2))
            bundle = compile(script, m, n, k, a, b, ours, schedule=schedule)
            emulate(bundle, *bundle.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b, c_ptr=ours))
            at_gpu = [each.cuda() for each in (a, b, theirs)]
            load(bundle)(*bundle.ordered(m=m, n=n, k=k, **dict(zip(("a_ptr", "b_ptr", "c_ptr"), at_gpu))))
            torch.cuda.synchronize()
            row = difference(ours.numpy(), at_gpu[2].cpu().numpy())
            rows.append({"case": f"{case} {m}x{n}x{k} {schedule}", "data": data, **row})
    return rows


def _operand(rows: int, k: int, data: str, generator: Any) -> Any:
    import torch

    if data == "exact":
        return torch.randint(-3, 4, (rows, k), generator=generator).to(torch.float16)
    return torch.randn(rows, k, generator=generator).to(torch.float16)


# --- comparing


def _worst(rows: list[Row]) -> Row:
    order = ("DIFFERENT", "rounding", "nan-bits", "equal")
    return min(rows, key=lambda row: order.index(row["outcome"]))


WITHIN, WITHIN_COARSE = 2.0**-18, 2.0**-11
"""Of the largest magnitude: what the order of the sums inside an instruction may cost."""


def _share(record: Row) -> float:
    """More with floats of 8 bits, of whose sums Hopper's wgmma keeps some 13 bits, and where what comes of a product is
    rounded to 16 bits and multiplied again."""
    kinds = {each["dtype"] for each in record["tensors"].values()}
    coarse = any(kind.startswith("float8") for kind in kinds) or record["name"].startswith("chained")
    return WITHIN_COARSE if coarse else WITHIN


def difference(ours: Any, theirs: Any, share: float = WITHIN) -> Row:
    """How far apart two arrays of one type are. rounding: floats within so much of the largest magnitude, or two units
    of its last place."""
    import ml_dtypes
    import numpy as np

    if ours.tobytes() == theirs.tobytes():
        return {"outcome": "equal"}
    if ours.dtype.kind in "iub":
        return {"outcome": "DIFFERENT", "differ": int((ours != theirs).sum()), "of": ours.size}
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    places = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not places.any():
        return {"outcome": "nan-bits"}
    largest = float(np.nanmax(np.abs(b[np.isfinite(b)]))) if np.isfinite(b).any() else 0.0
    apart = float(np.max(np.abs(a - b)[places]))
    unit = float(ml_dtypes.finfo(ours.dtype).eps) * largest
    within = np.isfinite(apart) and apart <= max(2 * unit, share * largest)
    first = tuple(int(i) for i in np.argwhere(places)[0])
    return {
        "outcome": "rounding" if within else "DIFFERENT", "differ": int(places.sum()), "of": ours.size,
        "apart": apart, "largest": largest, "at": list(first), "emulated": str(ours[first]), "gpu": str(theirs[first]),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
