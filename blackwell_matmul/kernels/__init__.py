"""The kernels: `rung("v1")` is a class and `RUNGS` says where each one lives. Each is imported when it is asked for.

May import: base, frontend, hardware, problem, scheduling, script.
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
    from blackwell_matmul.kernels.matmul import MatmulScript

__all__ = ["LADDERS", "PRODUCTS", "RUNGS", "known_rung", "parse_schedule", "rung"]

RUNGS: Mapping[str, str] = MappingProxyType(
    {
        "v0": "blackwell_matmul.kernels.blackwell.v0:BlackwellMatmulV0",
        "v1": "blackwell_matmul.kernels.blackwell.v1:BlackwellMatmulV1",
        "v2": "blackwell_matmul.kernels.blackwell.v2:BlackwellMatmulV2",
        "v3": "blackwell_matmul.kernels.blackwell.v3:BlackwellMatmulV3",
        "v4": "blackwell_matmul.kernels.blackwell.v4:BlackwellMatmulV4",
        "v5": "blackwell_matmul.kernels.blackwell.v5:BlackwellMatmulV5",
        "v6": "blackwell_matmul.kernels.blackwell.v6:BlackwellMatmulV6",
        "v7": "blackwell_matmul.kernels.blackwell.v7:BlackwellMatmulV7",
        "h0": "blackwell_matmul.kernels.hopper.v0:HopperMatmulV0",
        "h1": "blackwell_matmul.kernels.hopper.v1:HopperMatmulV1",
        "h2": "blackwell_matmul.kernels.hopper.v2:HopperMatmulV2",
        "h3": "blackwell_matmul.kernels.hopper.v3:HopperMatmulV3",
        "h4": "blackwell_matmul.kernels.hopper.v4:HopperMatmulV4",
        "h5": "blackwell_matmul.kernels.hopper.v5:HopperMatmulV5",
        "h6": "blackwell_matmul.kernels.hopper.v6:HopperMatmulV6",
        "h7": "blackwell_matmul.kernels.hopper.v7:HopperMatmulV7",
        "h8": "blackwell_matmul.kernels.hopper.v8:HopperMatmulV8",
        "g0": "blackwell_matmul.kernels.geforce.v0:GeforceMatmulV0",
    }
)
"""The rungs of the ladders, bottom first: name to "module:class"; v for data-center Blackwell, h for Hopper, g for
GeForce Blackwell and GB10."""


PRODUCTS: Mapping[str, str] = MappingProxyType({"few": "blackwell_matmul.kernels.blackwell.few_rows:BlackwellFewRows"})
"""The kernels that `matmul` takes besides the rungs, likewise."""


def known_rung(name: str) -> str:
    """The name of a rung or of a product, such as "v1" or "V1"; InputError, with the names that exist, for any other
    name."""
    known = plain_text(name)
    if known is None or known.lower() not in {*RUNGS, *PRODUCTS}:
        looks_like_a_file = any(mark in (known or "") for mark in "./\\:")
        hint = "; a script of your own is given as my_kernel.py:MyScript" if looks_like_a_file else ""
        raise InputError(f"rung is {shown(name)}; the rungs are {', '.join((*RUNGS, *PRODUCTS))}{hint}.")
    return known.lower()


def rung(name: str) -> type[MatmulScript]:
    """The class of a rung or of a product, which is imported here; InputError for a name that is none."""
    module, _, class_name = {**RUNGS, **PRODUCTS}[known_rung(name)].partition(":")
    found: type[MatmulScript] = getattr(importlib.import_module(module), class_name)
    return found


def parse_schedule(name: str, text: str) -> Schedule:
    """What `text` pins of a rung, such as "block_m=128,stages=3"; InputError names the knobs that the rung has."""
    known_rung(name)
    Schedule.parse(text)  # what fits no rung is refused before this one is imported
    return Schedule.parse(text, rung(name).knobs)
