"""`Result` and `ScriptResult`: one line per kernel, as text and JSON, with the source of its time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
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
class Ran(OneLine):
    """Result of a kernel's run, simulated, emulated or measured; fields are those of `Result`."""

    kernel: str
    schedule: Mapping[str, object]
    target: str
    seconds: float
    how: How = "simulated"
    findings: tuple[Finding, ...] = ()
    disagreements: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    def _rows(self) -> list[Mapping[str, object]]:
        return rows_of(self.findings)


@dataclass(frozen=True, repr=False, kw_only=True)
class Judged(Ran, ABC):
    """A run whose outputs were checked."""

    seed: int | None
    device: str = "cpu"

    @property
    @abstractmethod
    def correct(self) -> bool | None:
        """Return true if every output is as expected; None without an expectation."""

    @property
    @abstractmethod
    def message(self) -> str:
        """Return one sentence on the outputs, with possible causes of wrong ones."""

    @abstractmethod
    def _size(self) -> tuple[str, object, str, Mapping[str, object]]:
        """Return the size of the call: its name, itself, as text, and as plain values."""

    @abstractmethod
    def _judgement(self) -> Mapping[str, object]:
        """Return the verdict as plain values."""

    @property
    def ok(self) -> bool:
        """Return true if no output is wrong and no finding is an error."""
        return self.correct is not False and not self.errors

    @property
    def time(self) -> str:
        """Return the time and where it was spent. The simulator's time is never given as a GPU's."""
        if self.how == "measured":
            return f"measured {self.seconds * 1e6:.1f} us on {self.device}"
        what = "simulated" if self.how == "simulated" else "compiled code, emulated"
        return f"{what} in {self.seconds:.2f} s on the CPU"

    def __str__(self) -> str:
        found = f", with {counted(len(self.errors), 'error')} found" if self.errors else ""
        verdict = self.message.rstrip(".") + found
        return "  ".join(filter(None, (self.kernel, self._size()[2], spelled_out(self.schedule), verdict, self.time)))

    def _facts(self) -> Mapping[str, object]:
        name, size, _, _ = self._size()
        known = {"kernel": self.kernel, name: size, "schedule": spelled_out(self.schedule)}
        return {**known, "target": self.target, "verdict": self.message, "time": self.time}

    def as_dict(self) -> dict[str, object]:
        """Return the result with plain values and stable keys; non-finite numbers become None."""
        return {
            "kernel": self.kernel,
            **self._size()[3],
            "schedule": dict(self.schedule),
            "target": self.target,
            "seed": self.seed,
            "ok": self.ok,
            "correct": self.correct,
            "verdict": self.message,
            **self._judgement(),
            "simulated": self.how == "simulated",
            "emulated": self.how == "emulated",
            "device": self.device,
            "seconds": self.seconds,
            "findings": [_finding_as_dict(finding) for finding in self.findings],
        }


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(Judged):
    """One kernel, run once and checked.

    kernel: name of its class. seconds: of the host that simulated or emulated it, or of `device` if measured. schedule:
    its knobs, chosen or pinned. findings: of the simulator. disagreements: those of `Run`.
    """

    problem: Problem
    verdict: Verdict

    @property
    def correct(self) -> bool:
        """Return true if C is right."""
        return self.verdict.ok

    @property
    def message(self) -> str:
        """Return one sentence on C, with possible causes if wrong."""
        return self.verdict.message if self.verdict.ok else blamed(self.verdict.message, self.disagreements)

    def _size(self) -> tuple[str, object, str, Mapping[str, object]]:
        return "problem", self.problem, str(self.problem), self.problem.as_dict()

    def _judgement(self) -> Mapping[str, object]:
        verdict = self.verdict
        return {
            "max_abs_error": _finite(verdict.max_abs_error),
            "reference_error": _finite(verdict.reference_error),
            "ratio": _finite(verdict.ratio),
            "wrong_elements": verdict.wrong,
            "tile": [verdict.tile_m, verdict.tile_n],
            **({} if verdict.batch is None else {"batch": verdict.batch}),
            "bad_tiles": [list(tile) for tile in verdict.bad_tiles],
            "bad_rows": [list(rows) for rows in verdict.bad_rows],
            "bad_columns": [list(columns) for columns in verdict.bad_columns],
        }


@dataclass(frozen=True, repr=False, kw_only=True)
class ScriptResult(Judged):
    """A script other than a plain matmul, run once, and compared with its file's expectation.

    size: (m, n, k) for `example_args`; None for its defaults. outputs: a verdict for each output that `reference`
    names; empty without `reference`. The other fields are those of `Result`.
    """

    size: tuple[int, int, int] | None
    outputs: tuple[OutputVerdict, ...]

    @property
    def correct(self) -> bool | None:
        """Return true if every output is as expected; None without an expectation."""
        return all(output.ok for output in self.outputs) if self.outputs else None

    @property
    def message(self) -> str:
        """Return one sentence on all outputs, or on the wrong ones."""
        if not self.outputs:
            return blamed("not checked: no reference", self.disagreements)
        if self.correct:
            return f"correct: {'; '.join(output.message for output in self.outputs)}."
        wrong = "; ".join(output.message for output in self.outputs if not output.ok)
        return blamed(f"wrong: {wrong}.", self.disagreements)

    def _size(self) -> tuple[str, object, str, Mapping[str, object]]:
        m, n, k = self.size or (None, None, None)
        return "size", self.size, "x".join(map(str, self.size or ())), {"m": m, "n": n, "k": k, "dtype": None}

    def _judgement(self) -> Mapping[str, object]:
        return {"outputs": [_output_as_dict(output) for output in self.outputs]}


def blamed(message: str, disagreements: Iterable[str]) -> str:
    """Return the message of a wrong result, with tensors that do not match the kernel's views."""
    return "; ".join([message.rstrip("."), *disagreements]) + "."


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
