"""The kernels for each GPU, by name. The kernels themselves are in `kernels/`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DATA_CENTER_BLACKWELL = ("v6", "v7", "v5", "v4", "v3", "v2", "v1", "v0")

LADDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sm_100a": DATA_CENTER_BLACKWELL,
        "sm_103a": DATA_CENTER_BLACKWELL,
        "sm_90a": ("h7", "h8", "h6", "h5", "h4", "h3", "h2", "h1", "h0"),
        "sm_120a": ("g0",),
        "sm_121a": ("g0",),
    }
)
"""Rungs to try on each architecture, best first."""

KERNELS_BY_FEATURE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tma": LADDERS["sm_120a"],
        "wgmma": tuple(sorted(LADDERS["sm_90a"])),
        "tcgen05": (*sorted(DATA_CENTER_BLACKWELL), "few"),
    }
)
"""Kernels by the GPU feature (`gpus.FEATURES`) that each needs."""
