"""The text of a kernel with a few of its lines changed; `mutation.load` makes a class of it."""

from __future__ import annotations

from collections.abc import Sequence

DROP = "pass  #"

PLAIN = (
    "from blackwell_matmul.kernels.matmul import MatmulScript",
    "from blackwell_matmul import Script as MatmulScript",
)
"""What makes a rung a plain script, whose arguments are all given, so that no rule chooses a schedule."""

Edit = tuple[str, str, int]
"""In the nth line of code that has the first text, the second in its place, or in front of it to drop it."""


def edited(source: str, edits: Sequence[Edit]) -> str:
    lines = source.splitlines(keepends=True)
    for old, new, nth in edits:
        hits = [i for i, line in enumerate(lines) if old in line and not line.lstrip().startswith("#")]
        lines[hits[nth]] = lines[hits[nth]].replace(old, f"{new} {old}" if new == DROP else new)
    return "".join(lines)
