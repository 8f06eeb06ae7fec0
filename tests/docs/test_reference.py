"""The reference has every public name, once, with something said of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import blackwell_matmul

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

import reference

NAMES = [name for section in reference.SECTIONS.values() for name in section.names]


def test_every_public_name_is_there_once() -> None:
    assert sorted([*NAMES, *reference.UNWRITTEN]) == sorted(blackwell_matmul.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "GPUS"])
def test_its_docstring_is_its_own(name: str) -> None:
    text = getattr(blackwell_matmul, name).__doc__
    assert text and not text.startswith(f"{name}(")  # what a dataclass makes where there is none


def test_every_command_is_there() -> None:
    from blackwell_matmul.cli import app

    page = reference.pages()["reference/commands.md"]
    names = [each.name or each.callback.__name__ for each in app.registered_commands]
    assert [name for name in names if f"## `blackwell-matmul {name}`" not in page] == []


def test_a_field_becomes_an_item() -> None:
    griffe = pytest.importorskip("griffe")
    import docstring_fields

    text = "Runs.\n\na: one; b, c: two\nlines. Note: no field.\n\nRaises."
    expected = "Runs.\n\n\n\n- `a`: one\n\n- `b`, `c`: two lines. Note: no field.\n\nRaises."
    assert docstring_fields.as_list(text, {"a", "b", "c"}) == expected
