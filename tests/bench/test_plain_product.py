"""What bench/gpu/plain_product.py does without a GPU: the plan, the check of a result, and the rows of what fails."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("tilus")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import plain_product
import torch

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not

H200 = GPUS["H200"]


def test_every_problem_is_named_once_and_in_fp16():
    found = plain_product.problems()
    assert len(set(found)) == len(found) == 193 and {each.dtype for each in found} == {"fp16"}
    assert plain_product.problems(8) == found[::8]


@pytest.mark.slow
def test_each_contender_has_a_schedule_that_runs():
    for problem in plain_product.problems(40):
        found = plain_product.contenders(problem, H200)
        assert list(found) == ["hopper", "h7", "hopper as h7"]
        for name, pins in found.values():
            cls = rung(name)
            assert tuple(pins) and set(pins) == set(cls.knobs)
            assert not why_not(Schedule(**pins, mma=cls.mma, features=cls.features), problem, H200)
        shared = found["h7"].schedule.items()
        assert shared <= found["hopper as h7"].schedule.items()


def test_a_wrong_result_has_a_reason():
    exact = torch.ones(2, 2)
    near, far = exact + 0.25, exact + 0.75
    assert plain_product.why_wrong(near, near, exact) == "" == plain_product.why_wrong(exact, exact, exact)
    assert plain_product.why_wrong(far, near, exact) == "wrong: largest error 0.75, of cuBLAS 0.25"
    assert plain_product.why_wrong(torch.full((2, 2), torch.nan), near, exact).startswith("wrong")


def test_a_problem_that_fails_is_a_row_with_an_error(monkeypatch):
    def row(problem, found):
        if problem.m == 1:
            raise RuntimeError("CUDA error")
        return {"us": {"h7": 2.0, "hopper": 3.0, "cublas": 1.0}}

    monkeypatch.setattr(plain_product, "row", row)
    missing = {Problem(1, 64, 64): {}, Problem(2, 64, 64): {}}
    measured = dict(plain_product.rows(missing, time.monotonic() + 60))
    assert measured["1x64x64 fp16"] == {"error": "RuntimeError: CUDA error"}
    assert plain_product.ratios(measured) == {"hopper": 1.5, "cublas": 0.5}
    assert dict(plain_product.rows(missing, time.monotonic() - 1)) == {}
