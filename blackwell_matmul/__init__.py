"""Blackwell matmul kernels in Tilus, and a simulator that runs and checks them on a machine without a GPU.

This module lists the public names. Each is imported on first use, so `import blackwell_matmul` loads neither torch nor
tilus and touches no GPU.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from blackwell_matmul.base import moved

if TYPE_CHECKING:
    from blackwell_matmul.base.errors import (
        BlackwellMatmulError,
        CompileError,
        DriverError,
        EmulationError,
        InputError,
        SimulationError,
        UnsupportedError,
    )
    from blackwell_matmul.compiler import Bundle, compile_many
    from blackwell_matmul.emulator import check_ptx, emulate
    from blackwell_matmul.hardware.gpus import GPUS, Gpu
    from blackwell_matmul.harness import (
        Result,
        ScheduleList,
        ScriptResult,
        Verdict,
        check_matmul,
        run_matmul,
        run_script,
        schedules,
    )
    from blackwell_matmul.harness.checking import check
    from blackwell_matmul.harness.compiled import compile
    from blackwell_matmul.harness.predicting import predict, trace
    from blackwell_matmul.harness.testing import assert_clean
    from blackwell_matmul.harness.timelines import measured_timeline, timeline_buffer
    from blackwell_matmul.harness.typed import (
        BlackwellMatmul,
        BlackwellMatmulS0,
        BlackwellMatmulS1,
        BlackwellMatmulS2,
        BlackwellMatmulV0,
        BlackwellMatmulV1,
        BlackwellMatmulV2,
        BlackwellMatmulV3,
        BlackwellMatmulV4,
        BlackwellMatmulV5,
        BlackwellMatmulV6,
        GeforceMatmulG1,
        GeforceMatmulV0,
        HopperMatmul,
        HopperMatmulV0,
        HopperMatmulV1,
        HopperMatmulV2,
        HopperMatmulV3,
        HopperMatmulV4,
        HopperMatmulV5,
        HopperMatmulV6,
        HopperMatmulV7,
    )
    from blackwell_matmul.harness.typed import BlackwellMatmulV7 as BlackwellMatmulV7
    from blackwell_matmul.harness.typed import HopperMatmulV8 as HopperMatmulV8
    from blackwell_matmul.ops.block_scaled.mode import ScaledMmMode
    from blackwell_matmul.ops.block_scaled.quantizing import dequantize, quantize
    from blackwell_matmul.ops.block_scaled.scaled_grouped import scaled_grouped_mm
    from blackwell_matmul.ops.distributed.overlap import all_gather_matmul, matmul_reduce_scatter
    from blackwell_matmul.ops.distributed.shared_gpu import share_gpu
    from blackwell_matmul.ops.functions import baddbmm, bmm, linear, matmul
    from blackwell_matmul.ops.fusing import fused_linear
    from blackwell_matmul.ops.grouped import grouped_matmul
    from blackwell_matmul.ops.placing import copies
    from blackwell_matmul.ops.scaled import scaled_mm
    from blackwell_matmul.problem.form import Epilogue, Form
    from blackwell_matmul.problem.problem import Problem, Schedule
    from blackwell_matmul.runtime.load import Loaded, load
    from blackwell_matmul.runtime.script import Script
    from blackwell_matmul.simulator.findings import Finding, Run
    from blackwell_matmul.simulator.report import Report
    from blackwell_matmul.simulator.simulate import simulate
    from blackwell_matmul.simulator.timing.predict import Prediction
    from blackwell_matmul.simulator.trace.timeline import Timeline

__all__ = [
    "GPUS",
    "BlackwellMatmul",
    "BlackwellMatmulError",
    "BlackwellMatmulS0",
    "BlackwellMatmulS1",
    "BlackwellMatmulS2",
    "BlackwellMatmulV0",
    "BlackwellMatmulV1",
    "BlackwellMatmulV2",
    "BlackwellMatmulV3",
    "BlackwellMatmulV4",
    "BlackwellMatmulV5",
    "BlackwellMatmulV6",
    "Bundle",
    "CompileError",
    "DriverError",
    "EmulationError",
    "Epilogue",
    "Finding",
    "Form",
    "GeforceMatmulG1",
    "GeforceMatmulV0",
    "Gpu",
    "HopperMatmul",
    "HopperMatmulV0",
    "HopperMatmulV1",
    "HopperMatmulV2",
    "HopperMatmulV3",
    "HopperMatmulV4",
    "HopperMatmulV5",
    "HopperMatmulV6",
    "HopperMatmulV7",
    "InputError",
    "Loaded",
    "Prediction",
    "Problem",
    "Report",
    "Result",
    "Run",
    "ScaledMmMode",
    "Schedule",
    "ScheduleList",
    "Script",
    "ScriptResult",
    "SimulationError",
    "Timeline",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "all_gather_matmul",
    "assert_clean",
    "baddbmm",
    "bmm",
    "check",
    "check_matmul",
    "check_ptx",
    "compile",
    "compile_many",
    "copies",
    "dequantize",
    "emulate",
    "fused_linear",
    "grouped_matmul",
    "linear",
    "load",
    "matmul",
    "matmul_reduce_scatter",
    "measured_timeline",
    "predict",
    "quantize",
    "run_matmul",
    "run_script",
    "scaled_grouped_mm",
    "scaled_mm",
    "schedules",
    "share_gpu",
    "simulate",
    "timeline_buffer",
    "trace",
]

moved.install()

_HOMES = {
    "compiler": ("Bundle", "compile_many"),
    "emulator": ("check_ptx", "emulate"),
    "base.errors": (
        *("BlackwellMatmulError", "CompileError", "DriverError", "EmulationError"),
        *("InputError", "SimulationError", "UnsupportedError"),
    ),
    "problem.form": ("Epilogue", "Form"),
    "hardware.gpus": ("GPUS", "Gpu"),
    "harness": (
        *("Result", "ScheduleList", "ScriptResult", "Verdict"),
        *("check_matmul", "run_matmul", "run_script", "schedules"),
    ),
    "harness.checking": ("check",),
    "harness.compiled": ("compile",),
    "harness.predicting": ("predict", "trace"),
    "harness.timelines": ("measured_timeline", "timeline_buffer"),
    "kernels.blackwell.s0": ("BlackwellMatmulS0",),
    "kernels.blackwell.s1": ("BlackwellMatmulS1",),
    "kernels.blackwell.s2": ("BlackwellMatmulS2",),
    "kernels.blackwell.v0": ("BlackwellMatmulV0",),
    "kernels.blackwell.v1": ("BlackwellMatmulV1",),
    "kernels.blackwell.v2": ("BlackwellMatmulV2",),
    "kernels.blackwell.v3": ("BlackwellMatmulV3",),
    "kernels.blackwell.v4": ("BlackwellMatmulV4",),
    "kernels.blackwell.v5": ("BlackwellMatmulV5",),
    "kernels.blackwell.v6": ("BlackwellMatmulV6",),
    "kernels.geforce.g1": ("GeforceMatmulG1",),
    "kernels.geforce.v0": ("GeforceMatmulV0",),
    "kernels.hopper.v0": ("HopperMatmulV0",),
    "kernels.hopper.v1": ("HopperMatmulV1",),
    "kernels.hopper.v2": ("HopperMatmulV2",),
    "kernels.hopper.v3": ("HopperMatmulV3",),
    "kernels.hopper.v4": ("HopperMatmulV4",),
    "kernels.hopper.v5": ("HopperMatmulV5",),
    "kernels.hopper.v6": ("HopperMatmulV6",),
    "kernels.hopper.v7": ("HopperMatmulV7",),
    "kernels.products.blackwell": ("BlackwellMatmul",),
    "kernels.products.hopper": ("HopperMatmul",),
    "kernels": ("BlackwellMatmulV7", "HopperMatmulV8"),  # `kernels.OLD_NAMES`
    "problem.problem": ("Problem", "Schedule"),
    "runtime": ("Loaded", "load"),
    "runtime.script": ("Script",),
    "simulator.simulate": ("simulate",),
    "simulator.findings": ("Finding", "Run"),
    "ops.placing": ("copies",),
    "ops.fusing": ("fused_linear",),
    "ops.block_scaled.scaled_grouped": ("scaled_grouped_mm",),
    "ops.block_scaled.mode": ("ScaledMmMode",),
    "ops.block_scaled.quantizing": ("dequantize", "quantize"),
    "ops.functions": ("baddbmm", "bmm", "linear", "matmul"),
    "ops.scaled": ("scaled_mm",),
    "ops.grouped": ("grouped_matmul",),
    "ops.distributed.shared_gpu": ("share_gpu",),
    "ops.distributed.overlap": ("all_gather_matmul", "matmul_reduce_scatter"),
    "simulator.report": ("Report",),
    "simulator.timing.predict": ("Prediction",),
    "simulator.trace.timeline": ("Timeline",),
    "harness.testing": ("assert_clean",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def _version() -> str:
    from importlib import metadata  # as slow as all other imports here together

    try:
        return metadata.version("blackwell-matmul")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _version()
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
