"""The sample scripts of the frontend's tests with arguments for each, and their programs, built once."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from blackwell_matmul.frontend import Program, bind_all, build_first, import_tilus

import_tilus()

ARRAY = np.zeros(4, dtype=np.float32)
HALF = np.zeros(4, dtype=np.float16)

CALLS: dict[str, tuple[Any, ...]] = {
    "TmaMatmul": (256, 256, 128, ARRAY, ARRAY, ARRAY),
    "Arithmetic": (256, 8, ARRAY, ARRAY),
    "Inlined": (256, ARRAY, ARRAY),
    "CpAsync": (64, HALF, HALF, ARRAY),
    "TensorMemory": (1,),
}
"""Arguments for each of the scripts that compile."""


@functools.cache
def built(name: str) -> Program:
    """The program of one of the sample scripts for sm_100a."""
    import frontend_scripts

    candidates = bind_all(getattr(frontend_scripts, name), CALLS[name], target="sm_100a")
    return build_first(candidates, "sm_100a")[1]
