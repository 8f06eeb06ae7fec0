"""A file of rows that several write: whole lines, each trial once, whatever was torn or written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blackwell_matmul.errors import InputError
from blackwell_matmul.trials.row_file import RowFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some" / "rows.jsonl"


def test_what_another_adds_is_seen_and_stays_as_it_is(file: Path) -> None:
    one, other = RowFile(file, ["n"]), RowFile(file, ["n"])
    one.add({"n": [1, 2], "by": "one"})
    assert {"n": [1, 2]} not in other
    other.add({"n": [1, 2], "by": "other"})
    assert file.read_text() == '{"by": "one", "n": [1, 2]}\n'
    assert other.get({"n": [1, 2]}) == {"n": [1, 2], "by": "one"} and {"n": [1, 3]} not in other


@pytest.mark.parametrize("torn", ['{"n"', '{"n": 2}', "\x00\x00"])
def test_a_line_without_its_end_is_taken_out(file: Path, torn: str) -> None:
    RowFile(file, ["n"]).add({"n": 1})
    with file.open("a") as end:
        end.write(torn)
    RowFile(file, ["n"]).add({"n": 3})
    assert file.read_text() == '{"n": 1}\n{"n": 3}\n'


def test_a_file_that_another_sorts_goes_on(file: Path) -> None:
    one, other = RowFile(file, ["n"]), RowFile(file, ["n"])
    for number in (3, 1, 2):
        one.add({"n": number})
    other.sort(lambda row: row["n"])
    one.add({"n": 0})
    other.add({"n": 0})
    assert [json.loads(line)["n"] for line in file.read_text().splitlines()] == [1, 2, 3, 0]


@pytest.mark.parametrize("line", ["[]", "{", '{"m": 1}'])
def test_a_line_that_is_no_row_is_named(file: Path, line: str) -> None:
    RowFile(file, ["n"])
    file.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"which is no row with n; take it out, or choose another file\.$"):
        RowFile(file, ["n"])
