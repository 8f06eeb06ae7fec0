"""`Result` and `ScriptResult`: the outcome of a kernel's run, as one line of text and as JSON."""

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
"""Origin of a result: simulated script, emulated PTX, or a run on a GPU."""


@dataclass(frozen=True, repr=False)
class Ran(OneLine):
    """A kernel's run, without a verdict on its outputs. Fields are those of `Result`."""

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
        """Return True if every output is as expected; None if no result is expected."""

    @property
    @abstractmethod
    def message(self) -> str:
        """Return one sentence about the outputs, with possible causes of errors."""

    @abstractmethod
    def _size(self) -> tuple[str, object, str, Mapping[str, object]]:
        """Return the name of the size's field, the size, the size as text, and the size as plain values."""

    @abstractmethod
    def _judgement(self) -> Mapping[str, object]:
        """Return the verdict as plain values."""

    @property
    def ok(self) -> bool:
        """Return True if no output is wrong and no finding is an error."""
        return self.correct is not False and not self.errors

    @property
    def time(self) -> str:
        """Return the time as text. A time of the simulator or emulator is named as such."""
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
        """Return the result as a dict of plain values, with stable keys; non-finite numbers become None."""
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
    """Outcome of one run of a matmul, with the verdict on C.

    kernel: name of the class. schedule: chosen and pinned knobs. seconds: time on the host that simulated or emulated,
    or on `device` if measured. findings: findings of the simulator. disagreements: those of `Run`.
    """

    problem: Problem
    verdict: Verdict

    @property
    def correct(self) -> bool:
        """Return True if C is right."""
        return self.verdict.ok

    @property
    def message(self) -> str:
        """Return one sentence about C, with possible causes of errors."""
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
    """Outcome of one run of a script with arguments or a reference of its own.

    size: (m, n, k) for `example_args`; None: its defaults. outputs: a verdict on each output of `reference`; empty
    without a `reference`. The other fields are those of `Result`.
    """

    size: tuple[int, int, int] | None
    outputs: tuple[OutputVerdict, ...]

    @property
    def correct(self) -> bool | None:
        """Return True if every output is as expected; None without a `reference`."""
        return all(output.ok for output in self.outputs) if self.outputs else None

    @property
    def message(self) -> str:
        """Return one sentence about all outputs, or about the wrong outputs."""
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
    """Return the message of a wrong result, followed by `Run.disagreements`."""
    return "; ".join([message.rstrip("."), *disagreements]) + "."


def _finding_as_dict(finding: Finding) -> dict[str, object]:
    """Return the keys of `Finding.as_dict` that a result shows."""
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
