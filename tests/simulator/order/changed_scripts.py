"""Scripts with lines changed, and what the first finding says of them."""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
