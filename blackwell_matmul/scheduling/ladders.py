"""Kernels for each GPU, by name: the products first, then the rungs of its ladder. The kernels are in `kernels/`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType

DATA_CENTER_BLACKWELL = ("blackwell", "v6", "v5", "v4", "v3", "v2", "v1", "v0")

LADDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sm_100a": DATA_CENTER_BLACKWELL,
        "sm_103a": DATA_CENTER_BLACKWELL,
        "sm_90a": ("hopper", "h7", "h6", "h5", "h4", "h3", "h2", "h1", "h0"),
        "sm_120a": ("g0",),
        "sm_121a": ("g0",),
    }
)
"""Kernels to try on each architecture, best first."""

BLOCK_SCALED_BY_FEATURE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"tcgen05": ("s0", "s1", "s2"), "block_scale": ("g1",)}
)
"""Kernels for block-scaled operands by the GPU feature (`gpus.FEATURES`) that each needs, bottom first: data-center
Blackwell, and GeForce Blackwell and GB10."""

BLOCK_SCALED_LADDER = tuple(itertools.chain(*BLOCK_SCALED_BY_FEATURE.values()))
"""Names of all block-scaled rungs."""

KERNELS_BY_FEATURE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tma": LADDERS["sm_120a"],
        "wgmma": tuple(sorted(LADDERS["sm_90a"])),
        "tcgen05": (*sorted(DATA_CENTER_BLACKWELL), "few", *BLOCK_SCALED_BY_FEATURE["tcgen05"]),
        "block_scale": BLOCK_SCALED_BY_FEATURE["block_scale"],
    }
)
"""Kernels by the GPU feature (`gpus.FEATURES`) that they need."""
