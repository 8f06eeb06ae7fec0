"""Configurations as text, the switch, and the fallback: what is skipped and why, and what is remembered."""

from __future__ import annotations

import itertools
import warnings

import pytest

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul_studies.tma_configurations import (
    KNOWN,
    SWITCH,
    TmaConfiguration,
    configurations,
    first_that_runs,
    refused,
    why,
)

SMALL, MIDDLE, LARGE = map(TmaConfiguration.parse, ("64x64x32 s1 w4", "128x128x64 s3 w8", "256x256x128 s5 w16"))
KEYS = itertools.count()


class OutOfResources(Exception):
    """With the fields of Triton's."""

    def __init__(self) -> None:
        self.required, self.limit, self.name = 655392, 232448, "shared memory"


PTXAS = RuntimeError(
    "PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : (C7602) Insufficient registers "
    "(128) to compile.\nptxas fatal   : Ptx assembly aborted due to errors\n\nRepro command: ptxas -lineinfo"
)


class Gpu:
    """Which configurations fail on it, and what was tried."""

    def __init__(self, **failing: Exception) -> None:
        self.failing, self.tried = failing, []

    def __call__(self, chosen: TmaConfiguration) -> str:
        self.tried.append(chosen)
        error = {LARGE: self.failing.get("large"), MIDDLE: self.failing.get("middle")}.get(chosen)
        if error is not None:
            raise error
        return f"ran {chosen}"


def test_text_and_back():
    for each in itertools.chain(*KNOWN.values()):
        assert TmaConfiguration.parse(str(each)) == each
    assert TmaConfiguration.parse("64x128 s3 w4") == TmaConfiguration((64, 128), 3, 4)
    for wrong in ("", "64 s1 w4", "64x64", "64x64 s0 w4", "64x64 s1 w-4", "٦٤x64 s1 w4"):
        with pytest.raises(InputError, match="is no configuration; 64x64x32 s1 w4"):
            TmaConfiguration.parse(wrong)


@pytest.mark.parametrize(("kernel", "dims"), [("gemm", 3), ("copy", 2)])
def test_the_known_go_from_conservative_to_aggressive(kernel, dims):
    known = KNOWN[kernel]
    kinds = [each.conservative for each in known]
    assert kinds == sorted(kinds, reverse=True) and {True, False} == set(kinds)
    assert len(set(known)) == len(known) and {len(each.block) for each in known} == {dims}


def test_the_switch(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    assert all(each.conservative for each in configurations("gemm"))
    monkeypatch.setenv(SWITCH, "0")
    assert all(each.conservative for each in configurations("gemm"))
    monkeypatch.setenv(SWITCH, "1")
    assert configurations("gemm")[0] == LARGE and configurations("gemm")[-1] == SMALL


def test_what_cannot_run_is_skipped_told_once_and_not_tried_again():
    gpu, key = Gpu(large=OutOfResources(), middle=PTXAS), next(KEYS)
    with pytest.warns(UserWarning) as told:
        assert first_that_runs(key, (LARGE, MIDDLE, SMALL), gpu) == f"ran {SMALL}"
    (warning,) = told
    assert str(warning.message) == (
        f"{SMALL} runs, after {LARGE} (it needs 655392 bytes of shared memory, and this GPU has 232448), {MIDDLE} "
        "(ptxas: (C7602) Insufficient registers (128) to compile) did not."
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_that_runs(key, (LARGE, MIDDLE, SMALL), gpu) == f"ran {SMALL}"
    assert gpu.tried == [LARGE, MIDDLE, SMALL, SMALL]


def test_another_key_or_another_set_is_tried_anew():
    gpu, key = Gpu(), next(KEYS)
    assert first_that_runs(key, (SMALL,), gpu) == f"ran {SMALL}"
    assert first_that_runs(key, (LARGE, SMALL), gpu) == f"ran {LARGE}"
    assert first_that_runs(next(KEYS), (MIDDLE, SMALL), gpu) == f"ran {MIDDLE}"


def test_none_runs():
    with pytest.raises(UnsupportedError, match=r"^no configuration runs: 256x256x128 s5 w16 \(ValueError: no\)\.$"):
        first_that_runs(next(KEYS), (LARGE,), Gpu(large=ValueError("no.")))
    with pytest.raises(UnsupportedError, match="there is none to try"):
        first_that_runs(next(KEYS), (), Gpu())


def test_an_interruption_is_no_reason_to_go_on():
    gpu = Gpu(large=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        first_that_runs(next(KEYS), (LARGE, SMALL), gpu)
    assert gpu.tried == [LARGE]


def test_a_fault_of_ours_is_no_refusal():
    assert refused(OutOfResources()) and refused(PTXAS)
    assert not refused(TypeError("takes 3 arguments")) and why(TypeError("takes 3.")) == "TypeError: takes 3"
