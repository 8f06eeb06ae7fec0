"""The project's own scripts: its tests' calls of `simulate`, the rungs with a draw of schedules, the rest."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from explanations import LARGE_EXPONENTIALS, Bound, sums

from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness.reference import TORCH_DTYPES
from blackwell_matmul.kernels import LADDERS, primitives, rung
from blackwell_matmul.problem.form import ACTIVATIONS, Epilogue
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from cases.made import Case, Made
from cases.tensor_cores import SUMS

ROOT = Path(__file__).resolve().parents[3]
TESTS = ("tests/simulator", "tests/frontend/test_register_slices.py", "tests/tutorials/test_first_lesson.py")
LEFT_OUT = (
    "simulator/order", "test_engine", "test_types", "test_registers", "test_tcgen05",
    "test_deferred", "test_findings", "test_check", "test_debug", "measured",
)  # fmt: skip
"""Of faulty kernels, of instructions that sm_90a lacks, slow, or without a call of `simulate`."""
MOST_CALLS = 12
MOST_BYTES = 2**24
RUNGS = (*reversed(LADDERS["sm_90a"]), *reversed(LADDERS["sm_100a"]), "g0")
SHAPES = ((1, 64, 64), (37, 128, 72), (129, 136, 64), (200, 264, 136), (64, 256, 8), (333, 128, 200))
SCHEDULES = 6


FINISHING = ("hopper", "blackwell")
FORMS = 60
"""Of each; every other one has a tile that few have."""
FORM_SHAPES = ((1, 64, 64), (37, 128, 72), (333, 128, 200), (64, 256, 8), (72, 144, 1096), (400, 528, 328))


def cases() -> Iterator[Case]:
    yield from rungs()
    yield from forms()
    for name, make in SCRIPTS.items():
        yield Case(f"script/{name}", make)


# --- the ladder


def rungs() -> Iterator[Case]:
    for name in RUNGS:
        for dtype in ("fp16", "bf16"):
            for number in range(SCHEDULES):
                yield Case(f"rung/{name}/{dtype}/{number}", functools.partial(one_rung, name, dtype, number))


def one_rung(name: str, dtype: str, number: int) -> Made:
    """A schedule that is drawn, on those of the shapes that it can run."""
    gpu, schedules = gpu_for_target(rung(name).target), list(projection(rung(name)))
    random.Random(f"{name} {dtype} {number}").shuffle(schedules)
    for schedule in schedules:
        fitting = [shape for shape in SHAPES if not why_not(schedule, Problem(*shape, dtype), gpu)]
        if fitting:
            break
    kind = TORCH_DTYPES[dtype]
    launches = []
    for m, n, k in fitting[:3]:
        generator = torch.Generator().manual_seed(m)
        a, b = (torch.randn(rows, k, generator=generator).to(kind) for rows in (m, n))
        launches.append((m, n, k, a, b, torch.full((m, n), float("nan"), dtype=kind)))
    return Made(launches, script=rung(name)(**schedule.as_dict()), bound=sums(2))


def forms() -> Iterator[Case]:
    for name, number in itertools.product(FINISHING, range(FORMS)):
        yield Case(f"form/{name}/{number}", functools.partial(one_form, name, number))


def one_form(name: str, number: int) -> Made:
    """Order of operands, batches, epilogue, shape and schedule are drawn."""
    cls, draw = rung(name), random.Random(f"{name} {number}")
    gpu, generator = gpu_for_target(cls.target), torch.Generator().manual_seed(number)
    (m, n, k), batches = draw.choice(FORM_SHAPES), draw.choice((1, 1, 2))
    kind, activation = draw.choice((torch.float16, torch.bfloat16)), draw.choice(ACTIVATIONS)
    epilogue = Epilogue(activation=activation, alpha=draw.choice((1.0, 0.5)), beta=draw.choice((1.0, -2.0)))

    def drawn(*shape: int, kind: torch.dtype = kind) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(kind)

    def operand(rows: int) -> torch.Tensor:
        transposed = draw.random() < 0.5 and rows % 8 == 0  # lines are multiples of 16 bytes
        return drawn(batches, k, rows).mT if transposed else drawn(batches, rows, k)

    a, b, c = operand(m), operand(n), torch.full((batches, m, n // epilogue.columns_of_c), float("nan"), dtype=kind)
    bias = draw.choice((0, drawn(n)))
    residual = draw.choice((0, drawn(batches, m, n) if activation != "swiglu" else 0))
    scales = draw.choice(((0, 0), (drawn(1, kind=_32), drawn(1, kind=_32)), (drawn(m, kind=_32), drawn(n, kind=_32))))
    arguments = (m, n, k, a, b, c, bias, residual, *scales, batches)
    problem, _ = cls.problem_of({"form": epilogue}, *arguments)
    able = [each for each in projection(cls) if number % 2 == 0 or (each.cluster_n or 1) > 1 or each.consumers == 3]
    draw.shuffle(able)
    schedule = next(each for each in able or projection(cls) if not why_not(each, problem, gpu))
    return Made([arguments], script=cls(form=epilogue, **schedule.as_dict()), bound=sums(2))


# --- scripts that no test simulates


def _floats(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _from_folder(folder: str, module: str, name: str) -> Any:
    import importlib

    place = str(ROOT / folder)
    if place not in sys.path:
        sys.path.append(place)
    return getattr(importlib.import_module(module), name)


def _compiler(name: str, *launch: Any, bound: Bound = SUMS, **schedule: Any) -> Made:
    found = _from_folder("tests/compiler", "compiler_scripts", name)
    return Made([launch], script=found(**schedule), bound=bound)


def _frontend(name: str, *launch: Any, bound: Bound = SUMS, **schedule: Any) -> Made:
    return Made([launch], script=_from_folder("tests/frontend", "frontend_scripts", name)(**schedule), bound=bound)


def _primitive(name: str, *launch: Any) -> Made:
    return Made([launch], script=getattr(primitives, name), bound=SUMS)


def _plain(name: str, *launch: Any) -> Made:
    return Made([launch], script=_from_folder("bench", "blackwell_matmul_studies.plain_kernels", name), bound=SUMS)


def _zeros(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


_32 = torch.float32
SCRIPTS: dict[str, Callable[[], Made]] = {
    "compiler/TmaCopy": lambda: _compiler("TmaCopy", 100, 72, _floats(100, 72), _zeros(100, 72)),
    "compiler/MmaSync": lambda: _compiler("MmaSync", 64, _floats(16, 64), _floats(64, 16), _zeros(16, 16)),
    "compiler/Wgmma": lambda: _compiler("Wgmma", 200, 136, 128, _floats(200, 128), _floats(136, 128), _zeros(200, 136)),
    "compiler/Grouped": lambda: _compiler("Grouped", 1792, 8, _zeros(7, 8, dtype=torch.int32)),
    "compiler/Scratch": lambda: _compiler("Scratch", 100, _floats(100, 64, dtype=_32), _floats(2, 64, dtype=_32)),
    "compiler/Clusters": lambda: _compiler("Clusters", 300, _zeros(300, dtype=torch.int32)),
    "compiler/LateCluster": lambda: _compiler("LateCluster", 300, _zeros(300, dtype=torch.int32)),
    "frontend/Arithmetic": lambda: _frontend(
        "Arithmetic", 256, 4, _floats(256, dtype=_32), _zeros(256, dtype=_32), bound=LARGE_EXPONENTIALS
    ),
    "frontend/Inlined": lambda: _frontend("Inlined", 200, _floats(200, dtype=_32), _zeros(200, dtype=_32)),
    "frontend/CpAsync": lambda: _frontend("CpAsync", 64, _floats(16, 64), _floats(64, 16), _zeros(16, 16, dtype=_32)),
    "frontend/Sliced/row": lambda: _frontend(
        "Sliced", _floats(2, 32, 4, dtype=_32), _zeros(32, 4, dtype=_32), row=True
    ),
    "frontend/Sliced/column": lambda: _frontend(
        "Sliced", _floats(2, 32, 4, dtype=_32), _zeros(2, 32, dtype=_32), row=False
    ),
    "examples/Relu": lambda: Made(
        [(100, 60, _floats(100, 60, dtype=_32), _zeros(100, 60, dtype=_32))],
        script=_from_folder("examples", "own_kernel", "Relu"),
    ),
    "primitives/TmaCopy": lambda: _primitive("TmaCopy", _floats(3, 50, 72), _zeros(3, 50, 72)),
    "primitives/PlainCopy": lambda: _plain("PlainCopy", _floats(3, 50, 72), _zeros(3, 50, 72)),
    "primitives/PlainAdd": lambda: _plain("PlainAdd", _floats(1000), _floats(1000, seed=1), _zeros(1000)),
    "primitives/VectorAdd": lambda: _primitive("VectorAdd", 1000, _floats(1000), _floats(1000, seed=1), _zeros(1000)),
    "primitives/GemmTile": lambda: _primitive(
        "GemmTile", 100, 72, 64, _floats(100, 64), _floats(72, 64, seed=1), _zeros(100, 72)
    ),
}


# --- the tests' own calls


def test_keys() -> list[str]:
    """A key for each test of the rooms that simulate; pytest lists them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command += ["-o", "addopts=", "-q", "--no-header", *TESTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
    nodes = [line for line in said.splitlines() if "::" in line and not any(name in line for name in LEFT_OUT)]
    return [f"test/{node}" for node in nodes]


def calls_of(key: str, step: Callable[[str], None]) -> list[Made]:
    """What a test passes to `simulate`, found by running it; the bound is that of a tensor core's sums."""
    import pytest

    import blackwell_matmul
    from blackwell_matmul import simulator

    calls: list[Made] = []
    recorder.keep = functools.partial(_keep, calls, step)
    blackwell_matmul.simulate = simulator.simulate = recorder  # type: ignore[assignment, attr-defined]
    node = key.removeprefix("test/")
    here = os.getcwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main([node, "-q", "-p", "no:cacheprovider", "-o", "addopts="])
    finally:
        os.chdir(here)
        recorder.keep = None
    return calls


class Recorder:
    """Takes the place of `simulate`, which it calls."""

    def __init__(self) -> None:
        from blackwell_matmul.simulator import simulate

        self.simulate = simulate
        self.keep: Callable[..., None] | None = None

    def __call__(self, script: Any, *args: Any, **options: Any) -> Any:
        if self.keep is not None:
            self.keep(script, args, options)
        return self.simulate(script, *args, **options)


recorder = Recorder()


def _keep(
    calls: list[Made], step: Callable[[str], None], script: Any, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    step("test")
    tensors = [as_tensor(each) for each in args]
    nbytes = sum(each.nbytes for each in tensors if isinstance(each, torch.Tensor))
    if len(calls) < MOST_CALLS and nbytes <= MOST_BYTES:
        calls.append(Made([tuple(tensors)], script=script, bound=SUMS, schedule=options.get("schedule")))


def as_tensor(value: Any) -> Any:
    """A copy; numpy's arrays, those of ml_dtypes too, as tensors of the same type."""
    import numpy as np

    if isinstance(value, torch.Tensor):
        return value.clone() if value.device.type == "cpu" else value
    if not isinstance(value, np.ndarray):
        return value
    names = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "bfloat16": torch.bfloat16}
    raw = torch.from_numpy(np.ascontiguousarray(value).view(np.uint8).copy())
    kind = names.get(value.dtype.name) or getattr(torch, value.dtype.name, None)
    return raw if kind is None else raw.view(kind).view(value.shape)
