"""Running a script of which nothing bad is expected."""

from __future__ import annotations

from typing import Any

from blackwell_matmul.simulator import Finding, Run, simulate


def clean(script: Any, *args: Any, **options: Any) -> Run:
    """Simulate; there must be no finding at all."""
    run = simulate(script, *args, workers=options.pop("workers", 1), **options)
    assert run.ok
    assert run.findings == ()
    return run


def only(run: Run, code: str) -> Finding:
    """The run's one finding, which must have this code."""
    assert [finding.code for finding in run.findings] == [code]
    return run.findings[0]
