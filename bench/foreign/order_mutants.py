"""Leave out one barrier, fence, arrival or wait of a foreign kernel at a time: is a mutant whose values change told?

python bench/foreign/order_mutants.py tests/emulator/foreign --out bench/results/order_mutants.json

A mutant is checked, and emulated in several orders of completion. Its values change if one of the orders gives other
numbers than the kernel, or none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from check import launch_of
from run import ptx_of

ORDERS = (("late", 0), ("eager", 0), ("copies last", 0), ("products last", 0), ("random", 1), ("random", 2))
DROPPED = (
    r"bar\.", r"barrier\.", r"fence", r"membar", r"wgmma\.(?:fence|commit_group|wait_group)",
    r"tcgen05\.(?:wait|commit|fence)",
    r"cp\.async\.(?:commit_group|wait_group|wait_all)", r"cp\.async\.bulk\.(?:commit_group|wait_group)",
    r"mbarrier\.arrive", r"cp\.async\.mbarrier", r"tensormap\.cp_fenceproxy",
)  # fmt: skip
"""Instructions that a mutant leaves out. A wait on an mbarrier passes at once instead."""

INSTRUCTION = re.compile(rf"^[ \t{{]*(@\S+\s+)?((?:{'|'.join(DROPPED)})[^;]*;)", re.MULTILINE)
WAIT = re.compile(r"mbarrier\.(?:try|test)_wait\S*\s+(\S+?),[^;]*;")
LIMIT_STEPS = 200_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for path in sorted(options.folder.glob("*.json")):
        if options.only in path.stem:
            rows += list(_judged(path))
    told = summary(rows)
    print(json.dumps(told, indent=1))
    if options.out:
        command = f"python bench/foreign/order_mutants.py {options.folder} --out {options.out}"
        options.out.write_text(json.dumps({"command": command, **told, "mutants": rows}, indent=1) + "\n")
    return int(bool(told["silent although values change"]))


def mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the instruction that is lost, and the text without it."""
    for found in INSTRUCTION.finditer(text):
        lost = text[: found.start(2)] + text[found.end(2) :]
        if found[1]:  # a guard alone is no instruction
            lost = text[: found.start(1)] + text[found.end(2) :]
        yield text.count("\n", 0, found.start(2)) + 1, found[2], lost
    for found in WAIT.finditer(text):
        passed = f"setp.eq.u32 {found[1]}, 0, 0;"
        yield text.count("\n", 0, found.start()) + 1, found[0], text[: found.start()] + passed + text[found.end() :]


def _judged(path: Path) -> Iterator[dict[str, Any]]:
    from blackwell_matmul.emulator import Limit, check_ptx

    record, text = json.loads(path.read_text()), ptx_of(path)
    wanted, known = _values(record, text, "late", 0), _told(record, text)
    for line, instruction, mutant in mutants(text):
        values = {f"{order} {seed}": _values(record, mutant, order, seed) for order, seed in ORDERS}
        changed = [order for order, found in values.items() if not _equal(found, wanted)]
        arguments, launch = launch_of(record)
        report = check_ptx(mutant, *arguments, **launch, limit=Limit(steps=LIMIT_STEPS))
        found = [each for each in report.findings if _lines(each) not in known]
        new = sorted({each.code for each in found if each.severity == "error"})
        less = sorted({each.code for each in found if each.severity == "unpromised"})
        row = {"case": path.stem, "line": line, "lost": instruction[:80], "values change in": changed, "errors": new}
        yield row | {"unpromised": less} | ({"stopped": report.stopped} if report.stopped else {})
        print(path.stem, line, instruction[:50], changed, new, less, report.stopped, flush=True)


def _told(record: dict[str, Any], text: str) -> set[Any]:
    """What is told of the kernel as it is."""
    from blackwell_matmul.emulator import check_ptx

    arguments, launch = launch_of(record)
    return {_lines(each) for each in check_ptx(text, *arguments, **launch).findings}


def _lines(finding: Any) -> Any:
    places = (finding.first, finding.second)
    return finding.code, finding.severity, *sorted(each.line for each in places if each is not None)


def _values(record: dict[str, Any], text: str, order: str, seed: int) -> list[np.ndarray] | str:
    """What the tensors hold after a run, or why it ended."""
    from blackwell_matmul.base.errors import BlackwellMatmulError
    from blackwell_matmul.emulator import Limit, emulate

    arguments, launch = launch_of(record)
    try:
        emulate(text, *arguments, **launch, order=order, seed=seed, limit=Limit(steps=LIMIT_STEPS))
    except BlackwellMatmulError as error:
        return str(error)
    pointers = [getattr(each, "pointer", each) for each in arguments]
    return [each for each in pointers if isinstance(each, np.ndarray)]


def _equal(found: list[np.ndarray] | str, wanted: list[np.ndarray] | str) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return False
    return all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(found, wanted))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    told = [bool(row["errors"] or row.get("stopped")) for row in rows]
    changes = [bool(row["values change in"]) for row in rows]
    return {
        "count": len(rows),
        "told, and values change": sum(a and b for a, b in zip(told, changes)),
        "told, and no order changes a value": sum(a and not b for a, b in zip(told, changes)),
        "silent, and no order changes a value": sum(not a and not b for a, b in zip(told, changes)),
        "silent although values change": [row for row, a, b in zip(rows, told, changes) if b and not a],
        "codes": dict(Counter(code for row in rows for code in row["errors"])),
    }


if __name__ == "__main__":
    raise SystemExit(main())
