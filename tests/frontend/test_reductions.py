"""Reductions that tilus 0.2.0 has no code for, or wrong code, are refused by `simulate` and `compile` alike."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import frontend_scripts as scripts
import numpy as np
import pytest
import tilus
from tilus import boolean, float8_e4m3, float16, float32, int8, int32, uint8, uint32
from tilus.ir.layout.ops import spatial

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults import reductions, tilus_compat
from blackwell_matmul.simulator import simulate

ROWS = spatial(8, 4).local(4, 1)  # lanes along the columns
BYTES = np.zeros(4096, np.uint8)


def build(build_with: Any, op: str, dtype: Any, layout: Any = ROWS, warps: int = 1) -> Any:
    shape = list(layout.shape)
    script = scripts.Reduced(op, dtype, shape, layout, warps)
    return build_with(script, BYTES.copy(), BYTES.copy(), target="sm_90a")


@pytest.mark.parametrize("build_with", [simulate, compile])
@pytest.mark.parametrize(
    ("op", "dtype", "advice"),
    [
        ("min", int8, "no min of int8; cast it to int32 first"),
        ("max", uint32, "no max of uint32; cast it to int64 first"),
        ("sum", tilus.int4b, "no sum of int4b; cast it to int32 first"),
        ("sum", float8_e4m3, "cannot exchange float8_e4m3; cast it to float16 first"),
        ("sum", boolean, "makes a truth of a sum of truths; cast it to int32 first"),
    ],
)
def test_refused_with_what_works(op: str, dtype: Any, advice: str, build_with: Any) -> None:
    with pytest.raises(CompileError, match=rf"{advice} .*frontend_scripts\.py:\d+"):
        build(build_with, op, dtype)


@pytest.mark.parametrize("dtype", [float16, float8_e4m3, int8, uint8, uint32])
def test_a_sum_inside_of_threads_has_every_type(dtype: Any) -> None:
    assert build(simulate, "sum", dtype, spatial(32, 1).local(1, 4)).ok


@pytest.mark.parametrize(
    ("op", "dtype", "fault"),
    [
        ("min", int8, "tilus 0.2.0 generates no code for min of int8"),
        ("sum", tilus.int4b, "Can not promote type"),
        ("sum", float8_e4m3, "no instance of overloaded function .__shfl_down_sync"),
    ],
)
def test_what_tilus_says(op: str, dtype: Any, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The faults themselves."""
    monkeypatch.setattr(reductions, "refusal", lambda inst: None)
    with pytest.raises(CompileError, match=fault):
        build(compile, op, dtype)


@pytest.mark.parametrize("dtype", [float32, float16, int32])
def test_max_of_what_has_one(dtype: Any) -> None:
    assert len(re.findall(r"\b(f?maxf?|__hmax)\(", build(compile, "max", dtype).source)) >= 2


def test_float16_has_a_max_by_a_workaround_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself (`tilus_compat.hidet_by_name`)."""
    monkeypatch.setattr(tilus_compat, "hidet_by_name", contextlib.nullcontext)
    with pytest.raises(CompileError, match="NameError: name 'hidet' is not defined"):
        build(compile, "max", float16, warps=2, layout=spatial(16, 4).local(2, 1))


THIRDS = spatial(32, 3)


def test_three_threads_for_a_row_are_refused() -> None:
    with pytest.raises(CompileError, match="lies over 96 threads by other numbers than powers of two"):
        build(simulate, "sum", int32, THIRDS, warps=3)


def test_what_the_generated_code_adds_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself: pairs, and pairs of pairs, of lanes that are three to a row."""
    monkeypatch.setattr(reductions, "refusal", lambda inst: None)
    source = build(compile, "sum", int32, THIRDS, warps=3).source
    assert [f", {1 << bit}, {2 << bit})" in source for bit in range(3)] == [True, True, False]
    assert source.count("__shfl_down_sync") == 2
