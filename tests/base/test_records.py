"""Records: read as they were written, or one sentence, whatever lies in their place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.records import MOST_DEPTH, MOST_RECORD_BYTES, content_of, parsed, sealed, unsealed

BODY = {"name": "Kernel \u00b5", "plan": [["+", "m", -1], 0.1], "none": None, "brackets": '[[[["{'}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record.json"


def test_what_is_sealed_is_read(file: Path) -> None:
    file.write_bytes(sealed(BODY, 3))
    assert unsealed(file, 3, "record") == BODY


def test_each_flipped_bit_is_found(file: Path) -> None:
    body = {**BODY, "name": "Kernel"}  # without an escape, whose digits may be written in either case
    content = sealed(body, 3)
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        file.write_bytes(flipped)
        with pytest.raises(InputError, match=r"record\.json is "):
            unsealed(file, 3, "record")


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "nul", "[NaN]", "[Infinity]", "[-Infinity]", "[1e999]", "[-1e999]", "\ufeff[]", '"\\"', "[1,]",
        "9" * 5000, "[" * 99_000, "[" * 99_000 + "]" * 99_000, '{"a":' * 99_000, '["' + '\\"' * 9 + '",' + "[" * 99_000,
        '["\\\\",' + "[" * 99_000,
    ],
)  # fmt: skip
def test_what_is_no_json_that_was_written_here(file: Path, text: str) -> None:
    with pytest.raises(ValueError):
        parsed(text.encode())
    file.write_text(text)
    with pytest.raises(InputError, match="it is no JSON that was written here"):
        unsealed(file, 3, "record")


@pytest.mark.parametrize("content", [b"\xff\xfe[\x00]\x00", "[]".encode("utf-16"), b"\x00"])
def test_bytes_of_another_encoding(content: bytes) -> None:
    with pytest.raises(ValueError):
        parsed(content)


@pytest.mark.parametrize("text", ['"' + "[{" * 999 + '"', '"\\\\\\"' + "[" * 999 + '"', "[[]," * 99 + "0" + "]" * 99])
def test_brackets_of_strings_and_closed_ones_do_not_count(text: str) -> None:
    assert parsed(text.encode()) == json.loads(text)


def test_the_depth_has_a_bound() -> None:
    for depth, good in ((MOST_DEPTH, True), (MOST_DEPTH + 1, False)):
        text = b"[" * depth + b"]" * depth
        if good:
            assert parsed(text) == json.loads(text)
        else:
            with pytest.raises(ValueError, match="nested more than"):
                parsed(text)


@pytest.mark.process
def test_a_thread_has_room_whatever_the_recursion_limit() -> None:
    code = (
        "import sys, threading; sys.setrecursionlimit(100_000)\n"
        "from blackwell_matmul.base.records import parsed\n"
        "def run():\n"
        "    try: parsed(b'[' * 99_000 + b']' * 99_000)\n"
        "    except ValueError as error: print(error)\n"
        "thread = threading.Thread(target=run); thread.start(); thread.join()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"it is nested more than {MOST_DEPTH} deep\n")


@pytest.mark.parametrize("what", ["fifo", "folder", "device", "nothing", "loop", "null"])
def test_what_is_no_file_is_one_sentence_at_once(file: Path, what: str) -> None:
    if what == "fifo":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    elif what == "device":
        file.symlink_to("/dev/zero")
    elif what == "loop":
        file.symlink_to(file)
    path = Path("\0") if what == "null" else file
    with pytest.raises(InputError, match=r"^cannot read .*: .*[^.]\.$"):
        content_of(path)


def test_a_record_has_a_bound(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(MOST_RECORD_BYTES + 1)
    with pytest.raises(InputError, match=r"it has more than 4,194,304 bytes\.$"):
        unsealed(file, 3, "record")


def test_another_format_is_refused(file: Path) -> None:
    file.write_bytes(sealed(BODY, 2))
    with pytest.raises(InputError, match=r"is no record of format 3; compile the kernel again\.$"):
        unsealed(file, 3, "record")
