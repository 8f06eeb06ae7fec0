"""`Result`: one line per kernel, for people and as JSON. It says where its time comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from blackwell_matmul.harness.verdict import Verdict
from blackwell_matmul.problem import Problem
from blackwell_matmul.simulator.findings import Finding, Severity


@dataclass(frozen=True)
class Result:
    """One kernel, run once and checked.

    seconds: host time of the simulation when `simulated`, the kernel's own time on `device` when not.
    schedule: the knobs it ran with, chosen or pinned. findings: what the simulator saw.
    """

    rung: str
    problem: Problem
    schedule: Mapping[str, object]
    target: str
    seed: int | None
    verdict: Verdict
    seconds: float
    simulated: bool = True
    device: str = "cpu"
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        """True when C is right and no finding is an error."""
        return self.verdict.ok and not self.errors

    @property
    def time(self) -> str:
        """The time and where it was spent: a simulation's time is never a GPU's."""
        how = f"simulated in {self.seconds:.2f} s on the CPU"
        return how if self.simulated else f"measured {self.seconds * 1e6:.1f} us on {self.device}"

    def __str__(self) -> str:
        knobs = ",".join(f"{name}={value}" for name, value in self.schedule.items())
        verdict = self.verdict.message.rstrip(".")
        if self.errors:
            verdict += f", with {_count(len(self.errors), 'error')} found"
        return "  ".join(filter(None, (self.rung, str(self.problem), knobs, verdict, self.time)))

    def as_dict(self) -> dict[str, object]:
        """The result with plain values and stable keys; a number that is not finite becomes None."""
        verdict = self.verdict
        return {
            "rung": self.rung,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "dtype": self.problem.dtype,
            "schedule": dict(self.schedule),
            "target": self.target,
            "seed": self.seed,
            "ok": self.ok,
            "correct": verdict.ok,
            "verdict": verdict.message,
            "max_abs_error": _finite(verdict.max_abs_error),
            "reference_error": _finite(verdict.reference_error),
            "ratio": _finite(verdict.ratio),
            "wrong_elements": verdict.wrong,
            "tile": [verdict.tile_m, verdict.tile_n],
            "bad_tiles": [list(tile) for tile in verdict.bad_tiles],
            "bad_rows": [list(rows) for rows in verdict.bad_rows],
            "bad_columns": [list(columns) for columns in verdict.bad_columns],
            "simulated": self.simulated,
            "device": self.device,
            "seconds": self.seconds,
            "findings": [_finding_as_dict(finding) for finding in self.findings],
        }


def _finding_as_dict(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "cta": list(finding.cta) if finding.cta else None,
        "location": str(finding.location) if finding.location else None,
        "other": str(finding.other) if finding.other else None,
        "count": finding.count,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
