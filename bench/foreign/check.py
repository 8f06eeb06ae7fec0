"""Check the order of every case of a folder, and compare the time with that of plain emulation.

python bench/foreign/check.py build/foreign --out bench/results/order_foreign.json

A case has the codes of its errors and of what is unpromised, and CPU seconds of `emulate` and of `check_ptx`, both with
operations that complete at once. The shortest of `--rounds` counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from data import dtype_of
from run import argument, ptx_of, tensors_of

LEAST_SECONDS = 0.02
"""CPU seconds of an emulation below which a ratio says nothing."""

AGAIN_ROUNDS = 5


def main() -> int:
    options = _options()
    rows = []
    for path in sorted(options.folder.glob("*.json")):
        if options.only in path.stem and path.stem != "refused":
            row = row_of(path, options.rounds)
            if options.again and row["checked"] > options.again * max(row["plain"], LEAST_SECONDS):
                row = row_of(path, AGAIN_ROUNDS)
            rows.append(row)
            print(json.dumps(row), flush=True)
    told = summary(rows)
    print(json.dumps({key: value for key, value in told.items() if key != "told"}, indent=1))
    if options.out:
        command = f"python bench/foreign/check.py {' '.join(sys.argv[1:])}"
        options.out.write_text(json.dumps({"command": command, **told}, indent=1) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each, of which the shortest counts")
    parser.add_argument("--again", type=float, default=0, help="measure those that take longer by this factor again")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def launch_of(record: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Fresh arguments of a case and the rest of its launch."""
    known = all("exact" in each and each["exact"].get("kind") != "ones" for each in record["tensors"].values())
    tensors = tensors_of(record, "exact") if known else ones(record)
    launch = {key: tuple(record[key]) for key in ("grid", "block", "cluster")}
    more = {"shared_bytes": record["shared_bytes"], "kernel": record["kernel"]}
    return [argument(each, tensors) for each in record["arguments"]], launch | more


def ones(record: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors of ones, for a case that has no recipe of its data."""
    types = {name: "uint8" if each["dtype"] == "bool" else each["dtype"] for name, each in record["tensors"].items()}
    return {name: np.ones(each["shape"], dtype_of(types[name])) for name, each in record["tensors"].items()}


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def row_of(path: Path, rounds: int = 1, **how: Any) -> dict[str, Any]:
    """What a check tells of one case, and what both runs took."""
    from blackwell_matmul.emulator import check_ptx, emulate

    record, text = json.loads(path.read_text()), ptx_of(path)
    row: dict[str, Any] = {"name": path.stem, "family": record["family"], "target": record["target"]}
    row |= {"faulty": record["faulty"]} if "faulty" in record else {}
    plain, checked = [], []
    for _ in range(rounds):
        arguments, launch = launch_of(record)
        try:
            plain.append(seconds(partial(emulate, text, *arguments, **launch, order="eager", **how))[0])
        except Exception as error:
            row["emulation"] = f"{type(error).__name__}: {error}"[:160]
        arguments, launch = launch_of(record)
        took, report = seconds(partial(check_ptx, text, *arguments, **launch, **how))
        checked.append(took)
    row |= {name: sorted({each.code for each in getattr(report, name)}) for name in ("errors", "unpromised")}
    row |= {"told": str(report.errors[0])} if report.errors else {}
    row |= {"stopped": report.stopped} if report.stopped else {}
    return row | {"plain": round(min(plain, default=0), 3), "checked": round(min(checked), 3)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts and costs, and every case that is not silent."""
    times = sorted((row["checked"] / row["plain"], row["name"]) for row in rows if row["plain"] > LEAST_SECONDS)
    cost = [ratio for ratio, _ in times]
    return {
        "cases": len(rows), "without an error": sum(not row["errors"] for row in rows),
        **_of_tests(rows),
        "unpromised": dict(Counter(code for row in rows for code in row["unpromised"])),
        "cost": {"median": round(statistics.median(cost), 2), "worst": round(cost[-1], 2)} if cost else {},
        "costliest": [{"name": name, "times": round(ratio, 2)} for ratio, name in times[:-6:-1]],
        "told": [row for row in rows if row.get("faulty") is not True and (row["errors"] or "stopped" in row)],
    }  # fmt: skip


def _of_tests(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of cases that are meant to be faulty, or right."""
    if not any("faulty" in row for row in rows):
        return {}
    counts = Counter((row["faulty"], bool(row["errors"])) for row in rows)
    return {
        "faulty": counts[True, True] + counts[True, False], "faulty and told": counts[True, True],
        "right": counts[False, True] + counts[False, False], "right and told": counts[False, True],
        "missed": [row["name"] for row in rows if row["faulty"] and not row["errors"]],
        "codes of faults": dict(Counter(code for row in rows if row["faulty"] for code in row["errors"])),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
