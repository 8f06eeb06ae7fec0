"""The mutation study: every line of a kernel that orders something, dropped or changed, must not go unnoticed.

    python bench/mutation.py                            # all kernels, parts and cases; writes results/mutation.json
    python bench/mutation.py --rungs v2 --show          # every mutant with what became of it
    python bench/mutation.py --rungs parts --each 1     # each part of each kernel, a mutant in one case

`blackwell_matmul_studies.mutation` makes the mutants and judges them.
"""

from __future__ import annotations

import itertools
import json
import shlex
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.base.digests import digest, package_digest
from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul_studies.mutation import (
    EXCEPTIONS,
    Mutant,
    Outcome,
    cases,
    drawn,
    judge_all,
    kernels,
    mutants,
)
from blackwell_matmul_studies.scripts import ExecutorOption, RowsOption, died, rows_of, script

RESULTS = Path(__file__).parent / "results" / "mutation.json"


PARTS = "parts"
"""As a name: each part of each kernel that uses it."""

Trial = tuple[Mutant, int | None]
"""A mutant, and the number of its cases that are run; None: all."""


def name(trial: Trial) -> dict[str, Any]:
    mutant, each = trial
    return {
        "mutant": str(mutant),
        "source": digest(mutant.source.encode())[:16],
        "each": each,
        "code": package_digest(),
    }


def measure(trial: Trial) -> dict[str, Any]:
    start = time.perf_counter()
    judged = [[outcome.verdict, *outcome.how] for outcome in judge_all(*trial)]
    return {"cases": judged, "seconds": round(time.perf_counter() - start, 2)}


def outcomes_of(trial: Trial, row: dict[str, Any]) -> list[Outcome]:
    """As they were judged, in the order of the cases."""
    mutant, each = trial
    return [
        Outcome(mutant, case, verdict, tuple(how)) for case, (verdict, *how) in zip(drawn(mutant, each), row["cases"])
    ]


def table(outcomes: list[Outcome]) -> Table:
    shown = Table("rung", "mutants", "cases", "killed", "equivalent by rule", "exceptions", "survived", "kill rate")
    for name in dict.fromkeys(outcome.mutant.rung for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.mutant.rung == name]
        count = Counter(outcome.verdict for outcome in mine)
        number = len({str(outcome.mutant) for outcome in mine})
        rate = rate_of(mine)
        cells = [len(mine), count["killed"], count["equivalent"], count["exception"], count["survived"]]
        shown.add_row(name, str(number), *map(str, cells), f"{rate:.1%}")
    return shown


def rate_of(outcomes: list[Outcome]) -> float:
    """Killed, of those that are not equivalent."""
    count = Counter(outcome.verdict for outcome in outcomes)
    return count["killed"] / max(count["killed"] + count["survived"], 1)


def main(
    rungs: Annotated[list[str] | None, typer.Option(help='kernels, "ring of v4", or "parts"; all otherwise')] = None,
    each: Annotated[int | None, typer.Option(help="cases of each mutant, drawn with a seed; all otherwise")] = None,
    executor: ExecutorOption = "processes:2",
    rows: RowsOption = "",
    show: Annotated[bool, typer.Option(help="print what became of every case")] = False,
    result: Annotated[Path, typer.Option(help="the file to write")] = RESULTS,
) -> None:
    """Run every mutant in every case; exit code 1 if one survives."""
    names, console = names_of(rungs), Console(width=160)
    every = [(mutant, each) for kernel in names for mutant in mutants(kernel)]
    judged = run(Job("mutants", every, measure, name), rows_of(rows, "mutation"), executor)
    if lost := died(judged):
        raise UnsupportedError(f"{len(lost)} mutants end the process that runs them, the first is {lost[0]['mutant']}.")
    outcomes = [outcome for trial, row in zip(every, judged, strict=True) for outcome in outcomes_of(trial, row)]
    for outcome in outcomes:
        if show or outcome.verdict in ("survived", "exception"):
            console.print(str(outcome), markup=False, soft_wrap=True)
    console.print(table(outcomes))
    seconds = sum(row["seconds"] for row in judged)
    console.print(f"{len(EXCEPTIONS)} exceptions written by hand; {seconds:.0f} s of the workers (simulated)")
    options = [*(f"--rungs {shlex.quote(each)}" for each in rungs or ()), *([f"--each {each}"] if each else [])]
    command = " ".join(["python bench/mutation.py", *options])
    save(result, outcomes, command, seconds)
    raise typer.Exit(int(any(outcome.verdict == "survived" for outcome in outcomes)))


def names_of(given: list[str] | None) -> list[str]:
    """Return the names of the kernels and parts that are meant."""
    every = kernels()
    if unknown := [each for each in given or () if each not in (*every, PARTS)]:
        raise InputError(f"there is no kernel and no part of a kernel {unknown[0]!r}; there are {', '.join(every)}.")
    return [name for name in every if not given or name in given or (PARTS in given and " of " in name)]


def save(result: Path, outcomes: list[Outcome], command: str, seconds: float) -> None:
    """One object: what was run, the totals, and each mutant with its cases."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    rules = Counter(outcome.how[0] for outcome in outcomes if outcome.verdict == "equivalent")
    groups = itertools.groupby(outcomes, key=lambda outcome: outcome.mutant)
    written = {
        "command": command,
        "simulated": True,
        "seconds": round(seconds, 1),
        "cases": {name: list(map(str, cases(name))) for name in dict.fromkeys(o.mutant.rung for o in outcomes)},
        "verdicts": dict(verdicts),
        "equivalent_by": dict(rules),
        "kill_rate": rate_of(outcomes),
        "exceptions": [{"mutant": list(key), "reason": reason} for key, reason in EXCEPTIONS.items()],
        "mutants": [_summary(mutant, list(group)) for mutant, group in groups],
    }
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(written, indent=1) + "\n")


def _summary(mutant: Mutant, group: list[Outcome]) -> dict[str, Any]:
    how = sorted({each for outcome in group for each in outcome.how})
    verdicts = dict(Counter(outcome.verdict for outcome in group))
    return {"mutant": str(mutant), "code": mutant.code, "cases": verdicts, "how": how}


if __name__ == "__main__":
    script(main)
