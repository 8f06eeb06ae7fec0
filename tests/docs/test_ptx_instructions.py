"""The page of executed PTX says what the emulator has (`docs/ptx_instructions.md`)."""

from __future__ import annotations

import re
from pathlib import Path

from blackwell_matmul.emulator import code, loading

ROOT = Path(__file__).parents[2]
ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:-1]]
    for line in (ROOT / "docs" / "ptx_instructions.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| section")
]


def test_what_is_executed_has_its_function_and_the_others_have_none() -> None:
    assert loading and len(ROWS) > 15
    for _, executed, others, *_ in ROWS:
        assert all(code._prefix(opcode) for opcode in executed), [each for each in executed if not code._prefix(each)]
        assert not any(code._prefix(opcode) for opcode in others), [each for each in others if code._prefix(each)]


def test_every_function_is_on_the_page() -> None:
    told = {code._prefix(opcode) for _, executed, *_ in ROWS for opcode in executed}
    makers = [code._INSTRUCTIONS[prefix] for prefix in told if prefix]
    missing = [opcode for opcode in code.known() if code._INSTRUCTIONS[opcode] not in makers]
    assert not missing
