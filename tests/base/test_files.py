"""Files that are written whole, with the rights that any new file of the process gets."""

import os
import stat
import threading
from pathlib import Path

import pytest

from blackwell_matmul.base.files import make_private, write_json, write_whole


@pytest.fixture
def umask(request: pytest.FixtureRequest):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o022, 0], indirect=True)
def test_a_file_has_the_rights_that_the_umask_leaves(tmp_path: Path, umask: int) -> None:
    write_whole(tmp_path / "x", b"content")
    assert mode(tmp_path / "x") == 0o666 & ~umask
    assert (tmp_path / "x").read_bytes() == b"content" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("umask", [0o077], indirect=True)
def test_the_umask_is_nowhere_another(tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", None)  # which is the whole process's: nobody may set it, not for a moment
    try:
        threads = [threading.Thread(target=write_json, args=(tmp_path / f"{i}.json", {"a": i})) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        monkeypatch.undo()
    assert sorted(os.listdir(tmp_path)) == ["0.json", "1.json", "2.json", "3.json"]


def test_what_cannot_be_put_in_place_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", b"content")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("umask", [0, 0o022], indirect=True)
def test_private_folders(tmp_path: Path, umask: int) -> None:
    os.chmod(tmp_path, 0o755)
    make_private(tmp_path / "a" / "b")
    make_private(tmp_path / "a" / "b")
    assert (mode(tmp_path), mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o755, 0o700, 0o700)
