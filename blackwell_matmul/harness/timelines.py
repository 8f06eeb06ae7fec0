"""Measured timelines: makes and reads the buffer of a kernel that is compiled with a timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import has_memory, integer, plain_text, shown
from blackwell_matmul.simulator.trace.measured import HEADER_WORDS, RECORD_WORDS, measured
from blackwell_matmul.simulator.trace.timeline import Timeline

if TYPE_CHECKING:
    from blackwell_matmul.compiler.bundle import Bundle, Marks


MOST_TIMELINE_SMS = 1 << 16
EMULATED_TITLE = "emulated, cycles are instructions"


def timeline_buffer(bundle: Bundle, *arguments: Any) -> Tensor:
    """Return the last argument of a launch with a timeline: int64 zeros, a row for each warp of the grid.

    arguments: all other arguments; the buffer is on the device of their first tensor. A buffer may be used for several
    launches if it is set to zero before the launch whose timeline is read.
    """
    made = _marks(bundle)
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
    for each in tensors:
        if not has_memory(each):
            raise InputError(f"an argument is {shown(each)}, which has no memory of its own that a kernel could take.")
    values = [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in arguments]
    warps = math.prod(bundle.plan.evaluate([*values, 0]).grid) * made.warps
    words = warps * (HEADER_WORDS + RECORD_WORDS * made.events)
    try:
        return torch.zeros(words // 2, dtype=torch.int64, device=tensors[0].device if tensors else "cpu")
    except (MemoryError, RuntimeError) as error:
        raise InputError(
            f"a timeline of {made.events:,} records for each of {warps:,} warps takes {4 * words / 1e9:,.1f} GB, which "
            "are not free; compile with fewer records, or take a smaller problem."
        ) from error


def measured_timeline(bundle: Bundle, buffer: Tensor, gpu: str | None = None, sm: int | None = None) -> Timeline:
    """Return the measured timeline of one SM in the launch that wrote this buffer, in cycles of the SM.

    gpu: name for the title; None: the name of the buffer's GPU, or the emulator for a CPU buffer. The emulator's cycles
    count the instructions of all warps. sm: number of the SM (%smid); None: the SM with most events.

    Raises InputError for a bundle without a timeline, an empty buffer, rows with too few records, or an SM without
    events.
    """
    made = _marks(bundle)
    if not isinstance(buffer, torch.Tensor) or buffer.dtype != torch.int64 or buffer.is_meta or not has_memory(buffer):
        raise InputError(f"buffer is {shown(buffer)}; it must be the int64 tensor that timeline_buffer made.")
    if gpu is not None and plain_text(gpu) is None:
        raise InputError(f"gpu is {shown(gpu)}; it must be a name for the title, or None.")
    if sm is not None and integer(sm, 0, MOST_TIMELINE_SMS) is None:
        raise InputError(f"sm is {shown(sm)}; it must be the number of an SM, or None for the one with most events.")
    name = plain_text(gpu) or (torch.cuda.get_device_name(buffer.device) if buffer.is_cuda else EMULATED_TITLE)
    words = buffer.detach().cpu().contiguous().numpy().view(np.uint32)
    return measured(words, made, bundle.name, name, sm)


def _marks(bundle: Any) -> Marks:
    from blackwell_matmul.compiler import Bundle

    if not isinstance(bundle, Bundle):
        raise InputError(f"bundle is {shown(bundle)}; it must be a Bundle, which compile gives.")
    if bundle.marks is None:
        raise InputError(f"{bundle.name} was compiled without a timeline; compile it with timeline=4096, or as many.")
    return bundle.marks
