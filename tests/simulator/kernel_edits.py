"""The text of a kernel with a few of its lines changed; `mutation.load` makes a class of it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tutorials"))

from edited import with_part

DROP = "pass  #"

PLAIN = (
    "from blackwell_matmul.kernels.host.matmul import MatmulScript",
    "from blackwell_matmul import Script as MatmulScript",
)
"""What makes a rung a plain script, whose arguments are all given, so that no rule chooses a schedule."""

Edit = tuple[str, str, int]
"""In the nth line of code that has the first text, the second in its place, or in front of it to drop it."""


def edited(source: str, edits: Sequence[Edit]) -> str:
    """Return the text with these lines changed; lines of the parts that it imports count after its own."""
    for old, new, nth in edits:
        own = len(_lines_with(source, old))
        source = source if -own <= nth < own else with_part(source, old)
        hits = _lines_with(source, old)
        hits = hits[-own:] + hits[:-own] if own else hits
        lines = source.splitlines(keepends=True)
        lines[hits[nth]] = lines[hits[nth]].replace(old, f"{new} {old}" if new == DROP else new)
        source = "".join(lines)
    return source


def _lines_with(source: str, text: str) -> list[int]:
    lines = enumerate(source.splitlines())
    return [i for i, line in lines if text in line and not line.lstrip().startswith("#")]
