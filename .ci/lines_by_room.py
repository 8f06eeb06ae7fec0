"""Print the lines that a change adds and removes, by room, as a Markdown table.

python .ci/lines_by_room.py main        # main...HEAD
python .ci/lines_by_room.py main topic  # main...topic
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

PACKAGE = "blackwell_matmul"


def room_of(path: str) -> str:
    """Return the room of a file of the package, or the folder at the top; "." for a file there."""
    folders = path.split("/")[:-1]
    return "/".join(folders[: 2 if folders[:1] == [PACKAGE] else 1]) or "."


def table(numstat: str) -> Iterator[str]:
    """Yield the lines of the table. numstat: what `git diff --numstat --no-renames` prints; binary files count as 0."""
    added, removed = Counter[str](), Counter[str]()
    for line in numstat.splitlines():
        more, less, path = line.split("\t")
        added[room_of(path)] += 0 if more == "-" else int(more)
        removed[room_of(path)] += 0 if less == "-" else int(less)
    yield from ("| Room | added | removed | change |", "|---|---:|---:|---:|")
    for room in sorted(added):
        yield _row(room, added[room], removed[room])
    ours = [room for room in added if room.partition("/")[0] == PACKAGE]
    yield _row("the package", sum(added[room] for room in ours), sum(removed[room] for room in ours))


def _row(name: str, added: int, removed: int) -> str:
    return f"| {name} | {added} | {removed} | {added - removed:+} |"


if __name__ == "__main__":
    change = f"{sys.argv[1]}...{sys.argv[2] if len(sys.argv) > 2 else 'HEAD'}"
    command = ["git", "diff", "--numstat", "--no-renames", change]
    print(*table(subprocess.run(command, check=True, capture_output=True, text=True).stdout), sep="\n")
