"""Layouts for fewer threads than execute an instruction are refused by `simulate` and `compile` alike."""

from __future__ import annotations

import re
from typing import Any

import frontend_scripts as scripts
import numpy as np
import pytest
from tilus.ir.layout.ops import local, replicated, spatial

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults import register_layouts
from blackwell_matmul.simulator import simulate

HALF = spatial(16, 1).local(1, 32)
"""For 16 threads, a row each."""

X = np.arange(512, dtype=np.int32).reshape(16, 32)


def addresses(layout: Any) -> list[int]:
    """Where each thread of a warp begins to store, by the expression in the generated code."""
    source = compile(scripts.Registers(layout), X, X.copy(), target="sm_90a", cache=False).source
    found = re.findall(r"\(\(&ptr_1\[(.*)\]\)\)\);", source)
    assert len(found) == 1
    index = found[0].replace("(int)threadIdx.x", "thread").replace("/", "//")
    return [eval(index, {"thread": thread}) for thread in range(32)]


@pytest.mark.parametrize("run", [simulate, compile])
@pytest.mark.parametrize(("layout", "size"), [(HALF, 16), (spatial(2, 4).local(8, 8), 8)])
def test_a_layout_for_fewer_threads_is_refused(run: Any, layout: Any, size: int) -> None:
    works = rf"replicated\(1, 1, num_workers={32 // size}\) \* this one, made in __init__"
    where = r"\(.*frontend_scripts\.py:\d+\)"
    with pytest.raises(CompileError, match=rf"layout of x is for {size} threads, and with the 32 .*{works} {where}"):
        run(scripts.Registers(layout), X, X.copy(), target="sm_90a")


def test_what_the_refusal_advises_is_right() -> None:
    y, layout = np.zeros_like(X), replicated(1, 1, num_workers=2) * HALF
    assert simulate(scripts.Registers(layout), X, y).ok
    np.testing.assert_array_equal(y, X)
    assert addresses(layout) == [row * 32 for row in range(16)] * 2


def test_where_the_other_threads_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: the last thread stores from element 992 on, and the tensor has 512. A layout that no cache knows."""
    monkeypatch.setattr(register_layouts, "beyond", lambda function: iter(()))
    assert addresses(spatial(16, 1).local(1, 32)) == [row * 32 for row in range(32)]


def test_replicas_alone_may_be_of_any_number() -> None:
    y = np.zeros_like(X)
    assert simulate(scripts.Registers(replicated(16, 32, num_workers=1)), X, y).ok
    assert simulate(scripts.Registers(local(16, 32)), X, y).ok
    np.testing.assert_array_equal(y, X)
