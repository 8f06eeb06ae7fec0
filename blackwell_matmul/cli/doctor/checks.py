"""Checks of `verify`, by layer. Each layer runs in a new process.

Inputs are small integers. Their sums are exact in any order, so that results are compared without tolerance.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from blackwell_matmul.base.errors import EmulationError, SimulationError, UnsupportedError
from blackwell_matmul.base.validation import said, spelled
from blackwell_matmul.hardware.detect import DetectedGpu, detect
from blackwell_matmul.kernels import KERNELS, LADDERS, rung
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER
from blackwell_matmul.scheduling.mma import spec_of

CHECKED_TARGETS = ("sm_90a", "sm_100a")

_report: Callable[[str], None] = print
"""Function that reports an outcome, given as JSON."""

Case = tuple[str, Any, tuple[Any, ...], Callable[[], bool]]
"""A check: name, kernel, arguments, and a function that returns True if the result is right."""


def tell(what: str, where: str, status: str, detail: str = "", seconds: float | None = None) -> None:
    record = {"what": what, "where": where, "status": status, "detail": detail, "seconds": seconds}
    _report(json.dumps(record))


def check(what: str, where: str, run: Callable[[], bool], may_refuse: bool = False) -> None:
    """Run a check and report its outcome. may_refuse: True reports an unsupported machine as "not run"."""
    start = time.perf_counter()
    try:
        status, detail = ("correct", "") if run() else ("wrong", "the result differs from torch's")
    except UnsupportedError as error:
        status, detail = "not run" if may_refuse else "failed", said(error)
    except (EmulationError, SimulationError) as error:
        status, detail = "wrong", said(error)
    except Exception as error:
        status, detail = "failed", spelled(error)
    tell(what, where, status, detail, time.perf_counter() - start)


# --- our own kernels


def simulator() -> None:
    """Simulate the primitives for each of `CHECKED_TARGETS`, and all kernels of the ladders."""
    for target in CHECKED_TARGETS:
        for what, kernel, args, right in _primitives("cpu"):
            check(what, f"in the simulator for {target}", partial(_simulated, kernel, args, right, target))
    for name in KERNELS:
        what, kernel, args, right = _rung(name, "cpu")
        target = kernel.script_cls.target
        check(what, f"in the simulator for {target}", partial(_simulated, kernel, args, right, target))


def _simulated(kernel: Any, args: tuple[Any, ...], right: Callable[[], bool], target: str) -> bool:
    from blackwell_matmul.simulator import simulate

    return simulate(kernel, *args, target=target).ok and right()


EMULATED_SIZE = 512
"""m, n and k of the emulated problem, which takes one or two seconds for each kernel."""


def emulator() -> None:
    """Execute the compiled code of one kernel of each ladder in the emulator."""
    for name in EMULATED_RUNGS:
        what, kernel, args, right = _product(name, rung(name)(), "cpu", *[EMULATED_SIZE] * 3)
        target = kernel.script_cls.target
        check(what, f"compiled code for {target}, emulated", partial(_emulated, kernel, args, right))


EMULATED_RUNGS = ("v2", "h2", "g0")


def _emulated(kernel: Any, args: tuple[Any, ...], right: Callable[[], bool]) -> bool:
    from blackwell_matmul.compiler import compile
    from blackwell_matmul.emulator import emulate

    m, _n, _k, *operands = args
    emulate(compile(kernel, *args), m, *operands)
    return right()


def gpu() -> None:
    """Run the primitives and the kernels on every GPU."""
    gpus = detect()
    if not gpus:
        return tell("our kernels", "", "not run", "there is no GPU, and the simulator ran them")
    import torch

    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for found in gpus[:seen]:
        _on_gpu(found)
    for found in gpus[seen:]:
        tell("our kernels", f"on GPU {found.index}", "failed", "torch does not see this GPU: see doctor")


def _on_gpu(found: DetectedGpu) -> None:
    device, where = f"cuda:{found.index}", f"on GPU {found.index}, {found.name} ({found.arch})"
    for what, kernel, args, right in _primitives(device):
        check(what, where, partial(_launched, kernel, args, right), may_refuse=not found.tensor_maps)
    lacking = {name: _lacks(name, found) for name in KERNELS}
    for need in sorted(filter(None, set(lacking.values()))):
        others = ", ".join(name for name in KERNELS if lacking[name] == need)
        tell(others, where, "not run", f"this GPU has no {need}")
    for name in (name for name in KERNELS if not lacking[name]):
        what, kernel, args, right = _rung(name, device)
        check(what, where, partial(_launched, kernel, args, right), may_refuse=name not in LADDERS.get(found.arch, ()))


def _lacks(name: str, found: DetectedGpu) -> str:
    """Return a feature that a kernel needs and a GPU lacks; "" if the kernel may run."""
    need = spec_of(rung(name).mma, rung(name).features).gpu_feature
    return need if found.features[need] is False else ""


def _launched(kernel: Any, args: tuple[Any, ...], right: Callable[[], bool]) -> bool:
    kernel(*args)
    return right()


def _primitives(device: str) -> Iterator[Case]:
    import torch

    from blackwell_matmul.kernels.primitives import GemmTile, TmaCopy, VectorAdd

    x = integers(5, 7, 40, device=device)
    y = torch.full_like(x, torch.nan)
    yield "TmaCopy 5x7x40", TmaCopy(), (x, y), lambda: torch.equal(x, y)
    u, v = integers(1003, device=device), integers(1003, device=device)
    w = torch.full_like(u, torch.nan)
    yield "VectorAdd 1003", VectorAdd(), (1003, u, v, w), lambda: torch.equal(w, u + v)
    yield _product("GemmTile", GemmTile(), device)


def _rung(name: str, device: str) -> Case:
    return _product(name, rung(name)(), device)


def _scaled(name: str, kernel: Any, device: str) -> Case:
    """Return the check of a block-scaled product of nvfp4, with random operands from a fixed seed."""
    from blackwell_matmul.harness.calls.inputs import arguments_of
    from blackwell_matmul.harness.verdict import check_product

    problem = Problem(100, 72, 96, "nvfp4")
    m, n, k, *made = arguments_of(problem, 0)
    tensors: list[Any] = [each.to(device) for each in made]  # type: ignore[attr-defined]
    return f"{name} {problem}", kernel, (m, n, k, *tensors), lambda: check_product(problem, tensors).ok


def _product(name: str, kernel: Any, device: str, m: int = 100, n: int = 72, k: int = 40) -> Case:
    import torch

    if name in BLOCK_SCALED_LADDER:
        return _scaled(name, kernel, device)
    a, b = integers(m, k, device=device).half(), integers(n, k, device=device).half()
    c = torch.full((m, n), torch.nan, dtype=torch.float16, device=device)
    return f"{name} {m}x{n}x{k}", kernel, (m, n, k, a, b, c), lambda: torch.equal(c, (a.double() @ b.double().T).half())


def integers(*shape: int, device: str = "cpu") -> Any:
    import torch

    return torch.randint(-4, 5, shape).float().to(device)


# --- Triton


def triton() -> None:
    """Run Triton copies through tensor descriptors of host and kernel, on the GPU or in Triton's interpreter."""
    import torch

    if importlib.util.find_spec("triton") is None:
        return tell("tensor descriptors", "", "not run", "Triton is not installed")
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # Triton reads the variable when a kernel is defined
    from blackwell_matmul.cli.doctor import triton_copy

    device = "cuda" if on_gpu else "cpu"
    where = f"on GPU 0, {torch.cuda.get_device_name()}" if on_gpu else "in Triton's interpreter, on the CPU"
    for kind in triton_copy.KINDS:
        check(f"copy 37x24, {kind} descriptors", where, partial(_triton_copies, kind, device))


def _triton_copies(kind: str, device: str) -> bool:
    import torch

    from blackwell_matmul.cli.doctor import triton_copy

    x = integers(37, 24, device=device)
    y = torch.full_like(x, torch.nan)
    triton_copy.copy(x, y, kind)
    return torch.equal(x, y)


# --- torch.compile


def torch_compile() -> None:
    """Run a product with an epilogue through torch.compile: Triton code on a GPU, C++ on a CPU."""
    import torch

    on_gpu = torch.cuda.is_available()
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    what = "relu(a @ b.T) + 1, 100x72x40"
    if not on_gpu and compiler is None:
        return tell(what, "", "not run", "there is no GPU, and no C++ compiler for the CPU")
    where = f"on GPU 0, {torch.cuda.get_device_name()}" if on_gpu else "on the CPU"
    check(what, where, partial(_compiled_is_right, "cuda" if on_gpu else "cpu"))


def _compiled_is_right(device: str) -> bool:
    import torch

    def product(a: Any, b: Any) -> Any:
        return torch.relu(a @ b.T) + 1

    a, b = integers(100, 40, device=device), integers(72, 40, device=device)
    return torch.equal(torch.compile(product)(a, b), product(a, b))


CHECKS: Mapping[str, Callable[[], None]] = {
    "simulator": simulator,
    "emulator": emulator,
    "gpu": gpu,
    "triton": triton,
    "torch.compile": torch_compile,
}


def run_layer(step: Callable[[str], None], layer: str) -> dict[str, object]:
    """Run the checks of a layer, as the task of a worker. step: called with each outcome as JSON."""
    global _report
    _report = step
    CHECKS[layer]()
    return {}
