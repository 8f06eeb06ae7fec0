"""What the checks say about the matmul samples that tilus publishes, V0 to V6.

    git clone --branch v0.2.0 https://github.com/NVIDIA/tilus
    python bench/published_samples.py tilus/examples/blackwell_matmul --revision v0.2.0

Writes results/published_samples.md and .json. Everything is simulated: "error" is wrong by PTX, "unguaranteed" works on
today's hardware and is not promised, and either may well give the right numbers on a GPU. The samples themselves are
not part of this repository.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.base.errors import CompileError, UnsupportedError
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness.calls.user_kernel import load
from blackwell_matmul.simulator import Finding, simulate

VERSIONS = tuple(f"v{i}" for i in range(7))
SIZES = ((256, 256, 512), (384, 512, 192))
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
RESULTS = Path(__file__).parent / "results"


@dataclass
class Verdict:
    """One sample. facts: for each code and line, what the finding says. right: C is right in every run."""

    version: str
    verdict: str = "silent"
    codes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    right: bool = True
    runs: int = 0
    schedules: list[Mapping[str, int]] = field(default_factory=list)


def schedules(cls: Any) -> list[dict[str, Any]]:
    """The sample's own autotune space."""
    rows: list[dict[str, Any]] = [{}]
    for joined, values in cls._autotune_space.items():
        names = [name.strip() for name in joined.split(",")]
        choices = [dict(zip(names, value)) if len(names) > 1 else {names[0]: value} for value in values]
        rows = [{**row, **choice} for row in rows for choice in choices]
    return rows


def judge(folder: Path, version: str) -> Verdict:
    """By the first and the last of its schedules that compile."""
    verdict, seen = Verdict(version), dict[tuple[Any, ...], Finding]()
    cls = load(f"{folder / f'matmul_{version}.py'}:BlackwellMatmul{version.upper()}").script_cls
    every = schedules(cls)
    for rows in (every, every[::-1]):
        try:
            run_first(cls, rows, verdict, seen)
        except (UnsupportedError, CompileError) as error:
            verdict.verdict, verdict.reasons = "not covered", [shorter(str(error))]
            return verdict
    return summed_up(verdict, list(seen.values()))


def run_first(cls: Any, rows: list[dict[str, Any]], verdict: Verdict, seen: dict[tuple[Any, ...], Finding]) -> None:
    """Run the first of these schedules that compiles."""
    for number, schedule in enumerate(rows, 1):
        try:
            run_all(cls, schedule, verdict, seen)
        except CompileError:
            if number == len(rows):
                raise
        else:
            verdict.schedules.append(schedule)
            return


def run_all(cls: Any, schedule: dict[str, Any], verdict: Verdict, seen: dict[tuple[Any, ...], Finding]) -> None:
    for size, (policy, seed) in itertools.product(SIZES, ORDERS):
        findings, right = execute(cls, schedule, size, policy, seed)
        verdict.right &= right
        verdict.runs += 1
        for finding in findings:
            seen.setdefault((finding.code, finding.location, finding.other), finding)


def execute(
    cls: Any, schedule: Mapping[str, Any], size: tuple[int, int, int], policy: str, seed: int
) -> tuple[tuple[Finding, ...], bool]:
    m, n, k = size
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    run = simulate(cls, m, n, k, a, b, c, schedule=schedule or None, policy=policy, seed=seed, trace=False)
    return run.findings, check_matmul(a, b, c).ok


def summed_up(verdict: Verdict, findings: list[Finding]) -> Verdict:
    severities = {finding.severity.value for finding in findings}
    verdict.verdict = "error" if "error" in severities else ("unguaranteed" if severities else "silent")
    verdict.codes = sorted({f"{finding.code} ({finding.severity.value})" for finding in findings})
    for code in dict.fromkeys(finding.code for finding in findings):
        mine = [finding for finding in findings if finding.code == code]
        more = f" (and {len(mine) - 1} more pairs of lines)" if len(mine) > 1 else ""
        verdict.reasons.append(f"{code}: {shorter(mine[0].message)}{more}")
    return verdict


def shorter(text: str) -> str:
    """Without the folders of files."""
    return re.sub(r"(?:[^\s:;,()]*/)+(matmul_v\d\.py)", r"\1", text)


def markdown(verdicts: list[Verdict], revision: str) -> str:
    orders = ", ".join(f"{policy} {seed}" for policy, seed in ORDERS)
    sizes = ", ".join("x".join(map(str, size)) for size in SIZES)
    lines = [
        "# The published samples",
        "",
        f"What the checks say about `examples/blackwell_matmul` of NVIDIA/tilus {revision}. Simulated, fp16; M x N x K",
        f"is {sizes}; orders {orders}. No verdict here comes from a GPU.",
        "",
        "| Sample | Verdict | Codes | C is right | Reason |",
        "|---|---|---|---|---|",
    ]
    for each in verdicts:
        right = "" if not each.runs else ("yes" if each.right else "not in every order")
        cells = (each.version.upper(), each.verdict, ", ".join(each.codes), right, "<br>".join(each.reasons))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main(
    folder: Annotated[Path, typer.Argument(help="examples/blackwell_matmul of a checkout of NVIDIA/tilus")],
    revision: Annotated[str, typer.Option(help="what was checked out")] = "v0.2.0",
    results: Annotated[Path, typer.Option(help="the folder to write to")] = RESULTS,
) -> None:
    """Judge each sample, print the table, and write it."""
    sys.modules.setdefault("pandas", types.ModuleType("pandas"))  # the samples import it, for tables of their own
    verdicts = [judge(folder, version) for version in VERSIONS]
    shown = Table("sample", "verdict", "codes", "C is right", "runs", title=f"NVIDIA/tilus {revision}, simulated")
    for each in verdicts:
        shown.add_row(each.version, each.verdict, ", ".join(each.codes), str(each.right), str(each.runs))
    Console(width=140).print(shown)
    command = f"python bench/{Path(__file__).name} <checkout>/examples/blackwell_matmul --revision {revision}"
    written = {"command": command, "simulated": True, "revision": revision, "samples": [asdict(v) for v in verdicts]}
    results.mkdir(parents=True, exist_ok=True)
    (results / "published_samples.json").write_text(json.dumps(written, indent=1, default=str) + "\n")
    (results / "published_samples.md").write_text(markdown(verdicts, revision))


if __name__ == "__main__":
    typer.run(main)
