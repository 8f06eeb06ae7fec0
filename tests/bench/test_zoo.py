"""Real bugs, re-created: each is found as what it is, and its repair is silent."""

from __future__ import annotations

import json

import pytest

from zoo import page, run
from zoo.bug import Ptx, verdict

BUGS = run.load()
CASES = [(name, tool) for name, bug in BUGS.items() for tool in bug.levels]
FEW = [
    "barriers/elected_lane", "clusters/clc_slot_reused", "fences/flag_then_tma_load", "scopes/remote_arrival",
    "tensor_memory/load_not_waited", "waits/store_stage_reused",
]  # fmt: skip


def check(name: str, tool: str) -> None:
    row = run.row_of(BUGS[name], tool)
    assert not row["repaired"], row
    if not BUGS[name].levels[tool].missing:
        assert row["verdict"] == "found", row


@pytest.mark.parametrize("name", FEW)
def test_a_few_bugs(name: str) -> None:
    check(name, "check_ptx")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tool"), CASES)
def test_each_bug(name: str, tool: str) -> None:
    check(name, tool)


def test_every_bug_has_a_source_and_a_kind() -> None:
    assert len(BUGS) >= 30
    for name, bug in BUGS.items():
        assert bug.sources and all(url.startswith("https://github.com/") for url in bug.sources), name
        assert bug.levels and bug.says and bug.section, name
        assert name.split("/")[0] in page.KINDS


def test_both_variants_of_each_text_differ() -> None:
    for name, bug in BUGS.items():
        if isinstance(bug.ptx, Ptx):
            assert bug.ptx.text(False) != bug.ptx.text(True), name


def test_verdicts() -> None:
    assert verdict("data-race", {"data-race", "deadlock"}, set()) == "found"
    assert verdict("data-race", {"(data-race)"}, set()) == "told otherwise"
    assert verdict("data-race", set(), set()) == "not found"
    assert verdict("data-race", {"data-race"}, {"data-race"}) == "alarm on the repair"


def test_the_page_shows_what_was_told() -> None:
    rows = [json.loads(line) for line in run.RESULT.read_text(encoding="utf-8").splitlines()]
    assert [(row["bug"], row["tool"], row["wanted"]) for row in rows] == [
        (name, tool, BUGS[name].levels[tool].told) for name, tool in CASES
    ]
    assert page.PAGE.read_text(encoding="utf-8").endswith(page.MARK + page.written(list(BUGS.values()), rows))
