"""Scratch shared memory that reductions, shuffles and `tcgen05.alloc` use, one part for each group of threads.

tilus 0.2.0 gives the same bytes to all instructions of a kernel. If two groups of warps reduce across their warps at
the same time, their sums mix without an error, because nothing orders the groups. Removable when
`test_tilus_gives_all_groups_the_same_scratch_memory` of `tests/frontend/test_scratch_memory.py` fails.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tilus.backends.contexts.smem_alloc_ctx import SharedMemoryAllocationContext
from tilus.hidet.ir.builders import StmtBuilder
from tilus.hidet.ir.dtypes import uint8
from tilus.hidet.ir.expr import Var

from blackwell_matmul.frontend.faults.tilus_compat import given, mended

SCRATCH_ALIGNMENT_BYTES = 128
"""Alignment in bytes of each part and of the whole scratch memory."""


def scratch_of_each_group() -> AbstractContextManager[None]:
    """Give each thread group its own part of scratch memory. A group uses its part in program order, between syncs."""
    return mended(
        (SharedMemoryAllocationContext, "request_shared_workspace", lambda _: _request),
        (SharedMemoryAllocationContext, "finalize", given(_finalize)),
    )


def _request(context: Any, nbytes: int) -> Any:
    """Return the pointer to the scratch memory of the current group, with room for `nbytes`."""
    groups = context.codegen.thread_group_stack
    parts: dict[tuple[int, int], tuple[Any, int]] = vars(context).setdefault("scratch_parts", {})
    group = (groups.thread_begin[-1], groups.thread_end[-1])
    name = f"shared_workspace_{len(parts)}" if parts else "shared_workspace"
    pointer, room = parts.get(group) or (Var(name, type=~uint8), 0)
    parts[group] = pointer, max(room, nbytes)
    return pointer


def _finalize(finalize: Any, context: Any) -> None:
    """Place the parts one after the other and set the total of bytes, which tilus then allocates."""
    end = 0
    for pointer, nbytes in vars(context).get("scratch_parts", {}).values():
        begin = -(-end // SCRATCH_ALIGNMENT_BYTES) * SCRATCH_ALIGNMENT_BYTES
        end = begin + nbytes
        if context.shared_workspace_var is None:
            context.shared_workspace_var = pointer
            continue
        declared = StmtBuilder()
        declared.declare(pointer, init=context.shared_workspace_var + begin)
        context.kernel_prepend(declared.finish())
    context.shared_workspace_bytes = end
    finalize(context)
