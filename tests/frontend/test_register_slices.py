"""Slices of register tensors that tilus 0.2.0 reads wrongly are refused; the others are not."""

from __future__ import annotations

import re

import frontend_scripts as scripts
import numpy as np
import pytest

from blackwell_matmul.compiler import compile
from blackwell_matmul.errors import CompileError
from blackwell_matmul.frontend import register_slices
from blackwell_matmul.simulator import simulate


def test_a_slice_of_the_leading_dimension_is_right() -> None:
    x, y = np.arange(256, dtype=np.float32).reshape(2, 32, 4), np.full((32, 4), np.nan, np.float32)
    assert simulate(scripts.Sliced, x, y, schedule={"row": True}).ok
    assert (y == x[1]).all()


def test_a_slice_of_a_later_dimension_is_refused_with_its_line() -> None:
    x, y = np.zeros((2, 32, 4), np.float32), np.zeros((2, 32), np.float32)
    with pytest.raises(
        CompileError, match=r"reads this slice of whole from other registers .*frontend_scripts\.py:\d+"
    ):
        simulate(scripts.Sliced, x, y, schedule={"row": False})


def test_what_the_generated_code_reads_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself: both elements of a thread's slice come from register 1; the second is register 5."""
    monkeypatch.setattr(register_slices, "misread", lambda insts: iter(()))
    x, y = np.zeros((2, 32, 4), np.float32), np.zeros((2, 32), np.float32)
    bundle = compile(scripts.Sliced, x, y, schedule={"row": False}, target="sm_90a", cache=False)
    assert re.search(r"slice_regs\[\w+\] = regs\[1\];", bundle.source)
