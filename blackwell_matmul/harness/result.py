"""`Result` and `ScriptResult`: one line per kernel, as text and JSON, with the source of its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.validation import counted
from blackwell_matmul.harness.outputs import OutputVerdict
from blackwell_matmul.harness.verdict import Verdict
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.simulator.findings import Finding, Severity, rows_of

How = Literal["simulated", "emulated", "measured"]
"""Origin of a result: script in the simulator, compiled code in the emulator, or on a GPU."""


@dataclass(frozen=True, repr=False)
class Result(OneLine):
    """One kernel, run once and checked.

    kernel: name of its class. seconds: of the host that simulated or emulated it, or of `device` if measured. schedule:
    its knobs, chosen or pinned. findings: of the simulator. disagreements: those of `Run`.
    """

    kernel: str
    problem: Problem
    schedule: Mapping[str, object]
    target: str
    seed: int | None
    verdict: Verdict
    seconds: float
    how: How = "simulated"
    device: str = "cpu"
    findings: tuple[Finding, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return _errors(self.findings)

    @property
    def ok(self) -> bool:
        """Return true if C is right and no finding is an error."""
        return self.verdict.ok and not self.errors

    @property
    def message(self) -> str:
        """Return one sentence on C, with possible causes if wrong."""
        return self.verdict.message if self.verdict.ok else blamed(self.verdict.message, self.disagreements)

    @property
    def time(self) -> str:
        """Return the time with its place: a simulation's time is never a GPU's."""
        return f"measured {self.seconds * 1e6:.1f} us on {self.device}" if self.how == "measured" else _host_time(self)

    def __str__(self) -> str:
        verdict = _with_errors(self.message, self.errors)
        return _line(self.kernel, str(self.problem), spelled_out(self.schedule), verdict, self.time)

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "problem": self.problem, "schedule": spelled_out(self.schedule)}
        return {**known, "target": self.target, "verdict": self.message, "time": self.time}

    def _rows(self) -> list[Mapping[str, object]]:
        return rows_of(self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return the result with plain values and stable keys; non-finite numbers become None."""
        verdict = self.verdict
        return {
            "kernel": self.kernel,
            **self.problem.as_dict(),
            "schedule": dict(self.schedule),
            "target": self.target,
            "seed": self.seed,
            "ok": self.ok,
            "correct": verdict.ok,
            "verdict": self.message,
            "max_abs_error": _finite(verdict.max_abs_error),
            "reference_error": _finite(verdict.reference_error),
            "ratio": _finite(verdict.ratio),
            "wrong_elements": verdict.wrong,
            "tile": [verdict.tile_m, verdict.tile_n],
            **({} if verdict.batch is None else {"batch": verdict.batch}),
            "bad_tiles": [list(tile) for tile in verdict.bad_tiles],
            "bad_rows": [list(rows) for rows in verdict.bad_rows],
            "bad_columns": [list(columns) for columns in verdict.bad_columns],
            "simulated": self.how == "simulated",
            "emulated": self.how == "emulated",
            "device": self.device,
            "seconds": self.seconds,
            "findings": [_finding_as_dict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, repr=False)
class ScriptResult(OneLine):
    """A script other than a plain matmul, run once, and compared with its file's expectation.

    size: (m, n, k) for `example_args`; None for its defaults. outputs: a verdict for each output that `reference`
    names; empty without `reference`. The other fields are those of `Result`.
    """

    kernel: str
    size: tuple[int, int, int] | None
    schedule: Mapping[str, object]
    target: str
    seed: int
    outputs: tuple[OutputVerdict, ...]
    seconds: float
    findings: tuple[Finding, ...] = ()
    disagreements: tuple[str, ...] = ()
    how: How = "simulated"

    @property
    def errors(self) -> tuple[Finding, ...]:
        return _errors(self.findings)

    @property
    def correct(self) -> bool | None:
        """Return true if every output is as expected; None without an expectation."""
        return all(output.ok for output in self.outputs) if self.outputs else None

    @property
    def ok(self) -> bool:
        """Return true if no output is wrong and no finding is an error."""
        return self.correct is not False and not self.errors

    @property
    def message(self) -> str:
        """Return one sentence on all outputs, or on the wrong ones."""
        if not self.outputs:
            return blamed("not checked: no reference", self.disagreements)
        if self.correct:
            return f"correct: {'; '.join(output.message for output in self.outputs)}."
        wrong = "; ".join(output.message for output in self.outputs if not output.ok)
        return blamed(f"wrong: {wrong}.", self.disagreements)

    @property
    def time(self) -> str:
        """Return the time, with the note that it is no GPU's."""
        return _host_time(self)

    def __str__(self) -> str:
        size = "x".join(map(str, self.size)) if self.size else ""
        verdict = _with_errors(self.message, self.errors)
        return _line(self.kernel, size, spelled_out(self.schedule), verdict, self.time)

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "size": self.size, "schedule": spelled_out(self.schedule)}
        return {**known, "target": self.target, "verdict": self.message, "time": self.time}

    def _rows(self) -> list[Mapping[str, object]]:
        return rows_of(self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return the keys of `Result.as_dict` that apply, None for unknown ones, and `outputs`."""
        m, n, k = self.size or (None, None, None)
        return {
            "kernel": self.kernel,
            "m": m,
            "n": n,
            "k": k,
            "dtype": None,
            "schedule": dict(self.schedule),
            "target": self.target,
            "seed": self.seed,
            "ok": self.ok,
            "correct": self.correct,
            "verdict": self.message,
            "outputs": [_output_as_dict(output) for output in self.outputs],
            "simulated": self.how == "simulated",
            "emulated": self.how == "emulated",
            "device": "cpu",
            "seconds": self.seconds,
            "findings": [_finding_as_dict(finding) for finding in self.findings],
        }


def blamed(message: str, disagreements: Iterable[str]) -> str:
    """Return the message of a wrong result, with tensors that do not match the kernel's views."""
    return "; ".join([message.rstrip("."), *disagreements]) + "."


def _host_time(result: Result | ScriptResult) -> str:
    what = "simulated" if result.how == "simulated" else "compiled code, emulated"
    return f"{what} in {result.seconds:.2f} s on the CPU"


def _errors(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


def _line(*parts: str) -> str:
    return "  ".join(filter(None, parts))


def _with_errors(message: str, errors: tuple[Finding, ...]) -> str:
    found = f", with {counted(len(errors), 'error')} found" if errors else ""
    return message.rstrip(".") + found


def _finding_as_dict(finding: Finding) -> dict[str, object]:
    """Return a finding's facts known to a run; `check` has all of `Finding.as_dict`."""
    known = finding.as_dict()
    return {key: known[key] for key in ("code", "severity", "message", "cta", "location", "other", "count")}


def _output_as_dict(output: OutputVerdict) -> dict[str, object]:
    return {
        "name": output.name,
        "correct": output.ok,
        "elements": output.elements,
        "wrong_elements": output.wrong,
        "max_abs_error": _finite(output.max_abs_error),
        "worst": list(output.worst),
        "rtol": output.rtol,
        "atol": output.atol,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
