"""Programs, sources and bundles that several tests of the compiler read, made once."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import compiler_scripts
import numpy as np
import pytest
import torch
from tilus.drivers import optimize_ir_module
from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.func import Function
from tilus.hidet.ir.stmt import SeqStmt

from blackwell_matmul import kernels
from blackwell_matmul.compiler import Bundle, cache, compile, source
from blackwell_matmul.compiler.source import KERNEL, DeviceSource, device_source, lower
from blackwell_matmul.frontend import Program, bind, bind_all, build, build_first, target
from blackwell_matmul.frontend.bind import pointee
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

ARRAY = np.zeros(4, dtype=np.float32)
TARGETS = ("sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a")
RUNGS = ("v0", "v1", "v2")
EVERY_RUNG = tuple(kernels.KERNELS)
CACHE_OF_THE_RUN = os.environ[cache.CACHE_VARIABLE]
"""Which the workers share; each test has another (conftest.py)."""


def matmul_arguments(
    m: int = 1000, n: int = 1024, k: int = 1024, dtype: torch.dtype = torch.float16
) -> tuple[Any, ...]:
    return m, n, k, *(torch.empty(shape, dtype=dtype) for shape in ((m, k), (n, k), (m, n)))


def arguments_for(name: str) -> tuple[Any, ...]:
    """Those of a rung, with scales where it takes some."""
    return arguments_of(Problem(1000, 1024, 1024, "nvfp4"), None) if name in BLOCK_SCALED_LADDER else matmul_arguments()


@functools.cache
def rung_program(name: str) -> Program:
    architecture = rung(name).target
    return build(bind(rung(name), arguments_for(name), target=architecture), architecture)


@functools.cache
def rung_bundle(name: str, **pins: int) -> Bundle:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.CACHE_VARIABLE, CACHE_OF_THE_RUN)
        patch.setattr(source, "lower", lowered)
        return compile(rung(name)(**pins), *arguments_for(name))


@functools.cache
def lowered(program: Program) -> Any:
    return lower(program)


@functools.cache
def source_of(program: Program) -> DeviceSource:
    return device_source(lowered(program), program)


@functools.cache
def tilus_source(program: Program) -> str:
    """What tilus itself writes for a program, for the host and the device."""
    return _written(program, program.lowered)


def tilus_host_source(program: Program) -> str:
    """The same with a kernel that does nothing, where how it is called follows from its attributes alone."""
    functions = {name: _emptied(each) for name, each in program.lowered.functions.items()}
    return _written(program, program.lowered.copy().reset_funcs(functions, program.lowered.global_vars))


def _emptied(function: Function) -> Function:
    if function.kind != KERNEL:
        return function
    return Function(function.name, function.params, SeqStmt([]), function.ret_type, function.kind, function.attrs)


def _written(program: Program, module: Any) -> str:
    with target(program.target):
        return str(UpdatedCUDACodeGen()(optimize_ir_module(module, Path())))


def _filled(script: type, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with an array of the annotated type for each "array"."""
    parameters = list(inspect.signature(script.__call__).parameters.values())[1:]
    pairs = zip(parameters, args, strict=False)
    return tuple(np.zeros(4, pointee(p.annotation) or "float32") if v == "array" else v for p, v in pairs)


@functools.cache
def script_program(name: str, *args: Any, target: str = "sm_90a", **schedule: Any) -> Program:
    script = getattr(compiler_scripts, name)
    filled = _filled(script, args)
    return build_first(bind_all(script, filled, schedule=schedule, target=target), target)[1]


def script_bundle(name: str, *args: Any, target: str = "sm_90a", **schedule: Any) -> Bundle:
    script = getattr(compiler_scripts, name)
    filled = _filled(script, args)
    return compile(script, *filled, schedule=schedule, target=target, cache=False)


def nvdisasm() -> str:
    """The disassembler; a test that needs it is skipped where there is none."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_binary_utility("nvdisasm") or shutil.which("nvdisasm")
    if not found:
        pytest.skip("needs nvdisasm (pip install nvidia-cuda-nvdisasm)")
    return found


def sass(cubin: bytes, tmp_path: Path, *options: str) -> str:
    file = tmp_path / "kernel.cubin"
    file.write_bytes(cubin)
    return subprocess.run(
        [nvdisasm(), *(options or ("-c",)), str(file)], capture_output=True, text=True, check=True
    ).stdout
