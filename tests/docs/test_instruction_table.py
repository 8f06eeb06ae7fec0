"""The page of instructions is what the descriptions say."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.insert(0, str(DOCS))

import instruction_table  # noqa: E402

from blackwell_matmul.simulator.semantics import DESCRIPTIONS  # noqa: E402


def test_the_page_is_up_to_date() -> None:
    assert instruction_table.PAGE.read_text(encoding="utf-8") == instruction_table.page()


def test_every_instruction_that_touches_memory_names_its_section() -> None:
    described = [description for description, _ in DESCRIPTIONS.values()]
    assert not [each.name for each in described if (each.effects or each.signals or each.waits) and not each.section]
