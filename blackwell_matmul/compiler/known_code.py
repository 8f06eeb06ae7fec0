"""Finds a kernel's bundle by all inputs of its code: a call with new sizes and a known schedule need not build the
script.

This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

from tilus import DataType

from blackwell_matmul.compiler import entries
from blackwell_matmul.frontend import Bound


def place(candidates: Sequence[Bound], target: str, versions: Mapping[str, str]) -> Path | None:
    """Return the file of the record that all calls with equal code share; None if nothing is stored, or if there are
    several candidates."""
    if len(candidates) > 1:
        return None
    (bound,) = candidates
    made_with = {name: each.name if isinstance(each, DataType) else each for name, each in bound.init_kwargs.items()}
    compiled_in = dict(bound.consts), dict(bound.divisibility), _left_out(bound)
    return entries.place(entries.CODES_FOLDER, bound.script_cls, made_with, *compiled_in, target, dict(versions))


def _left_out(bound: Bound) -> list[str]:
    """Return the arguments that have their default values. A bundle lists the arguments that a call may omit."""
    declared = inspect.signature(bound.script_cls.__call__).parameters
    given = bound.kernel_args.items()
    return [name for name, value in given if isinstance(value, (int, float)) and value == declared[name].default]
