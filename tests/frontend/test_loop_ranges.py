"""Loops over `range` against Python's own, in the simulator and as compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from blackwell_matmul import compile, emulate, simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.harness.calls import user_kernel
from blackwell_matmul.simulator.lowering import lower

TEXT = """
import tilus
from tilus import float32, int32

class Sums(tilus.Script):
    def __call__(self, n: int32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        total: int32 = 0
        for i in {loop}:
            total = {total}
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1])
        self.store_global(g_y, self.register_tensor(dtype=float32, shape=[1], init=0.0) + total, offsets=[0])
"""
N = 5
RANGES = (
    "range(4)", "range(0)", "range(1, 4)", "range(n)", "range(2, n)", "range(1, 1)", "range(4, 1, 1)", "range(1, n, 2)",
    "range(3, 0, -1)", "range(n, 0, -2)", "range(n, -1, -5)", "range(n, 9, -1)", "range(8, 0, -3)", "range(-2)",
)  # fmt: skip


def script(loop: str, folder: Path, total: str = "total * 10 + i") -> Any:
    file = folder / "sums.py"
    file.write_text(TEXT.format(loop=loop, total=total))
    return user_kernel.load(f"{file}:Sums").script_cls


def folded(numbers: range) -> int:
    total = 0
    for each in numbers:
        total = total * 10 + each
    return total


@pytest.mark.slow
@pytest.mark.parametrize("loop", [*RANGES, 'self.range(1, 4, unroll="all")', "self.range(4, 0, -1, unroll=2)"])
def test_a_loop_runs_as_in_python(loop: str, tmp_path: Path) -> None:
    plain = loop.replace("self.", "").replace(', unroll="all"', "").replace(", unroll=2", "")
    y, z, kernel = torch.zeros(1), torch.zeros(1), script(loop, tmp_path)
    assert simulate(kernel, N, y, target="sm_90a").ok
    emulate(compile(kernel, N, z, target="sm_90a", cache=False), N, z)
    assert y.item() == z.item() == folded(eval(plain, {"n": N}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "loop", ["range(n, 2147483647, -1)", "range(n, -2147483648, -1073741824)", "range(n, -2147483648, -n * 200000000)"]
)
def test_a_distance_beyond_int32_is_counted_as_in_python(loop: str, tmp_path: Path) -> None:
    y, z, kernel = torch.zeros(1), torch.zeros(1), script(loop, tmp_path, "total + 1")
    assert simulate(kernel, N, y, target="sm_90a").ok
    emulate(compile(kernel, N, z, target="sm_90a", cache=False), N, z)
    assert y.item() == z.item() == len(eval(loop, {"n": N}))


def test_a_loop_whose_count_wraps_ends_with_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "MAX_TURNS", 100)
    run = simulate(script("range(n, -n - 2147483640)", tmp_path, "total + 1"), N, torch.zeros(1), target="sm_90a")
    assert [each.code for each in run.findings] == ["integer-overflow", "livelock"]


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("range(1, n, 0)", "the step of this range is 0, with which it has no end"),
        ("range()", "range takes a stop, a start and a stop, or both and a step, and here are 0 values"),
    ],
)
def test_no_range_is_one_sentence(loop: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=why):
        compile(script(loop, tmp_path), N, torch.zeros(1), target="sm_90a")
