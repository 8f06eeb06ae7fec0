"""What is kept on disk is named by what this process runs, or not kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blackwell_matmul import BlackwellMatmulV1
from blackwell_matmul.base import digests
from blackwell_matmul.compiler import entries


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files of code and one of data, as it was imported."""
    (tmp_path / "inner").mkdir()
    for name in ("one.py", "inner/two.py", "inner/figures.toml"):
        (tmp_path / name).write_text("x = 1\n", encoding="utf-8")
    monkeypatch.setattr(digests, "_seen", {tmp_path: digests._stamps(tmp_path)})
    return tmp_path


def rewrite(file: Path) -> None:
    """Another text of the same size, with the time of the old one."""
    times = file.stat()
    file.write_text("x = 2\n", encoding="utf-8")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


CHANGES = {
    "in place": lambda package: rewrite(package / "inner" / "two.py"),
    "data": lambda package: rewrite(package / "inner" / "figures.toml"),
    "a new file": lambda package: (package / "three.py").touch(),
    "one less": lambda package: (package / "one.py").unlink(),
    "all gone": lambda package: package.rename(package.with_name("gone")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_files_that_changed_since_are_noticed(package: Path, change) -> None:  # type: ignore[no-untyped-def]
    assert digests.is_as_imported()
    before = digests._of(package)
    change(package)
    assert not digests.is_as_imported()
    assert before != digests.EDITED == (digests._of(package) if package.exists() else digests.EDITED)


def test_nothing_is_kept_by_a_process_whose_files_changed(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path / "cache"))
    file = entries.place("codes", BlackwellMatmulV1)
    assert file is not None
    rewrite(package / "one.py")
    entries.keep(file, {"bundle": "x"})
    assert not file.exists()
    monkeypatch.setattr(entries, "package_digest", lambda: digests.EDITED)
    assert entries.place("codes", BlackwellMatmulV1) is None


def test_a_rung_patched_in_memory_has_an_entry_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path))
    clean = entries.place("codes", BlackwellMatmulV1)
    with monkeypatch.context() as patch:
        patch.setitem(BlackwellMatmulV1.__call__.__globals__, "cdiv", lambda a, b: a // b)
        assert entries.place("codes", BlackwellMatmulV1) != clean
    assert clean is not None
    assert entries.place("codes", BlackwellMatmulV1) == clean


@pytest.mark.parametrize("file", ["hardware/figures/h200.toml", "scheduling/fits/closed_form.toml"])
def test_the_figures_behind_a_choice_are_part_of_its_name(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh process with another figure has other digests; nothing of this package is changed."""
    monkeypatch.setattr(digests, "is_as_imported", lambda: True)
    of = {name: getattr(digests, name).__wrapped__ for name in ("kernels_digest", "package_digest", "compiler_digest")}
    before = {name: found() for name, found in of.items()}
    known, changed = Path.read_bytes, digests.PACKAGE / file
    monkeypatch.setattr(Path, "read_bytes", lambda path: known(path) + b"#" * (path == changed))
    after = {name: found() for name, found in of.items()}
    assert changed.is_file()
    assert {name: after[name] != before[name] for name in of} == {
        "kernels_digest": True,
        "package_digest": True,
        "compiler_digest": False,
    }
