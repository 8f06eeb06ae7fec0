"""`assert_clean`: fails a test, with the whole report, if a kernel has a race, a deadlock or a wrong result.

from blackwell_matmul.harness.testing import assert_clean

def test_my_matmul():
    assert_clean(MyMatmul, 300, 192, 200, dtype="bf16", schedule={"block_m": 128})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackwell_matmul.harness.calls.kernel_call import FormOf, Target
    from blackwell_matmul.problem.problem import Schedule
    from blackwell_matmul.simulator.report import Report


def assert_clean(
    kernel: Any,
    m: Any = None,
    n: Any = None,
    k: Any = None,
    *tensors: Any,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
    target: Target = None,
    form: FormOf = None,
    orders: int = 4,
    seed: int = 0,
    strict: bool = True,
    workers: int | None = None,
) -> Report:
    """Check a kernel in several orders, and check its outputs; raise AssertionError, with the report, for any fault.

    kernel, m, n, k, tensors, dtype, schedule, target, form: those of `check`. A kernel that is called with (m, n, k, a,
    b, c) must compute C = A @ B.T, on generated inputs of `dtype` (None: the type of its pointers, or fp16) or on these
    tensors. A class with `example_args` in its module is called with their result, and compared with its `reference`,
    if any; m, n and k may then be omitted. strict: True also fails for behavior that PTX does not guarantee. orders,
    seed, workers: those of `check`.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    from blackwell_matmul.harness.calls.kernel_call import resolve
    from blackwell_matmul.harness.checking import INPUT_SEED, check_call, verdicts
    from blackwell_matmul.harness.result import blamed

    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, seed=INPUT_SEED)
    expected = call.expected()
    report = check_call(call, orders=orders, seed=seed, strict=strict, workers=workers)
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
