"""A data file is read whole, or refused in one sentence with the file and the key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from blackwell_matmul.base.data_files import entries, filled, read
from blackwell_matmul.base.errors import InputError

WHOLE = 'unit = "ns", how = "measured", source = "HM"'


@dataclasses.dataclass(frozen=True)
class Rates:
    """Two rates of a GPU, one of which may be unknown."""

    load_ns: float
    store_ns: float | None = None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "h200.toml"


def test_a_number_keeps_its_type_and_its_source(file: Path) -> None:
    file.write_text(
        f'gpu = "H200"\nload_ns = {{ value = 148, {WHOLE}, taken = 2026-11-23 }}\n[by]\nvalue.x = 0.1\n'
        + WHOLE.replace(", ", "\n")
    )
    found = entries(file, read(file))
    assert list(found) == ["load_ns", "by"] and found["by"].value == {"x": 0.1}
    assert type(found["load_ns"].value) is int and str(found["load_ns"].taken) == "2026-11-23"
    assert filled(Rates, file, {"load_ns": found["load_ns"].value}) == Rates(148)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (
            'load_ns = { unit = "ns", how = "measured", source = "HM" }',
            "load_ns .* has no value; it must have value, unit",
        ),
        (f"load_ns = {{ value = 1, {WHOLE}, unti = 1 }}", "load_ns .* has unti"),
        (f'load_ns = {{ value = "1", {WHOLE} }}', "load_ns .* has value = '1'; with a unit it must be a number"),
        (f"load_ns = {{ value = true, {WHOLE} }}", "load_ns .* has value = True"),
        (f"load_ns = {{ value = {{ a = [] }}, {WHOLE} }}", r"load_ns .* has value = {'a': \[\]}"),
        (
            'load_ns = { value = 1, unit = "ns", how = "seen", source = "HM" }',
            "load_ns .* how = 'seen'; .* measured, derived",
        ),
        ("load_ns = {", "cannot be read: "),
    ],
)
def test_an_entry_that_is_not_whole_is_refused(file: Path, line: str, wrong: str) -> None:
    file.write_text(line)
    with pytest.raises(InputError, match=wrong) as refused:
        entries(file, read(file))
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("values", "wrong"),
    [({}, "has no load_ns of Rates"), ({"load_ns": 1, "lod_ns": 1}, "has lod_ns, which is no field")],
)
def test_names_are_those_of_the_class(file: Path, values: dict[str, float], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        filled(Rates, file, values)


def test_a_missing_file_is_named(file: Path) -> None:
    with pytest.raises(InputError, match=r"h200\.toml cannot be read"):
        read(file)
