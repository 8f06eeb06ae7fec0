"""The codes of findings: the page has each one, and each one is used."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from blackwell_matmul.simulator import findings, semantics  # noqa: F401  # semantics fills DESCRIPTIONS
from blackwell_matmul.simulator.description import DESCRIPTIONS

ROOT = Path(__file__).parents[2]
CODES = typing.get_args(findings.Code)
PAGE = (ROOT / "docs/findings.md").read_text(encoding="utf-8").partition("## Of compiled code")[0]
"""The simulator's part of the page."""

ROWS = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", PAGE, flags=re.M)


def test_the_page_has_every_code_once_and_no_other() -> None:
    assert sorted(code for code, _ in ROWS) == sorted(CODES)
    for code, rest in ROWS:
        cells = [cell.strip() for cell in rest.split("|")]
        assert len(cells) == 3 and all(cells), code


def test_every_code_is_used() -> None:
    """That none is used which is not a `Code`, the type checker sees, but for those in descriptions."""
    files = (ROOT / "blackwell_matmul/simulator").rglob("*.py")
    sources = [file.read_text(encoding="utf-8") for file in files if file.name != "findings.py"]
    assert [code for code in CODES if not any(f'"{code}"' in source for source in sources)] == []
    assert {each.conflict for each, _ in DESCRIPTIONS.values()} <= {None, *CODES}


def test_the_codes_that_texts_name_exist() -> None:
    """Those of the README and the tutorials, where a code is shown as `check` prints it."""
    texts = [ROOT / "README.md", *sorted((ROOT / "tutorials").glob("*.md"))]
    named = {
        code for text in texts for code in re.findall(r"^(?:error|unguaranteed) ([a-z-]+)$", text.read_text(), re.M)
    }
    assert named and named <= set(CODES)
