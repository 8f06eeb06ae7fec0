"""Blackwell matmul kernels in Tilus, and a simulator that runs and checks them on a machine without a GPU.

This module lists the public names. Each is imported on first use, so `import blackwell_matmul` loads neither torch nor
tilus and touches no GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackwell_matmul.base import moved
from blackwell_matmul.base.first_use import on_first_use

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
    from blackwell_matmul.base.version import __version__ as __version__
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
    "base.version": ("__version__",),
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
    **{f"kernels.blackwell.s{i}": (f"BlackwellMatmulS{i}",) for i in range(3)},
    **{f"kernels.blackwell.v{i}": (f"BlackwellMatmulV{i}",) for i in range(7)},
    "kernels.geforce.g1": ("GeforceMatmulG1",),
    "kernels.geforce.v0": ("GeforceMatmulV0",),
    **{f"kernels.hopper.v{i}": (f"HopperMatmulV{i}",) for i in range(8)},
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

__getattr__ = on_first_use(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
