"""What a user's file imports from its own folder is its own."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType

import pytest

from blackwell_matmul.harness.calls.user_kernel import load_module


def folder(place: Path, value: int, **more: str) -> Path:
    place.mkdir()
    files = {
        "kernel": "from common import VALUE, Thing\nimport common\n",
        "common": f"VALUE = {value}\nclass Thing: pass\n",
    }
    for name, text in {**files, **more}.items():
        (place / f"{name}.py").write_text(text, encoding="utf-8")
    return place


def loaded(place: Path) -> ModuleType:
    return load_module(str(place / "kernel.py"))


def test_two_folders_each_have_their_helper(tmp_path: Path) -> None:
    one, other = (loaded(folder(tmp_path / name, value)) for name, value in (("a", 1), ("b", 2)))
    assert (one.VALUE, other.VALUE, one.common.VALUE) == (1, 2, 1)
    assert "common" not in sys.modules


def test_a_module_of_somebody_else_stays_and_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = ModuleType("common")
    foreign.__file__ = str(tmp_path / "elsewhere" / "common.py")
    monkeypatch.setitem(sys.modules, "common", foreign)
    assert loaded(folder(tmp_path / "a", 1)).VALUE == 1
    assert sys.modules["common"] is foreign


def test_an_import_within_a_function_finds_its_own_also_later(tmp_path: Path) -> None:
    later = "def value():\n    from common import VALUE\n    from deep import again\n    return VALUE, again()\n"
    deep = "def again():\n    import common\n    return common.VALUE\n"
    places = [folder(tmp_path / name, value, kernel=later, deep=deep) for name, value in (("a", 1), ("b", 2))]
    modules = [loaded(place) for place in places]
    assert [module.value() for module in modules] == [(1, 1), (2, 2)]


def test_packages_and_what_they_import_of_themselves(tmp_path: Path) -> None:
    places = [
        folder(tmp_path / name, value, kernel="from parts.tiles import TILE\n") for name, value in (("a", 1), ("b", 2))
    ]
    for place, value in zip(places, (1, 2), strict=True):
        (place / "parts").mkdir()
        (place / "parts" / "__init__.py").write_text("", encoding="utf-8")
        (place / "parts" / "tiles.py").write_text("from .sizes import SIZE\nTILE = SIZE\n", encoding="utf-8")
        (place / "parts" / "sizes.py").write_text(f"SIZE = {value}\n", encoding="utf-8")
    assert [loaded(place).TILE for place in places] == [1, 2]
    assert "parts" not in sys.modules


def test_a_helper_edited_since_is_read_anew(tmp_path: Path) -> None:
    place = folder(tmp_path / "a", 1)
    assert loaded(place).VALUE == 1
    (place / "common.py").write_text("VALUE = 7\nclass Thing: pass\n", encoding="utf-8")
    assert loaded(place).VALUE == 7


def test_what_a_helper_defines_can_be_pickled(tmp_path: Path) -> None:
    one, other = (loaded(folder(tmp_path / name, value)) for name, value in (("a", 1), ("b", 2)))
    for module in (one, other):
        assert type(pickle.loads(pickle.dumps(module.Thing()))) is module.Thing


def test_a_file_hides_no_library(tmp_path: Path) -> None:
    place = folder(tmp_path / "a", 1, numpy="", string="", kernel="import numpy, string\n")
    module = loaded(place)
    assert (module.numpy.__name__, module.string.digits) == ("numpy", "0123456789")


def test_a_helper_that_raises_leaves_nothing_behind(tmp_path: Path) -> None:
    from blackwell_matmul import InputError

    place, before, path = (
        folder(tmp_path / "a", 1, common="raise ValueError('no')\n"),
        set(sys.modules),
        list(sys.meta_path),
    )
    with pytest.raises(InputError, match="ValueError"):
        loaded(place)
    assert [name for name in set(sys.modules) - before if "common" in name or "_script_" in name] == []
    assert sys.meta_path == path
