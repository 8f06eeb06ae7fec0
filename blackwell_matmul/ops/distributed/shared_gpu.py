"""Products on a GPU that other streams use at the same time, such as NCCL's.

A persistent CTA has a fixed list of tiles. If NCCL occupies some SMs, the CTAs meant for these SMs start only after
other CTAs have ended. The product then takes up to twice as long. With a queue of tiles, the CTAs that run compute all
of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import Gpu

LEAST_C, LEAST_K = 128 * 256, 2048
"""Minimum elements of C for each SM, and minimum K, for a queue. With fewer elements, all tiles run at once. With a
shorter K, a tile may end before the number of the next one is there."""

_shared: bool | None = None
_forgetting: list[Callable[[], None]] = []


def when_changed(forget: Callable[[], None]) -> None:
    """Register a function that `share_gpu` calls to clear a cache of plans."""
    _forgetting.append(forget)


def share_gpu(shared: bool | None = None) -> None:
    """Set whether products share their GPU with other streams.

    None: they do if torch.distributed has an NCCL group of several ranks. On Hopper, the CTAs of large products then
    take tiles as they come. The queue costs at most 0.5 % of the time alone, and 3 % of 90 us (h200_held.json). On a
    B200 the kernels take their tiles by cluster launch control, and sharing changes nothing.

    Raises InputError for any other value.
    """
    global _shared
    if not (shared is None or isinstance(shared, bool)):
        raise InputError(f"shared is {shown(shared)}; it must be True or False, or None to find out.")
    _shared = shared
    for forget in _forgetting:
        forget()


def queue_pays(gpu: Gpu, elements: int, k: int) -> bool:
    """Return True if a product's tiles should come from a queue. elements: elements of C."""
    return k >= LEAST_K and elements > LEAST_C * gpu.sm_count and _is_shared()


def _is_shared() -> bool:
    if _shared is not None:
        return _shared
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return several and "nccl" in dist.get_backend()
