"""For a test suite: `assert_clean` fails with the whole report when a kernel's ordering or its result is wrong.

from blackwell_matmul.testing import assert_clean

def test_my_matmul():
    assert_clean(MyMatmul, 300, 192, 200, dtype="bf16", schedule={"block_m": 128})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blackwell_matmul.errors import InputError

if TYPE_CHECKING:
    from blackwell_matmul.problem import Schedule
    from blackwell_matmul.simulator.report import Report


def assert_clean(
    kernel: Any,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    *,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
    orders: int = 4,
    seed: int = 0,
    strict: bool = True,
    target: str | None = None,
    workers: int | None = None,
) -> Report:
    """Check a kernel on made-up inputs, in several orders, and its result; AssertionError with the report if not clean.

    kernel: a script class, a kernel with pins, "v1", or "my_kernel.py:MyScript". Called with (m, n, k, a, b, c), it is
    checked as C = A @ B.T, in `dtype` (None: what its pointers say, or fp16). A class with `example_args` beside it is
    called with what that returns, and compared with its `reference` if there is one; m, n and k may be left out then.
    strict: also what works today and nothing guarantees is a failure. The rest is as for `check`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    from blackwell_matmul.harness.checking import INPUT_SEED, check_call, verdicts
    from blackwell_matmul.harness.kernel_call import resolve
    from blackwell_matmul.harness.result import blamed

    call = resolve(kernel, _size(m, n, k), dtype, schedule, seed=INPUT_SEED)
    expected = call.expected()
    report = check_call(call, orders=orders, seed=seed, strict=strict, target=target, workers=workers)
    wrong = [
        f"{report.kernel} is {blamed(verdict.message, report.disagreements)}"
        for verdict in verdicts(call, expected)
        if not verdict.ok
    ]
    if wrong or not report.ok:
        raise AssertionError(
            "\n".join(["its ordering is not clean." if not report.ok else "", *wrong, str(report)]).strip()
        )
    return report


def _size(*sizes: int | None) -> tuple[int, ...] | None:
    given = [size for size in sizes if size is not None]
    if given and len(given) < len(sizes):
        raise InputError("assert_clean takes m, n and k together, or none of them.")
    return tuple(given) or None
