"""Grids for a GPU that other streams use at the same time, such as NCCL's.

A persistent CTA has a fixed list of tiles. If NCCL occupies some SMs, the CTAs meant for these SMs start only after
other CTAs have ended. The product then takes up to twice as long. With one tile for each CTA, the product spreads
evenly over the remaining SMs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import Gpu

SHARED_CTAS_PER_SM = 8
"""Maximum number of CTAs in the grid of a shared GPU, for each SM. If there are more tiles, a CTA computes several."""

LEAST_C, LEAST_K = 128 * 256, 2048
"""Minimum elements of C for each SM, and minimum K, for such a grid. With fewer elements, all tiles run at once. With a
shorter K, the starts of CTAs take up to a quarter of the time (h200_grids.json)."""

_shared: bool | None = None
_forgetting: list[Callable[[], None]] = []


def when_changed(forget: Callable[[], None]) -> None:
    """Register a function that `share_gpu` calls to clear a cache of plans."""
    _forgetting.append(forget)


def share_gpu(shared: bool | None = None) -> None:
    """Set whether products share their GPU with other streams.

    None: they do if torch.distributed has an NCCL group of several ranks. On Hopper, sharing makes a product 1 to 4 %
    slower if it runs alone. While NCCL works, NCCL slows the product by no more than torch's (h200_contend.json). On a
    B200 the kernels take their tiles by cluster launch control, and sharing changes nothing.

    Raises InputError for any other value.
    """
    global _shared
    if not (shared is None or isinstance(shared, bool)):
        raise InputError(f"shared is {shown(shared)}; it must be True or False, or None to find out.")
    _shared = shared
    for forget in _forgetting:
        forget()


def shared_ctas(gpu: Gpu, elements: int, k: int) -> int:
    """Return the maximum number of CTAs of a grid; 0 if one CTA for each SM is best. elements: elements of C."""
    pays = k >= LEAST_K and elements > LEAST_C * gpu.sm_count
    return SHARED_CTAS_PER_SM * gpu.sm_count if pays and _is_shared() else 0


def _is_shared() -> bool:
    if _shared is not None:
        return _shared
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return several and "nccl" in dist.get_backend()
