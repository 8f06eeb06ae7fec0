"""Every schedule of the rungs on tcgen05, assembled for each GPU that has it: `python bench/assemble.py`.

A row of the result is a rung, an architecture and an element type: how many schedules there are that can run, and from
the least to the most registers of a thread, bytes of shared memory and columns of tensor memory; how many spill, and
which do not assemble. The order of the tiles (group_m) changes a constant and no register, so one stands for all.
Nothing is run: a GPU is not needed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul import compile
from blackwell_matmul.base.digests import package_digest
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness.calls.inputs import unfilled
from blackwell_matmul.jobs.running_trials import DIED, Job, run
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul_studies.scripts import ExecutorOption, RowsOption, rows_of, script

TARGETS = ("sm_100a", "sm_103a")
DTYPES = ("fp16", "e4m3")
SIZE = (4096, 4096, 4096)
GROUP_M = 8
RESULTS = Path(__file__).parent / "results" / "assemble.json"

Case = tuple[str, str, str, Schedule]
Row = dict[str, Any]


def cases() -> Iterator[Case]:
    for target in TARGETS:
        for name in reversed(LADDERS[target]):
            for dtype in DTYPES:
                problem = Problem(*SIZE, dtype)
                for schedule in projection(rung(name)):
                    able = schedule.group_m in (None, GROUP_M) and not why_not(
                        schedule, problem, gpu_for_target(target)
                    )
                    if able:
                        yield name, target, dtype, schedule


def named(case: Case) -> Row:
    rung_name, target, dtype, schedule = case
    return {
        "rung": rung_name,
        "target": target,
        "dtype": dtype,
        "schedule": schedule.as_dict(),
        "code": package_digest(),
    }


def assemble(case: Case) -> Row:
    """What it takes, or why it does not assemble."""
    name, target, dtype, schedule = case
    problem = Problem(*SIZE, dtype)
    try:
        bundle = compile(rung(name), *SIZE, *unfilled(problem), schedule=schedule, target=target, cache=False)
    except BlackwellMatmulError as error:
        return {"taken": str(error)}
    taken = bundle.resources
    found = {
        "registers": taken.registers,
        "spill_bytes": taken.spill_bytes,
        "shared_bytes": taken.dynamic_shared_bytes or 0,
        "tensor_memory_columns": tile_config(schedule, problem, gpu_for_target(target)).tensor_memory_columns,
    }
    return {"taken": found}


def summary(found: list[tuple[Case, dict[str, int] | str]]) -> list[Row]:
    kinds: dict[tuple[str, str, str], list[tuple[Case, dict[str, int] | str]]] = defaultdict(list)
    for case, taken in found:
        kinds[case[:3]].append((case, taken))
    return [_row(kind, each) for kind, each in sorted(kinds.items())]


def _row(kind: tuple[str, str, str], found: list[tuple[Case, dict[str, int] | str]]) -> Row:
    taken = [each for _, each in found if isinstance(each, dict)]
    row: Row = dict(zip(("rung", "target", "dtype"), kind, strict=True)) | {"schedules": len(found)}
    for name in ("registers", "shared_bytes", "tensor_memory_columns"):
        row[name] = [min((each[name] for each in taken), default=0), max((each[name] for each in taken), default=0)]
    row["spilling"] = [
        [c[3], each["spill_bytes"]] for c, each in found if isinstance(each, dict) and each["spill_bytes"]
    ]
    row["refused"] = [[case[3].as_dict(), why] for case, why in found if isinstance(why, str)]
    return row


def table(rows: list[Row]) -> Table:
    shown = Table("rung", "target", "A, B", "can run", "registers", "shared KiB", "columns", "spill", "refused")
    for row in rows:
        spans = (_span(*row[name]) for name in ("registers", "shared_bytes", "tensor_memory_columns"))
        ends = map(str, (len(row["spilling"]), len(row["refused"])))
        shown.add_row(row["rung"], row["target"], row["dtype"], str(row["schedules"]), *spans, *ends)
    return shown


def _span(low: int, high: int) -> str:
    return f"{low // 1024}..{high // 1024}" if high > 1024 else f"{low}..{high}"


def main(
    executor: ExecutorOption = "processes:2",
    out: Annotated[Path, typer.Option(help="The file of the result.")] = RESULTS,
    only: Annotated[str, typer.Option(help="One rung.")] = "",
    rows_file: RowsOption = "",
) -> None:
    if only not in ("", *LADDERS[TARGETS[0]]):
        raise typer.BadParameter(f"only is {only!r}; the rungs are {', '.join(reversed(LADDERS[TARGETS[0]]))}.")
    asked = [case for case in cases() if case[0] == (only or case[0])]
    made = run(Job("assembling", asked, assemble, named), rows_of(rows_file, "assemble"), executor)
    rows = summary([(case, row.get("taken") or row[DIED]) for case, row in zip(asked, made, strict=True)])
    out.write_text(json.dumps({"command": "python bench/assemble.py", "size": SIZE, "rows": rows}, indent=1) + "\n")
    Console().print(table(rows))
    raise typer.Exit(int(any(row["refused"] for row in rows)))


if __name__ == "__main__":
    script(main)
