"""Rows of the study of torch.compile as a GPU would give them."""

from __future__ import annotations

import functools

from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul_studies.study_results import StudyResults, TrialRow
from blackwell_matmul_studies.torch_compile import BETWEEN, SWITCHES_TRIAL
from blackwell_matmul_studies.torch_compile.configurations import installed

HERE = Machine("NVIDIA H200", "sm_90a", 132, 989.0)


@functools.cache
def options() -> dict[str, dict[str, object]]:
    """By configuration; a look at torch's inductor, which takes seconds to import."""
    return {each.name: dict(each.options) for each in installed()}


def timing(median_us: float) -> dict[str, float]:
    return {"median_us": median_us, "q1_us": median_us, "q3_us": median_us, "least_us": median_us, "rounds": 9}


def row(configuration: str, workload: str, kernels: float | None, calls: float, **changes) -> TrialRow:
    """kernels, calls: times as fast as eager, which takes 100 µs and 110 µs in calls."""
    timings = {"eager calls": timing(110.0), "compiled calls": timing(110.0 / calls)}
    if kernels is not None:
        timings |= {"eager kernels": timing(100.0), "compiled kernels": timing(100.0 / kernels)}
    result = {
        "configuration": configuration, "options": options()[configuration], "template": "cuBLAS", "dynamic": False,
        "compiled_times": 1, "compile_s": 2.0, "flops": 68_719_476_736, "error": 0.01, "eager_error": 0.01,
        "timings": timings, **changes,
    }  # fmt: skip
    return TrialRow(f"{configuration}{BETWEEN}{workload}", "done", result)


def broken(configuration: str, workload: str) -> TrialRow:
    return TrialRow(f"{configuration}{BETWEEN}{workload}", "failed", None, "no headers", "compiling")


def results_of(folder, *rows: TrialRow) -> StudyResults:
    results = StudyResults(folder, "torch-compile", HERE)
    looked_up = {"read": ["ENABLE_TEMPLATE_TMA_STORE"], "unread": ["TRITON_ENABLE_TMA"], "unknown": {}}
    for each in (TrialRow(SWITCHES_TRIAL, "done", looked_up), *rows):
        results.put(each)
    return results
