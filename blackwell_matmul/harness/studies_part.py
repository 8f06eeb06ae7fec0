"""Access to the optional package `blackwell_matmul_studies`: studies, baselines and mutants.

A checkout has the package in `bench/`; elsewhere it must be on Python's path.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError

PART = "blackwell_matmul_studies"
BESIDE = Path(__file__).resolve().parents[2] / "bench"
"""Folder of a checkout that has the optional package."""


def make_importable() -> bool:
    """Add a checkout's `bench/` to the path of this process and its children; return True if the optional package can
    be imported."""
    if (BESIDE / PART).is_dir():
        if str(BESIDE) not in sys.path:
            sys.path.append(str(BESIDE))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(BESIDE) not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, paths), str(BESIDE)])
    return find_spec(PART) is not None


def studies() -> tuple[str, ...]:
    """Return the names of the studies; an empty tuple without the optional package."""
    return tuple(import_module(PART).STUDIES) if make_importable() else ()


def part(module: str) -> Any:
    """Return a module of the optional package, which must be importable."""
    return import_module(f"{PART}.{module}")


def folder(what: str) -> Path:
    """Return the folder of the optional package; raise InputError without the package. what: beginning of the error,
    such as "baselines are"."""
    if not make_importable():
        raise InputError(f"{what} of {PART}, which is not here; run the command in a checkout, whose bench/ has it.")
    return Path(str(import_module(PART).__file__)).parent
