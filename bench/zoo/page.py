"""docs/zoo.md: its tables, from the bugs and from what the tools said of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.bug import Bug

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
MARK = "<!-- written by bench/zoo/run.py -->\n"
KINDS = {
    "waits": "Completion that nobody waits for",
    "fences": "Proxies, and the grid before",
    "scopes": "Scopes and visibility",
    "barriers": "mbarriers: counts, phases, bytes and lifetimes",
    "threads": "Barriers of threads",
    "tensor_memory": "Tensor memory",
    "clusters": "Clusters, pairs and cluster launch control",
}
"""Folders of bugs, in the order of the page."""

Rows = Sequence[Mapping[str, Any]]


def write(bugs: Sequence[Bug], rows: Rows) -> None:
    """Replace what follows the mark in docs/zoo.md."""
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(head + MARK + written(bugs, rows), encoding="utf-8")


def written(bugs: Sequence[Bug], rows: Rows) -> str:
    """Return what follows the mark: a count, a table for each kind, and what is published of each bug."""
    parts = [_count(bugs, rows)]
    for kind, title in KINDS.items():
        some = [bug for bug in bugs if bug.name.startswith(f"{kind}/")]
        parts.append(f"\n## {title}\n\n" + "\n".join(_table(some, rows)) + "\n")
        parts.append("\n" + "\n".join(_published(bug) for bug in some) + "\n")
    return "".join(parts)


def _count(bugs: Sequence[Bug], rows: Rows) -> str:
    told = []
    for tool in ("simulate", "check_ptx"):
        some = [row for row in rows if row["tool"] == tool]
        found = sum(row["verdict"] == "found" for row in some)
        alarms = sum(bool(row["repaired"]) for row in some)
        told.append(f"`{tool}` finds {found} of {len(some)} and reports something of {alarms} repaired ones")
    return f"\n{len(bugs)} bugs. {'; '.join(told)}.\n"


def _table(bugs: Sequence[Bug], rows: Rows) -> Iterator[str]:
    yield "| Bug | Published in | `simulate` | `check_ptx` | compute-sanitizer | ConSan |"
    yield "|---|---|---|---|---|---|"
    by_name = {(row["bug"], row["tool"]): row for row in rows}
    for bug in bugs:
        told = [_told(by_name.get((bug.name, tool))) for tool in ("simulate", "check_ptx")]
        cells = (f"[{bug.title}](../bench/zoo/{bug.name}.py)", _links(bug), *told, bug.sanitizer, bug.consan)
        yield f"| {' | '.join(cells)} |"


def _told(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    if row["verdict"] == "found":
        return f"`{row['wanted']}`"
    return f"**{row['verdict']}** (`{row['wanted']}`)" + (f": {row['missing']}" if "missing" in row else "")


def _links(bug: Bug) -> str:
    return ", ".join(f"[{_short(url)}]({url})" for url in bug.sources)


def _short(url: str) -> str:
    """Return the short name of an issue or a pull request: cutlass#3643."""
    found = re.fullmatch(r"https://github\.com/[^/]+/([^/]+)/(?:pull|issues)/(\d+)", url)
    assert found is not None, url
    return "#".join(found.groups())


def _published(bug: Bug) -> str:
    ours = f" *Ours:* {bug.guess}" if bug.guess else ""
    return f"- **{bug.name.split('/')[1]}**: {bug.says}{ours} PTX ISA: {bug.section}."
