"""Entries beside the bundles: whatever is wrong with one, it counts as none and is replaced."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from blackwell_matmul.base.records import sealed
from blackwell_matmul.compiler import entries

RECORD = {"bundle": "ab12", "more": [1, None]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "calls" / "Kernel-1.json"
    assert entries.keep(made, RECORD)
    return made


def with_body(**body: object) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(sealed({**RECORD, "name": file.name, **body}, entries.ENTRY_FORMAT))


def moved(file: Path) -> None:
    entries.keep(file.with_name("Kernel-2.json"), RECORD)
    file.with_name("Kernel-2.json").replace(file)


def changed(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "bundle": "cd34"}))


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    (file / "within").mkdir(parents=True)


def link(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "another name": moved, "another value": changed, "fifo": fifo, "folder": folder, "link": link,
    "none": lambda file: file.unlink(), "cut": lambda file: file.write_bytes(file.read_bytes()[:-3]),
    "empty": lambda file: file.write_bytes(b""), "list": lambda file: file.write_text("[]"),
    "nan": lambda file: file.write_text('{"format": 2, "bundle": NaN}'),
    "deep": lambda file: file.write_text("[" * 99_000), "name of another kind": with_body(name=3),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_none_and_is_replaced(file: Path, damage: str) -> None:
    DAMAGES[damage](file)
    assert entries.read(file) == {}
    assert entries.keep(file, RECORD) and entries.read(file) == RECORD
    shutil.rmtree(file.parent)
    assert entries.read(file) == {}


def test_each_flipped_bit_is_found(file: Path) -> None:
    content = file.read_bytes()
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        file.write_bytes(flipped)
        assert entries.read(file) == {}


@pytest.mark.parametrize("key", [None, 3, ["ab12"], {"a": 1}])
def test_a_key_that_is_no_text_is_none(file: Path, key: object) -> None:
    with_body(bundle=key)(file)
    assert entries.read_key(file) is None


def test_what_json_does_not_have_is_not_kept(file: Path) -> None:
    assert not entries.keep(file, {"bundle": float("inf")}) and entries.read(file) == RECORD
