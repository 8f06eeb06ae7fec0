"""The cases of `differential.py`, by family."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from cases import numbers, own, programs, scalars, tensor_cores, tiles
from cases.made import Case


def _all() -> Iterator[Case]:
    for module in (own, numbers, scalars, tiles, tensor_cores, programs):
        yield from module.cases()


@functools.cache
def known() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for case in _all():
        assert case.key not in found, f"{case.key} is there twice"
        found[case.key] = case
    return found


def keys(families: Sequence[str] = ()) -> list[str]:
    """Those of some families, or all: with the project's tests, which pytest lists, in many seconds."""
    tests = own.test_keys() if not families or "test" in families else []
    return [key for key in (*known(), *tests) if not families or key.split("/")[0] in families]


def case_of(key: str) -> Case:
    """The case of a key; a program may also be of another length than the list has."""
    return known().get(key) or programs.of_key(key)
