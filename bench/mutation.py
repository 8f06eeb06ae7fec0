"""The mutation study: every line of a kernel that orders something, dropped or changed, must not go unnoticed.

    python bench/mutation.py                        # all rungs, schedules and sizes; writes results/mutation.json
    python bench/mutation.py --rungs v2 --show      # every mutant with what became of it

`blackwell_matmul.studies.mutation` makes the mutants and judges them.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blackwell_matmul.interrupts import Pool
from blackwell_matmul.studies.mutation import EXCEPTIONS, KERNELS, SCHEDULES, SIZES, Mutant, Outcome, judge_all, mutants

RESULTS = Path(__file__).parent / "results" / "mutation.json"


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
    rungs: Annotated[list[str] | None, typer.Option(help="the rungs, or kernels for Hopper; all otherwise")] = None,
    processes: Annotated[int, typer.Option(help="processes to run in")] = 2,
    show: Annotated[bool, typer.Option(help="print what became of every case")] = False,
    result: Annotated[Path, typer.Option(help="the file to write")] = RESULTS,
) -> None:
    """Run every mutant in every case; exit code 1 if one survives."""
    names, start, console = rungs or list(KERNELS), time.perf_counter(), Console(width=160)
    every = [mutant for name in names for mutant in mutants(name)]
    with Pool(processes, get_context("spawn")) as pool:
        ended = pool.map(judge_all, every)
        judged = track(ended, total=len(every), description="mutants", console=Console(stderr=True))
        outcomes = [outcome for group in judged for outcome in group]
    for outcome in outcomes:
        if show or outcome.verdict in ("survived", "exception"):
            console.print(str(outcome), markup=False, soft_wrap=True)
    console.print(table(outcomes))
    seconds = time.perf_counter() - start
    console.print(f"{len(EXCEPTIONS)} exceptions written by hand; {seconds:.0f} s in {processes} processes (simulated)")
    command = " ".join(["python bench/mutation.py", *(f"--rungs {name}" for name in rungs or ())])
    save(result, outcomes, command, seconds)
    raise typer.Exit(int(any(outcome.verdict == "survived" for outcome in outcomes)))


def save(result: Path, outcomes: list[Outcome], command: str, seconds: float) -> None:
    """One object: what was run, the totals, and each mutant with its cases."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    rules = Counter(outcome.how[0] for outcome in outcomes if outcome.verdict == "equivalent")
    groups = itertools.groupby(outcomes, key=lambda outcome: outcome.mutant)
    written = {
        "command": command,
        "simulated": True,
        "seconds": round(seconds, 1),
        "schedules": {name: list(SCHEDULES[name]) for name in dict.fromkeys(o.mutant.rung for o in outcomes)},
        "sizes_m_n_k": [list(size) for size in SIZES],
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
    typer.run(main)
