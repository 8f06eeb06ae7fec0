"""`assert_clean`: what passes, what fails and with which message."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from blackwell_matmul import BlackwellMatmulV1, InputError, Report
from blackwell_matmul.harness.calls.user_kernel import load
from blackwell_matmul.harness.testing import assert_clean
from blackwell_matmul.kernels import NAMES
from blackwell_matmul.problem.problem import BITS

SCALE = """
import torch, tilus
from tilus import float32, int32


class Scale(tilus.Script):
    def __init__(self, factor: float = 2.0, wait: bool = True):
        super().__init__()
        self.factor = factor
        self.wait = wait

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 64])
        s_x = self.shared_tensor(dtype=float32, shape=[32, 64])
        self.copy_async(g_x, s_x, offsets=[0, 0])
        self.copy_async_commit_group()
        if self.wait:
            self.copy_async_wait_group(0)
        self.sync()
        self.store_global(g_y, self.load_shared(s_x) * self.factor, offsets=[0, 0])


def example_args(m=32, n=64, k=0):
    x = torch.randn(32, 64)
    return x, torch.empty_like(x)
"""
REFERENCE = """

def reference(x, y):
    return {"y_ptr": 2 * x}
"""


@pytest.fixture
def scale(tmp_path: Path) -> str:
    return written(tmp_path, SCALE + REFERENCE)


def written(folder: Path, text: str) -> str:
    file = folder / "scale.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(file)


def failure(*args: object, **options: object) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_clean(*args, **options)
    return str(caught.value)


def test_a_rung_by_name_by_class_and_with_pins() -> None:
    for kernel in ("v1", BlackwellMatmulV1, BlackwellMatmulV1(block_m=128)):
        report = assert_clean(kernel, 130, 72, 96, dtype="bf16", schedule={"block_n": 64}, orders=2)
        assert isinstance(report, Report) and report.ok and report.strict and report.orders == 2
        assert report.schedule["block_n"] == 64 and report.schedule["dtype"] == "bfloat16"


def test_a_script_with_example_args_and_a_reference(scale: str) -> None:
    assert assert_clean(scale).orders == 4
    assert_clean(load(scale).script_cls, orders=1)


def test_the_message_is_the_whole_report(scale: str) -> None:
    text = failure(scale, schedule="wait=false", orders=2)
    assert text.startswith("its ordering is not clean.")
    assert "error read-before-complete" in text and "==> missing wait: copy_async_wait_group" in text
    assert "replay: seed=0" in text and "self.copy_async(g_x, s_x" in text


def test_a_wrong_result_is_a_failure_too(scale: str) -> None:
    text = failure(scale, schedule={"factor": 3.0}, orders=1)
    assert text.startswith("Scale is 2048 of 2048 elements of y_ptr beyond") and "clean in program order" in text


def test_without_a_reference_only_the_ordering_is_checked(tmp_path: Path) -> None:
    assert assert_clean(written(tmp_path, SCALE), schedule={"factor": 3.0}, orders=1).ok


def test_strict_is_the_default_and_can_be_left_out(scale: str) -> None:
    assert "unguaranteed in-flight-at-exit" in failure(scale, schedule={"wait": False})
    assert "(counted: strict)" in failure(scale, schedule={"wait": False})
    assert "(counted: strict)" not in failure(scale, schedule={"wait": False}, strict=False)


@pytest.mark.parametrize(
    "args, options, sentence",
    [
        (("v1", 128), {}, "(128,) stands behind BlackwellMatmulV1; give m, n and k, a Problem"),
        (("v9", 8, 8, 8), {}, f"rung is 'v9'; the rungs are {', '.join(NAMES)}."),
        (("v1", 8, 8, 0), {}, "k is 0; it must be an integer from 1 to 2147483647."),
        (("v1", 8, 8, 8), {"dtype": "fp64"}, f"dtype is 'fp64'; it must be one of {', '.join(BITS)}."),
        (("v1", 8, 8, 8), {"orders": -1}, "orders is -1; it must be an integer from 1 to 10000."),
        ((3,), {}, "script is 3; give a tilus.Script class"),
        (("none.py:X",), {}, "cannot read 'none.py': there is no such file."),
    ],
)
def test_bad_input_is_one_sentence(args: tuple, options: dict, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        assert_clean(*args, **options)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_dtype_beside_example_args_is_refused(scale: str) -> None:
    with pytest.raises(InputError, match="has example_args, which makes its own; leave it out"):
        assert_clean(scale, dtype="fp16")
