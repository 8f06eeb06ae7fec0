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
        BlackwellMatmulError as BlackwellMatmulError,
        CompileError as CompileError,
        DriverError as DriverError,
        EmulationError as EmulationError,
        InputError as InputError,
        SimulationError as SimulationError,
        UnsupportedError as UnsupportedError,
    )
    from blackwell_matmul.base.version import __version__ as __version__
    from blackwell_matmul.compiler import Bundle as Bundle, compile_many as compile_many
    from blackwell_matmul.emulator import check_ptx as check_ptx, emulate as emulate
    from blackwell_matmul.hardware.gpus import GPUS as GPUS, Gpu as Gpu
    from blackwell_matmul.harness import (
        Result as Result,
        ScheduleList as ScheduleList,
        ScriptResult as ScriptResult,
        Verdict as Verdict,
        check_matmul as check_matmul,
        run_matmul as run_matmul,
        run_script as run_script,
        schedules as schedules,
    )
    from blackwell_matmul.harness.checking import check as check
    from blackwell_matmul.harness.compiled import compile as compile
    from blackwell_matmul.harness.predicting import predict as predict, trace as trace
    from blackwell_matmul.harness.testing import assert_clean as assert_clean
    from blackwell_matmul.harness.timelines import (
        measured_timeline as measured_timeline,
        timeline_buffer as timeline_buffer,
    )
    from blackwell_matmul.harness.typed import (
        BlackwellMatmul as BlackwellMatmul,
        BlackwellMatmulS0 as BlackwellMatmulS0,
        BlackwellMatmulS1 as BlackwellMatmulS1,
        BlackwellMatmulS2 as BlackwellMatmulS2,
        BlackwellMatmulV0 as BlackwellMatmulV0,
        BlackwellMatmulV1 as BlackwellMatmulV1,
        BlackwellMatmulV2 as BlackwellMatmulV2,
        BlackwellMatmulV3 as BlackwellMatmulV3,
        BlackwellMatmulV4 as BlackwellMatmulV4,
        BlackwellMatmulV5 as BlackwellMatmulV5,
        BlackwellMatmulV6 as BlackwellMatmulV6,
        GeforceMatmulG1 as GeforceMatmulG1,
        GeforceMatmulV0 as GeforceMatmulV0,
        HopperMatmul as HopperMatmul,
        HopperMatmulV0 as HopperMatmulV0,
        HopperMatmulV1 as HopperMatmulV1,
        HopperMatmulV2 as HopperMatmulV2,
        HopperMatmulV3 as HopperMatmulV3,
        HopperMatmulV4 as HopperMatmulV4,
        HopperMatmulV5 as HopperMatmulV5,
        HopperMatmulV6 as HopperMatmulV6,
        HopperMatmulV7 as HopperMatmulV7,
    )
    from blackwell_matmul.harness.typed import BlackwellMatmulV7 as BlackwellMatmulV7, HopperMatmulV8 as HopperMatmulV8
    from blackwell_matmul.ops.block_scaled.mode import ScaledMmMode as ScaledMmMode
    from blackwell_matmul.ops.block_scaled.quantizing import dequantize as dequantize, quantize as quantize
    from blackwell_matmul.ops.block_scaled.scaled_grouped import scaled_grouped_mm as scaled_grouped_mm
    from blackwell_matmul.ops.distributed.overlap import (
        all_gather_matmul as all_gather_matmul,
        matmul_reduce_scatter as matmul_reduce_scatter,
    )
    from blackwell_matmul.ops.distributed.shared_gpu import share_gpu as share_gpu
    from blackwell_matmul.ops.functions import baddbmm as baddbmm, bmm as bmm, linear as linear, matmul as matmul
    from blackwell_matmul.ops.fusing import fused_linear as fused_linear
    from blackwell_matmul.ops.grouped import grouped_matmul as grouped_matmul
    from blackwell_matmul.ops.placing import copies as copies
    from blackwell_matmul.ops.scaled import scaled_mm as scaled_mm
    from blackwell_matmul.problem.form import Epilogue as Epilogue, Form as Form
    from blackwell_matmul.problem.problem import Problem as Problem, Schedule as Schedule
    from blackwell_matmul.runtime.load import Loaded as Loaded, load as load
    from blackwell_matmul.runtime.script import Script as Script
    from blackwell_matmul.simulator.findings import Finding as Finding, Run as Run
    from blackwell_matmul.simulator.report import Report as Report
    from blackwell_matmul.simulator.simulate import simulate as simulate
    from blackwell_matmul.simulator.timing.predict import Prediction as Prediction
    from blackwell_matmul.simulator.trace.timeline import Timeline as Timeline

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

_OLD = {"kernels": ("BlackwellMatmulV7", "HopperMatmulV8")}  # `kernels.OLD_NAMES`

__getattr__ = on_first_use(__name__, _HOMES, _OLD)


def __dir__() -> list[str]:
    return sorted({*globals(), *globals()["__all__"]})
