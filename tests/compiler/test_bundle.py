"""Bundle: saved and loaded again, and what happens to damaged ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from test_plan import FINISHING, PLAN

from blackwell_matmul.base.errors import BlackwellMatmulError, InputError
from blackwell_matmul.base.records import sealed
from blackwell_matmul.compiler.bundle import BUNDLE_FORMAT, Bundle, Resources

BUNDLE = Bundle(
    name="Kernel",
    target="sm_100a",
    source="// text\n",
    ptx=".version 9.0\n",
    cubin=b"\x7fELF\x00\xff",
    plan=PLAN,
    consts={"n": 1024},
    serves="Serves any m with n = 1024.",
    schedule={"block_m": 128},
    resources=Resources(64, 0, 0, 0, 1024, 4, 2, "shared memory"),
    versions={"tilus": "0.2.0"},
    key="abc",
)


def test_arguments_in_the_kernels_order_without_what_is_compiled_in() -> None:
    *_, last = (each.name for each in PLAN.parameters)
    assert BUNDLE.ordered(n=1024, **{last: 7}) == [7]
    with pytest.raises(InputError, match=r"^Kernel was compiled for n = 1024, and n is 512\.$"):
        BUNDLE.ordered(n=512)


def test_round_trip(tmp_path: Path) -> None:
    folder = BUNDLE.save(tmp_path / "new" / "out")
    assert sorted(file.name for file in folder.iterdir()) == ["bundle.json", "kernel.cu", "kernel.cubin", "kernel.ptx"]
    assert Bundle.load(folder) == BUNDLE
    assert BUNDLE.save(folder) == folder  # again, over itself
    assert Bundle.load(str(folder)) == BUNDLE


def test_defaults_are_saved(tmp_path: Path) -> None:
    bundle = Bundle.load(dataclasses.replace(BUNDLE, plan=FINISHING).save(tmp_path))
    assert bundle.plan == FINISHING
    assert bundle.plan.evaluate([1, 16, 32, 2.0]) == FINISHING.evaluate([1, 16, 32, 2.0, 0.5, 1])


@pytest.mark.parametrize("name", ["bundle.json", "kernel.cu", "kernel.cubin", "kernel.ptx"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "empty"])
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    file = BUNDLE.save(tmp_path) / name
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        content[len(content) // 2] ^= 1
        file.write_bytes({"truncated": content[:-1], "flipped": content, "empty": b""}[damage])
    with pytest.raises(BlackwellMatmulError) as caught:
        Bundle.load(tmp_path)
    assert name in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_folder_without_a_bundle(tmp_path: Path) -> None:
    with pytest.raises(BlackwellMatmulError, match=r"^cannot read .*bundle\.json: No such file"):
        Bundle.load(tmp_path)


def test_a_changed_plan_is_found(tmp_path: Path) -> None:
    file = BUNDLE.save(tmp_path) / "bundle.json"
    record = json.loads(file.read_text())
    record["plan"]["grid"] = [1, 1, 1]
    file.write_text(json.dumps(record))
    with pytest.raises(BlackwellMatmulError, match="not what was saved"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"name": 3}, {"name": "\ud800"}, {"target": [0]}, {"serves": None}, {"key": 2**64}, {"consts": ["n"]},
        {"consts": "n"}, {"schedule": "block_m"}, {"schedule": None}, {"versions": {"tilus": 2}}, {"versions": []},
        {"resources": []}, {"resources": {"registers": 1}}, {"files": []}, {"files": None}, {"plan": 7}, {"marks": 1},
        {"resources": {**BUNDLE._record({})["resources"], "limited_by": 3}}, {"marks": {}},
        {"resources": {**BUNDLE._record({})["resources"], "warps": "4"}}, {"plan": [[]]},
        {"marks": {"events": 1, "warps": 1, "marks": [["a", 1, "b"]], "barriers": []}},
        {"marks": {"events": 1, "warps": 1, "marks": [["a"]], "barriers": []}},
        {"marks": {"events": 1, "warps": 1, "marks": [], "barriers": [["a", 1]]}},
        {"marks": {"events": 1, "warps": None, "marks": [], "barriers": []}},
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_one_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    """With a digest that is right: it is no signature."""
    file = BUNDLE.save(tmp_path) / "bundle.json"
    body = json.loads(file.read_text())
    del body["format"], body["digest"]
    file.write_bytes(sealed({**body, **change}, BUNDLE_FORMAT))
    with pytest.raises(InputError, match=r"(bundle\.json|kernel\.cu) is damaged: .*[^.]\.$"):
        Bundle.load(tmp_path)


@pytest.mark.parametrize("number", ["NaN", "1e999", "[" * 99_000])
def test_what_no_bundle_has_is_one_sentence(tmp_path: Path, number: str) -> None:
    file = BUNDLE.save(tmp_path) / "bundle.json"
    file.write_text(file.read_text().replace("1024", number, 1))
    with pytest.raises(InputError, match=r"bundle\.json is damaged: it is no JSON that was written here\.$"):
        Bundle.load(tmp_path)


def test_a_schedule_that_json_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^Kernel has what JSON cannot hold: .*\.$"):
        dataclasses.replace(BUNDLE, schedule={"scale": float("inf")}).save(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [3, 99])
def test_another_format_is_refused(tmp_path: Path, number: int) -> None:
    file = BUNDLE.save(tmp_path) / "bundle.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": number}))
    with pytest.raises(BlackwellMatmulError, match=r"no bundle of format 4; compile the kernel again\."):
        Bundle.load(tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BlackwellMatmulError, match="cannot write the bundle"):
        BUNDLE.save(tmp_path / "file" / "out")


@pytest.mark.parametrize("folder", [3, None, b"x", ["x"]])
def test_a_folder_that_is_no_path(folder: Any) -> None:
    for use in (BUNDLE.save, Bundle.load):
        with pytest.raises(InputError, match=r"^folder is .*; it must be the path of a bundle's folder\.$"):
            use(folder)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    BUNDLE.save(tmp_path)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]
