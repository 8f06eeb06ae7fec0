"""Kernels by name: `rung("v1")` is a class, imported at the first call.

`blackwell/`, `hopper/` and `geforce/` are the ladders, one rung a file and one idea a step. `products/` has the kernels
of torch operations and `tune`, `experts/` the grouped GEMM. They are built from `parts/`, device code, and `host/`, the
checks and the choice of a schedule. A kernel imports parts, host, the schedules and the rooms below these, and no
simulator.

May import: base, frontend, hardware, lang, problem, runtime, scheduling.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.problem.problem import Schedule
from blackwell_matmul.scheduling.ladders import LADDERS

if TYPE_CHECKING:
    from blackwell_matmul.kernels.host.matmul import MatmulScript

__all__ = ["KERNELS", "LADDERS", "NAMES", "OLD_NAMES", "PRODUCTS", "RUNGS", "known_rung", "parse_schedule", "rung"]

RUNGS: Mapping[str, str] = MappingProxyType(
    {
        **{f"v{i}": f"blackwell_matmul.kernels.blackwell.v{i}:BlackwellMatmulV{i}" for i in range(7)},
        **{f"h{i}": f"blackwell_matmul.kernels.hopper.v{i}:HopperMatmulV{i}" for i in range(8)},
        **{f"s{i}": f"blackwell_matmul.kernels.blackwell.s{i}:BlackwellMatmulS{i}" for i in range(3)},
        "g0": "blackwell_matmul.kernels.geforce.v0:GeforceMatmulV0",
        "g1": "blackwell_matmul.kernels.geforce.g1:GeforceMatmulG1",
    }
)
"""Rungs of the ladders, bottom first: name to "module:class". v: data-center Blackwell, s: there with block scales, h:
Hopper, g: GeForce Blackwell and GB10, g1 with block scales."""

PRODUCTS: Mapping[str, str] = MappingProxyType(
    {
        "blackwell": "blackwell_matmul.kernels.products.blackwell:BlackwellMatmul",
        "hopper": "blackwell_matmul.kernels.products.hopper:HopperMatmul",
        "few": "blackwell_matmul.kernels.products.few_rows:BlackwellFewRows",
    }
)
"""Kernels of `matmul` and the other operations, in addition to the rungs of GPUs without a product; likewise."""

KERNELS: Mapping[str, str] = MappingProxyType({**RUNGS, **PRODUCTS})
"""Rungs and products: the kernels whose schedules are of the schedule space."""

NAMES: Mapping[str, str] = MappingProxyType({**KERNELS, "gemv": "blackwell_matmul.kernels.products.gemv:Gemv"})
"""All kernels with a name; `gemv` chooses its knobs itself, as the schedule space has others."""

OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "v7": "blackwell",
        "h8": "hopper",
        "BlackwellMatmulV7": "BlackwellMatmul",
        "HopperMatmulV8": "HopperMatmul",
    }
)
"""Former names of the products, from the time when they were rungs, to their present names. They work for one release,
0.1."""


def known_rung(name: str) -> str:
    """Return the name of a rung or a product, such as "v1" for "V1"; InputError, with all names, for any other name."""
    known = plain_text(name)
    lower = "" if known is None else known.lower()
    lower = OLD_NAMES.get(lower, lower)
    if lower not in NAMES:
        looks_like_a_file = any(mark in (known or "") for mark in "./\\:")
        hint = "; a script of your own is given as my_kernel.py:MyScript" if looks_like_a_file else ""
        raise InputError(f"rung is {shown(name)}; the rungs are {', '.join(NAMES)}{hint}.")
    return lower


def rung(name: str) -> type[MatmulScript]:
    """Return the class of a rung or a product, which is imported here; InputError for any other name."""
    module, _, class_name = NAMES[known_rung(name)].partition(":")
    found: type[MatmulScript] = getattr(importlib.import_module(module), class_name)
    return found


def parse_schedule(name: str, text: str) -> Schedule:
    """Return the pins that `text` gives a rung, such as "block_m=128,stages=3"; InputError names the rung's knobs."""
    known_rung(name)
    Schedule.parse(text)  # what fits no rung is refused before this one is imported
    return Schedule.parse(text, rung(name).knobs)


def __getattr__(name: str) -> object:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return next(rung(each) for each, home in PRODUCTS.items() if home.endswith(f":{OLD_NAMES[name]}"))
