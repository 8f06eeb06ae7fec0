"""The optional part `blackwell_matmul_studies`: studies, baselines and mutants, which a checkout has in `bench/`.

An installed package has the part if it is on Python's path.
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
"""The folder of a checkout that has the part."""


def make_importable() -> bool:
    """Add the part to the path of this process and of its children, and return whether it can be imported."""
    if (BESIDE / PART).is_dir():
        if str(BESIDE) not in sys.path:
            sys.path.append(str(BESIDE))
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if str(BESIDE) not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, paths), str(BESIDE)])
    return find_spec(PART) is not None


def studies() -> tuple[str, ...]:
    """Return the names of the studies; empty without the optional part."""
    return tuple(import_module(PART).STUDIES) if make_importable() else ()


def part(module: str) -> Any:
    """Return a module of the optional part, which must be importable."""
    return import_module(f"{PART}.{module}")


def folder(what: str) -> Path:
    """Return the folder of the optional part; InputError without it. what: subject of the sentence."""
    if not make_importable():
        raise InputError(f"{what} of {PART}, which is not here; run the command in a checkout, whose bench/ has it.")
    return Path(str(import_module(PART).__file__)).parent
