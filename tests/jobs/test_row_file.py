"""A file of rows that several write: whole lines, each trial once, whatever was torn or written anew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from filelock import FileLock

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.jobs import row_file
from blackwell_matmul.jobs.row_file import RowFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


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


@pytest.mark.parametrize(
    "line", ["[]", "{", '{"m": 1}', '{"n": NaN}', '{"n": 1e999}', "[" * 99_000, '{"n": ' + "9" * 5000]
)
def test_a_line_that_is_no_row_is_named(file: Path, line: str) -> None:
    RowFile(file, ["n"])
    file.write_text(f"{line}\n")
    with pytest.raises(InputError, match=r"which is no row with n; take it out, or choose another file\.$"):
        RowFile(file, ["n"])


@pytest.mark.parametrize("content", [b"hello", b"\x7fELF\0\0", b"[1]", b'{"m": 1}', b"12"])
def test_of_a_file_that_no_run_has_begun_nothing_is_taken_out(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"which is no row with n; take it out, or choose another file\.$"):
        RowFile(file, ["n"])
    assert file.read_bytes() == content


@pytest.mark.parametrize("what", ["fifo", "folder", "nowhere", "device", "lock", "absent", "parent", "null"])
def test_what_is_no_file_is_one_sentence(tmp_path: Path, what: str) -> None:
    file = tmp_path / "rows.jsonl"
    if what == "fifo":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what in ("nowhere", "device"):
        file.symlink_to({"nowhere": "/nonexistent/x", "device": "/dev/null"}[what])
    elif what == "lock":
        Path(f"{file}.lock").mkdir()
    elif what == "absent":
        file = tmp_path / "absent" / "rows.jsonl"
    elif what == "parent":
        (tmp_path / "file").touch()
        file = tmp_path / "file" / "rows.jsonl"
    else:
        file = Path("\0")
    with pytest.raises(InputError, match=r"^cannot keep rows in .*; choose another file\.$"):
        RowFile(file, ["n"])


def test_a_lock_that_stays_held_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_file, "LOCK_S", 0.1)
    RowFile(file, ["n"]).add({"n": 1})
    with FileLock(f"{file}.lock"), pytest.raises(InputError, match=r"another run has held .*\.lock for 0 s;"):
        RowFile(file, ["n"])
    assert {"n": 1} in RowFile(file, ["n"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, object()])
def test_a_row_that_json_does_not_have_is_refused_and_the_others_stay(file: Path, value: object) -> None:
    rows = RowFile(file, ["n"])
    rows.add({"n": 1})
    with pytest.raises(InputError, match=r"^its row is none that JSON has: .*\.$"):
        rows.add({"n": 2, "value": value})
    rows.add({"n": 3})
    assert file.read_text() == '{"n": 1}\n{"n": 3}\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
def test_a_full_disk_is_one_sentence_and_loses_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = RowFile(file, ["n"])
    rows.add({"n": 1})
    with monkeypatch.context() as full, pytest.raises(InputError, match=r": No space left on device; choose another"):
        full.setattr(RowFile, "_take", lambda *_: open("/dev/full", "wb", buffering=0).write(b"x"))
        rows.add({"n": 2})
    assert {"n": 1} in RowFile(file, ["n"])
