"""The page of the Hopper rungs: its numbers are the measurement's, its differences the files', its code runs."""

from __future__ import annotations

import hopper
import pytest
import refresh

PAGE = (refresh.HERE / "hopper.md").read_text(encoding="utf-8")


def test_what_is_filled_in_is_up_to_date() -> None:
    assert hopper.filled(PAGE) == PAGE, "run python tutorials/refresh.py"


def test_filling_in_twice_changes_nothing() -> None:
    assert hopper.filled(hopper.filled("<!-- gained: h2 -->\nold\n<!-- end -->\nkept\n")).endswith(
        "<!-- end -->\nkept\n"
    )


def test_numbers_are_the_measurement_under_the_names_of_today() -> None:
    measured = hopper.tflops("fp16")
    assert "h4" not in measured and measured.keys() == {"cublas", *hopper.RUNGS} - {"h4"}
    assert round(measured["h7"][8192]) == 644 and "| [H7](#h7) | 336 (95%) |" in PAGE
    assert "| [H4](#h4) | – | – | – | – |" in PAGE


@pytest.mark.parametrize("rung", hopper.RUNGS)
def test_every_rung_has_a_section_with_its_difference(rung: str) -> None:
    section = PAGE.split(f"\n## {rung.upper()}\n")[1].split("\n## ")[0]
    assert rung == "h0" or f"<summary>H{int(rung[1]) - 1} to {rung.upper()}: " in section


@pytest.mark.slow
def test_snippets_print_what_the_page_shows() -> None:
    for snippet, text in zip(refresh.snippets(PAGE), refresh.run(PAGE, "hopper"), strict=True):
        assert snippet.says_the_same(text)


def test_differences_can_leave_out_comments() -> None:
    all_lines, code = hopper.changed("h2"), hopper.changed("h2 without comments")
    comments = [line for line in all_lines.splitlines() if line[1:].lstrip().startswith("#")]
    assert comments and not any(line in code.splitlines() for line in comments)
