"""Kernels by name: `rung("v1")` is a class, imported at the first call.

`blackwell/`, `hopper/` and `geforce/` are the ladders: a rung is a kernel in its own file, with one idea more than the
rung below. `products/` has the kernels of torch operations and `tune`, `experts/` the grouped GEMM. All of them share
`parts/`, which is device code, and `host/`, the checks of arguments and the choice of a schedule.

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
"""Rungs of the ladders, as "module:class" by name, the lowest rung first. v: data-center Blackwell. s: the same, with
block scales. h: Hopper. g: GeForce Blackwell and GB10; g1 has block scales."""

PRODUCTS: Mapping[str, str] = MappingProxyType(
    {
        "blackwell": "blackwell_matmul.kernels.products.blackwell:BlackwellMatmul",
        "hopper": "blackwell_matmul.kernels.products.hopper:HopperMatmul",
        "few": "blackwell_matmul.kernels.products.few_rows:BlackwellFewRows",
    }
)
"""Kernels of `matmul` and the other torch operations, as "module:class" by name. GPUs without such a kernel use
rungs."""

KERNELS: Mapping[str, str] = MappingProxyType({**RUNGS, **PRODUCTS})
"""Rungs and products: the kernels whose knobs are fields of `Schedule`."""

NAMES: Mapping[str, str] = MappingProxyType({**KERNELS, "gemv": "blackwell_matmul.kernels.products.gemv:Gemv"})
"""All kernels with a name. `gemv` has knobs of its own, which are no fields of `Schedule`."""

OLD_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "v7": "blackwell",
        "h8": "hopper",
        "BlackwellMatmulV7": "BlackwellMatmul",
        "HopperMatmulV8": "HopperMatmul",
    }
)
"""Present names of kernels, by their former names. The former names work in release 0.1."""


def known_rung(name: str) -> str:
    """Return the name of a kernel, such as "v1" for "V1"; raise InputError, with all names, for any other name."""
    known = plain_text(name)
    lower = "" if known is None else known.lower()
    lower = OLD_NAMES.get(lower, lower)
    if lower not in NAMES:
        looks_like_a_file = any(mark in (known or "") for mark in "./\\:")
        hint = "; a script of your own is given as my_kernel.py:MyScript" if looks_like_a_file else ""
        raise InputError(f"rung is {shown(name)}; the rungs are {', '.join(NAMES)}{hint}.")
    return lower


def rung(name: str) -> type[MatmulScript]:
    """Import and return the class of a kernel by its name; raise InputError for any other name."""
    module, _, class_name = NAMES[known_rung(name)].partition(":")
    found: type[MatmulScript] = getattr(importlib.import_module(module), class_name)
    return found


def parse_schedule(name: str, text: str) -> Schedule:
    """Return the schedule of a text such as "block_m=128,stages=3"; raise InputError for a knob that the kernel lacks.

    name: name of the kernel.
    """
    known_rung(name)
    Schedule.parse(text)  # refuses names of no kernel's knobs, before the slow import of the kernel
    return Schedule.parse(text, rung(name).knobs)


def __getattr__(name: str) -> object:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return next(rung(each) for each, home in PRODUCTS.items() if home.endswith(f":{OLD_NAMES[name]}"))
