"""A rule as a pair: a script that keeps it, and the same script with one edge taken away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from orders import ORDERS, line_of, lines, run_in

from blackwell_matmul.simulator import Finding, Run, Severity

Inputs = Callable[[], tuple[tuple[Any, ...], np.ndarray, np.ndarray]]
"""Arguments of the script, its output among them, and what the output must become."""


@dataclass(frozen=True)
class Pair:
    """`fault` gives a finding of this code and this missing edge, at the line marked `at`, against that marked `other`;
    or one that follows from another one, which lacks the same edge.

    every: the finding shows in each order; else in the adversarial one, and another error takes its place elsewhere.
    """

    script: type
    fault: str
    code: str
    missing: str = ""
    at: str = ""
    other: str = ""
    severity: Severity = Severity.ERROR
    says: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    every: bool = True
    target: str = "sm_100a"

    def __str__(self) -> str:
        flags = "".join(f" {value}" for value in self.flags.values())
        return f"{self.script.__name__}{flags}: {self.fault} -> {self.code}"

    def keeps(self, inputs: Inputs) -> None:
        """Without the fault: the right output, and not a word, in every order."""
        for order in ORDERS:
            args, output, expected = inputs()
            run = run_in(order, self.script(**self.flags), *args, target=self.target)
            assert not run.findings, (order, *told(run))
            np.testing.assert_array_equal(output, expected, err_msg=str(order))

    def breaks(self, inputs: Inputs) -> None:
        for order in ORDERS:
            args, _, _ = inputs()
            run = run_in(order, self.script(fault=self.fault, **self.flags), *args, target=self.target)
            assert self.severity is not Severity.ERROR or not run.ok, order
            if self.every or order == ORDERS[0]:
                assert any(self.fits(found, run.findings) for found in run.findings), (order, *told(run))

    def fits(self, found: Finding, told: Sequence[Finding]) -> bool:
        about = (found.code, found.severity, *lines(found))
        if about != (self.code, self.severity, self._line(self.at), self._line(self.other)):
            return False
        causes = [each.missing for each in told if found.follows is not None and each.location == found.follows]
        return self.missing in causes or (found.missing == self.missing and self.says in found.message)

    def _line(self, mark: str) -> int | None:
        return line_of(self.script, f"# {mark}") if mark else None


def told(run: Run) -> list[str]:
    return [f"{f} missing={f.missing!r} {lines(f)}" for f in run.findings]
