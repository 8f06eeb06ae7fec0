"""Run every bug of the zoo, faulty and repaired, and compare what the tools say with what they should.

python bench/zoo/run.py                      # writes bench/results/zoo.jsonl and the tables of docs/zoo.md
python bench/zoo/run.py --only elected       # runs the bugs with this word in their name, and writes nothing
python bench/zoo/run.py --ptx build/zoo      # writes the PTX of all variants as files, for other tools
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blackwell_matmul.base.files import write_whole
from zoo import page
from zoo.bug import Bug, Ptx, verdict

FOLDER = Path(__file__).parent
RESULT = FOLDER.parent / "results" / "zoo.jsonl"


def main() -> int:
    options = _options()
    bugs = [bug for name, bug in load().items() if options.only in name]
    if options.ptx is not None:
        return _write_ptx(bugs, options.ptx)
    rows = [row for bug in bugs for row in _told(bug)]
    if not options.only:
        write_whole(RESULT, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
        page.write(bugs, rows)
    return int(any(row["verdict"] not in ("found", "not found yet") for row in rows))


def load() -> dict[str, Bug]:
    """Return the bugs by their names, which are folder and file."""
    names = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.glob("*/*.py"))
    return {name: replace(importlib.import_module(f"zoo.{name.replace('/', '.')}").BUG, name=name) for name in names}


def row_of(bug: Bug, tool: str) -> dict[str, Any]:
    """Run a bug at one level; return the codes of both variants and what they amount to."""
    level = bug.levels[tool]
    faulty, repaired = level.codes(False), level.codes(True)
    found = verdict(level.told, faulty, repaired)
    if level.missing and not repaired:
        found = "found, although marked as missing" if found == "found" else "not found yet"
    row: dict[str, Any] = {"bug": bug.name, "tool": tool, "wanted": level.told, "verdict": found}
    row |= {"faulty": sorted(faulty), "repaired": sorted(repaired)}
    return row | ({"missing": level.missing} if level.missing else {})


def _told(bug: Bug) -> list[dict[str, Any]]:
    rows = [row_of(bug, tool) for tool in bug.levels]
    for row in rows:
        said = f"{row['bug']:46} {row['tool']:10} {row['verdict']:24} {row['wanted']}"
        more = "" if row["verdict"] == "found" else f"  faulty: {row['faulty']}, repaired: {row['repaired']}"
        print(said + more, flush=True)
    return rows


def _write_ptx(bugs: list[Bug], folder: Path) -> int:
    for bug in bugs:
        if isinstance(bug.ptx, Ptx):
            for repaired, variant in ((False, "faulty"), (True, "repaired")):
                path = folder / f"{bug.name}.{variant}.ptx"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(bug.ptx.text(repaired), encoding="utf-8")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names of the bugs to run")
    parser.add_argument("--ptx", type=Path, help="a folder for the PTX of all variants; nothing is run")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
