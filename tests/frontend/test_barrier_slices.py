"""What tilus 0.2.0 compiles of the addresses of barriers that something was assigned to."""

from __future__ import annotations

import re

import frontend_scripts as scripts
import numpy as np
import pytest

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults import barrier_slices
from blackwell_matmul.simulator import simulate

X = np.zeros((32, 64), np.float16)


def test_an_assignment_to_one_barrier_is_right() -> None:
    assert simulate(scripts.Remapped(whole=False), X, workers=1).ok


def test_a_slice_after_an_assignment_is_refused_with_its_line() -> None:
    with pytest.raises(CompileError, match=r"a slice of full has the addresses from before .*frontend_scripts\.py:\d+"):
        simulate(scripts.Remapped(whole=True), X)


def test_what_the_generated_code_has_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself: the load gets the address in its own CTA."""
    monkeypatch.setattr(barrier_slices, "stale", lambda tile: ())
    source = compile(scripts.Remapped(whole=True), X, cache=False).source
    assert re.search(r"mapa_shared\(regs.*?slice_regs_1\[0\] = barriers;", source, re.DOTALL)
