"""`Report`: the findings of `check` in all orders, and its coverage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from blackwell_matmul.base.one_line import OneLine, spelled_out
from blackwell_matmul.base.validation import counted
from blackwell_matmul.frontend.program import Program
from blackwell_matmul.simulator.description import DESCRIPTIONS, Access, Description, Space
from blackwell_matmul.simulator.findings import Finding, Severity, rows_of
from blackwell_matmul.simulator.semantics import description_of
from blackwell_matmul.simulator.text import Paragraph, Replay, Told, of_finding, plain


@dataclass(frozen=True)
class Coverage:
    """Coverage of the checks of the order, by the instructions that ran.

    exact: instructions whose every access and edge is checked as in PTX. approximated: the other instructions, with the
    omissions. not_covered: aspects that no check covers, in this run or in any.
    """

    exact: tuple[str, ...]
    approximated: Mapping[str, tuple[str, ...]]
    not_covered: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        left_out = [{"instructions": list(names), "left_out": what} for what, names in self.approximated.items()]
        return {"exact": list(self.exact), "approximated": left_out, "not_covered": list(self.not_covered)}


@dataclass(frozen=True, repr=False)
class Report(OneLine):
    """The result of `check`. The first order wrote the outputs in place.

    schedule: the arguments of the script's `__init__`, as JSON has them. orders: how many were run, with the seeds
    `seed` to `seed + orders - 1`. strict: findings that nothing guarantees count, too. seconds: host time of all
    orders. findings: errors first; each with the seeds that showed it. disagreements: those of `Run`.
    """

    kernel: str
    target: str
    schedule: Mapping[str, object]
    grid: tuple[int, int, int]
    orders: int
    seed: int
    strict: bool
    seconds: float
    findings: tuple[Finding, ...]
    coverage: Coverage
    disagreements: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[Finding, ...]:
        """Return the findings that decide: the errors, or with `strict` all."""
        return tuple(f for f in self.findings if self.strict or f.severity is Severity.ERROR)

    @property
    def ok(self) -> bool:
        return not self.counted

    def as_dict(self) -> dict[str, object]:
        """Return the report as plain values with stable keys."""
        return {
            "kernel": self.kernel,
            "target": self.target,
            "schedule": dict(self.schedule),
            "grid": list(self.grid),
            "orders": self.orders,
            "seed": self.seed,
            "strict": self.strict,
            "ok": self.ok,
            "seconds": self.seconds,
            "findings": [finding.as_dict() for finding in self.findings],
            "disagreements": list(self.disagreements),
            "coverage": self.coverage.as_dict(),
        }

    def paragraphs(self, replay: Replay | None = None) -> Iterator[Paragraph]:
        """Yield the whole report as paragraphs. replay: returns the command that replays an order."""
        yield _title(self)
        told = Told()
        for finding in self.findings:
            yield Paragraph("")
            yield from of_finding(finding, self.orders, replay or (lambda seed: f"seed={seed}"), told)
        yield Paragraph("")
        yield _verdict(self)
        yield from _listed("tensors", self.disagreements)
        yield from _coverage(self.coverage)

    def __str__(self) -> str:
        return plain(self.paragraphs())

    def _line(self) -> str:
        return f"{_title(self).text}  {_verdict(self).text}"

    def _facts(self) -> Mapping[str, object]:
        known = {"kernel": self.kernel, "target": self.target, "schedule": spelled_out(self.schedule)}
        return {**known, "CTAs": "x".join(map(str, self.grid)), "verdict": _verdict(self).text}

    def _rows(self) -> list[Mapping[str, object]]:
        return rows_of(self.findings)


def _title(report: Report) -> Paragraph:
    schedule = spelled_out({name: value for name, value in report.schedule.items() if name != "dtype"})
    x, y, z = report.grid
    ctas = "1 CTA" if x * y * z == 1 else f"{x}x{y}{f'x{z}' if z > 1 else ''} CTAs"
    return Paragraph("  ".join(filter(None, (report.kernel, report.target, schedule, ctas))), "title", hanging=2)


def _verdict(report: Report) -> Paragraph:
    errors = sum(f.severity.value == "error" for f in report.findings)
    others = len(report.findings) - errors
    counts = [counted(errors, "error")] * bool(errors)
    counts += [f"{others} unguaranteed" + (" (counted: strict)" if report.strict else "")] * bool(others)
    ran = "program order" if report.orders == 1 and not report.seed else counted(report.orders, "order")
    last = report.seed + report.orders - 1
    seeds = f" (seed {report.seed})" if report.orders == 1 else f" (seeds {report.seed} to {last})"
    text = f"{'clean' if not report.findings else ', '.join(counts)} in {ran}{seeds}"
    role = "good" if report.ok else "bad"
    return Paragraph(f"{text}, simulated in {report.seconds:.2f} s on the CPU", role, hanging=2)


def _coverage(covered: Coverage) -> Iterator[Paragraph]:
    approximated = [f"{', '.join(names)}: {what}" for what, names in covered.approximated.items()]
    yield from _listed("exact", [", ".join(covered.exact)] if covered.exact else [], "dim")
    yield from _listed("approximated", approximated, "dim")
    yield from _listed("not covered", covered.not_covered, "dim")


def _listed(label: str, items: Sequence[str], role: str = "text") -> Iterator[Paragraph]:
    """Yield items as paragraphs; the first one begins with the label."""
    for i, item in enumerate(items):
        yield Paragraph(f"{label + ':' if i == 0 else '':<14}{item}", role, 2, 14)


# --- how far it looked


NEVER_COVERED = (
    "values: only the order of accesses is checked",
    "paths that these arguments do not take",
)


def coverage(program: Program, ran: Iterable[str], orders: int) -> Coverage:
    """Return the coverage. ran: names of the instructions that were executed."""
    known = {description.name: description for description, _ in DESCRIPTIONS.values()}
    used = [known[name] for name in sorted(set(ran)) if name in known]
    approximated: dict[str, tuple[str, ...]] = {}
    for each in used:
        if each.approximation:
            approximated[each.approximation] = (*approximated.get(each.approximation, ()), each.name)
    exact = tuple(each.name for each in used if _orders(each) and not each.approximation)
    return Coverage(exact, approximated, tuple(_not_covered(program, {each.name for each in used}, orders)))


def _not_covered(program: Program, ran: set[str], orders: int) -> Iterable[str]:
    yield (
        f"orders of warps and completions other than the {orders} that ran"
        if orders > 1
        else "other orders than this one"
    )
    yield from NEVER_COVERED
    idle = sorted(name for name in _in_program(program) - ran)
    if idle:
        yield f"in the kernel, and never executed: {', '.join(idle)}"


def _in_program(program: Program) -> set[str]:
    from blackwell_matmul.frontend.recording import instructions

    found = [description_of(inst, "")[0] for inst in instructions(program.tile)]
    return {description.name for description in found if _orders(description)}


def _orders(description: Description) -> bool:
    """Return True if it affects the order: it accesses memory, signals, waits, fences or commits."""
    memory = any(e.space is not Space.REGISTER and e.access is not Access.ALLOCATE for e in description.effects)
    helps = "fence" in description.name or description.name.endswith("commit_group")
    return memory or helps or bool(description.signals or description.waits)
