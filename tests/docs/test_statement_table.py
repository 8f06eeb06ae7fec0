"""The page of statements is what tilus has and what the scripts here say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import statement_table  # noqa: E402


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    new = statement_table.page()
    assert statement_table.PAGE.read_text(encoding="utf-8") == new, "run python docs/statement_table.py"


@pytest.mark.slow
def test_every_statement_has_an_example_or_a_reason() -> None:
    every = {
        f"{group}.{name}"
        for group, kind in statement_table.groups().items()
        for name in statement_table.statements(kind)
    }
    assert len(every) > 80 and not every - statement_table.uses().keys() - statement_table.WITHOUT.keys()
    assert statement_table.WITHOUT.keys() <= every


def test_a_ladder_comes_first() -> None:
    uses = statement_table.uses()
    assert uses["self.mbarrier.wait"].file.as_posix() == "blackwell_matmul/kernels/blackwell/v0.py"
    line = (statement_table.ROOT / uses["self.sync"].file).read_text().splitlines()[uses["self.sync"].line - 1]
    assert "self.sync()" in line
