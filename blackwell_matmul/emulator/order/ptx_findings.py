"""Findings of `check_ptx`, and the report that lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

ERROR, UNPROMISED, BENIGN = "error", "unpromised", "benign"
"""Severities of a finding. error: wrong by PTX. unpromised: right only by an order that PTX does not guarantee. benign:
two unordered accesses whose order cannot matter, by a written rule."""


@dataclass(frozen=True, slots=True)
class Place:
    """An instruction. line: in the PTX. file, source_line: in the source; "" and 0 without `.loc`."""

    line: int
    file: str
    source_line: int
    text: str

    def __str__(self) -> str:
        source = f" ({self.file.rsplit('/', 1)[-1]}:{self.source_line})" if self.file else ""
        text = self.text if len(self.text) <= 90 else f"{self.text[:90]}..."
        return f"PTX line {self.line}{source}: {text}"


@dataclass(frozen=True, slots=True)
class PtxFinding:
    """A finding. code: from docs/findings.md. first, second: the accesses in the order of this run; second is None for
    a finding about one instruction. edge: the missing edge. mend: the remedy. rule: the section of the PTX ISA, or the
    rule that makes the finding benign."""

    code: str
    severity: str
    text: str
    first: Place | None = None
    second: Place | None = None
    edge: str = ""
    mend: str = ""
    rule: str = ""

    @property
    def keys(self) -> list[object]:
        """Return the finding's code with each of its lines; findings with a common key are printed once."""
        return [(self.code, at.line) for at in (self.first, self.second) if at is not None] or [(self.code, self.text)]

    def __str__(self) -> str:
        ends = [f"{name}: {text}." for name, text in (("missing", self.edge), ("mend", self.mend)) if text]
        rule = [f'(PTX ISA, "{self.rule}")'] if self.rule else []
        return " ".join([f"{self.severity} {self.code}: {self.text}.", *ends, *rule])


@dataclass(slots=True)
class PtxReport:
    """Result of a check. orders: orders of completion that ran. instructions, ctas: totals of all runs.

    not_run: a sentence for each instruction that is not emulated and was not executed. stopped: why a run ended early.
    """

    kernel: str
    target: str
    orders: tuple[str, ...]
    findings: list[PtxFinding] = field(default_factory=list)
    instructions: int = 0
    ctas: int = 0
    not_run: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def errors(self) -> list[PtxFinding]:
        return [each for each in self.findings if each.severity == ERROR]

    @property
    def unpromised(self) -> list[PtxFinding]:
        return [each for each in self.findings if each.severity == UNPROMISED]

    @property
    def ok(self) -> bool:
        """Return True if there is no error and the run reached its end."""
        return not self.errors and not self.stopped

    def lines(self, all: bool = False) -> Iterator[str]:
        """Yield the lines of the report, errors first. Findings with a common code and line are printed once. all: True
        to print benign findings, too."""
        for severity in (ERROR, UNPROMISED, *([BENIGN] if all else [])):
            told: dict[object, PtxFinding] = {}
            alike: Counter[str] = Counter()
            for each in (each for each in self.findings if each.severity == severity):
                before = next((told[key] for key in each.keys if key in told), None)
                told |= dict.fromkeys(each.keys, before or each)
                alike[str(before or each)] += 1
            for text, count in alike.items():
                yield text if count == 1 else f"{text} And {count - 1} more, with one of these lines."
        if self.stopped:
            yield f"stopped: {self.stopped}"
        counts = f"errors: {len(self.errors)}, unpromised: {len(self.unpromised)}"
        yield f"{self.kernel} ({self.target}): {counts}; orders: {', '.join(self.orders)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_dict(self) -> dict[str, object]:
        """Return the report as plain data for JSON."""
        return {
            "kernel": self.kernel, "target": self.target, "ok": self.ok, "orders": list(self.orders),
            "instructions": self.instructions, "ctas": self.ctas, "stopped": self.stopped,
            "not_run": list(self.not_run),
            "findings": [
                {
                    "code": each.code, "severity": each.severity, "text": each.text, "missing": each.edge,
                    "mend": each.mend, "rule": each.rule,
                    "lines": [
                        {"ptx": at.line, "file": at.file, "line": at.source_line, "text": at.text}
                        for at in (each.first, each.second) if at is not None
                    ],
                }
                for each in self.findings
            ],
        }  # fmt: skip
