"""Data files: TOML tables of numbers, each with its unit, its source and how the number was obtained.

A text or a list is an entry with unit "". A table of numbers may replace a single number. Each file is read once.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from blackwell_matmul.base.errors import InputError

How = Literal["measured", "derived", "assumed", "specified", "fitted"]
"""Origin of a number. measured: a benchmark's own number. derived: computed from measured numbers. assumed: no value is
published. specified: from the maker's guide or data sheet. fitted: chosen so that a model agrees with times."""

Filled = TypeVar("Filled")


class DataEntry(NamedTuple):
    """A number of a data file, and its origin."""

    value: Any
    """Number or table of numbers; an entry without a unit has a text or a list."""
    unit: str
    """Unit, such as "bytes/cycle"; "1" for a ratio."""
    how: How
    """Origin of the number."""
    source: str
    """Measurement or page that has the value."""
    means: str = ""
    """Meaning of the number, if no docstring of a field has it."""
    gpu: str = ""
    """GPU that was measured."""
    taken: datetime.date | None = None
    """Day of the measurement, or of the reading of a published number."""
    file: str = ""
    """Files of the repository with the measurement, separated by commas."""


REQUIRED = ("value", "unit", "how", "source")


@cache
def read(path: Path) -> Mapping[str, Any]:
    """Return the content of a TOML file; raise InputError if it cannot be read."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"data file {path} cannot be read: {error}.") from None


def entries(path: Path, tables: Mapping[str, Any]) -> dict[str, DataEntry]:
    """Return the entries of a file's tables by name; raise InputError for an invalid entry."""
    return {key: _entry(path, key, table) for key, table in tables.items() if isinstance(table, dict)}


def _entry(path: Path, key: str, table: Mapping[str, Any]) -> DataEntry:
    if wrong := [*(f"no {name}" for name in REQUIRED if name not in table), *table.keys() - {*DataEntry._fields}]:
        raise InputError(f"{key} in data file {path} has {wrong[0]}; it must have {', '.join(REQUIRED)}.")
    entry = DataEntry(**table)
    if entry.how not in get_args(How):
        known = ", ".join(get_args(How))
        raise InputError(f"{key} in data file {path} has how = {entry.how!r}; it must be one of {known}.")
    if entry.unit and not _is_number(entry.value):
        raise InputError(f"{key} in data file {path} has value = {entry.value!r}; with a unit it must be a number.")
    return entry


def _is_number(value: object) -> bool:
    return all(map(_is_number, value.values())) if isinstance(value, dict) else type(value) in (int, float)


def filled(cls: type[Filled], path: Path, values: Mapping[str, Any]) -> Filled:
    """Return an instance of a dataclass with a file's values; raise InputError if a field is missing or unknown."""
    fields = {each.name: each.default is dataclasses.MISSING for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    unknown = [f"{name}, which is no field" for name in values if name not in fields]
    if wrong := [*unknown, *(f"no {name}" for name, needed in fields.items() if needed and name not in values)]:
        raise InputError(f"data file {path} has {wrong[0]} of {cls.__name__}.")
    return cls(**values)
