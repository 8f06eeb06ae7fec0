"""Table of all entry points. An entry point's index is its number in a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from blackwell_matmul.emulator.cuda_runtime import driver_calls, runtime_calls


class EntryPoint(NamedTuple):
    """An entry point. function: takes the host and the first words of a call. words: number of these words."""

    name: str
    function: Callable[..., int | None]
    words: int


def _nothing(host: object) -> None:
    """Do nothing, and succeed."""


def _functions(module: ModuleType, prefixes: Sequence[str]) -> dict[str, Callable[..., int | None]]:
    return {name: value for name, value in vars(module).items() if name.startswith(tuple(prefixes)) and callable(value)}


def _table() -> Mapping[str, Callable[..., int | None]]:
    found: dict[str, Callable[..., int | None]] = dict.fromkeys(
        (*driver_calls.NOTHING, *runtime_calls.RUNTIME_NOTHING), _nothing
    )
    found |= dict.fromkeys((*driver_calls.HANDLES, *runtime_calls.RUNTIME_HANDLES), driver_calls.new_handle)
    found |= _functions(driver_calls, ["cu"]) | _functions(runtime_calls, ["cuda", "__cuda"])
    for name, other in (driver_calls.SAME | runtime_calls.AS_THE_DRIVER).items():
        found[name] = found[other]
    return found


ENTRY_POINTS = [
    EntryPoint(name, function, len(inspect.signature(function).parameters) - 1) for name, function in _table().items()
]
