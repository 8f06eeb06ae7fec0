"""Grids for GPUs that other streams use too, such as NCCL's: grids whose CTAs end soon.

A persistent CTA has a fixed list of tiles. If NCCL occupies some SMs, the CTAs meant for these SMs start only after
others have ended, and the product takes up to twice as long. CTAs of one tile each use the remaining SMs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import Gpu

SHARED_CTAS_PER_SM = 8
"""Most CTAs of a shared GPU's grid, for each SM. With more tiles a CTA takes several."""

LEAST_C, LEAST_K = 128 * 256, 2048
"""Minimum elements of C for each SM, one tile, and minimum K for such a grid. Fewer tiles run all at the same time.
With a shorter K the start of CTAs costs up to a quarter of the time (h200_grids.json)."""

_shared: bool | None = None
_forgetting: list[Callable[[], None]] = []


def when_changed(forget: Callable[[], None]) -> None:
    """Add a function that `share_gpu` calls, which forgets plans."""
    _forgetting.append(forget)


def share_gpu(shared: bool | None = None) -> None:
    """Set if products share their GPU with other streams. None: as found; true if torch.distributed has an NCCL group
    of several ranks. The plans of earlier calls are made anew.

    On a Hopper a product then takes 1 to 4 % longer alone, and at most as much longer as torch's while NCCL works
    (h200_contend.json). A B200's CTAs take tiles as they come in any case.

    Raises InputError for anything else.
    """
    global _shared
    if not (shared is None or isinstance(shared, bool)):
        raise InputError(f"shared is {shown(shared)}; it must be True or False, or None to find out.")
    _shared = shared
    for forget in _forgetting:
        forget()


def shared_ctas(gpu: Gpu, elements: int, k: int) -> int:
    """Return the most CTAs of a grid for C of so many elements; 0 if a CTA for each SM is best."""
    pays = k >= LEAST_K and elements > LEAST_C * gpu.sm_count
    return SHARED_CTAS_PER_SM * gpu.sm_count if pays and _is_shared() else 0


def _is_shared() -> bool:
    if _shared is not None:
        return _shared
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return several and "nccl" in dist.get_backend()
