"""`Result`, `report` and `make_inputs`: the line for people, the keys for programs, the inputs for both."""

import dataclasses
import json
import math

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.harness import Result, check_matmul, make_inputs, report
from blackwell_matmul.harness.calls import host_memory
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.simulator.findings import Finding, Run, Severity

PROBLEM = Problem(64, 96, 32, "bf16")
KEYS = [
    *("kernel", "m", "n", "k", "dtype", "schedule", "target", "seed", "ok", "correct", "verdict", "max_abs_error"),
    *("reference_error", "ratio", "wrong_elements", "tile", "bad_tiles", "bad_rows", "bad_columns"),
    *("simulated", "emulated", "device", "seconds", "findings"),
]


def a_run(**changes):
    run = Run(
        "BlackwellMatmulV1",
        "sm_100a",
        {"dtype": torch.bfloat16, "block_m": 32, "block_n": 16},
        (2, 6, 1),
        seconds=0.4123,
    )
    return dataclasses.replace(run, **changes)


def test_a_run_names_the_codes_of_its_findings_once() -> None:
    run = a_run(findings=(a_finding(), a_finding(), dataclasses.replace(a_finding(), code="deadlock")))
    assert "  findings: race, deadlock  simulated in 0.41 s on the CPU" in str(run)


def a_finding(severity=Severity.ERROR):
    return Finding("race", severity, "two at once.", (0, 1, 0), Location("v1.py", 30), None, 3)


def a_result(wrong=False, **changes) -> Result:
    a, b, c = make_inputs(PROBLEM, seed=1)
    c.copy_(a @ b.T)
    if wrong:
        c[40, 20] = math.nan
    return report(a_run(**changes), a, b, c, seed=1)


def test_the_line_says_what_was_computed_and_that_it_was_simulated():
    line = str(a_result())
    assert line.startswith("BlackwellMatmulV1  64x96x32 bf16  block_m=32,block_n=16  correct: largest error 0.")
    assert line.endswith("simulated in 0.41 s on the CPU") and "\n" not in line


def test_a_measured_time_names_its_device():
    result = dataclasses.replace(a_result(), how="measured", device="NVIDIA B200", seconds=12.3e-6)
    assert result.time == "measured 12.3 us on NVIDIA B200"


def test_the_verdict_uses_the_tiles_of_the_schedule():
    result = a_result(wrong=True)
    assert not result.ok and result.verdict.bad_tiles == ((1, 1),)
    assert "1 of 12 tiles of 32x16 (tile (1, 1)), rows 40 and columns 20" in str(result)


def test_an_error_among_the_findings_fails_a_right_product():
    result = a_result(findings=(a_finding(),))
    assert result.verdict.ok and not result.ok
    assert "with 1 error found" in str(result)
    assert a_result(findings=(a_finding(Severity.UNGUARANTEED),)).ok


@pytest.mark.parametrize("wrong", [False, True])
def test_json_is_plain_and_its_keys_are_stable(wrong):
    result = a_result(wrong, findings=(a_finding(),))
    record = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert list(record) == KEYS
    assert record["findings"] == [
        {
            "code": "race",
            "severity": "error",
            "message": "two at once.",
            "cta": [0, 1, 0],
            "location": "v1.py:30",
            "other": None,
            "count": 3,
        }
    ]
    assert record["correct"] is not wrong and record["max_abs_error"] is None if wrong else True


def test_inputs_are_seeded_and_c_is_poisoned():
    (a, b, c), again, other = make_inputs(PROBLEM, 7), make_inputs(PROBLEM, 7), make_inputs(PROBLEM, 8)
    assert a.shape == (64, 32) and b.shape == (96, 32) and c.shape == (64, 96)
    assert a.dtype == b.dtype == c.dtype == torch.bfloat16 and c.isnan().all()
    assert torch.equal(a, again[0]) and torch.equal(b, again[1]) and not torch.equal(a, other[0])
    assert not check_matmul(a, b, c).ok


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "1", None])
def test_a_seed_that_is_none_gets_one_sentence(seed):
    with pytest.raises(InputError, match=r"seed is .*; it must be an integer from 0"):
        make_inputs(PROBLEM, seed)


def test_a_problem_larger_than_the_memory_gets_one_sentence(monkeypatch):
    with pytest.raises(InputError, match=r"takes about .* GiB, with .* this machine has .* GiB left;"):
        make_inputs(Problem(2**31 - 1, 2**31 - 1, 2**31 - 1))
    monkeypatch.setattr(host_memory, "available_bytes", lambda: None)
    with pytest.raises(InputError, match="does not fit into this machine's memory"):
        make_inputs(Problem(2**31 - 1, 2**31 - 1, 2**31 - 1))
