"""Results of a simulated run: `Finding`, `Event` and `Run`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.frontend.program import Location

Code = Literal[
    "access-before-grid-wait",
    "assumption-false",
    "cancel-after-refusal",
    "conversion-range",
    "data-race",
    "deadlock",
    "dealloc-in-flight",
    "division-by-zero",
    "exit-before-peer",
    "in-flight-at-exit",
    "integer-overflow",
    "livelock",
    "mbarrier-count",
    "mbarrier-not-initialised",
    "mbarrier-over-arrival",
    "mbarrier-overlaps-tensor",
    "mbarrier-parity",
    "misaligned-address",
    "missing-proxy-fence",
    "missing-wgmma-fence",
    "mixed-cta-groups",
    "never-written",
    "no-such-cta",
    "order-not-promised",
    "out-of-bounds",
    "overwritten-in-flight",
    "pair-issued-by-odd-cta",
    "peer-not-started",
    "phase-overrun",
    "read-before-complete",
    "read-of-another-cta",
    "register-count",
    "relaxed-wait",
    "remote-mbarrier",
    "scale-of-padding",
    "scales-in-accumulator",
    "scales-not-duplicated",
    "semaphore-left-dirty",
    "shift-range",
    "tensor-map",
    "tensor-memory-exhausted",
    "tensor-memory-leak",
    "tensor-memory-not-allocated",
    "tensor-memory-permit",
    "thread-dependent-scalar",
    "tma-coordinate",
    "too-few-bytes",
    "tx-count-overflow",
    "tx-pending-at-exit",
    "uninitialised-read",
    "unsupported",
    "waits-for-later-cta",
    "warpgroup-divergence",
    "workspace-left-dirty",
    "written-by-two-ctas",
    "wrong-phase",
]
"""Codes of findings; `docs/findings.md` explains the codes and their remedies."""


class Severity(enum.Enum):
    """Severities. error: wrong by PTX. unguaranteed: works on today's hardware, or may be meant, without a promise."""

    ERROR = "error"
    UNGUARANTEED = "unguaranteed"


@dataclass(frozen=True)
class Finding:
    """A fault. `code` is stable; `message` is one sentence; `count` is how often it was seen.

    cta: block index of the first occurrence. location: the line at which it showed; other: the other side, if any.
    fatal: the CTA could not go on after it, so that part of the output is missing. missing: the edge that would have
    made it right ("wait", "commit", "sync", "arrive", "fence", "phase", "bytes", "acquire", "release"), or "".
    at_fault: the line to look at if it is neither side: a wait that passed too early or covers too little, an arrival
    that is too weak, a count that is too small; for a missing wait the line itself, if no line of its warp waits for
    the operation. follows: the line of the finding that causes this one; mend that one first. in_loop: the line comes
    again, in the next round of a loop. tensor, box: its subject, with the rectangle in the tensor's own coordinates.
    agents: both sides. advice: the end of the message, a remedy. lacks: the remedy as data: the ring of mbarriers and
    the warp of each missing wait, or a sync and its place. notes: more sentences, such as the lines that could have
    ended a deadlock. `check` adds seeds, the orders that showed it, of which the first replays it, and timeline, the
    events around it in that order.
    """

    code: Code
    severity: Severity
    message: str
    cta: tuple[int, int, int] | None = None
    location: Location | None = None
    other: Location | None = None
    count: int = 1
    fatal: bool = False
    missing: str = ""
    at_fault: Location | None = None
    follows: Location | None = None
    in_loop: bool = False
    tensor: str = ""
    box: tuple[tuple[int, int], ...] = ()
    agents: tuple[str, ...] = ()
    advice: str = ""
    lacks: frozenset[tuple[str, str]] = frozenset()
    notes: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    timeline: tuple[Event, ...] = ()

    @property
    def seed(self) -> int | None:
        """Return the seed that replays it, if `check` found it."""
        return self.seeds[0] if self.seeds else None

    @property
    def key(self) -> object:
        """Return the key of the fault: findings with the same key are repeats."""
        return self.code, self.location, self.other, self.message if self.location is None else None

    def as_dict(self) -> dict[str, object]:
        """Return plain values with stable keys."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "missing": self.missing or None,
            "advice": self.advice or None,
            "location": str(self.location) if self.location else None,
            "other": str(self.other) if self.other else None,
            "at_fault": str(self.at_fault) if self.at_fault else None,
            "follows": str(self.follows) if self.follows else None,
            "tensor": self.tensor or None,
            "box": [list(span) for span in self.box],
            "agents": list(self.agents),
            "cta": list(self.cta) if self.cta else None,
            "count": self.count,
            "notes": list(self.notes),
            "seeds": list(self.seeds),
            "timeline": [event.as_dict() for event in self.timeline],
        }

    def __str__(self) -> str:
        where = f" ({self.location})" if self.location else ""
        again = f" [seen {self.count} times]" if self.count > 1 else ""
        return f"{self.severity.value} {self.code}: {self.message}{where}{again}"


def nobody(*_: Any) -> None:
    """Ignore a finding, or another event."""


class Findings:
    """Findings of a launch, merged by fault. told: called with each new finding."""

    def __init__(self) -> None:
        self.by_key: dict[object, Finding] = {}
        self.told: Callable[[Finding], None] = nobody

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.by_key.values())

    def add(self, finding: Finding) -> None:
        """Add a finding. Of repeats (same code and lines) the first message is kept, with their number."""
        known = self.by_key.get(finding.key)
        total = finding.count + (known.count if known else 0)
        self.by_key[finding.key] = replace(known or finding, count=total)
        self.told(finding)


class Stop(Exception):
    """Raised when a CTA cannot continue; `finding` has the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True)
class Event:
    """One step of one agent, in the simulator's order.

    agent: "warp 2", "TMA", "tensor core". kind: "issue", "wait", "resume", "complete", "arrive", "exit"; in a detailed
    trace of a CTA also "access" (a load or store) and "finding" (`what` is its code).
    """

    step: int
    cta: tuple[int, int, int]
    agent: str
    kind: str
    what: str
    location: Location | None = None

    def as_dict(self) -> dict[str, object]:
        where = str(self.location) if self.location else None
        return {"step": self.step, "agent": self.agent, "kind": self.kind, "what": self.what, "location": where}


@dataclass(frozen=True, repr=False)
class Run(OneLine):
    """The result of `simulate`. Outputs were written in place.

    findings: errors, then unguaranteed facts, causes first; repeats merged. events: the first CTA's steps (see
    `simulate`). schedule: the script's `__init__` arguments, types by name. seconds: host time of the simulation, not
    of any GPU. counts: how often warps executed each instruction. disagreements: clauses on tensors whose type, shape
    or strides differ from the kernel's view; no faults by themselves, but likely causes of wrong results.
    """

    kernel: str
    target: str
    schedule: Mapping[str, object]
    grid: tuple[int, int, int]
    seconds: float
    findings: tuple[Finding, ...] = ()
    events: tuple[Event, ...] = ()
    printed: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    disagreements: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if no finding is an error."""
        return not any(f.severity is Severity.ERROR for f in self.findings)

    def __str__(self) -> str:
        where = f"{self.kernel} on {'x'.join(map(str, self.grid))} CTAs of {self.target}"
        codes = ", ".join(dict.fromkeys(finding.code for finding in self.findings))
        found = f"findings: {codes}" if codes else "no findings"
        return "  ".join(filter(None, (where, spelled_out(self.schedule), found, _seconds(self.seconds))))

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "target": self.target, "schedule": spelled_out(self.schedule)}
        return {**known, "CTAs": "x".join(map(str, self.grid)), "time": _seconds(self.seconds)}

    def _rows(self) -> list[Mapping[str, object]]:
        return rows_of(self.findings)


def _seconds(seconds: float) -> str:
    return f"simulated in {seconds:.2f} s on the CPU"


def rows_of(findings: Iterable[Finding]) -> list[Mapping[str, object]]:
    """Return findings as rows of a table."""
    return [
        {"severity": each.severity.value, "code": each.code, "where": each.location or "", "what": each.message}
        for each in findings
    ]
