"""Scripts with lines changed, and what the first finding says of them."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blackwell_matmul.simulator import Finding
from blackwell_matmul_studies import mutation


def line_with(text: str, script: type, mark: str) -> int:
    """Return the number of the script's line with this comment at its end."""
    lines = text.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"class {script.__name__}"))
    return next(n for n, line in enumerate(lines, 1) if n > start and line.endswith(f"# {mark}"))


def numbered(says: str, text: str, script: type) -> str:
    """Return a sentence with the number of the line for each `{mark}`."""
    return re.sub(r"\{(.+?)\}", lambda mark: str(line_with(text, script, mark[1])), says)


@functools.cache
def loaded(text: str, script: type) -> Any:
    return mutation.load(text, script.__name__, Path(tempfile.mkdtemp()))()


def plain(finding: Finding) -> str:
    """Return the message without files, and without the warp that has to wait if another one reports."""
    return re.sub(r"\S+\.py:|(?<=\S) by warps? [\d.]+(?= before)", "", finding.message)


def assert_all_follow(findings: Sequence[Finding]) -> None:
    """Compare the first finding, which is a cause, with the others, which follow from others."""
    first, *others = findings
    assert first.follows is None
    assert all(found.follows is not None for found in others), [str(found) for found in others]


DROP = "self", "pass  # self"
"""What is replaced in a line, and by what, to drop the line."""


class Marked(NamedTuple):
    """Lines changed, by their marks, and what the first finding says, with `{mark}` for the line of that mark."""

    script: type
    edits: tuple[tuple[str, str, str], ...]
    says: str

    def __str__(self) -> str:
        return f"{self.script.__name__}: {' and '.join(f'{mark}: {old} -> {new}' for mark, old, new in self.edits)}"

    @property
    def text(self) -> str:
        text = inspect.getsource(sys.modules[self.script.__module__])
        for mark, old, new in self.edits:
            lines = text.split("\n")
            at = line_with(text, self.script, mark) - 1
            assert old in lines[at]
            lines[at] = lines[at].replace(old, new, 1)
            text = "\n".join(lines)
        return text

    def sentence(self) -> str:
        return numbered(self.says, self.text, self.script)


def dropped(script: type, mark: str, says: str, start: str = "self") -> Marked:
    """Return the script without the line of that mark, which has `start`."""
    return Marked(script, ((mark, start, f"pass  # {start}"),), says)
